"""``diff``: what changed between two images, plans, lines or locks."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from trainwright.cli.flags import CatalogFlag, JsonFlag, emit, verb
from trainwright.cli.output import say
from trainwright.core.layout import change, short_digests, size, table
from trainwright.core.paths import use_catalog
from trainwright.core.records import Field

if TYPE_CHECKING:
    from trainwright.report.documents import ChangedName, Comparison

_SIGNS = {"added": "+", "removed": "-", "changed": "~"}


class DiffFlags(CatalogFlag, JsonFlag):
    """The flags of ``diff``."""

    examples: ClassVar[tuple[str, ...]] = (
        "diff pytorch:cu124 pytorch:cu126",
        "diff images/pytorch/cu124/lock.json images/pytorch/cu126/lock.json",
        "diff 33b06dfd4347 trainwright/pytorch:2.15.0-cu132-py313-debian13",
    )

    before: str = Field(
        description="an image built here, a request, an image line, or the file of a lock or plan", values="requests"
    )
    after: str = Field(description="the same, to compare it with", values="requests")
    files: bool = Field(default=False, description="of two images, every file as well; reads both from the engine")


@verb
def diff(flags: DiffFlags) -> None:
    """Show what changed between two images, plans, image lines or locks.

    The two need not be of one kind: a plan and an image of it can be compared, and a lock and an image line.
    """
    from trainwright.catalog.catalog import open_catalog
    from trainwright.report.compare import compare
    from trainwright.report.contents import read
    from trainwright.report.files import with_files

    use_catalog(flags.catalog)
    catalog = open_catalog()
    both = (read(flags.before, catalog), read(flags.after, catalog))
    if flags.files:
        both = with_files(*both, say=say)
    emit(compare(*both), diff_text, as_json=flags.json_)


def diff_text(found: Comparison) -> str:
    """What changed, by part, and what a pull costs."""
    lines: list[str] = []
    for part, own in found.parts.items():
        rows = [(_SIGNS[c.state], c.name, _values(c)) for c in own]
        lines += [f"{part}: {len(own)} of {found.compared[part]}", table(rows, indent="  "), ""]
    if not found.changes:
        lines += [f"nothing differs in {', '.join(found.compared)}", ""]
    if found.weights:
        rows = [(w.name, f"{size(w.before)} → {size(w.after)}", change(w.before, w.after)) for w in found.weights]
        whole = change(sum(w.before for w in found.weights), sum(w.after for w in found.weights))
        lines += [f"bytes, unpacked: {whole} in all", table(rows, indent="  "), ""]
    if (pull := found.pull) is not None:
        lines += [
            f"a pull of {found.after} where {found.before} is, of {size(pull.bytes)} unpacked:",
            f"  {size(pull.new_bytes)} in {pull.new_layers} of {pull.layers} layers by containerd",
            f"  {size(pull.above_bytes)} in {pull.above_layers} layers by Docker's own store: "
            "all above the first difference",
            "",
        ]
    if found.skipped:
        lines.append(f"not compared, as only one side has it: {', '.join(found.skipped)}")
    return "\n".join(lines).rstrip()


def _values(found: ChangedName) -> str:
    """Both values, in short: of a list of paths what was added and removed, of digests the beginning."""
    before, after = (value.split(":") if value.startswith("/") else [] for value in (found.before, found.after))
    gone = [f"-{path}" for path in before if path not in after]
    new = [f"+{path}" for path in after if path not in before]
    if before and after and (gone or new):
        return " ".join([*gone, *new])
    return short_digests(" → ".join(filter(None, (found.before, found.after))))
