"""``plan``: what a request resolves to."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from trainwright.cli.flags import verb
from trainwright.cli.output import answer, print_json
from trainwright.core.layout import size, table
from trainwright.verbs.request import RequestFlags, begin
from trainwright.verbs.state import known, run
from trainwright.verbs.way import upto

if TYPE_CHECKING:
    from trainwright.catalog.budget import Budget
    from trainwright.catalog.standing import Standing
    from trainwright.plan.plan import Plan, PlannedComponent
    from trainwright.plan.totals import ExpectedSize, ExpectedTime, Totals


PROOFS = {
    "proven": "on {}",
    "twin": "on {}, as a twin: with stand-ins for what was unreachable (docs/twin.md)",
    "failed": "failed on {}{}",
    "stale": "stale: the line has changed since {}",
    "never": "never",
}

_SHOWN = 4  # components that say why an image is so big; --json has all


class PlanFlags(RequestFlags):
    """The flags of ``plan``."""

    examples: ClassVar[tuple[str, ...]] = (
        "plan pytorch:cu124",
        "plan pytorch:cu124 --with cuda-compiler --set nccl=2.21.5",
        "plan --framework tensorflow --cuda cpu --json",
    )


@verb
def plan(flags: PlanFlags) -> None:
    """Show what a request resolves to: versions, tags, totals.

    The totals are what is downloaded, and size and seconds as last measured. --json prints the whole plan, with the
    source and the evidence of each component, and when its line was proven.
    """
    from trainwright.catalog.standing import NEVER
    from trainwright.proofs.expected import totals_of
    from trainwright.proofs.standing import judge, proof_of

    state = run(upto("resolve"), begin(flags, to_build=False))
    found = known(state.plan)
    proof = proof_of(found)
    standing = NEVER if proof is None else judge(proof, found.id)
    totals = totals_of(found, state.site, proof)
    if flags.json_:
        print_json(found.as_json() | {"proof": standing.as_json(), "totals": totals.as_json()})
    else:
        answer(plan_text(found, standing, totals))


def plan_text(plan: Plan, proof: Standing, totals: Totals) -> str:
    """The components in their order, the tags, whether it is proven, what else there is to know, the totals."""
    from trainwright.plan.destination import DESTINATIONS, SAGEMAKER

    cuda = "CPU only" if plan.cuda == "cpu" else f"CUDA {plan.cuda}"
    rows = [
        (c.name, c.version or "as found", c.provider, _download(c, unlocked=plan.unlocked)) for c in plan.components
    ]
    place = "" if plan.destination == SAGEMAKER else f", for {DESTINATIONS[plan.destination]}"
    lines = [
        f"{plan.framework} {plan.version}, {cuda}, Python {plan.python}, on {plan.base.image or plan.base.os}{place}",
        f"plan {plan.id}",
        "",
        table([("component", "version", "provider", "download"), *rows]),
        "",
        *(f"tag   {tag}" for tag in plan.tags),
        *([f"loads {', '.join(f'{name} {what}' for name, what in plan.loads.items())}"] if plan.loads else []),
        *own_text(plan),
        f"proof {PROOFS[proof.state].format(proof.date, f' ({proof.step})' if proof.step else '')}",
        *(f"note  {notice}" for notice in plan.notices),
        "",
        *totals_text(totals, plan.budget),
    ]
    return "\n".join(lines)


def own_text(plan: Plan) -> list[str]:
    """The user's distribution packages and last step."""
    user = plan.user
    apt = [f"apt   {', '.join(user.apt)} (--with-apt)"] if user.apt else []
    return apt + ([f"run   {user.run} (--with-run), sha256 {user.run_sha256}"] if user.run else [])


def totals_text(totals: Totals, budget: Budget | None = None) -> list[str]:
    """What is downloaded, what the image and the time were when they were last measured, and how big it may be."""
    found = totals.download
    return [
        f"download  {size(found.bytes)} in {found.files} files; size not known: {', '.join(found.unknown)}",
        f"image     {_size_text(totals.size)}",
        *([f"budget    {_budget_text(budget, totals.size)}"] if budget is not None else []),
        f"time      {_time_text(totals.time)}",
    ]


def _size_text(expected: ExpectedSize | None) -> str:
    if expected is None:
        return "not known: not built here, and no proof"
    how = "as built here" if expected.measured == "built" else "as proven"
    when = f"{size(expected.bytes)}, {how} on {expected.date}{_plan_text(same=expected.same_plan)}"
    largest = sorted(expected.components.items(), key=lambda each: -each[1])[:_SHOWN]
    if not largest:
        return when
    rest = expected.bytes - sum(count for _, count in largest)
    rows = [*largest, *([("the rest", rest)] if rest > 0 else [])]
    return f"{when}: {', '.join(f'{name} {size(count)}' for name, count in rows)}"


def _budget_text(budget: Budget, expected: ExpectedSize | None) -> str:
    """The budget, and a warning if the image was over it when it was last measured."""
    from trainwright.catalog.budget import TOLERANCE

    text = f"{size(budget.bytes)} ({budget.file})"
    if expected is None or expected.bytes <= budget.bytes:
        return text
    over = f"{text}; warning: the image above is {budget.percent_over(expected.bytes):.1f} % over it"
    broken = budget.broken_by(expected.bytes)
    return f"{over}, more than {TOLERANCE} %, so it would get no tag" if broken else f"{over}, which is still allowed"


def _time_text(expected: ExpectedTime | None) -> str:
    if expected is None:
        return "not known: no build here has measured it"
    cache = f"{expected.cached_steps} of {expected.steps} steps from the cache"
    when = f"as built here on {expected.date}{_plan_text(same=expected.same_plan)}"
    return f"{expected.seconds:.0f} s, {when}, {cache}"


def _plan_text(*, same: bool) -> str:
    return "" if same else " from an earlier plan"


def _download(component: PlannedComponent, *, unlocked: bool) -> str:
    if component.packages and unlocked:
        return f"no lock: {', '.join(component.packages)}"
    known = sum(s.size or 0 for s in component.sources)
    return size(known) if known else "-"
