"""``explain``: why each version is in a plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from trainwright.cli.flags import emit, verb
from trainwright.core.errors import RequestError, did_you_mean
from trainwright.core.layout import duration, size, table
from trainwright.core.records import Field
from trainwright.verbs.request import RequestFlags, begin
from trainwright.verbs.state import known, run
from trainwright.verbs.way import upto

if TYPE_CHECKING:
    from trainwright.plan.explain import ExplainDocument, ExplainRow, Remade


class ExplainFlags(RequestFlags):
    """The flags of ``explain``."""

    examples: ClassVar[tuple[str, ...]] = (
        "explain pytorch:cu124",
        "explain pytorch:cu124 --component nccl",
        "explain nccl --framework pytorch --cuda cu124 --all",
        "explain --framework tensorflow --cuda cpu --json",
    )

    component: str | None = Field(default=None, description="only this component of the plan", values="components")
    all_: bool = Field(
        default=False, alias="all", description="everything: each component, all packages, evidence and notes"
    )


@verb
def explain(flags: ExplainFlags) -> None:
    """Say why each version is in a plan, and what a change costs.

    A component alone is told in about ten lines: who decided its version, the evidence, what a change of it makes again
    and how long that took when it was last built here.
    """
    from trainwright.plan.explain import explain as reasons
    from trainwright.plan.explain import with_seconds
    from trainwright.proofs.expected import seconds_of

    flags = _of_component(flags)
    state = run(upto("resolve"), begin(flags, to_build=False))
    plan = known(state.plan)
    document = reasons(plan, state.catalog, state.site, known(state.request))
    if flags.component:
        rows = tuple(row for row in document.components if row.name == flags.component)
        if not rows:
            hint = did_you_mean(flags.component, (row.name for row in document.components))
            raise RequestError(f"--component {flags.component}: not in this plan. {hint}")
        document = document.replace(components=rows, notices=())
    names = dict.fromkeys(part.name for row in document.components for part in row.remade)
    document = with_seconds(document, seconds_of(names, plan))
    emit(document, partial(explain_text, every=flags.all_), as_json=flags.json_)


def _of_component(flags: ExplainFlags) -> ExplainFlags:
    """``explain nccl`` as ``explain --component nccl``, of the project's image. Frameworks are requests.

    Raises:
        RequestError: there is no project, so no image is named.
    """
    from trainwright.cli.values import values_of
    from trainwright.plan.project import read_project

    name = flags.short
    if not name or name not in values_of("components") or name in values_of("frameworks"):
        return flags
    if not flags.framework and read_project(Path.cwd()) is None:
        raise RequestError(
            f"{name} is a component; of which image?", remedy=f"./invoke explain pytorch:cu124 --component {name}"
        )
    return flags.replace(short=None, component=name)


def explain_text(document: ExplainDocument, *, every: bool) -> str:
    """A block for each component if all is asked for or there is one; otherwise a line for each.

    Args:
        document: what there is to say.
        every: nothing is shortened.
    """
    head = f"{document.image}, plan {document.plan[:12]}"
    if not every and len(document.components) > 1:
        rows = [(f"{row.name} {row.version}".strip(), row.provider, row.why) for row in document.components]
        more = ["", f"line  {document.line}", "more  ./invoke explain COMPONENT, for one; --all for all"]
        return "\n".join([head, "", table(rows), *more])
    blocks = [head, *("\n".join(_block(row, every=every)) for row in document.components)]
    return "\n\n".join([*blocks, *(f"note: {notice}" for notice in document.notices)])


def _block(row: ExplainRow, *, every: bool) -> Iterator[str]:
    """What there is to say of one component."""
    yield f"{row.name} {row.version} from {row.provider}"
    yield f"  is        {row.why}"
    yield f"  decided   by {row.decided}"
    if row.needed_by:
        yield f"  needed    by {', '.join(row.needed_by)}"
    if row.packages:
        shown = row.packages if every else row.packages[:4]
        yield f"  packages  {', '.join(shown)}{_more(row.packages, shown)} ({size(row.download_bytes)})"
    proof = row.evidence if every else row.evidence[:2]
    for each in proof:
        yield f"  evidence  {each.source} ({each.date}): {each.says}"
    if row.evidence != proof:
        yield f"           {_more(row.evidence, proof)}: --all"
    yield f"  a change  makes again {_cost(row.remade)}"


def _more(all_of: Sequence[object], shown: Sequence[object]) -> str:
    return f" and {len(all_of) - len(shown)} more" if len(all_of) > len(shown) else ""


def _cost(parts: Sequence[Remade]) -> str:
    """What a change makes again, the slowest of many, and the seconds of it that a build here has measured."""
    shown = parts if len(parts) < 6 else sorted(parts, key=lambda part: -(part.seconds or 0))[:3]
    text = ", ".join(f"{part.name} {duration(part.seconds)}".strip() for part in shown) + _more(parts, shown)
    known = [part for part in parts if part.seconds is not None]
    if not known:
        return f"{text}; no build here has measured how long that takes"
    total = f"{duration(sum(part.seconds or 0 for part in known))} of work in all, " if len(known) > 1 else ""
    return f"{text}; {total}as last built here on {max(part.date for part in known)}"
