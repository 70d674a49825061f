"""``tags advance``: moves the moving tags of a set of image lines, once the registry has an image of each.

The jobs of a pipeline leave the moving tags alone (``push --leave-tags``), and its last one does this. It reads the
registry and the catalog and nothing else, so it runs anywhere, without an engine, and can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from trainwright.catalog.catalog import Catalog
from trainwright.core.errors import ProofFailed, RegistryRefused
from trainwright.core.say import Say
from trainwright.pipeline.images import ChosenImage
from trainwright.push.attest import attested
from trainwright.push.ecr import Ecr, ImageManifest
from trainwright.push.moving import move
from trainwright.push.proof import gate
from trainwright.push.references import PushPlace
from trainwright.push.registry import Published, Registry
from trainwright.push.repository import load_policy
from trainwright.push.settings import may_move, settle
from trainwright.push.tag_log import TagLog
from trainwright.push.tagging import TagRow, TagsDocument, row
from trainwright.push.tags import of_plan, tags_of
from trainwright.signing.verify import SignatureGate, covered_documents
from trainwright.site.site import Site


@dataclass(frozen=True)
class _Shelf:
    """A repository: ECR's description of it, and its tags with their digests."""

    ecr: Ecr
    registry: Registry
    description: Mapping[str, object]
    tags: Mapping[str, str]


@dataclass(frozen=True)
class _There:
    """An image of a line in a repository, whose proof holds. ``manifest`` may be an index."""

    image: ChosenImage
    shelf: _Shelf
    manifest: ImageManifest
    published: Published


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
    there, lacking = list[_There](), list[str]()
    for place, images in places:
        shelf = _open(place, site, say)
        for image in images:
            found = _find(image, shelf, site, say)
            if isinstance(found, _There):
                there.append(found)
            else:
                lacking.append(f"{image.name}: {found}")
    if lacking:
        raise RegistryRefused(
            "\n".join(["not every image is there, so no moving tag was moved", *(f"  {line}" for line in lacking)]),
            remedy="Build and push what is missing (./invoke push --leave-tags), and run the same command again.",
            cause="missing",
            lacking=lacking,
            found=[one.shelf.ecr.place.digested(one.manifest.digest) for one in there],
        )
    return TagsDocument(schema="trainwright/tags/1", tags=tuple(each for one in there for each in _moved(one, catalog)))


def _open(place: PushPlace, site: Site, say: Say) -> _Shelf:
    ecr = Ecr(place, site)
    description = settle(ecr, load_policy(None), [], create=False, say=say)
    return _Shelf(ecr, Registry(ecr, site, say=say), description, ecr.tags())


def _find(image: ChosenImage, shelf: _Shelf, site: Site, say: Say) -> _There | str:
    """The newest image of a line's plan, or why there is none that tags may move to."""
    ecr, registry = shelf.ecr, shelf.registry
    fixed = of_plan(shelf.tags, image.plan)
    manifest = ecr.manifest(digest=shelf.tags[fixed[0]]) if fixed else None
    if manifest is None:
        return f"no image of plan {image.plan.id[:12]} in {ecr.place.host}/{ecr.place.repository}"
    single = registry.single(manifest)
    published, address = registry.published(single), ecr.place.digested(manifest.digest)
    try:
        among = covered_documents(SignatureGate(site.signing, site, say).check(ecr.place, manifest.digest))
        gate(attested(ecr, registry, single, published, among), address, unproven=False)
    except ProofFailed as failed:
        return f"{address} is not proven: {failed}"
    assert published is not None, "what is attested says what it is"
    return _There(image, shelf, manifest, published)


def _moved(one: _There, catalog: Catalog) -> Iterator[TagRow]:
    shelf = one.shelf
    for tag in tags_of(one.image.plan, datetime.now(UTC), catalog).moving:
        if may_move(shelf.description, tag):
            state = move(shelf.ecr, shelf.registry, one.manifest, one.published, tag).state
            yield row(TagLog(shelf.ecr, shelf.registry, tag), state)
