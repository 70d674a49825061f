"""Keys: PEM files as openssl and cosign write them, and keys in AWS KMS.

cosign's own private keys are encrypted by scrypt and NaCl's secretbox (sigstore/cosign, ``pkg/cosign/keys.go`` and
go-securesystemslib's ``encrypted``). A key in KMS is named as cosign names it: ``awskms:///alias/NAME``.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwright.core.data_files import read_bytes
from trainwright.core.errors import RequestError
from trainwright.core.extras import need
from trainwright.site.site import Site

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.hashes import HashAlgorithm

KMS = "awskms://"
PASSWORD = "COSIGN_PASSWORD"  # noqa: S105 - the variable that cosign reads
_LARGEST = 100_000  # bytes of a key file
_ENCRYPTED = re.compile(
    rb"-----BEGIN ENCRYPTED (?:COSIGN|SIGSTORE) PRIVATE KEY-----\s+(.+?)\s+-----END ENCRYPTED", re.DOTALL
)
_MOST_WORK = 1 << 20  # scrypt's N: 1 GiB with r = 8. cosign has 65,536
_REFERENCE = re.compile(r"awskms://(?P<endpoint>[^/]*)/(?P<key>[A-Za-z0-9:/_.-]+)")
_KEY_ARN = re.compile(r"arn:aws[a-z-]*:kms:(?P<region>[a-z0-9-]+):")


@dataclass(frozen=True)
class SigningKey:
    """A key that signs: its name for people, its public half, and how it signs bytes."""

    name: str
    public: Any
    sign: Callable[[bytes], bytes]


def need_cryptography() -> None:
    """Refuse to begin where signatures can be neither made nor verified.

    Raises:
        EngineError: the package for that is not installed.
    """
    need("signing", "cryptography", what="signing")


def load_key(reference: str, site: Site, region: str) -> SigningKey:
    """A private key: a PEM file, or a key in KMS.

    Args:
        reference: the file's path, or ``awskms:///KEY`` with an id, an ARN or an alias.
        site: for the connection to KMS.
        region: of KMS, unless the reference is an ARN.

    Raises:
        RequestError: there is no such file, it is not a private key, or the password is wrong.
        RegistryRefused: KMS refused.
    """
    need_cryptography()
    if reference.startswith(KMS):
        return _kms_key(reference, site, region)
    key = _private_key(read_bytes(Path(reference), limit=_LARGEST), reference)

    def sign(data: bytes) -> bytes:
        from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

        if isinstance(key, ec.EllipticCurvePrivateKey):
            return key.sign(data, ec.ECDSA(_sha256()))
        if isinstance(key, rsa.RSAPrivateKey):
            return key.sign(data, padding.PKCS1v15(), _sha256())
        signed: bytes = key.sign(data)
        return signed

    return SigningKey(reference, key.public_key(), sign)


def load_public_key(reference: str, site: Site, region: str) -> Any:
    """A public key: a PEM file, or that of a key in KMS.

    Raises:
        RequestError: there is no such file, or it is not a public key.
        RegistryRefused: KMS refused.
    """
    need_cryptography()
    from cryptography.hazmat.primitives.serialization import load_der_public_key, load_pem_public_key

    if reference.startswith(KMS):
        client, key = _kms(reference, site, region)
        return load_der_public_key(_asked(client.get_public_key, key, KeyId=key)["PublicKey"])
    try:
        return load_pem_public_key(read_bytes(Path(reference), limit=_LARGEST))
    except ValueError:
        raise RequestError(
            f"{reference}: not a public key (PEM)", remedy="cosign public-key --key cosign.key > cosign.pub"
        ) from None


def der(public: Any) -> bytes:
    """A public key as SubjectPublicKeyInfo."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    encoded: bytes = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return encoded


def verifies(public: Any, signature: bytes, data: bytes) -> bool:
    """Whether a signature of bytes is that of a key.

    cosign 2 signs by SHA-256 with every curve, cosign 3 by the one of the curve's size.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa

    if isinstance(public, ec.EllipticCurvePublicKey):
        return any(_ecdsa(public, signature, data, each) for each in (_sha256(), sized(public.curve.key_size)))
    try:
        if isinstance(public, rsa.RSAPublicKey):
            public.verify(signature, data, padding.PKCS1v15(), _sha256())
        elif isinstance(public, ed25519.Ed25519PublicKey):
            public.verify(signature, data)
        else:
            return False
    except InvalidSignature:
        return False
    return True


def sized(bits: int) -> HashAlgorithm:
    """The hash that goes with a curve of this many bits (RFC 7518, 3.4)."""
    from cryptography.hazmat.primitives.hashes import SHA384, SHA512

    return _sha256() if bits <= 256 else SHA384() if bits <= 384 else SHA512()


def _ecdsa(public: Any, signature: bytes, data: bytes, by: HashAlgorithm) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        public.verify(signature, data, ec.ECDSA(by))
    except InvalidSignature:
        return False
    return True


def _private_key(data: bytes, name: str) -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from cryptography.hazmat.primitives.serialization import load_der_private_key, load_pem_private_key

    password = os.environ.get(PASSWORD, "").encode()
    remedy = f"{PASSWORD} is the password of a key; cosign generate-key-pair makes a pair of keys."
    try:
        if found := _ENCRYPTED.search(data):
            key: Any = load_der_private_key(_decrypted(base64.b64decode(found[1]), password), None)
        else:
            key = load_pem_private_key(data, password if b"ENCRYPTED" in data else None)
    except (ValueError, TypeError, KeyError) as wrong:
        raise RequestError(f"{name}: no private key (PEM), or another password: {wrong}", remedy=remedy) from None
    if not isinstance(key, (ec.EllipticCurvePrivateKey, ed25519.Ed25519PrivateKey, rsa.RSAPrivateKey)):
        raise RequestError(f"{name}: keys of this kind do not sign images", remedy=remedy)
    return key


def _decrypted(sealed: bytes, password: bytes) -> bytes:
    """What cosign has encrypted.

    Raises:
        ValueError: it is malformed, or the password is another.
    """
    from nacl.exceptions import CryptoError
    from nacl.secret import SecretBox

    said = json.loads(sealed)
    work = said["kdf"]["params"]
    if said["kdf"]["name"] != "scrypt" or said["cipher"]["name"] != "nacl/secretbox" or work["N"] > _MOST_WORK:
        raise ValueError("encrypted in an unknown way")
    memory = 128 * work["N"] * work["r"] * 2
    key = hashlib.scrypt(
        password,
        salt=base64.b64decode(said["kdf"]["salt"]),
        n=work["N"],
        r=work["r"],
        p=work["p"],
        dklen=32,
        maxmem=memory,
    )
    try:
        opened: bytes = SecretBox(key).decrypt(
            base64.b64decode(said["ciphertext"]), base64.b64decode(said["cipher"]["nonce"])
        )
    except CryptoError:
        raise ValueError("decryption failed") from None
    return opened


def _kms_key(reference: str, site: Site, region: str) -> SigningKey:
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    client, key = _kms(reference, site, region)
    public = load_der_public_key(_asked(client.get_public_key, key, KeyId=key)["PublicKey"])
    if isinstance(public, ec.EllipticCurvePublicKey) and public.curve.key_size == 256:
        algorithm = "ECDSA_SHA_256"
    elif isinstance(public, rsa.RSAPublicKey):
        algorithm = "RSASSA_PKCS1_V1_5_SHA_256"
    else:
        raise RequestError(
            f"{reference}: this kind of key does not sign by SHA-256", remedy="Use a key of ECC_NIST_P256."
        )

    def sign(data: bytes) -> bytes:
        digest = hashlib.sha256(data).digest()
        words = {"KeyId": key, "Message": digest, "MessageType": "DIGEST", "SigningAlgorithm": algorithm}
        signature: bytes = _asked(client.sign, key, **words)["Signature"]
        return signature

    return SigningKey(reference, public, sign)


def _kms(reference: str, site: Site, region: str) -> tuple[Any, str]:
    from trainwright.push.ecr import aws_client

    found = _REFERENCE.fullmatch(reference)
    if found is None or found["endpoint"]:
        raise RequestError(f"{reference}: not a key in KMS", remedy="For example: awskms:///alias/trainwright")
    arn = _KEY_ARN.match(found["key"])
    return aws_client("kms", arn["region"] if arn else region, site), found["key"]


def _asked(call: Callable[..., Any], key: str, **words: Any) -> Any:
    from botocore.exceptions import BotoCoreError, ClientError

    from trainwright.push.refusals import aws_failure

    try:
        return call(**words)
    except (BotoCoreError, ClientError) as error:
        action = "kms:" + "".join(word.capitalize() for word in call.__name__.split("_"))
        raise aws_failure(error, action=action, where=key) from None


def _sha256() -> HashAlgorithm:
    from cryptography.hazmat.primitives.hashes import SHA256

    return SHA256()
