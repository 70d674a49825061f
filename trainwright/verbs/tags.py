"""``tags``: shows, moves, holds and releases the moving tags of a repository."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from trainwright.cli.flags import JsonFlag, SiteFlag, emit, verb
from trainwright.core.layout import table
from trainwright.core.records import Field
from trainwright.push.options import PlaceWords

if TYPE_CHECKING:
    from trainwright.push.tagging import TagRow, TagsDocument


class TagsFlags(PlaceWords, SiteFlag, JsonFlag):
    """The flags of ``tags``: what is done, to which tags of which repository."""

    heading: ClassVar[str] = "What is done to which tags"
    bare: ClassVar[str] = "words"
    examples: ClassVar[tuple[str, ...]] = (
        "tags list --repository team/training",
        "tags move pytorch-2.6-cu124 --to sha256:… --repository team/training",
        "tags hold pytorch-2.6-cu124 --reason 'loss diverges on 2.6.1' --repository team/training",
        "tags rollback pytorch-2.6-cu124 --repository team/training",
        "tags release pytorch-2.6-cu124 --repository team/training",
    )

    words: tuple[str, ...] = Field(
        default=(),
        alias="words",
        description="list, move, hold, release or rollback, and tags",
        values=("list", "move", "hold", "release", "rollback"),
    )
    to: str = Field(default="", description="for move and hold: the image, a digest or a tag", metavar="IMAGE")
    reason: str = Field(default="", description="why; it is kept in the log of the tag", metavar="TEXT")


@verb
def tags(flags: TagsFlags) -> None:
    """Show, move, hold or roll back the moving tags of a repository.

    A held tag stays where it is whatever is pushed, until it is released. A rollback goes to the image before that, and
    holds the tag there.
    """
    from trainwright.push.ecr import caller_account
    from trainwright.push.tagging import check_action, manage_tags
    from trainwright.site.site import load_site
    from trainwright.verbs.request import target_in_hand

    action, names = (*flags.words, "list")[0], flags.words[1:]
    check_action(action, names, flags.to)
    site = load_site(Path(flags.site) if flags.site else None)
    target = target_in_hand(flags, site)
    account = target.account or caller_account(target.regions[0], site)
    document = manage_tags(action, names, target, site, account=account, to=flags.to, reason=flags.reason)
    emit(document, tags_text, as_json=flags.json_)


def tags_text(document: TagsDocument) -> str:
    """Each tag with its image and its history, the newest decision first."""
    return "\n\n".join(map(_tag_text, document.tags)) or "no tag of this repository was moved by Trainwright"


def _tag_text(row: TagRow) -> str:
    built = f", built {row.built:%Y-%m-%d %H:%M} UTC" if row.built else ""
    lines = [
        f"{row.tag}  {row.region}" + (f"  {row.state}" if row.state else "") + (f"  {row.held}" if row.held else ""),
        f"  image  {row.digest or 'none'}  {row.version}{built}".rstrip(),
    ]
    if row.digest != row.belongs and row.belongs:
        lines.append(f"  belongs to {row.belongs}: a push was stopped; the next push puts it there")
    rows = [
        (f"{one.at:%Y-%m-%d %H:%M}", one.what, one.version, one.digest, one.reason) for one in reversed(row.history)
    ]
    return "\n".join([*lines, *(f"  {line}".rstrip() for line in table(rows).splitlines())])
