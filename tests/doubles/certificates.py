"""A certificate authority of one test run, and the certificate that it signs for the emulated registry's names."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LIFETIME = datetime.timedelta(days=2)


@dataclass(frozen=True)
class Certificates:
    """Files in PEM: the authority's certificate, and certificate and key of the server."""

    authority: Path
    server: Path
    key: Path


def make_certificates(folder: Path, names: Sequence[str]) -> Certificates:
    """An authority and a server certificate for ``names`` (DNS names), as files in ``folder``."""
    authority_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Trainwright test authority")])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Trainwright emulated registry")])
    begin = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=5)

    def builder(name: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        made = x509.CertificateBuilder().subject_name(name).issuer_name(issuer).public_key(key.public_key())
        made = made.serial_number(x509.random_serial_number())
        return made.not_valid_before(begin).not_valid_after(begin + LIFETIME)

    authority = builder(issuer, authority_key).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
    server = builder(subject, server_key).add_extension(alternatives, critical=False)
    made = Certificates(folder / "authority.crt", folder / "server.crt", folder / "server.key")
    for path, unsigned in ((made.authority, authority), (made.server, server)):
        signed = unsigned.sign(authority_key, hashes.SHA256())
        path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    key = server_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    made.key.touch(mode=0o600)
    made.key.write_bytes(key)
    return made
