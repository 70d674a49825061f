"""Verifies the signatures of an image in a registry, and is the gate of what uses images."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from trainwright.core.data_files import read_bytes
from trainwright.core.errors import ProofFailed, RegistryRefused, RequestError
from trainwright.core.records import Document
from trainwright.core.say import Say
from trainwright.push.ecr import Ecr, ImageManifest, aws_client
from trainwright.push.references import PushPlace, parse_host
from trainwright.push.refusals import aws_failure
from trainwright.push.registry import Registry
from trainwright.signing import bundle, notation
from trainwright.signing.certificates import read_roots
from trainwright.signing.keys import KMS, load_public_key, need_cryptography
from trainwright.site.site import Signing, Site

_ONLY = 200_000  # bytes of a file of certificates


class SignatureRow(Document):
    """A signature of an image.

    ``kind`` is its format; ``signer`` names the key, the certificate or AWS Signer's profile, empty if it is unknown;
    ``digest`` is that of its manifest; ``says`` is why it does not count.
    """

    kind: Literal["bundle", "simple-signing", "notation"]
    signer: str
    digest: str
    valid: bool
    says: str


class VerifyDocument(Document):
    """``verify --json``. ``documents``: the digests of attached documents that a valid signature names."""

    schema: Literal["trainwright/verify/1"]
    image: str
    valid: bool
    signatures: tuple[SignatureRow, ...]
    documents: tuple[str, ...]


@dataclass(frozen=True)
class _Trusted:
    keys: Mapping[str, Any]
    notation: notation.Trust


class SignatureGate:
    """Signatures that count at a site.

    Args:
        signing: whose signatures count.
        site: for connections.
        say: progress callback.
    """

    def __init__(self, signing: Signing, site: Site, say: Say = lambda _: None) -> None:
        self.required = signing.required
        self._signing, self._site, self._say = signing, site, say

    def check(self, place: PushPlace, digest: str) -> VerifyDocument | None:
        """Verify an image before it is used; ``None`` if the site demands no signature.

        Raises:
            ProofFailed: no valid signature is attached to it.
            RequestError: a file of the site is missing or malformed.
            RegistryRefused: the image is not there, or AWS or the registry refused.
        """
        if not self.required:
            return None
        found = self.verify(place, digest)
        if not found.valid:
            raise ProofFailed(
                "\n".join([f"{found.image}: no valid signature", *(f"  {row_text(row)}" for row in found.signatures)]),
                remedy=f"./invoke sign {found.image}   # or name the signer's key in [signing] (docs/signing.md)",
                signatures=[row.as_json() for row in found.signatures],
            )
        return found

    def check_address(self, address: str) -> VerifyDocument | None:
        """:meth:`check` of an image as a job names it.

        AWS's own containers, tags of the engine and other registries are not the site's to sign: they are passed over.
        """
        from trainwright.sagemaker.dlc import accounts_of_aws

        name, _, digest = address.partition("@")
        host, _, rest = name.partition("/")
        repository, _, tag = rest.partition(":")
        found = parse_host(host)
        if not self.required or found is None or found[0] in accounts_of_aws():
            return None
        place = PushPlace(*found, repository)
        if not digest:
            digest = Ecr(place, self._site).digest(tag or "latest") or ""
            if not digest:
                raise RegistryRefused(
                    f"{address}: no such image",
                    remedy=f"./invoke tags list --repository {host}/{repository}",
                    cause="missing",
                    place=address,
                )
        return self.check(place, digest)

    def verify(self, place: PushPlace, digest: str) -> VerifyDocument:
        """What is known of the signatures of an image; raises as :meth:`check`, but for those that do not count."""
        ecr = Ecr(place, self._site)
        registry = Registry(ecr, self._site, say=self._say)
        image = image_there(ecr, digest)
        trusted = self._trusted(place.region)
        covered: set[str] = set()
        rows = [*_bundles(ecr, registry, image, trusted, covered), *_simple(ecr, registry, image, trusted)]
        rows += _notation(ecr, registry, image, trusted)
        return VerifyDocument(
            schema="trainwright/verify/1",
            image=place.digested(digest),
            valid=any(row.valid for row in rows),
            signatures=tuple(rows),
            documents=tuple(sorted(covered - {image.digest})),
        )

    def _trusted(self, region: str) -> _Trusted:
        need_cryptography()
        keys: dict[str, Any] = {}
        roots: list[Any] = []
        for one in self._signing.trusted:
            content = b"" if one.startswith(KMS) else read_bytes(Path(one), limit=_ONLY)
            if b"BEGIN CERTIFICATE" in content:
                roots += _certificates(one, content)
            else:
                keys[one] = load_public_key(one, self._site, region)
        authorities = [each for one in self._signing.authorities for each in _certificates(one)]
        return _Trusted(keys, notation.Trust(roots, authorities, self._signing.profiles, self._revoked))

    def _revoked(self, words: Mapping[str, Any]) -> Sequence[str]:
        from botocore.exceptions import BotoCoreError, ClientError

        profile = str(words["profileVersionArn"])
        client = aws_client("signer", profile.split(":")[3], self._site)
        try:
            return list(client.get_revocation_status(**words)["revokedEntities"])
        except (BotoCoreError, ClientError) as error:
            raise aws_failure(error, action="signer:GetRevocationStatus", where=profile) from None


def image_there(ecr: Ecr, digest: str) -> ImageManifest:
    """The manifest of an image.

    Raises:
        RegistryRefused: it is not there.
    """
    image = ecr.manifest(digest=digest)
    if image is None:
        raise RegistryRefused(
            f"{ecr.place.digested(digest)}: no such image",
            remedy=f"./invoke tags list --repository {ecr.place.host}/{ecr.place.repository}",
            cause="missing",
            place=ecr.place.digested(digest),
        )
    return image


def covered_documents(found: VerifyDocument | None) -> tuple[str, ...] | None:
    """The attached documents that count: those that a signature names, or all if it names none."""
    return found.documents if found is not None and found.documents else None


def row_text(row: SignatureRow) -> str:
    """A signature on one line."""
    return f"{'valid' if row.valid else 'not valid'}: {row.kind}, {row.signer or 'unknown key'}" + (
        f": {row.says}" if row.says else ""
    )


def _row(
    kind: Literal["bundle", "simple-signing", "notation"], digest: str, signer: str = "", *, says: str = ""
) -> SignatureRow:
    return SignatureRow(kind=kind, signer=signer, digest=digest, valid=not says, says=says)


def _bundles(
    ecr: Ecr, registry: Registry, image: ImageManifest, trusted: _Trusted, covered: set[str]
) -> Iterator[SignatureRow]:
    names = {id(key): name for name, key in trusted.keys.items()}
    for one in ecr.referrers(image.digest, bundle.MEDIA_TYPE):
        if one.annotations.get(bundle.PREDICATE_NOTE, bundle.PREDICATE) != bundle.PREDICATE:
            continue  # a statement of another kind, by `cosign attest`
        content = registry.document(one.digest)
        found = bundle.signed_by_bundle(content, trusted.keys.values())
        if found is None:
            ours = bundle.hint_of(content) in {bundle.hint(key) for key in trusted.keys.values()}
            why = "changed after it was signed" if ours else "not by a trusted key"
            yield _row("bundle", one.digest, says=why)
        elif image.digest not in found[1]:
            yield _row("bundle", one.digest, names[id(found[0])], says="it is about another image")
        else:
            covered |= found[1]
            yield _row("bundle", one.digest, names[id(found[0])])


def _simple(ecr: Ecr, registry: Registry, image: ImageManifest, trusted: _Trusted) -> Iterator[SignatureRow]:
    manifest = ecr.manifest(tag=bundle.simple_tag(image.digest))
    if manifest is None:
        return
    names = {id(key): name for name, key in trusted.keys.items()}
    for layer in json.loads(manifest.text).get("layers") or ():
        signature = (layer.get("annotations") or {}).get(bundle.SIMPLE_SIGNATURE)
        if layer.get("mediaType") != bundle.SIMPLE_SIGNING or not signature:
            continue
        found = bundle.signed_simply(registry.blob(layer["digest"]), signature, trusted.keys.values())
        signer = names[id(found[0])] if found is not None else ""
        about = found is not None and image.digest in found[1]
        says = "" if about else "it is about another image" if found is not None else "not by a trusted key, or changed"
        yield _row("simple-signing", manifest.digest, signer, says=says)


def _notation(ecr: Ecr, registry: Registry, image: ImageManifest, trusted: _Trusted) -> Iterator[SignatureRow]:
    for one in ecr.referrers(image.digest, notation.ARTIFACT):
        verdict = notation.judge(registry.document(one.digest), image, trusted.notation, datetime.now(UTC))
        yield _row("notation", one.digest, verdict.signer, says=verdict.fault)


def _certificates(name: str, content: bytes | None = None) -> list[Any]:
    try:
        return read_roots(read_bytes(Path(name), limit=_ONLY) if content is None else content)
    except ValueError as wrong:
        raise RequestError(f"{name}: not a certificate (PEM): {wrong}", remedy="See docs/signing.md.") from None
