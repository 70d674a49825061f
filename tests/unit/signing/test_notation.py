"""Signatures as Notation and AWS Signer make them, and what is wrong with others."""

from __future__ import annotations

import base64
import json
from datetime import timedelta
from typing import Any

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.unit.signing.conftest import DAY, NOW, Signatory, encoded, signatory, usage
from trainwright.push.ecr import ImageManifest
from trainwright.signing import notation
from trainwright.signing.notation import Trust, judge, payload_of

# The manifest of the example in notaryproject/specifications, specs/signature-envelope-jws.md (its digest and size).
DIGEST = "sha256:73c803930ea3ba1e54bc25c2bdc53edd0284c62ed651fe7b00369da519a3c333"
IMAGE = ImageManifest(DIGEST, "x" * 16724, "application/vnd.oci.image.manifest.v1+json")
# notaryproject/notation-core-go ef878962, signature/jws/testdata/conformance.json, "protected".
CONFORMANCE = (
    "eyJhbGciOiJFUzI1NiIsImNyaXQiOlsiaW8uY25jZi5ub3Rhcnkuc2lnbmluZ1NjaGVtZSIsInNpZ25lZENyaXRLZXkxIiwiaW8uY25jZi5ub3Rhcnku"
    "ZXhwaXJ5Il0sImN0eSI6ImFwcGxpY2F0aW9uL3ZuZC5jbmNmLm5vdGFyeS5wYXlsb2FkLnYxK2pzb24iLCJpby5jbmNmLm5vdGFyeS5leHBpcnkiOiIy"
    "MDk5LTA4LTMwVDEzOjUwOjAwWiIsImlvLmNuY2Yubm90YXJ5LnNpZ25pbmdTY2hlbWUiOiJub3RhcnkueDUwOSIsImlvLmNuY2Yubm90YXJ5LnNpZ25p"
    "bmdUaW1lIjoiMjAyMi0wOC0yOVQxMzo1MDowMFoiLCJzaWduZWRDcml0S2V5MSI6InNpZ25lZENyaXRWYWx1ZTEiLCJzaWduZWRLZXkxIjoic2lnbmVk"
    "VmFsdWUxIiwic2lnbmVkS2V5MiI6InNpZ25lZFZhbHVlMSIsInNpZ25lZEtleTMiOiJzaWduZWRWYWx1ZTEiLCJzaWduZWRLZXk0Ijoic2lnbmVkVmFs"
    "dWUxIn0"
)
PROFILE = "arn:aws:signer:us-west-2:123456789012:/signing-profiles/trainwright"
# What AWS Signer protects beyond the specification: aws/aws-signer-notation-plugin, internal/verifier/verifier.go.
SIGNER = {
    "io.cncf.notary.signingScheme": "notary.x509.signingAuthority",
    "io.cncf.notary.signingTime": None,
    "io.cncf.notary.authenticSigningTime": (NOW - 2 * DAY).isoformat(),
    "io.cncf.notary.verificationPlugin": "com.amazonaws.signer.notation.plugin",
    "com.amazonaws.signer.signingJob": "arn:aws:signer:us-west-2:123456789012:/signing-jobs/1",
    "com.amazonaws.signer.signingProfileVersion": f"{PROFILE}/abc",
    "crit": [
        "io.cncf.notary.signingScheme",
        "io.cncf.notary.authenticSigningTime",
        "io.cncf.notary.verificationPlugin",
        "com.amazonaws.signer.signingJob",
        "com.amazonaws.signer.signingProfileVersion",
    ],
}


@pytest.fixture(scope="module")
def signer() -> Signatory:
    return signatory()


def trust(who: Signatory, **more: Any) -> Trust:
    return Trust(**{"roots": who.chain[-1:], "authorities": [], "profiles": [], "revoked": lambda _: [], **more})


def authority(who: Signatory, **more: Any) -> Trust:
    return trust(who, **{"roots": [], "authorities": who.chain[-1:], "profiles": [PROFILE], **more})


def fault(who: Signatory, envelope: bytes, trusted: Trust | None = None) -> str:
    return judge(envelope, IMAGE, trusted or trust(who), NOW).fault


def test_what_is_signed_is_the_descriptor_of_the_specification() -> None:
    assert json.loads(payload_of(IMAGE)) == {
        "targetArtifact": {
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": DIGEST,
            "size": 16724,
        }
    }


def test_a_signature_of_a_trusted_authority_counts(signer: Signatory) -> None:
    verdict = judge(signer.envelope(payload_of(IMAGE)), IMAGE, trust(signer), NOW)
    assert (verdict.signer, verdict.fault) == ("CN=Signer", "")


def test_the_manifest_says_the_checksums_of_the_chain(signer: Signatory) -> None:
    said = json.loads(notation.thumbprints(signer.envelope(payload_of(IMAGE))))
    from cryptography.hazmat.primitives.hashes import SHA256

    assert said == [one.fingerprint(SHA256()).hex() for one in signer.chain]


def test_a_signature_that_was_made_for_another_image_does_not_count(signer: Signatory) -> None:
    other = ImageManifest("sha256:" + "0" * 64, IMAGE.text, IMAGE.media_type)
    assert "is the signature of sha256:0000" in fault(signer, signer.envelope(payload_of(other)))
    longer = ImageManifest(IMAGE.digest, IMAGE.text + " ", IMAGE.media_type)
    assert fault(signer, signer.envelope(payload_of(longer)))


@pytest.mark.parametrize("part", ["payload", "protected", "signature"])
def test_no_part_can_be_changed(signer: Signatory, part: str) -> None:
    envelope = json.loads(signer.envelope(payload_of(IMAGE)))
    raw = base64.urlsafe_b64decode(envelope[part] + "==")
    changed = raw[:-3] + bytes([raw[-3] ^ 1]) + raw[-2:]
    assert fault(signer, json.dumps({**envelope, part: encoded(changed)}).encode())


def test_what_the_conformance_test_of_notation_demands_is_read_and_unknown_here(signer: Signatory) -> None:
    said = json.loads(base64.urlsafe_b64decode(CONFORMANCE + "=="))
    assert "signedCritKey1" in fault(signer, signer.envelope(payload_of(IMAGE), **said))
    # All that it demands beyond the specification is that one.
    said["crit"].remove("signedCritKey1")
    assert fault(signer, signer.envelope(payload_of(IMAGE), **said)) == ""


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ({"alg": "ES384"}, "signature is not valid"),
        ({"alg": "none"}, "signature is not valid"),
        ({"cty": "text/plain"}, "payload is text/plain"),
        ({"crit": []}, "what is critical"),
        ({"io.cncf.notary.signingScheme": "notary.other"}, "scheme is notary.other"),
        ({"io.cncf.notary.signingTime": None}, "time"),
        ({"crit": None}, "malformed"),
        ({"io.cncf.notary.expiry": "2099-08-30T13:50:00Z"}, "what is critical"),
        (
            {
                "io.cncf.notary.expiry": (NOW - timedelta(hours=1)).isoformat(),
                "crit": ["io.cncf.notary.signingScheme", "io.cncf.notary.expiry"],
            },
            "has expired",
        ),
        (
            {
                "io.cncf.notary.verificationPlugin": "com.example.nv2plugin",
                "crit": ["io.cncf.notary.signingScheme", "io.cncf.notary.verificationPlugin"],
            },
            "by the plugin com.example.nv2plugin",
        ),
    ],
)
def test_a_header_that_the_specification_refuses(signer: Signatory, header: dict[str, Any], says: str) -> None:
    assert says in fault(signer, signer.envelope(payload_of(IMAGE), **header))


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"extended": ExtendedKeyUsageOID.SERVER_AUTH}, "is not for code"),
        ({"leaf_usage": usage(content_commitment=True)}, "is not for signatures"),
        ({"leaf_usage": usage(digital_signature=True, key_cert_sign=True)}, "for other uses"),
        ({"ca": False}, "is not one of an authority"),
        ({"ends": NOW - DAY}, "is not valid at"),
    ],
)
def test_a_chain_that_the_specification_refuses(how: dict[str, Any], says: str) -> None:
    other = signatory(**how)
    assert says in fault(other, other.envelope(payload_of(IMAGE)))


def test_only_trusted_roots_count_and_each_certificate_has_to_be_of_the_next(signer: Signatory) -> None:
    other = signatory()
    assert "is not trusted" in fault(signer, other.envelope(payload_of(IMAGE)))
    mixed = Signatory(other.key, [other.chain[0], signer.chain[-1]])
    assert "is not issued by" in fault(signer, mixed.envelope(payload_of(IMAGE)))


# --- AWS Signer -------------------------------------------------------------------------------------------------------


def test_a_signature_of_aws_signer_counts_if_its_profile_does(signer: Signatory) -> None:
    envelope = signer.envelope(payload_of(IMAGE), **SIGNER)
    assert judge(envelope, IMAGE, authority(signer), NOW).signer == f"{PROFILE}/abc"
    assert fault(signer, envelope, authority(signer)) == ""
    assert fault(signer, envelope, authority(signer, profiles=[f"{PROFILE}/abc"])) == ""
    for other in ([], [f"{PROFILE}/abd"], [PROFILE.replace("trainwright", "train")]):
        assert "profile" in fault(signer, envelope, authority(signer, profiles=other))


def test_an_authority_of_certificates_is_not_one_of_signatures(signer: Signatory) -> None:
    """Who has a certificate could otherwise choose the time at which it was valid."""
    envelope = signer.envelope(payload_of(IMAGE), **SIGNER)
    assert "is not trusted" in fault(signer, envelope, trust(signer, profiles=[PROFILE]))
    assert "is not trusted" in fault(signer, signer.envelope(payload_of(IMAGE)), authority(signer))


def test_an_authority_vouches_for_a_time_at_which_the_chain_was_valid() -> None:
    ended = signatory(ends=NOW - DAY)
    envelope = ended.envelope(payload_of(IMAGE), **SIGNER)  # signed two days ago
    assert fault(ended, envelope, authority(ended)) == ""


def test_what_aws_signer_has_revoked_does_not_count(signer: Signatory) -> None:
    asked: list[Any] = []

    def revoked(words: Any) -> list[str]:
        asked.append(words)
        return [f"{PROFILE}/abc"]

    envelope = signer.envelope(payload_of(IMAGE), **SIGNER)
    assert "revoked" in fault(signer, envelope, authority(signer, revoked=revoked))
    (words,) = asked
    # The plugin's hashCertificates: sha384 of each certificate's signed part, followed by its issuer's.
    first, second = words["certificateHashes"]
    assert [len(first), len(second)] == [192, 192]
    assert first[96:] == second[:96] == second[96:]
    assert words["platformId"] == "Notation-OCI-SHA384-ECDSA"
