"""Keys of cosign, with cosign's and Sigstore's own examples, and keys in AWS KMS."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from tests.doubles.api import Api, served
from tests.doubles.faults import Faults
from tests.doubles.images import Images
from tests.doubles.tokens import Tokens
from trainwright.core.errors import RegistryRefused, RequestError
from trainwright.push.ecr import aws_client
from trainwright.signing.bundle import hint
from trainwright.signing.keys import load_key, load_public_key, verifies
from trainwright.site.site import Site

# sigstore/cosign d6d86c22, pkg/cosign/keys_test.go: pemcosignkey, pemcosigneckey, pemsigstorekey. Their password is in
# TestReadingPrivatePemTypes.
PASSWORD = "hello"
KEYS = {
    "COSIGN": """-----BEGIN ENCRYPTED COSIGN PRIVATE KEY-----
eyJrZGYiOnsibmFtZSI6InNjcnlwdCIsInBhcmFtcyI6eyJOIjozMjc2OCwiciI6
OCwicCI6MX0sInNhbHQiOiJ4WWdoc09JTUxUWGNOT0RsclNIOUNKc1FlOVFnZmN1
cmUrMXlLdHh1TlkwPSJ9LCJjaXBoZXIiOnsibmFtZSI6Im5hY2wvc2VjcmV0Ym94
Iiwibm9uY2UiOiI0cS9PSlVmaXJkSUkrUjZ0ajZBMmcyQ0JqL25xdFNicCJ9LCJj
aXBoZXJ0ZXh0IjoiKzB4Q3NzcFN0WStBczdKanJpOWtsbHBWd2JhcUI4ZWJNdWto
eS9aVE1MSXRsL3B1YS9jWVJvbytLRGxMWWdmOW1kSjk4K1FnQW9oTktoYnJPMTcw
MHdBY1JTMjFDOE4zQUNJRUVZaWpOMllBNnMraGJSbkhjUnd4eGhDMDFtb2FvL0dO
Y1pmbEJheXZMV3pXblo4d2NDZ2ZpT1o1VXlRTEFJMHh0dnR6dEh3cTdDV1Vhd3V4
RlhlNDZzck9TUE9SNHN6bytabWErUGovSFE9PSJ9
-----END ENCRYPTED COSIGN PRIVATE KEY-----""",
    "SEC1": """-----BEGIN ENCRYPTED COSIGN PRIVATE KEY-----
eyJrZGYiOnsibmFtZSI6InNjcnlwdCIsInBhcmFtcyI6eyJOIjo2NTUzNiwiciI6
OCwicCI6MX0sInNhbHQiOiJHK3F5WTYrNzhNS0JzMXNGTGs1ajYwcS9kS3Z1czBW
VkhlSHZybC9POTF3PSJ9LCJjaXBoZXIiOnsibmFtZSI6Im5hY2wvc2VjcmV0Ym94
Iiwibm9uY2UiOiJRc2JGdG13WDRDK2ttV3ZCcVRaMEFGOUFYdk1jRmg1SCJ9LCJj
aXBoZXJ0ZXh0IjoiREM5T28zeldiYVQzSXYwdFVnWEdycjUxYW1samwwNlQ5MTNP
VkxPbWpuMWhnK2o2WXRUbWg3SGhZSlY1N2J5eGE0Q281bE9YYmRqbTJ3aklubEd1
Um5aZCt5OExnekpSNzFSeEhKVzgrWmRlcFJmYWJMTjdHbDgrSFZEcERVQ3NxQnRh
VngyblpGbFEwWUl1anZwbFphblNGaUVvdERLVGkxZ3VhUXIwUHNzYU01NXZxbTRY
WS9rPSJ9
-----END ENCRYPTED COSIGN PRIVATE KEY-----""",
    "SIGSTORE": """-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----
eyJrZGYiOnsibmFtZSI6InNjcnlwdCIsInBhcmFtcyI6eyJOIjozMjc2OCwiciI6
OCwicCI6MX0sInNhbHQiOiI3T3VGd2VsbWZZNXVId2NoaURSc210anNwZ2ZlZjFG
Mk5lOGFDTjVLYVpZPSJ9LCJjaXBoZXIiOnsibmFtZSI6Im5hY2wvc2VjcmV0Ym94
Iiwibm9uY2UiOiJQNHk4OGhCb3ZTa09MbXN0bFVBaGJwdDJ0K2xTNUxQSCJ9LCJj
aXBoZXJ0ZXh0IjoiMnB1QzdyZldJOWh3bnJlQ2s4aUZDRlVwQlRrSzRJNlIvbFBF
cnBDekpXUGpJWXl4eGVIL1A2VW52cFJHdVhla1NNb3JMdGhLamdoQ1JlNy82NDVH
QWtoVm1LRC92eEF0S2EvbE1abENSQ3FlekJGUFd1dzNpeFRtZ2xhb2J1ZFVSbUVs
bmNGOGlZbzBTMVl6Y1ZOMVFwY2J2c0dNcUlYRzVlbmdteGp5dCtBcXlyZTF0Q0Y0
V01tU1BlaEljNlBqd2h1Q2xHaVpJUWRvTGc9PSJ9
-----END ENCRYPTED SIGSTORE PRIVATE KEY-----""",
}
# sigstore/sigstore-conformance a73de497, test/assets/bundle-verify/managed-key-happy-path: key.pub, and of the bundle
# the hint and the signature; it is of test/assets/a.txt.
PUBLIC = """-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAExRRST79+PsrRBnGAI4cMu6Omz2Jh
fwlMW+gIutNKVRaMyS4rQKvgngc5p8UbLj55pVHhIoAxi/SRgURZI0J3Xw==
-----END PUBLIC KEY-----
"""
HINT = "TLMsSDfG3ajPsWge+z/vX5T/zluXnmvbkTkwLIV68Tk="
SIGNATURE = "MEUCIQCACfhpIX3+zVXJjwEeIS0yFTK2jRfBjduXAaLHJSARHAIgSUdTM+S5xucODRFtrGHN2uClS0MRPhqZm76g0ZHEQ5c="
SIGNED = (
    b"DO NOT MODIFY ME!\n\n"
    b'this is "a.txt", a sample input for sigstore-conformance\'s test suite.\n\n'
    b"DO NOT MODIFY ME!\n"
)
REGION = "us-west-2"


@pytest.mark.parametrize("name", KEYS)
def test_a_private_key_of_cosign_opens_with_its_password(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cosign.key"
    path.write_text(KEYS[name])
    monkeypatch.setenv("COSIGN_PASSWORD", PASSWORD)
    key = load_key(str(path), Site(), REGION)
    assert isinstance(key.public, ec.EllipticCurvePublicKey)
    assert verifies(key.public, key.sign(b"data"), b"data")
    monkeypatch.setenv("COSIGN_PASSWORD", "wrong")
    with pytest.raises(RequestError, match="another password"):
        load_key(str(path), Site(), REGION)


def test_a_signature_of_the_conformance_suite() -> None:
    public = load_pem_public_key(PUBLIC.encode())
    assert hint(public) == HINT
    assert verifies(public, base64.b64decode(SIGNATURE), SIGNED)
    assert not verifies(public, base64.b64decode(SIGNATURE), SIGNED + b"\n")


@pytest.mark.parametrize("text", ["", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", PUBLIC])
def test_what_is_no_private_key(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.key").write_text(text)
    with pytest.raises(RequestError, match="no private key"):
        load_key(str(tmp_path / "a.key"), Site(), REGION)
    with pytest.raises(RequestError, match="no such file"):
        load_key(str(tmp_path / "b.key"), Site(), REGION)


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    api = Api("123456789012", Images(), Tokens(), Faults())
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    with served(api) as url:
        for name, value in {"ENDPOINT_URL": url, "ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "x"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        yield api


def test_a_key_in_kms_signs_and_never_leaves_it(aws: Api) -> None:
    client = aws_client("kms", REGION, Site())
    for spec in ("ECC_NIST_P256", "RSA_2048"):
        key = client.create_key(KeySpec=spec, KeyUsage="SIGN_VERIFY")["KeyMetadata"]
        client.create_alias(AliasName=f"alias/{spec}", TargetKeyId=key["KeyId"])
        signs = load_key(f"awskms:///alias/{spec}", Site(), REGION)
        # An ARN has its region.
        public = load_public_key(f"awskms:///{key['Arn']}", Site(), "eu-west-1")
        assert verifies(public, signs.sign(b"data"), b"data")
        assert not verifies(public, signs.sign(b"data"), b"date")


def test_a_key_that_kms_lacks(aws: Api) -> None:
    with pytest.raises(RegistryRefused):
        load_key("awskms:///alias/nothing", Site(), REGION)
    with pytest.raises(RequestError, match="not a key in KMS"):
        load_key("awskms://alias/nothing", Site(), REGION)
