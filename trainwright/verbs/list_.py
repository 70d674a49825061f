"""``list``: what can be built, from which components, and what was built here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from trainwright.cli.flags import CatalogFlag, JsonFlag, emit, verb
from trainwright.cli.program import use_catalog
from trainwright.core.layout import size, table
from trainwright.core.records import Field

if TYPE_CHECKING:
    from trainwright.build.store import BuiltDocument
    from trainwright.catalog.listing import ComponentsDocument, ListDocument


class ListFlags(CatalogFlag, JsonFlag):
    """The flags of ``list``."""

    heading: ClassVar[str] = "What to show"
    examples: ClassVar[tuple[str, ...]] = (
        "list",
        "list --framework pytorch --cuda cu124",
        "list --built",
    )

    built: bool = Field(default=False, description="the images built here, newest first")
    components: bool = Field(default=False, description="the components and their providers")
    framework: str | None = Field(default=None, description="only lines of this framework", values="frameworks")
    cuda: str | None = Field(default=None, description="only lines of this CUDA version", values="cudas")


@verb
def list_(flags: ListFlags) -> None:
    """Show what can be built, from what, and what was built here."""
    use_catalog(flags.catalog)
    if flags.built:
        from trainwright.build import store

        emit(store.built(), built_text, as_json=flags.json_)
        return
    from trainwright.catalog import listing
    from trainwright.catalog.catalog import open_catalog

    catalog = open_catalog()
    if flags.components:
        emit(listing.components(catalog), components_text, as_json=flags.json_)
        return
    from trainwright.catalog.image_line import cuda_tag
    from trainwright.plan.request import parse_cuda
    from trainwright.proofs.standing import of_lines

    tag = cuda_tag(parse_cuda(flags.cuda)) if flags.cuda else None
    entries = listing.select(catalog, flags.framework, tag)
    emit(listing.lines(catalog, entries, of_lines(entries, catalog)), lines_text, as_json=flags.json_)


def lines_text(document: ListDocument) -> str:
    """A line per image line."""
    head = (
        "framework",
        "version",
        "cuda",
        "python",
        "base",
        "kind",
        "needs",
        "status",
        "proven",
        "unpinned",
        "options",
    )
    rows = [
        (
            *(str(getattr(row, key)) for key in head[:-3]),
            row.proof.text,
            str(len(row.unpinned) or "-"),
            ",".join(row.options),
        )
        for row in document.lines
    ]
    return table([head, *rows])


def components_text(document: ComponentsDocument) -> str:
    """A line per component. The provider ``base`` is left out, as it cannot be chosen."""
    rows = [("component", "providers", "what it is")]
    for row in document.components:
        providers = [f"{name} {_versions(has)}".strip() for name, has in row.providers.items() if name != "base"]
        rows.append((row.name, ", ".join(providers), row.summary))
    return table(rows)


def built_text(document: BuiltDocument) -> str:
    """A line per image that was built here."""
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
    return table(rows)


def _versions(versions: Sequence[str]) -> str:
    """A few versions as they are, many as the first and the last; --json has all of them."""
    return "/".join(versions) if len(versions) < 5 else f"{versions[0]} to {versions[-1]} ({len(versions)})"
