"""``plan``: what a request resolves to."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from trainwright.cli.flags import verb
from trainwright.cli.program import answer, print_json
from trainwright.core.layout import size, table
from trainwright.verbs.request import RequestFlags, begin
from trainwright.verbs.way import known, run, upto

if TYPE_CHECKING:
    from trainwright.catalog.standing import Standing
    from trainwright.plan.plan import Plan, PlannedComponent


PROOFS = {
    "proven": "on {}",
    "twin": "on {}, as a twin: with stand-ins for what was unreachable (docs/twin.md)",
    "failed": "failed on {}",
    "stale": "stale: the line has changed since {}",
    "never": "never",
}


class PlanFlags(RequestFlags):
    """The flags of ``plan``."""

    examples: ClassVar[tuple[str, ...]] = (
        "plan pytorch:cu124",
        "plan pytorch:cu124 --with cuda-compiler --set nccl=2.21.5",
        "plan --framework tensorflow --cuda cpu --json",
    )


@verb
def plan(flags: PlanFlags) -> None:
    """Show what a request resolves to: versions, downloads, tags.

    --json prints the whole plan, with the source and the evidence of each component, and when its line was proven.
    """
    from trainwright.proofs.standing import of_plan

    found = known(run(upto("resolve"), begin(flags, to_build=False)).plan)
    proof = of_plan(found)
    if flags.json_:
        print_json(found.as_json() | {"proof": proof.as_json()})
    else:
        answer(plan_text(found, proof))


def plan_text(plan: Plan, proof: Standing) -> str:
    """The components in their order, the tags, whether it is proven, what else there is to know."""
    cuda = "CPU only" if plan.cuda == "cpu" else f"CUDA {plan.cuda}"
    rows = [
        (c.name, c.version or "as found", c.provider, _download(c, unlocked=plan.unlocked)) for c in plan.components
    ]
    lines = [
        f"{plan.framework} {plan.version}, {cuda}, Python {plan.python}, on {plan.base.image or plan.base.os}",
        f"plan {plan.id}",
        "",
        table([("component", "version", "provider", "download"), *rows]),
        "",
        *(f"tag   {tag}" for tag in plan.tags),
        f"proof {PROOFS[proof.state].format(proof.date)}",
        *(f"note  {notice}" for notice in plan.notices),
    ]
    return "\n".join(lines)


def _download(component: PlannedComponent, *, unlocked: bool) -> str:
    if component.packages and unlocked:
        return f"no lock: {', '.join(component.packages)}"
    known = sum(s.size or 0 for s in component.sources)
    return size(known) if known else "-"
