"""``tags``: shows, moves, holds and releases the moving tags of a repository."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from trainwright.cli.flags import CatalogFlag, JsonFlag, SiteFlag, emit, verb
from trainwright.cli.output import say
from trainwright.core.errors import RequestError
from trainwright.core.layout import table
from trainwright.core.paths import use_catalog
from trainwright.core.records import Field
from trainwright.push.options import PlaceWords

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trainwright.pipeline.images import ChosenImage
    from trainwright.push.references import PushPlace
    from trainwright.push.tagging import TagRow, TagsDocument
    from trainwright.site.site import Site

_LINES = "Lines of advance"


class TagsFlags(PlaceWords, CatalogFlag, SiteFlag, JsonFlag):
    """The flags of ``tags``: what is done, to which tags of which repository."""

    heading: ClassVar[str] = "What is done to which tags"
    bare: ClassVar[str] = "words"
    examples: ClassVar[tuple[str, ...]] = (
        "tags list --repository team/training",
        "tags move pytorch-2.6-cu124 --to sha256:… --repository team/training",
        "tags hold pytorch-2.6-cu124 --reason 'loss diverges on 2.6.1' --repository team/training",
        "tags rollback pytorch-2.6-cu124 --repository team/training",
        "tags release pytorch-2.6-cu124 --repository team/training",
        "tags advance 'pytorch-*-debian' --repository-prefix team",
    )

    words: tuple[str, ...] = Field(
        default=(),
        alias="words",
        description="list, move, hold, release or rollback, and tags; or advance, and image lines as build --images "
        "takes them (default: the supported ones)",
        values=("list", "move", "hold", "release", "rollback", "advance"),
    )
    to: str = Field(default="", description="for move and hold: the image, a digest or a tag", metavar="IMAGE")
    reason: str = Field(default="", description="why; it is kept in the log of the tag", metavar="TEXT")
    repository_prefix: str = Field(
        default="",
        description="the images are in a repository for each framework: PREFIX/pytorch",
        heading=_LINES,
        metavar="PREFIX",
    )
    with_: str | None = Field(
        default=None,
        alias="with",
        description="components that were added to each image, comma-separated",
        heading=_LINES,
        metavar="NAMES",
        values="components",
    )
    without: str | None = Field(
        default=None,
        description="components that were left out of each image, comma-separated",
        heading=_LINES,
        metavar="NAMES",
        values="components",
    )


@verb
def tags(flags: TagsFlags) -> None:
    """Show, move, hold or roll back the moving tags of a repository.

    A held tag stays where it is whatever is pushed, until it is released. A rollback goes to the image before that, and
    holds the tag there. `advance` moves the tags of image lines to the newest image of each, once the registry has a
    proven one of every line: the last step after `push --leave-tags`.
    """
    from trainwright.push.ecr import caller_account
    from trainwright.push.tagging import check_action, manage_tags
    from trainwright.site.site import load_site
    from trainwright.verbs.request import target_in_hand

    action, names = (*flags.words, "list")[0], flags.words[1:]
    check_action(action, names, flags.to)
    site = load_site(Path(flags.site) if flags.site else None)
    if action == "advance":
        emit(_advance(flags, names, site), tags_text, as_json=flags.json_)
        return
    for name in ("repository_prefix", "with_", "without", "catalog"):
        if getattr(flags, name):
            flag = name.strip("_").replace("_", "-")
            raise RequestError(f"tags {action}: --{flag} is for advance", remedy=f"Leave --{flag} out.")
    target = target_in_hand(flags, site)
    account = target.account or caller_account(target.regions[0], site)
    document = manage_tags(action, names, target, site, account=account, to=flags.to, reason=flags.reason)
    emit(document, tags_text, as_json=flags.json_)


def _advance(flags: TagsFlags, words: Sequence[str], site: Site) -> TagsDocument:
    """Move the tags of lines whose images are all there."""
    from trainwright.catalog.catalog import open_catalog
    from trainwright.fresh.advance import advance
    from trainwright.pipeline.images import choose

    use_catalog(flags.catalog)
    catalog = open_catalog()
    images = choose(",".join(words), catalog, site, with_=flags.with_, without=flags.without)
    return advance([*_places(flags, images, site)], catalog, site, say=say)


def _places(
    flags: TagsFlags, images: Sequence[ChosenImage], site: Site
) -> Iterator[tuple[PushPlace, Sequence[ChosenImage]]]:
    """The repositories of the flags, each with the lines whose images are there."""
    from trainwright.push.push import places_of
    from trainwright.push.references import find_target
    from trainwright.verbs.request import target_in_hand

    if not flags.repository_prefix:
        for place in places_of(target_in_hand(flags, site), site):
            yield place, images
        return
    if flags.repository:
        raise RequestError("--repository and --repository-prefix: one of them", remedy="Leave one out.")
    for framework in dict.fromkeys(image.plan.framework for image in images):
        name = f"{flags.repository_prefix}/{framework}"
        for place in places_of(find_target(name, flags.regions, flags.account, site.aws), site):
            yield place, [image for image in images if image.plan.framework == framework]


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
