"""``tags advance``: moves the moving tags of a set of image lines, once the registry has an image of each.

The jobs of a pipeline leave the moving tags alone (``push --leave-tags``), and its last one does this; so does a run of
``build --images --push`` at its end. It reads the registry and the catalog and nothing else, so it runs anywhere,
without an engine, and can be repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from trainwright.catalog.catalog import Catalog
from trainwright.core.errors import ProofFailed, RegistryRefused
from trainwright.core.say import Say
from trainwright.pipeline.images import ChosenImage
from trainwright.push.ecr import Ecr, ImageManifest
from trainwright.push.job_results import gate_attested
from trainwright.push.moving import move
from trainwright.push.published import Published
from trainwright.push.references import PushPlace
from trainwright.push.registry import Registry
from trainwright.push.settings import may_move
from trainwright.push.tag_log import TagLog
from trainwright.push.tagging import TagRow, TagsDocument, row
from trainwright.push.tags import of_plan, tags_of
from trainwright.signing.verify import SignatureGate, covered_documents
from trainwright.site.site import Site


@dataclass(frozen=True)
class _Arrived:
    """A line's image in a repository, whose proof holds, and its tags that may move. ``manifest`` may be an index."""

    ecr: Ecr
    registry: Registry
    manifest: ImageManifest
    published: Published
    moving: tuple[str, ...]

    def moved(self) -> list[TagRow]:
        """Move the tags; what became of each."""
        return [
            row(
                TagLog(self.ecr, self.registry, tag),
                move(self.ecr, self.registry, self.manifest, self.published, tag).state,
            )
            for tag in self.moving
        ]


def advance(
    places: Sequence[tuple[PushPlace, Sequence[ChosenImage]]], catalog: Catalog, site: Site, *, say: Say
) -> TagsDocument:
    """Move the moving tags of lines to their newest images, forward only, if each line has a proven image everywhere.

    Args:
        places: repositories, each with the lines whose images belong there; their plans decide which images are meant.
        catalog: has the lines.
        site: whose signatures count, proxies and certificate authorities.
        say: progress callback.

    Raises:
        RegistryRefused: an image is missing or not proven, so that no tag moved; or AWS or a registry refused, and tags
            moved or not: the same call goes on.
    """
    there, lacking = list[_Arrived](), list[str]()
    signatures = SignatureGate(site.signing, site, say)
    for place, images in places:
        ecr = Ecr(place, site)
        registry, settings = Registry(ecr, site, say=say), ecr.repository()
        tags = {} if settings is None else ecr.tags()
        for image in images:
            fixed = of_plan(tags, image.plan)
            manifest = ecr.manifest(digest=tags[fixed[0]]) if fixed else None
            if manifest is None:
                lacking.append(
                    f"{image.name}: no image of plan {image.plan.id[:12]} in {place.host}/{place.repository}"
                )
                continue
            published = _proven(ecr, registry, manifest, signatures)
            if isinstance(published, str):
                lacking.append(f"{image.name}: {published}")
                continue
            moving = tags_of(image.plan, datetime.now(UTC), catalog).moving
            may = tuple(tag for tag in moving if may_move(settings or {}, tag))
            there.append(_Arrived(ecr, registry, manifest, published, may))
    if lacking:
        raise RegistryRefused(
            "\n".join(["not every image is there, so no moving tag was moved", *(f"  {line}" for line in lacking)]),
            remedy="Build and push what is missing (./invoke push --leave-tags), and run the same command again.",
            cause="missing",
            lacking=lacking,
            found=[one.ecr.place.digested(one.manifest.digest) for one in there],
        )
    return TagsDocument(schema="trainwright/tags/1", tags=tuple(each for one in there for each in one.moved()))


def _proven(ecr: Ecr, registry: Registry, manifest: ImageManifest, signatures: SignatureGate) -> Published | str:
    """What an image says of itself if its proof and its signature hold; else why they do not."""
    single = registry.single(manifest)
    published, address = registry.published(single), ecr.place.digested(manifest.digest)
    try:
        among = covered_documents(signatures.check(ecr.place, manifest.digest))
        gate_attested(ecr, registry, single, among)
    except ProofFailed as failed:
        return f"{address} is not proven: {failed}"
    assert published is not None, "what is attested says what it is"
    return published
