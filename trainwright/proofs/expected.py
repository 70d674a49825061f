"""How big the image of a plan will be, and how long its build takes: as measured by builds here, and in proofs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwright.core.paths import existing_state
from trainwright.plan.plan import Plan
from trainwright.plan.plan_lock import find_lock
from trainwright.plan.totals import ExpectedSize, ExpectedTime, Totals, download
from trainwright.site.site import Site

if TYPE_CHECKING:
    from trainwright.build.store import BuildRecord
    from trainwright.proofs.proof import LineProof


def totals_of(plan: Plan, site: Site, proof: LineProof | None) -> Totals:
    """What the build of a plan comes to. Nothing is written and no engine is asked.

    Args:
        plan: as it was resolved.
        site: has the folder of locks.
        proof: of the plan's line, if there is one.

    Raises:
        RequestError: the lock of the plan cannot be read.
    """
    builds = _builds(plan)
    size = _size(plan, builds, proof)
    return Totals(
        download=download(plan, find_lock(plan, site)),
        size=size,
        time=_time(plan, builds),
        over_budget=size is not None and plan.budget is not None and plan.budget.broken_by(size.bytes),
    )


def _builds(plan: Plan) -> list[BuildRecord]:
    """The records of images of this plan, newest first, then of others with its tag: earlier plans of the line."""
    state = existing_state()
    if state is None or not (state / "images").is_dir():
        return []
    from trainwright.build.store import all_records  # it loads the engine's modules

    found = [record for record in all_records(mentions=plan.tags[0]) if record.plan.tags[0] == plan.tags[0]]
    return sorted(found, key=lambda record: record.plan.id != plan.id)


def _size(plan: Plan, builds: list[BuildRecord], proof: LineProof | None) -> ExpectedSize | None:
    """Measured here or by a proof; of this plan before that of an earlier one."""
    found = [
        ExpectedSize(
            bytes=record.size_bytes, measured="built", date=record.built_at[:10], same_plan=record.plan.id == plan.id
        )
        for record in builds[:1]
    ]
    if proof is not None and proof.stands_for is None:  # the stand-ins of a twin have other sizes
        same = proof.plan == plan.id
        found.append(ExpectedSize(bytes=proof.size_bytes, measured="proven", date=proof.date[:10], same_plan=same))
    return min(found, key=lambda each: not each.same_plan, default=None)


def _time(plan: Plan, builds: list[BuildRecord]) -> ExpectedTime | None:
    return next((time for record in builds if (time := _time_of(plan, record)) is not None), None)


def _time_of(plan: Plan, record: BuildRecord) -> ExpectedTime | None:
    """The time of a build; if everything was cached, that of the one which made the image, as far as it is known."""
    seconds, steps, cached, when = record.seconds, record.total_steps, record.cached_steps, record.built_at
    if record.cached:
        if record.timeline is None or all(step.cached for step in record.timeline.steps):
            return None
        timed = record.timeline.steps
        seconds, when = max(step.start + step.seconds for step in timed), record.timeline.built_at
        steps, cached = len(timed), sum(step.cached for step in timed)
    same = record.plan.id == plan.id
    return ExpectedTime(seconds=round(seconds, 1), steps=steps, cached_steps=cached, date=when[:10], same_plan=same)
