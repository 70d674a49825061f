"""Signs images in a registry, and with each the documents of its proof."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainwright.core.errors import RequestError
from trainwright.push.attest import Attestation
from trainwright.push.ecr import Ecr, ImageManifest, aws_client
from trainwright.push.push import Sign
from trainwright.push.refusals import aws_failure
from trainwright.push.registry import Registry
from trainwright.signing import bundle, notation
from trainwright.signing.keys import load_key, need_cryptography
from trainwright.site.site import Site

_PROFILE = re.compile(
    r"arn:aws[a-z-]*:signer:(?P<region>[a-z0-9-]+):(?P<account>[0-9]{12}):/signing-profiles/(?P<name>[^/]+)"
)


def signer(reference: str, site: Site, region: str) -> Sign:
    """What signs an image: takes its repository, its manifest, and name and digest of the attached documents.

    It returns the digest of the signature. An image that the key has signed with the same documents is left as it is. A
    signature by AWS Signer is of the image alone.

    Args:
        reference: a file with a private key, ``awskms:///KEY``, or the ARN of a signing profile.
        site: for connections.
        region: of KMS, unless the reference is an ARN.

    Raises:
        RequestError: the key cannot be read.
        RegistryRefused: AWS refused.
    """
    if reference.startswith("arn:"):
        return _by_aws_signer(reference, site)
    key = load_key(reference, site, region)

    def attach(ecr: Ecr, registry: Registry, image: ImageManifest, documents: Sequence[tuple[str, str]]) -> str:
        wanted = {image.digest, *(digest for _, digest in documents)}
        for one in ecr.referrers(image.digest, bundle.MEDIA_TYPE):
            there = bundle.signed_by_bundle(registry.document(one.digest), [key.public])
            if there is not None and there[1] >= wanted:
                return one.digest
        content = bundle.make_bundle(key, image.digest, documents)
        return Attestation("signature", bundle.MEDIA_TYPE, content, bundle.NOTES).attach(registry, image)

    return attach


def _by_aws_signer(profile: str, site: Site) -> Sign:
    from botocore.exceptions import BotoCoreError, ClientError

    need_cryptography()
    found = _PROFILE.fullmatch(profile)
    if found is None:
        raise RequestError(
            f"{profile}: not a signing profile of AWS Signer",
            remedy="For example: arn:aws:signer:us-west-2:123456789012:/signing-profiles/trainwright",
        )
    client = aws_client("signer", found["region"], site)

    def attach(ecr: Ecr, registry: Registry, image: ImageManifest, _: Sequence[tuple[str, str]]) -> str:
        for one in ecr.referrers(image.digest, notation.ARTIFACT):
            # Signer signs for money, and a signature by one profile is like any other.
            if found["name"] in notation.profile_of(registry.document(one.digest)).split("/"):
                return one.digest
        try:
            answer = client.sign_payload(
                profileName=found["name"],
                profileOwner=found["account"],
                payload=notation.payload_of(image),
                payloadFormat=notation.PAYLOAD,
            )
        except (BotoCoreError, ClientError) as error:
            raise aws_failure(error, action="signer:SignPayload", where=profile) from None
        envelope: bytes = answer["signature"]
        notes = {notation.THUMBPRINTS: notation.thumbprints(envelope)}
        made = Attestation("signature", notation.ENVELOPE, envelope, notes, notation.ARTIFACT)
        return made.attach(registry, image)

    return attach
