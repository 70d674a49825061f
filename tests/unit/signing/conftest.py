"""A repository whose images can be signed, and chains of certificates as the Notary Project demands them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.support.tag_race import KIND, Repository, image
from trainwright.push.ecr import ImageManifest, Referrer
from trainwright.push.registry import Registry
from trainwright.signing import verify
from trainwright.site.site import Signing, Site

NOW = datetime.now(UTC)
DAY = timedelta(days=1)


class SignedRepository(Repository):
    """With whole manifests of attached documents, as :meth:`trainwright.push.registry.Registry.attach` makes them."""

    host, repository, region = "registry", "team/x", "us-west-2"

    def __init__(self) -> None:
        super().__init__()
        self.blobs: dict[str, bytes] = {}

    @property
    def _ecr(self) -> SignedRepository:
        return self

    single = Registry.single

    def blob(self, digest: str) -> bytes:
        return self.blobs[digest]

    def keep(self, content: bytes) -> str:
        digest = f"sha256:{sha256(content).hexdigest()}"
        self.blobs[digest] = content
        return digest

    def document(self, digest: str) -> bytes:
        found = self.images.find(self.record, digest)
        return self.blobs[json.loads(found.image_manifest)["layers"][0]["digest"]]

    def referrers(self, digest: str, kind: str | None = None) -> list[Referrer]:
        found = self.images.referrers(self.record, digest)
        rows = [Referrer(one["digest"], one["artifactType"], one["annotations"]) for one in found]
        return [row for row in rows if kind in (None, row.kind)]

    def attach(
        self,
        subject: ImageManifest,
        content: bytes,
        kind: str,
        notes: Mapping[str, str],
        *,
        tag: str | None = None,
        artifact: str = "",
    ) -> str:
        body = {
            "artifactType": artifact or kind,
            "layers": [{"mediaType": kind, "digest": self.keep(content)}],
            "subject": {"digest": subject.digest},
            "annotations": dict(notes),
        }
        text = json.dumps(body)
        made = manifest_of(text)
        self.add(made, tag)
        return made.digest


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The repository, which the gate finds at every address; ``here.image`` is an image in it."""
    repository = cast(Any, SignedRepository())
    repository.image, _ = image("2.6.0", 1)
    repository.add(repository.image)
    monkeypatch.setattr(verify, "Ecr", lambda *_: repository)
    monkeypatch.setattr(verify, "Registry", lambda *_, **__: repository)
    yield repository


def gate(**signing: Any) -> verify.SignatureGate:
    return verify.SignatureGate(Signing(**signing), Site())


@dataclass
class Signatory:
    """Who signs as Notation does: a chain of two certificates, and the key of the first."""

    key: ec.EllipticCurvePrivateKey
    chain: list[x509.Certificate]

    def envelope(self, payload: bytes, **header: Any) -> bytes:
        """A JWS envelope; ``header`` replaces what is protected (``None`` leaves a key out)."""
        said = {
            "alg": "ES256",
            "cty": "application/vnd.cncf.notary.payload.v1+json",
            "io.cncf.notary.signingScheme": "notary.x509",
            "io.cncf.notary.signingTime": NOW.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "crit": ["io.cncf.notary.signingScheme"],
        }
        said = {name: value for name, value in {**said, **header}.items() if value is not None}
        first, second = encoded(json.dumps(said).encode()), encoded(payload)
        halves = utils.decode_dss_signature(self.key.sign(f"{first}.{second}".encode(), ec.ECDSA(hashes.SHA256())))
        signature = b"".join(half.to_bytes(32, "big") for half in halves)
        chain = [base64.b64encode(one.public_bytes(serialization.Encoding.DER)).decode() for one in self.chain]
        return json.dumps(
            {"payload": second, "protected": first, "header": {"x5c": chain}, "signature": encoded(signature)}
        ).encode()

    def root(self, folder: Path) -> str:
        path = folder / f"root-{id(self)}.pem"
        path.write_bytes(self.chain[-1].public_bytes(serialization.Encoding.PEM))
        return str(path)


def manifest_of(text: str) -> ImageManifest:
    return ImageManifest(f"sha256:{sha256(text.encode()).hexdigest()}", text, KIND)


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def usage(**used: bool) -> x509.KeyUsage:
    names = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    names += ("key_cert_sign", "crl_sign", "encipher_only", "decipher_only")
    return x509.KeyUsage(**{name: used.get(name, False) for name in names})


def signatory(
    *,
    extended: Any = ExtendedKeyUsageOID.CODE_SIGNING,
    leaf_usage: x509.KeyUsage | None = None,
    ca: bool = True,
    ends: datetime = NOW + DAY,
) -> Signatory:
    """Somebody with a certificate for code of an authority of its own."""
    root_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)]) for text in ("Root", "Signer")]

    def build(name: x509.Name, public: Any) -> x509.CertificateBuilder:
        made = x509.CertificateBuilder().subject_name(name).issuer_name(names[0]).public_key(public)
        return made.serial_number(x509.random_serial_number()).not_valid_before(NOW - 9 * DAY).not_valid_after(ends)

    root = build(names[0], root_key.public_key())
    root = root.add_extension(x509.BasicConstraints(ca=ca, path_length=0 if ca else None), critical=True)
    root = root.add_extension(usage(key_cert_sign=True), critical=True)
    leaf = build(names[1], key.public_key())
    leaf = leaf.add_extension(leaf_usage or usage(digital_signature=True), critical=True)
    leaf = leaf.add_extension(x509.ExtendedKeyUsage([extended]), critical=False)
    return Signatory(key, [leaf.sign(root_key, hashes.SHA256()), root.sign(root_key, hashes.SHA256())])
