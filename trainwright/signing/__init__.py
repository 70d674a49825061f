"""Signatures of images: made with keys of cosign, in AWS KMS or by AWS Signer, and verified before an image is used."""
