"""Signatures of the Notary Project, as Notation and AWS Signer make them: JWS envelopes with a chain of certificates.

Formats: notaryproject/specifications ``signature-envelope-jws.md`` and ``signature-specification.md``. What a signature
of AWS Signer demands beyond them is done as AWS's own plugin does it (aws/aws-signer-notation-plugin,
``internal/verifier/verifier.go``): the signing profile is one that is trusted, and Signer says that nothing was
revoked. Neither envelopes in COSE nor time stamps of other authorities are read: without a signing authority, a chain
has to be valid today.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from trainwright.push.ecr import ImageManifest
from trainwright.signing.certificates import fault_of
from trainwright.signing.keys import sized

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

ARTIFACT = "application/vnd.cncf.notary.signature"
ENVELOPE = "application/jose+json"
PAYLOAD = "application/vnd.cncf.notary.payload.v1+json"
THUMBPRINTS = "io.cncf.notary.x509chain.thumbprint#S256"
PLATFORM = "Notation-OCI-SHA384-ECDSA"  # of AWS Signer
_SCHEME, _EXPIRY = "io.cncf.notary.signingScheme", "io.cncf.notary.expiry"
_TIME, _AUTHENTIC = "io.cncf.notary.signingTime", "io.cncf.notary.authenticSigningTime"
_PLUGIN, _PLUGIN_VERSION = "io.cncf.notary.verificationPlugin", "io.cncf.notary.verificationPluginMinVersion"
_SIGNER = "com.amazonaws.signer.notation.plugin"
_JOB, _PROFILE = "com.amazonaws.signer.signingJob", "com.amazonaws.signer.signingProfileVersion"
_KNOWN = {_SCHEME, _EXPIRY, _TIME, _AUTHENTIC, _PLUGIN, _PLUGIN_VERSION, _JOB, _PROFILE}


@dataclass(frozen=True)
class Trust:
    """Whose signatures count.

    Attributes:
        roots: authorities of certificates (trust stores of type ``ca``).
        authorities: signing authorities (type ``signingAuthority``), such as AWS Signer. They are apart, as whoever has
            a certificate of an authority could otherwise choose the time of signing.
        profiles: ARNs of signing profiles of AWS Signer, or of versions of them.
        revoked: asks AWS Signer, by the words of GetRevocationStatus; returns what is revoked.
    """

    roots: Sequence[Certificate]
    authorities: Sequence[Certificate]
    profiles: Sequence[str]
    revoked: Callable[[Mapping[str, Any]], Sequence[str]]


@dataclass(frozen=True)
class Judgement:
    """``signer`` is the subject of the certificate, or AWS Signer's profile; ``fault`` is empty if it is trusted."""

    signer: str
    fault: str


def payload_of(image: ImageManifest) -> bytes:
    """What a signature signs: the descriptor of a manifest."""
    artifact = {"mediaType": image.media_type, "digest": image.digest, "size": len(image.text.encode())}
    return json.dumps({"targetArtifact": artifact}, separators=(",", ":")).encode()


def judge(envelope: bytes, image: ImageManifest, trust: Trust, now: datetime) -> Judgement:
    """Whether an envelope is a trusted signature of an image.

    Args:
        envelope: JWS in its flattened form.
        image: that it is attached to.
        trust: whose signatures count.
        now: with a time zone.
    """
    from cryptography.x509 import load_der_x509_certificate

    try:
        jws = json.loads(envelope)
        chain = [load_der_x509_certificate(base64.b64decode(one)) for one in jws["header"]["x5c"]]
        said = json.loads(_decoded(jws["protected"]))
        target = json.loads(_decoded(jws["payload"]))["targetArtifact"]
        signature = _decoded(jws["signature"])
        data = f"{jws['protected']}.{jws['payload']}".encode()
        signer = chain[0].subject.rfc4514_string()
        fault = _envelope_fault(said, chain, signature, data) or _time_fault(said, chain, trust, now)
        if not fault and said.get(_PLUGIN):
            signer = str(said.get(_PROFILE) or signer)
            fault = _signer_fault(said, chain, trust)
        if not fault and (target["digest"], target["size"]) != (image.digest, len(image.text.encode())):
            fault = f"it is the signature of {target['digest']}"
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, binascii.Error) as wrong:
        return Judgement("", f"its envelope is malformed: {type(wrong).__name__}: {wrong}")
    return Judgement(signer, fault)


def profile_of(envelope: bytes) -> str:
    """The signing profile of AWS Signer that an envelope says it is by; empty if it says nothing."""
    try:
        return str(json.loads(_decoded(json.loads(envelope)["protected"])).get(_PROFILE, ""))
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""


def thumbprints(envelope: bytes) -> str:
    """The annotation of a signature's manifest: the sha256 of each certificate of its envelope."""
    found = [hashlib.sha256(base64.b64decode(one)).hexdigest() for one in json.loads(envelope)["header"]["x5c"]]
    return json.dumps(found, separators=(",", ":"))


def _envelope_fault(said: Mapping[str, Any], chain: Sequence[Certificate], signature: bytes, data: bytes) -> str:
    """Why an envelope is not what the specification demands, or not signed by the first certificate."""
    critical = said["crit"]
    if said.get("cty") != PAYLOAD:
        return f"its payload is {said.get('cty')}"
    if _SCHEME not in critical or (_EXPIRY in said and _EXPIRY not in critical):
        return "it does not name what is critical"
    if unknown := sorted(set(critical) - _KNOWN):
        return f"it demands what is unknown here: {', '.join(unknown)}"
    if missing := sorted(set(critical) - set(said)):
        return f"it lacks {', '.join(missing)}"
    return "" if _signed(chain[0].public_key(), str(said["alg"]), signature, data) else "its signature is not valid"


def _signed(key: Any, algorithm: str, signature: bytes, data: bytes) -> bool:
    """Whether a signature is that of a key, by the one algorithm that goes with the key."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils

    try:
        if isinstance(key, ec.EllipticCurvePublicKey):
            by, length = sized(key.curve.key_size), (key.curve.key_size + 7) // 8
            if algorithm != f"ES{by.digest_size * 8}" or len(signature) != 2 * length:
                return False
            halves = (int.from_bytes(signature[:length], "big"), int.from_bytes(signature[length:], "big"))
            key.verify(utils.encode_dss_signature(*halves), data, ec.ECDSA(by))
            return True
        if isinstance(key, rsa.RSAPublicKey):
            # PS256 goes with 2048 bits, PS384 with 3072, PS512 with 4096.
            by = sized({2048: 256, 3072: 384, 4096: 512}.get(key.key_size, 0) or 512)
            if algorithm != f"PS{by.digest_size * 8}":
                return False
            key.verify(signature, data, padding.PSS(padding.MGF1(by), by.digest_size), by)
            return True
    except InvalidSignature:
        return False
    return False


def _time_fault(said: Mapping[str, Any], chain: Sequence[Certificate], trust: Trust, now: datetime) -> str:
    """Why the chain is not trusted at the time that counts, or the signature has expired."""
    if said[_SCHEME] == "notary.x509":
        if _AUTHENTIC in said or _TIME not in said:
            return "its time is not that of its scheme"
        at, roots = now, trust.roots
    elif said[_SCHEME] == "notary.x509.signingAuthority":
        if _TIME in said or _AUTHENTIC not in said["crit"]:
            return "its time is not that of its scheme"
        at, roots = datetime.fromisoformat(said[_AUTHENTIC]).astimezone(UTC), trust.authorities
    else:
        return f"its scheme is {said[_SCHEME]}"
    if _EXPIRY in said and now >= datetime.fromisoformat(said[_EXPIRY]).astimezone(UTC):
        return f"it has expired ({said[_EXPIRY]})"
    return fault_of(chain, roots, at)


def _signer_fault(said: Mapping[str, Any], chain: Sequence[Certificate], trust: Trust) -> str:
    """What AWS Signer's plugin would refuse."""
    if said[_PLUGIN] != _SIGNER:
        return f"it has to be verified by the plugin {said[_PLUGIN]}"
    profile = str(said[_PROFILE])
    if not any(
        profile.lower() == each.lower() or profile.rpartition("/")[0].lower() == each.lower() for each in trust.profiles
    ):
        return f"the signing profile {profile} is not trusted"
    hashes = [hashlib.sha384(each.tbs_certificate_bytes).hexdigest() for each in chain]
    words = {
        "certificateHashes": [one + issuer for one, issuer in zip(hashes, [*hashes[1:], hashes[-1]], strict=True)],
        "jobArn": said[_JOB],
        "platformId": PLATFORM,
        "profileVersionArn": profile,
        "signatureTimestamp": datetime.fromisoformat(said[_AUTHENTIC]),
    }
    revoked = trust.revoked(words)
    return f"revoked: {', '.join(revoked)}" if revoked else ""


def _decoded(text: str) -> bytes:
    """Base64url without padding (RFC 7515, appendix C)."""
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
