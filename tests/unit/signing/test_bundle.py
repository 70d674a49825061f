"""Bundles of cosign 3 and simple signatures of cosign 2, and what is wrong with others."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from tests.support.signing_keys import write_pair
from trainwright.signing import bundle
from trainwright.signing.keys import SigningKey, load_key, load_public_key
from trainwright.site.site import Site

IMAGE, RECORD = "sha256:" + "a" * 64, "sha256:" + "b" * 64


@pytest.fixture
def key(tmp_path: Path) -> SigningKey:
    return load_key(write_pair(tmp_path)[0], Site(), "")


@pytest.fixture
def other(tmp_path: Path) -> Any:
    return load_public_key(write_pair(tmp_path, "other")[1], Site(), "")


def test_what_is_signed_is_the_example_of_the_protocol() -> None:
    """secure-systems-lab/dsse, implementation/ecdsa.py and protocol.md: PAE("http://example.com/HelloWorld", ...)."""
    assert bundle.signed_bytes("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


def test_a_bundle_is_what_cosign_reads(key: SigningKey) -> None:
    """sigstore/cosign: cmd/cosign/cli/sign/sign.go, pkg/cosign/verifiers.go, specs/BUNDLE_SPEC.md."""
    made = json.loads(bundle.make_bundle(key, IMAGE, [("record", RECORD)]))
    assert made["mediaType"] == "application/vnd.dev.sigstore.bundle.v0.3+json"
    envelope = made["dsseEnvelope"]
    assert envelope["payloadType"] == "application/vnd.in-toto+json"
    payload = base64.b64decode(envelope["payload"])
    assert json.loads(payload) == {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            {"digest": {"sha256": "a" * 64}},
            {"name": "record", "digest": {"sha256": "b" * 64}},
        ],
        "predicateType": "https://sigstore.dev/cosign/sign/v1",
        "predicate": {},
    }
    signature = base64.b64decode(envelope["signatures"][0]["sig"])
    signed = f"DSSEv1 28 application/vnd.in-toto+json {len(payload)} ".encode() + payload
    key.public.verify(signature, signed, ec.ECDSA(SHA256()))
    with pytest.raises(InvalidSignature):
        key.public.verify(signature, payload, ec.ECDSA(SHA256()))


def test_a_bundle_names_what_it_signs(key: SigningKey, other: Any) -> None:
    made = bundle.make_bundle(key, IMAGE, [("record", RECORD)])
    assert bundle.signed_by_bundle(made, [other, key.public]) == (key.public, frozenset({IMAGE, RECORD}))
    assert bundle.signed_by_bundle(made, [other]) is None
    assert bundle.signed_by_bundle(made, []) is None


def changed(made: bytes, **envelope: Any) -> bytes:
    said = json.loads(made)
    return json.dumps({**said, "dsseEnvelope": {**said["dsseEnvelope"], **envelope}}).encode()


def test_no_part_of_a_bundle_can_be_changed(key: SigningKey) -> None:
    made = bundle.make_bundle(key, IMAGE)
    payload = base64.b64decode(json.loads(made)["dsseEnvelope"]["payload"])
    moved = base64.b64encode(payload.replace(b"a" * 64, b"c" * 64)).decode()
    for broken in (
        changed(made, payload=moved),
        changed(made, payloadType="text/plain"),
        changed(made, signatures=[]),
        changed(made, signatures=[{"sig": base64.b64encode(b"x" * 70).decode()}]),
        changed(made, signatures=[{"sig": "?"}]),
        b"",
        b"[]",
        b'{"dsseEnvelope": null}',
    ):
        assert bundle.signed_by_bundle(broken, [key.public]) is None


def test_a_signed_statement_of_another_kind_is_no_signature(key: SigningKey) -> None:
    """What `cosign attest` signs says something about an image, be it that its tests failed."""
    statement = {"predicateType": "https://slsa.dev/provenance/v1", "subject": [{"digest": {"sha256": "a" * 64}}]}
    payload = json.dumps(statement).encode()
    signature = base64.b64encode(key.sign(bundle.signed_bytes("application/vnd.in-toto+json", payload))).decode()
    made = changed(
        bundle.make_bundle(key, IMAGE),
        payload=base64.b64encode(payload).decode(),
        signatures=[{"sig": signature}],
    )
    assert bundle.signed_by_bundle(made, [key.public]) is None


def simple(key: SigningKey, digest: str = IMAGE, kind: str = "cosign container image signature") -> tuple[bytes, str]:
    """As specs/SIGNATURE_SPEC.md and sigstore/sigstore, pkg/signature/payload/payload.go have it."""
    said = {"identity": {"docker-reference": "a"}, "image": {"docker-manifest-digest": digest}, "type": kind}
    payload = json.dumps({"critical": said, "optional": None}).encode()
    return payload, base64.b64encode(key.sign(payload)).decode()


def test_a_simple_signature(key: SigningKey, other: Any) -> None:
    payload, signature = simple(key)
    assert bundle.signed_simply(payload, signature, [other, key.public]) == (key.public, frozenset({IMAGE}))
    assert bundle.signed_simply(payload, signature, [other]) is None
    assert bundle.signed_simply(payload + b" ", signature, [key.public]) is None
    assert bundle.signed_simply(*simple(key, kind="atomic container signature"), [key.public]) is None
    # The rule of specs/SIGNATURE_SPEC.md, with its example.
    digest = "sha256:97fc222cee7991b5b061d4d4afdb5f3428fcb0c9054e1690313786befa1e4e36"
    assert bundle.simple_tag(digest) == ("sha256-97fc222cee7991b5b061d4d4afdb5f3428fcb0c9054e1690313786befa1e4e36.sig")
