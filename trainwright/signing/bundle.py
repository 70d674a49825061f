"""Signatures as cosign 3 attaches them: Sigstore bundles around an in-toto statement about the image's digest.

Formats: sigstore/cosign ``specs/BUNDLE_SPEC.md`` and ``cmd/cosign/cli/sign/sign.go``; the envelope and what of it is
signed: secure-systems-lab/dsse ``protocol.md``. cosign 2 signs the digest itself ("simple signing") and keeps it under
the tag ``sha256-DIGEST.sig`` (``specs/SIGNATURE_SPEC.md``); such signatures are read, and none are made.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

from trainwright.signing.keys import SigningKey, der, verifies

MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
PREDICATE = "https://sigstore.dev/cosign/sign/v1"
PREDICATE_NOTE = "dev.sigstore.bundle.predicateType"
NOTES = {"dev.sigstore.bundle.content": "dsse-envelope", PREDICATE_NOTE: PREDICATE}
SIMPLE_SIGNING = "application/vnd.dev.cosign.simplesigning.v1+json"
SIMPLE_SIGNATURE = "dev.cosignproject.cosign/signature"  # annotation of a layer
_STATEMENT = "application/vnd.in-toto+json"


def make_bundle(key: SigningKey, image: str, documents: Sequence[tuple[str, str]] = ()) -> bytes:
    """A signature of an image and of documents that are attached to it.

    Args:
        key: signs.
        image: the digest of its manifest (``sha256:…``).
        documents: a name and the digest of the manifest of each.
    """
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        # As cosign writes it, the image has no name.
        "subject": [_subject(image), *({"name": name, **_subject(digest)} for name, digest in documents)],
        "predicateType": PREDICATE,
        "predicate": {},
    }
    payload = json.dumps(statement, separators=(",", ":")).encode()
    signature = base64.b64encode(key.sign(signed_bytes(_STATEMENT, payload))).decode()
    bundle = {
        "mediaType": MEDIA_TYPE,
        "verificationMaterial": {"publicKey": {"hint": hint(key.public)}},
        "dsseEnvelope": {
            "payload": base64.b64encode(payload).decode(),
            "payloadType": _STATEMENT,
            "signatures": [{"sig": signature}],
        },
    }
    return json.dumps(bundle, separators=(",", ":")).encode()


def _subject(digest: str) -> dict[str, Any]:
    return {"digest": {"sha256": digest.removeprefix("sha256:")}}


def signed_by_bundle(content: bytes, keys: Iterable[Any]) -> tuple[Any, frozenset[str]] | None:
    """What a bundle signs.

    Args:
        content: of the bundle.
        keys: public keys that are trusted.

    Returns:
        The key, and the digests (``sha256:…``) of the manifests; ``None`` if it is not a signature by one of the keys.
    """
    try:
        envelope = json.loads(content)["dsseEnvelope"]
        payload = base64.b64decode(envelope["payload"], validate=True)
        signatures = [base64.b64decode(one["sig"], validate=True) for one in envelope["signatures"]]
        if envelope["payloadType"] != _STATEMENT:
            return None
        data = signed_bytes(_STATEMENT, payload)
        key = next((key for key in keys for one in signatures if verifies(key, one, data)), None)
        # Nothing of the statement counts before its signature does.
        said = json.loads(payload) if key is not None else {}
        if key is None or said["predicateType"] != PREDICATE:
            return None
        return key, frozenset(f"sha256:{one['digest']['sha256']}" for one in said["subject"])
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error):
        return None


def signed_simply(payload: bytes, signature: str, keys: Iterable[Any]) -> tuple[Any, frozenset[str]] | None:
    """What a signature of cosign 2 signs, like :func:`signed_by_bundle`.

    Args:
        payload: the signed document.
        signature: of it, in base64.
        keys: public keys that are trusted.
    """
    try:
        raw = base64.b64decode(signature, validate=True)
        key = next((key for key in keys if verifies(key, raw, payload)), None)
        said = json.loads(payload)["critical"] if key is not None else {}
        if key is None or said["type"] != "cosign container image signature":
            return None
        return key, frozenset({str(said["image"]["docker-manifest-digest"])})
    except (ValueError, KeyError, TypeError, binascii.Error):
        return None


def simple_tag(digest: str) -> str:
    """The tag under which cosign 2 keeps the signatures of a manifest."""
    return f"{digest.replace(':', '-')}.sig"


def hint(public: Any) -> str:
    """What a bundle says of its key: the sha256 of the public key (cosign, ``internal/key/svkeypair.go``)."""
    return base64.b64encode(hashlib.sha256(der(public)).digest()).decode()


def hint_of(content: bytes) -> str:
    """Which key a bundle says it is signed by; empty if it says nothing."""
    try:
        return str(json.loads(content)["verificationMaterial"]["publicKey"]["hint"])
    except (ValueError, KeyError, TypeError):
        return ""


def signed_bytes(kind: str, payload: bytes) -> bytes:
    """What an envelope's signature signs (DSSE's pre-authentication encoding)."""
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind.encode(), len(payload), payload)
