"""``promote``: copies a proven image with its proof to other repositories, accounts and regions.

It goes from registry to registry, through the memory of this machine and no container engine. What decides whether it
may is attached to the image itself, so it works from any machine. The order is that of a push: layers, the manifest
under the immutable tag, the proof, and tags of the user's own last; whatever is there already is not sent again.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

from trainwright.build.store import BuildRecord
from trainwright.core.errors import Failure, RegistryRefused, RequestError
from trainwright.core.heartbeat import Transfer, heartbeat
from trainwright.core.say import Say
from trainwright.push.documents import PromotedImage, PromoteDocument, PushedTag
from trainwright.push.ecr import Ecr, ImageManifest
from trainwright.push.job_results import gate_attested
from trainwright.push.moving import Move, set_own
from trainwright.push.options import PromoteOptions
from trainwright.push.references import PushPlace, find_target, parse_host
from trainwright.push.registry import Registry
from trainwright.push.repository import RepositoryPolicy, load_policy
from trainwright.push.settings import settle
from trainwright.push.soci import standing_index
from trainwright.push.tag_log import DECISION
from trainwright.push.tags import check_tag, is_immutable, wildcard_of
from trainwright.site.site import Aws, Site

_AT_ONCE = 4  # targets, and layers of each
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_TARGET = re.compile(r"([^/]+)/([^/]+)/(.+)")
_EXAMPLE = "For example: --to 123456789012/eu-west-1/team/training"


@dataclass(frozen=True)
class _Stored:
    """An image, or an index, with its immutable tags. ``documents`` are attached to it, each with its tags."""

    manifest: ImageManifest
    tags: tuple[str, ...]
    documents: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class _Source:
    """The image to copy, whose proof holds. ``beside`` it is its SOCI index, if it has one and was named without it."""

    place: PushPlace
    named: _Stored
    record: BuildRecord
    beside: tuple[_Stored, ...]

    @property
    def manifest(self) -> ImageManifest:
        """Of the image as it was named."""
        return self.named.manifest

    @property
    def all(self) -> tuple[_Stored, ...]:
        """What is copied, the named image first."""
        return (self.named, *self.beside)


def find_image(address: str, verb: str = "promote") -> tuple[PushPlace, str]:
    """The repository and the digest of an image's address, which a verb needs.

    Raises:
        RequestError: it is not an address in ECR, or has no digest.
    """
    name, _, digest = address.partition("@")
    host, _, repository = name.partition("/")
    place = parse_host(host)
    if place is None or not repository:
        raise RequestError(
            f"{verb} {address}: not an image in Amazon ECR",
            remedy=f"For example: ./invoke {verb} 123456789012.dkr.ecr.us-west-2.amazonaws.com/team/training@sha256:…"
            f"{' --to 210987654321/us-west-2/team/training' * (verb == 'promote')}   # push prints the address",
        )
    if not _DIGEST.fullmatch(digest):
        bare, _, tag = repository.partition(":")
        raise RequestError(
            f"{verb} {address}: not named by digest; a tag may move between two commands",
            remedy=f"./invoke tags list {tag} --repository {host}/{bare}   # shows its digest".replace("  ", " "),
        )
    return PushPlace(*place, repository), digest


def find_places(words: Sequence[str]) -> list[PushPlace]:
    """The repositories that ``--to`` names: ``ACCOUNT/REGION/NAME``, or whole addresses.

    Raises:
        RequestError: one of them is malformed, or none exists.
    """
    if not words:
        raise RequestError("--to is missing", remedy=_EXAMPLE)
    found = []
    for word in words:
        host, _, _ = word.partition("/")
        parts = _TARGET.fullmatch(word)
        if parse_host(host):
            target = find_target(word, (), None, Aws())
        elif parts and re.fullmatch(r"[0-9]{12}", parts[1]):
            target = find_target(parts[3], (parts[2],), parts[1], Aws())
        else:
            raise RequestError(f"--to {word}: neither ACCOUNT/REGION/NAME nor an address in ECR", remedy=_EXAMPLE)
        found.append(PushPlace(str(target.account), target.regions[0], target.repository))
    return list(dict.fromkeys(found))


def promote_image(
    address: str,
    places: Sequence[PushPlace],
    site: Site,
    options: PromoteOptions,
    *,
    say: Say,
    among: Collection[str] | None = None,
) -> PromoteDocument:
    """Copy an image and what is attached to it into other repositories.

    Args:
        address: of the image, by digest.
        places: where it goes.
        site: proxies and certificate authorities.
        options: tags of the user's own, and whether missing repositories are created.
        say: progress callback.
        among: the digests of the attached documents that count, if a signature names some.

    Raises:
        RequestError: a word is invalid.
        ProofFailed: no proof is attached to the image, or it does not hold; nothing was sent.
        RegistryRefused: AWS or a registry refused. ``promoted`` has the targets that were finished.
    """
    for tag in options.tags:
        check_tag(tag)
    policy = load_policy(Path(options.policy) if options.policy else None)
    place, digest = find_image(address)
    source = _proven(place, digest, site, say, among)
    if not (source.named.tags or options.tags):
        raise RequestError(
            f"promote {address}: it has no immutable tag, and an image without a tag is removed after some days",
            remedy="Add --tag NAME, which it gets in every target.",
        )
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        copies = [pool.submit(_Copy(source, to, site, say).run, options, policy) for to in places]
    rows, failed = [], None
    for copy in copies:
        try:
            rows.append(copy.result())
        except Failure as failure:
            failed = failed or failure
    if failed is not None:
        failed.details = {**failed.details, "promoted": [row.as_json() for row in rows]}
        raise failed
    return PromoteDocument(
        schema="trainwright/promote/1", source=place.digested(digest), plan=source.record.plan.id, promoted=tuple(rows)
    )


def _proven(place: PushPlace, digest: str, site: Site, say: Say, among: Collection[str] | None) -> _Source:
    """The image, if the proof that is attached to it holds."""
    ecr = Ecr(place, site)
    registry = Registry(ecr, site, say=say)
    manifest = None if ecr.repository() is None else ecr.manifest(digest=digest)
    if manifest is None:
        raise RegistryRefused(
            f"{place.digested(digest)}: no such image",
            remedy=f"./invoke tags list --repository {place.host}/{place.repository}   # the images of its moving tags",
            cause="missing",
            place=place.digested(digest),
        )
    single = registry.single(manifest)
    record = gate_attested(ecr, registry, single, among)
    named = _stored(ecr, manifest, single)
    indexes = [standing_index(ecr, registry, manifest, tag) for tag in named.tags if single is manifest]
    beside = tuple(_stored(ecr, one.index, one.image) for one in indexes if one is not None)
    return _Source(place, named, record, beside)


def _stored(ecr: Ecr, manifest: ImageManifest, single: ImageManifest) -> _Stored:
    """An image in its repository with all that is attached to it; ``single`` is the one that an index leads to."""
    digest = manifest.digest
    found = {one.digest: one.kind for each in {manifest.digest, single.digest} for one in ecr.referrers(each)}
    documents = tuple((one, tuple(ecr.tags_of(one))) for one, kind in found.items() if kind != DECISION)
    # cosign 2 keeps its signatures of an image under a tag, and attaches nothing.
    signatures = f"{digest.replace(':', '-')}.sig"
    if (other := ecr.digest(signatures)) is not None:
        documents += ((other, (signatures,)),)
    return _Stored(manifest, tuple(tag for tag in ecr.tags_of(digest) if is_immutable(tag)), documents)


class _Copy:
    """The copy of one image into one repository. Each has clients of its own."""

    def __init__(self, source: _Source, place: PushPlace, site: Site, say: Say) -> None:
        self._source, self._place, self._say = source, place, say
        self._from, self._to = Ecr(source.place, site), Ecr(place, site)
        self._reads = Registry(self._from, site, say=say)
        self._writes = Registry(self._to, site, say=say)
        self._sent: list[int] = []

    def run(self, options: PromoteOptions, policy: RepositoryPolicy) -> PromotedImage:
        """Copy it; see :func:`promote_image`."""
        started = time.monotonic()
        filters = [wildcard_of(self._source.record.plan)]
        settle(self._to, policy, filters, create=options.create, say=self._say)
        for each in self._source.all:
            self._clash(each)
        digest = self._source.manifest.digest
        self._say(f"copying {self._source.place.digested(digest)} to {self._place.host}/{self._place.repository}")
        for each in self._source.all:
            self._manifest(each.manifest, each.tags)
            for document, names in each.documents:
                self._manifest(self._read(document), names)
        moves = [
            *(Move(tag, "there already") for each in self._source.all for tag in each.tags),
            *(set_own(self._to, self._writes, self._source.manifest, tag) for tag in dict.fromkeys(options.tags)),
        ]
        return PromotedImage(
            uri=self._place.digested(digest),
            account=self._place.account,
            region=self._place.region,
            repository=self._place.repository,
            tags=tuple(
                PushedTag(
                    tag=one.tag,
                    kind="immutable" if is_immutable(one.tag) else "own",
                    state=one.state,
                    says=one.says,
                )
                for one in moves
            ),
            sent_bytes=sum(self._sent),
            blobs_sent=sum(map(bool, self._sent)),
            blobs_present=sum(not sent for sent in self._sent),
            proof=sum(len(each.documents) for each in self._source.all),
            seconds=round(time.monotonic() - started, 1),
        )

    def _clash(self, stored: _Stored) -> None:
        """Refuse before anything is sent if an immutable tag belongs to another image there."""
        for tag in stored.tags:
            if (other := self._to.digest(tag)) not in (None, stored.manifest.digest):
                raise RegistryRefused(
                    f"{self._place.tagged(tag)}: the tag belongs to another image, {other}; nothing was sent",
                    remedy="Two images of one plan were built on one day: promote that one, or push this one with "
                    "--revision 2 and promote it then.",
                    cause="immutable",
                    place=self._place.tagged(tag),
                    uri=self._place.digested(str(other)),
                )

    def _read(self, digest: str) -> ImageManifest:
        found = self._from.manifest(digest=digest)
        if found is None:
            raise RegistryRefused(
                f"{self._source.place.digested(digest)}: gone while it was copied",
                remedy="Run the same command again.",
                cause="missing",
            )
        return found

    def _manifest(self, manifest: ImageManifest, tags: Sequence[str]) -> None:
        """Copy a manifest with all that it consists of, what it needs first."""
        said = json.loads(manifest.text)
        for child in said.get("manifests") or ():
            self._manifest(self._read(child["digest"]), ())
        blobs = {one["digest"]: int(one["size"]) for one in _blobs(said)}
        sent = self._blobs(blobs)
        try:
            self._put(manifest, tags)
        except RegistryRefused as refused:
            if refused.details.get("cause") != "layer":
                raise
            self._say(f"{self._place.host} lacks a layer that it said it had: all layers are sent again")
            sent = self._blobs(blobs, again=True)
            self._put(manifest, tags)
        self._sent += sent

    def _put(self, manifest: ImageManifest, tags: Sequence[str]) -> None:
        for tag in tags or (None,):
            self._writes.put_manifest(manifest, tag)

    def _blobs(self, blobs: Mapping[str, int], *, again: bool = False) -> list[int]:
        """Copy blobs, and return the bytes that were sent of each.

        Args:
            blobs: their sizes by digest.
            again: also those that the registry says it has.
        """
        transfer = Transfer(len(blobs), sum(blobs.values()))

        def copy(blob: tuple[str, int]) -> int:
            sent = self._writes.copy_blob(self._reads, *blob, again=again, moved=partial(transfer.at, blob[0]))
            transfer.finish()
            return sent

        with heartbeat(self._say, transfer.text), ThreadPoolExecutor(_AT_ONCE) as pool:
            # The largest first: the others fit beside it.
            return list(pool.map(copy, sorted(blobs.items(), key=lambda blob: -blob[1])))


def _blobs(manifest: dict[str, object]) -> Iterator[dict[str, str]]:
    """The descriptors of the blobs of a manifest."""
    config = manifest.get("config")
    yield from cast("list[dict[str, str]]", [config] if config else [])
    yield from cast("list[dict[str, str]]", manifest.get("layers") or [])
