"""KMS signs digests, which moto hashes once more as if they were messages."""

from __future__ import annotations

import base64
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, padding, utils
from cryptography.hazmat.primitives.hashes import SHA256
from moto.kms.models import kms_backends


def signed_digest(account: str, region: str, asked: dict[str, Any]) -> dict[str, Any]:
    """The answer of Sign with the MessageType DIGEST (AWS KMS API reference, "Sign"), of keys that sign by SHA-256."""
    backend: Any = kms_backends[account][region]
    name = asked["KeyId"].removeprefix(f"arn:aws:kms:{region}:{account}:key/")
    key = backend.keys[backend.get_key_id_from_alias(name) if name.startswith("alias/") else name]
    digest, private = base64.b64decode(asked["Message"]), key.private_key.private_key
    by = utils.Prehashed(SHA256())
    if isinstance(private, ec.EllipticCurvePrivateKey):
        signature = private.sign(digest, ec.ECDSA(by))
    else:
        signature = private.sign(digest, padding.PKCS1v15(), by)
    algorithm = asked["SigningAlgorithm"]
    return {"KeyId": key.arn, "Signature": base64.b64encode(signature).decode(), "SigningAlgorithm": algorithm}
