"""``explain``: why each version is in a plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from trainwright.cli.flags import emit, verb
from trainwright.core.errors import RequestError, did_you_mean
from trainwright.core.layout import size
from trainwright.core.records import Field
from trainwright.verbs.request import RequestFlags, begin
from trainwright.verbs.way import known, run, upto

if TYPE_CHECKING:
    from trainwright.plan.explain import ExplainDocument


class ExplainFlags(RequestFlags):
    """The flags of ``explain``."""

    examples: ClassVar[tuple[str, ...]] = (
        "explain pytorch:cu124",
        "explain pytorch:cu124 --component nccl",
        "explain nccl",
        "explain --framework tensorflow --cuda cpu --json",
    )

    component: str | None = Field(default=None, description="only this component of the plan", values="components")


@verb
def explain(flags: ExplainFlags) -> None:
    """Say why each version is in a plan, with the evidence."""
    from trainwright.plan.explain import explain as reasons

    flags = _of_component(flags)
    state = run(upto("resolve"), begin(flags, to_build=False))
    document = reasons(known(state.plan), state.catalog, state.site)
    if flags.component:
        rows = tuple(row for row in document.components if row.name == flags.component)
        if not rows:
            hint = did_you_mean(flags.component, (row.name for row in document.components))
            raise RequestError(f"--component {flags.component}: not in this plan. {hint}")
        document = document.replace(components=rows, notices=())
    emit(document, explain_text, as_json=flags.json_)


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


def explain_text(document: ExplainDocument) -> str:
    """A block per component, then what else there is to know."""
    blocks = [f"plan {document.plan}"]
    for row in document.components:
        block = [f"{row.name} {row.version} from {row.provider}: {row.why}"]
        if row.packages:
            more = f" and {len(row.packages) - 6} more" if len(row.packages) > 6 else ""
            block.append(f"  packages  {', '.join(row.packages[:6])}{more} ({size(row.download_bytes)})")
        block += [f"  evidence  {each.source} ({each.date}): {each.says}" for each in row.evidence]
        if row.rebuilds:
            block.append(f"  a change builds the layers of {', '.join(row.rebuilds)} again")
        blocks.append("\n".join(block))
    blocks += [f"note: {notice}" for notice in document.notices]
    return "\n\n".join(blocks)
