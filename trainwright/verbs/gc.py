"""``gc``: what holds the images of a repository, and which of them nothing holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from trainwright.cli.flags import JsonFlag, SiteFlag, emit, verb
from trainwright.cli.output import Ended, say
from trainwright.core.layout import size, table
from trainwright.core.records import Field
from trainwright.push.options import PlaceWords

if TYPE_CHECKING:
    from trainwright.push.gc import GcDocument, GcRow
    from trainwright.push.holds import Hold


class GcFlags(PlaceWords, SiteFlag, JsonFlag):
    """The flags of ``gc``: which repository, and whether anything is deleted."""

    heading: ClassVar[str] = "What is deleted"
    examples: ClassVar[tuple[str, ...]] = (
        "gc --repository team/training",
        "gc --repository team/training --keep-days 180 --json",
        "gc --repository team/training --region us-west-2 --delete",
    )

    keep_days: int = Field(
        default=90,
        description="what was pushed, pulled or named by a training job in these days stays",
        metavar="N",
    )
    delete: bool = Field(default=False, description="delete what nothing holds (default: only show it)")


@verb
def gc(flags: GcFlags) -> None:
    """Show what holds images in a repository; delete what nothing holds.

    Tags, holds, training jobs, indexes and age hold an image. Nothing is deleted without --delete.
    """
    from trainwright.core.errors import RegistryRefused
    from trainwright.push.ecr import caller_account
    from trainwright.push.gc import collect
    from trainwright.site.site import load_site
    from trainwright.verbs.request import target_in_hand

    site = load_site(Path(flags.site) if flags.site else None)
    target = target_in_hand(flags, site)
    account = target.account or caller_account(target.regions[0], site)
    document = collect(target, site, account=account, keep_days=flags.keep_days, delete=flags.delete, say=say)
    emit(document, gc_text, as_json=flags.json_)
    if any(row.state == "failed" for row in document.images):
        raise Ended(RegistryRefused.exit_code)


_SAYS = {
    "moving": "moving tag {}",
    "tag": "tag {}",
    "held": "tag {}, held",
    "rollback": "rollback of {}",
    "job": "training job {}",
    "index": "index {}",
    "pushed": "pushed {}",
    "pulled": "pulled {}",
    "archived": "archived",
    "image": "image {}",
}


def gc_text(document: GcDocument) -> str:
    """A line per image with what holds it, the oldest first, and how many there are of each state."""
    lines = table([_cells(row) for row in document.images]).splitlines()
    for state, says in (
        ("held", "held"),
        ("unused", "unused"),
        ("foreign", "unused, but not built by Trainwright"),
        ("deleted", "deleted"),
        ("failed", "not deleted"),
    ):
        rows = [row for row in document.images if row.state == state]
        if rows:
            # Layers that images share are stored once.
            lines.append(f"{len(rows)} {says}, at most {size(sum(row.size_bytes for row in rows))}")
    if not document.images:
        lines.append("the repository has no images")
    if any(row.state == "unused" for row in document.images):
        lines.append("--delete deletes what is unused, with its documents")
    return "\n".join(lines)


def _cells(row: GcRow) -> tuple[str, ...]:
    name = row.tags[0] if row.tags else row.digest[:19]
    why = "; ".join([*map(_hold, row.holds), *([row.says] if row.says else [])])
    return (row.state, row.kind, row.region, f"{row.pushed:%Y-%m-%d}", size(row.size_bytes), name, why)


def _hold(hold: Hold) -> str:
    return _SAYS[hold.by].format(hold.name[:19] if hold.name.startswith("sha256:") else hold.name)
