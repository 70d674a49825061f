"""The newest image of each image line: of those that were built here, or of those in a registry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from trainwright.build.store import BuildRecord, all_records
from trainwright.catalog.catalog import Catalog
from trainwright.core.errors import ProofFailed
from trainwright.core.say import Say
from trainwright.pipeline.images import ChosenImage
from trainwright.plan.plan import Plan
from trainwright.push.attest import attested
from trainwright.push.ecr import Ecr
from trainwright.push.job_results import job_lacks
from trainwright.push.references import PushPlace
from trainwright.push.registry import Registry
from trainwright.push.tags import newest_first, tags_of
from trainwright.site.site import Site

_SAME = ("framework", "version", "cuda", "python", "flavour", "unproven")


@dataclass(frozen=True)
class NewestImage:
    """An image of a line. ``address`` is its id here, or where it is in a registry.

    ``lacking`` says what the newest job in it found wrong; empty if nothing.
    """

    record: BuildRecord
    address: str
    lacking: str = ""


def built_here(images: Sequence[ChosenImage]) -> dict[str, NewestImage]:
    """The newest image of each line that was built here, by the names of the lines; a line without one is missing."""
    records = all_records()  # newest first
    found = {}
    for image in images:
        own = [record for record in records if _is_of(record.plan, image.plan)]
        if own:
            found[image.name] = NewestImage(own[0], own[0].image_id)
    return found


def in_registry(
    images: Sequence[ChosenImage], place: PushPlace, catalog: Catalog, site: Site, *, say: Say
) -> dict[str, NewestImage]:
    """The newest image of each line in a repository, by the names of the lines; from the record that is attached to it.

    Args:
        images: the lines.
        place: the repository.
        catalog: has the lines.
        site: proxies and certificate authorities.
        say: progress callback.

    Raises:
        RegistryRefused: AWS or the registry refused.
    """
    ecr = Ecr(place, site)
    registry = Registry(ecr, site, say=say)
    tags = {} if ecr.repository() is None else ecr.tags()
    ordered = newest_first(tags)
    found = {}
    for image in images:
        # The tags of a line differ in what follows: the day, its revision, and the digits of the plan.
        head = tags_of(image.plan, datetime.now(UTC), catalog).immutable.rsplit("-", 2)[0] + "-"
        for digest in dict.fromkeys(tags[tag] for tag in ordered if tag.startswith(head)):
            manifest = ecr.manifest(digest=digest)
            if manifest is None:
                continue
            single = registry.single(manifest)
            try:
                record = attested(ecr, registry, single, registry.published(single))
            except ProofFailed:  # of an earlier version
                continue
            if _is_of(record.plan, image.plan):
                lacking = job_lacks(ecr, registry, single)
                found[image.name] = NewestImage(record, place.digested(digest), lacking)
                break
    return found


def _is_of(one: Plan, other: Plan) -> bool:
    """Whether an image's plan is of the line of another plan, whatever else differs, and has no files of a user."""
    own = (one.user.requirements_sha256, one.user.code_sha256, one.user.entry_point)
    same = all(getattr(one, name) == getattr(other, name) for name in _SAME)
    return same and not any(own) and (one.base.kind, one.base.os) == (other.base.kind, other.base.os)
