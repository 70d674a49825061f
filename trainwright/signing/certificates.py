"""Chains of certificates as the Notary Project demands them of signatures (``specs/signature-specification.md``)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

_NOT_FOR_CODE = {
    *("2.5.29.37.0", "1.3.6.1.5.5.7.3.1", "1.3.6.1.5.5.7.3.2"),  # any, TLS servers, TLS clients
    *("1.3.6.1.5.5.7.3.4", "1.3.6.1.5.5.7.3.8"),  # e-mail, time stamps
}


def read_roots(data: bytes) -> list[Certificate]:
    """The certificates of a PEM file.

    Raises:
        ValueError: the file has no certificate, or a malformed one.
    """
    from cryptography.x509 import load_pem_x509_certificates

    return list(load_pem_x509_certificates(data))


def fault_of(chain: Sequence[Certificate], roots: Sequence[Certificate], at: datetime) -> str:
    """Why a chain is not one of a trusted signer at a time; empty if it is.

    Args:
        chain: the signer's certificate first, the root's last.
        roots: that are trusted.
        at: the time of signing if an authority vouches for it, otherwise now; with a time zone.
    """
    if not chain:
        return "it has no certificate"
    if chain[-1] not in roots:
        return f"the root {chain[-1].subject.rfc4514_string()} is not trusted"
    for place, each in enumerate(chain):
        issuer = chain[place + 1] if place + 1 < len(chain) else each
        # The first is the signer's even if it stands alone.
        why = _issue_fault(each, issuer, at) or (_authority_fault(each, place - 1) if place else _leaf_fault(each))
        if why:
            return f"the certificate of {each.subject.rfc4514_string()} {why}"
    return ""


def _issue_fault(certificate: Certificate, issuer: Certificate, at: datetime) -> str:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.hashes import SHA1

    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return f"is not issued by {issuer.subject.rfc4514_string()}"
    if isinstance(certificate.signature_hash_algorithm, SHA1):
        return "is signed by SHA-1"
    if not certificate.not_valid_before_utc <= at <= certificate.not_valid_after_utc:
        return f"is not valid at {at:%Y-%m-%d %H:%M} UTC"
    return ""


def _leaf_fault(leaf: Certificate) -> str:
    from cryptography.x509 import BasicConstraints, ExtendedKeyUsage, KeyUsage

    constraints, usage = _extension(leaf, BasicConstraints), _extension(leaf, KeyUsage)
    if constraints is not None and constraints.value.ca:
        return "is one of an authority"
    if usage is None or not usage.critical or not usage.value.digital_signature:
        return "is not for signatures"
    others = ("key_encipherment", "data_encipherment", "key_agreement", "key_cert_sign", "crl_sign")
    if any(getattr(usage.value, each) for each in others):
        return "is for other uses, too"
    extended = _extension(leaf, ExtendedKeyUsage)
    if extended is not None and any(each.dotted_string in _NOT_FOR_CODE for each in extended.value):
        return "is not for code"
    return _key_fault(leaf.public_key())


def _key_fault(key: Any) -> str:
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    if isinstance(key, rsa.RSAPublicKey):
        return "" if key.key_size >= 2048 else f"has a key of {key.key_size} bits"
    if isinstance(key, ec.EllipticCurvePublicKey):
        return "" if key.curve.key_size in (256, 384, 521) else "has a key on an unknown curve"
    return "has an unknown kind of key"


def _authority_fault(authority: Certificate, below: int) -> str:
    """``below``: the authorities between this one and the signer."""
    from cryptography.x509 import BasicConstraints, KeyUsage

    constraints, usage = _extension(authority, BasicConstraints), _extension(authority, KeyUsage)
    if constraints is None or not constraints.critical or not constraints.value.ca:
        return "is not one of an authority"
    if constraints.value.path_length is not None and constraints.value.path_length < below:
        return "allows fewer authorities below it"
    if usage is None or not usage.critical or not usage.value.key_cert_sign:
        return "is not for certificates"
    return ""


def _extension(certificate: Certificate, kind: Any) -> Any:
    from cryptography.x509 import ExtensionNotFound

    try:
        return certificate.extensions.get_extension_for_class(kind)
    except ExtensionNotFound:
        return None
