"""``list``: what can be built, from which components, and what was built here."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar

from trainwright.cli.flags import CatalogFlag, JsonFlag, emit, verb
from trainwright.core.errors import RequestError
from trainwright.core.layout import size, table
from trainwright.core.paths import use_catalog
from trainwright.core.records import Field

if TYPE_CHECKING:
    from trainwright.build.store import BuiltDocument
    from trainwright.catalog.catalog import Catalog
    from trainwright.catalog.listing import ComponentsDocument, LineRow, ListDocument


class ListFlags(CatalogFlag, JsonFlag):
    """The flags of ``list``."""

    heading: ClassVar[str] = "What to show"
    examples: ClassVar[tuple[str, ...]] = (
        "list",
        "list --framework pytorch --cuda cu124",
        "list --needs packages --with metis",
        "list --built",
    )

    built: bool = Field(default=False, description="the images built here, newest first")
    components: bool = Field(default=False, description="the components and their providers")
    all_: bool = Field(default=False, alias="all", description="lines past their support, too")
    framework: str | None = Field(default=None, description="only lines of this framework", values="frameworks")
    cuda: str | None = Field(default=None, description="only lines of this CUDA version", values="cudas")
    status: str | None = Field(
        default=None,
        description="only lines of this status",
        values=("supported", "unmaintained", "end-of-support", "unreleased"),
    )
    needs: str | None = Field(
        default=None, description="only lines that need packages alone, or the network", values=("packages", "network")
    )
    python: str | None = Field(default=None, description="only lines of this Python version", values="pythons")
    base: str | None = Field(default=None, description="only lines on this base", values="bases")
    with_: str | None = Field(
        default=None,
        alias="with",
        description="only lines that have this component, or can add it",
        values="components",
    )
    proven: bool = Field(default=False, description="only lines that are proven")


@verb
def list_(flags: ListFlags) -> None:
    """Show what can be built, from what, and what was built here.

    Lines past their support are left out, unless a flag asks for some; --json has all of them.
    """
    use_catalog(flags.catalog)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    if flags.built:
        from trainwright.build import store

        emit(store.built(), partial(built_text, width=width), as_json=flags.json_)
        return
    from trainwright.catalog import listing
    from trainwright.catalog.catalog import open_catalog

    catalog = open_catalog()
    if flags.components:
        emit(listing.components(catalog), components_text, as_json=flags.json_)
        return
    from trainwright.catalog.image_line import cuda_tag
    from trainwright.plan.request import parse_cuda

    tag = cuda_tag(parse_cuda(flags.cuda)) if flags.cuda else None
    asked = {"status": flags.status, "needs": flags.needs, "python": flags.python, "base": flags.base}
    asked |= {"with": flags.with_, "proof": "proven" if flags.proven else None}
    holds = {key: value for key, value in asked.items() if value}
    try:
        document = _chosen(catalog, flags, tag, holds)
    except RequestError as refused:
        from trainwright.plan.extend import without_a_line

        of_aws = without_a_line(flags.framework, tag) if holds in ({}, {"base": "dlc"}) else []
        if not of_aws:
            raise
        remedy = "\n".join(["AWS's containers, which need none:", *of_aws])
        raise RequestError(refused.message.partition(". ")[0], remedy=remedy) from None
    every = flags.all_ or bool(tag or holds)
    text = partial(lines_text, every=every, width=width, of_aws=holds == {"base": "dlc"} or not (tag or holds))
    emit(document, text, as_json=flags.json_)


def _chosen(catalog: Catalog, flags: ListFlags, tag: str | None, holds: Mapping[str, str]) -> ListDocument:
    """The lines of a framework and a CUDA tag of which everything holds.

    Raises:
        RequestError: no line matches.
    """
    from trainwright.catalog import listing
    from trainwright.plan.resolve import bare_of
    from trainwright.proofs.expected import sizes_of
    from trainwright.proofs.standing import of_lines

    entries = listing.select(catalog, flags.framework, tag)
    bare = bare_of(catalog, {entry.line.framework for entry in entries})
    standings, sizes = of_lines(entries, catalog), sizes_of(entries)
    document = listing.lines(catalog, entries, standings, sizes, bare, added={flags.with_ or ""})
    return listing.filtered(document, holds)


def lines_text(document: ListDocument, *, every: bool = True, width: int | None = None, of_aws: bool = False) -> str:
    """A line per image line, by framework, the newest first.

    Args:
        document: the lines.
        every: those past their support as well; where all are, they are shown anyway.
        width: of the terminal; columns that matter least are left out until the others fit. None is any width.
        of_aws: say that AWS's containers need no image line.
    """
    from trainwright.catalog.listing import CURRENT, by_framework

    current = [row for row in document.lines if row.status in CURRENT]
    shown = list(document.lines) if every or not current else current
    groups = by_framework(shown)
    indent = "  " if len(groups) > 1 else ""
    head, *rest = _fitting([row for own in groups.values() for row in own], indent, width)
    text = [head]
    for name, own in groups.items():
        text += ["", name] if indent else []
        text += [rest.pop(0) for _ in own]
    hidden = len(document.lines) - len(shown)
    notes = ["* what --framework alone takes"] if any(row.bare for row in shown) else []
    notes += [
        f"in {row.name}, {row.framework} is {row.cuda}, the base image {row.published_cuda}"
        for row in shown
        if row.published_cuda
    ]
    notes += [_UNPINNED] if "unpinned" in head and any(row.until_locked for row in shown) else []
    notes += [_OF_AWS] if of_aws else []
    notes += [f"{hidden} older, past their support or never released: --all"] if hidden else []
    return "\n".join([*text, *([""] if notes else []), *notes])


def _fitting(rows: Sequence[LineRow], indent: str, width: int | None) -> list[str]:
    """The lines of a table, its head first: with fewer columns, at last with shorter names, until it fits."""
    columns, cut = dict(_COLUMNS), None
    spare = [name for name in _SPARE if width is not None]
    while True:
        cells = [[cell(row) for cell in columns.values()] for row in rows]
        marks = [" *" if row.bare else "" for row in rows]
        cells = [
            [f"{shortened_name(name, cut)}{mark}", *others] for (name, *others), mark in zip(cells, marks, strict=True)
        ]
        lines = table([list(columns), *cells], indent).splitlines()
        over = max(map(len, lines)) - width if width is not None else 0
        if over <= 0 or cut is not None:
            return lines
        longest = max(len(row.name) for row in rows) - over
        room = max(len(",".join(row.options)) for row in rows) - over
        if "options" in columns and room >= _SHORTEST:
            columns["options"] = partial(_first_options, room=room)
        elif spare:
            del columns[spare.pop(0)]
        elif longest < _SHORTEST and "os" in columns:
            del columns["os"]
        else:
            cut = longest


def _first_options(row: LineRow, *, room: int) -> str:
    """As many options of a line as so many characters hold, and how many more it has; --json has all of them."""
    names = row.options
    for number in range(len(names), -1, -1):
        more = f" +{len(names) - number}" if number < len(names) else ""
        text = f"{','.join(names[:number])}{more}".strip()
        if len(text) <= room:
            break
    return text


def shortened_name(name: str, limit: int | None) -> str:
    """A name of at most so many characters; what distinguishes lines is at both of its ends."""
    if limit is None or len(name) <= limit:
        return name
    tail = max(limit // 3, 1)
    return f"{name[: max(limit - tail - 1, 1)]}…{name[-tail:]}"


_COLUMNS: tuple[tuple[str, Callable[[LineRow], str]], ...] = (
    *((name, attrgetter(name)) for name in ("name", "version", "cuda", "python")),
    ("os", attrgetter("base")),
    ("base", attrgetter("kind")),
    *((name, attrgetter(name)) for name in ("needs", "status")),
    ("size", lambda row: "-" if row.size_bytes is None else size(row.size_bytes)),
    ("proven", lambda row: row.proof.text),
    (
        "unpinned",
        lambda row: "+".join(["base"] * bool(row.base_tags) + [str(len(row.unpinned))] * bool(row.unpinned)) or "-",
    ),
    ("options", lambda row: ",".join(row.options)),
)
_UNPINNED = (
    "unpinned: bases that are known by a tag only (base), and the number of archives without a published "
    "checksum; packages from Debian's or Ubuntu's archive are pinned by ./invoke lock"
)
_OF_AWS = (
    "AWS's containers need no image line, including those for CPUs and pytorch-smp: ./invoke plan "
    "--framework pytorch --cuda cpu --base dlc"
)
_SHORTEST = 16  # characters of a name that is cut, as long as another column can go
_SPARE = ("options", "base", "unpinned", "needs", "python")  # left out in this order where a terminal is narrow


def components_text(document: ComponentsDocument) -> str:
    """What each component is, and below it its providers; ``base`` is left out, as it cannot be chosen."""
    rows = [("component", "what it is, and its providers")]
    for row in document.components:
        providers = [f"{name} {_versions(has)}".strip() for name, has in row.providers.items() if name != "base"]
        rows += [(row.name, row.summary), ("", ", ".join(providers))]
    return table(rows)


def built_text(document: BuiltDocument, *, width: int | None = None) -> str:
    """A line per image that was built here; on a terminal that is too narrow for it, its tag has a line of its own.

    Args:
        document: the images.
        width: of the terminal; None is any width.
    """
    if not document.images:
        return "No image was built here yet. ./invoke build --framework pytorch --cuda cpu makes one in about a minute."
    rows = [("image", "size", "build", "smoke", "built", "tag")]
    rows += [
        (
            row.image_id[7:19],
            size(row.size_bytes),
            f"{row.seconds:.0f} s",
            row.smoke,
            row.built_at[:16],
            row.tags[0],
        )
        for row in document.images
    ]
    whole = table(rows)
    if width is None or max(map(len, whole.splitlines())) <= width:
        return whole
    facts = table([row[:-1] for row in rows], indent="  ").splitlines()
    return "\n".join(line for row, fact in zip(rows, facts, strict=True) for line in (row[-1], fact))


def _versions(versions: Sequence[str]) -> str:
    """A few versions as they are, many as the first and the last; --json has all of them."""
    return "/".join(versions) if len(versions) < 5 else f"{versions[0]} to {versions[-1]} ({len(versions)})"
