"""How big the image of a plan will be, and how long its build takes: as measured by builds here, and in proofs."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.core.data_files import read_state
from trainwright.core.paths import existing_state
from trainwright.plan.plan import Plan
from trainwright.plan.plan_lock import find_lock
from trainwright.plan.totals import ExpectedSize, ExpectedTime, Totals, download
from trainwright.proofs.places import files
from trainwright.site.site import Site

if TYPE_CHECKING:
    from trainwright.build.store import BuildRecord
    from trainwright.catalog.image_line import Line
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


def seconds_of(names: Iterable[str], plan: Plan) -> dict[str, tuple[float, str]]:
    """What parts of a plan took when they were last built here: seconds of their steps, and the day.

    If no build of this plan's line has made a component, another image with the same version of it tells. A build that
    took a step of a part from the cache does not tell how long that part takes.

    Args:
        names: components, or shared stages such as ``bytecode``.
        plan: has them.
    """
    found: dict[str, tuple[float, str]] = {}
    wanted = set(names)
    for record in _builds(plan):
        for name in wanted - found.keys():
            if _has_same(record.plan, plan, name) and (spent := _spent(record, name)) is not None:
                found[name] = spent
    of_others = {name for name in wanted - found.keys() if plan.component(name) is not None}
    if of_others and existing_state() is not None:
        from trainwright.build.store import all_records

        for record in all_records():
            for name in of_others - found.keys():
                if _has_same(record.plan, plan, name) and (spent := _spent(record, name)) is not None:
                    found[name] = spent
    return found


def _has_same(other: Plan, plan: Plan, name: str) -> bool:
    """Whether both have the same version of a component, or neither has it: then it is a stage that images share."""
    own, its = plan.component(name), other.component(name)
    if own is None or its is None:
        return own is its
    return (own.version, own.provider) == (its.version, its.provider)


def _spent(record: BuildRecord, name: str) -> tuple[float, str] | None:
    """The seconds of a part's steps, and the day; None if the build did not make all of them."""
    if record.timeline is None:
        return None
    own = [step for step in record.timeline.steps if step.component == name]
    if not own or any(step.cached for step in own):
        return None
    return round(sum(step.seconds for step in own), 1), record.timeline.built_at[:10]


def _builds(plan: Plan) -> list[BuildRecord]:
    """The records of images of this plan, newest first, then of others with its tag: earlier plans of the line."""
    state = existing_state()
    if state is None or not (state / "images").is_dir():
        return []
    from trainwright.build.store import all_records  # it loads the engine's modules

    found = [record for record in all_records(mentions=plan.tags[0]) if record.plan.tags[0] == plan.tags[0]]
    return sorted(found, key=lambda record: record.plan.id != plan.id)


def proven_sizes(entries: Iterable[Line]) -> dict[Path, int]:
    """Bytes of the images of lines that proofs have, by the lines' files.

    Only that is read; :func:`trainwright.proofs.standing.of_lines` checks proofs.
    """
    lines = {(entry.path.parent.parent.name, entry.name): entry.path for entry in entries}
    sizes: dict[Path, int] = {}
    for place, path in files().items():
        with suppress(KeyError, TypeError):
            proof = read_state(path)
            # The stand-ins of a twin have other sizes; what failed before there was an image has none.
            if place in lines and proof["stands_for"] is None and proof["size_bytes"] is not None:
                sizes[lines[place]] = proof["size_bytes"]
    return sizes


def sizes_of(entries: Iterable[Line]) -> dict[Path, int]:
    """Bytes of the images of lines, by the lines' files: of the newest that was built here, else of the proof."""
    entries = list(entries)
    state, found = existing_state(), []
    paths = {_key_of(entry): entry.path for entry in entries}
    for path in (state / "images").glob("*/record.json") if state is not None else ():
        with suppress(KeyError, TypeError):
            record = read_state(path)
            plan, user = record["plan"], record["plan"].get("user", {})
            names = ("framework", "version", "cuda", "python")
            key = (*(plan[name] for name in names), plan["base"]["os"], plan.get("flavour", ""))
            if key in paths and not (plan.get("unproven") or user.get("requirements") or user.get("code")):
                found.append((record["built_at"], paths[key], record["size_bytes"]))
    return proven_sizes(entries) | {path: count for _, path, count in sorted(found)}


def _key_of(entry: Line) -> tuple[str, ...]:
    line = entry.line
    return (line.framework, line.version, line.cuda, line.python, line.base.os, line.variant)


def _size(plan: Plan, builds: list[BuildRecord], proof: LineProof | None) -> ExpectedSize | None:
    """Measured here or by a proof; of this plan before that of an earlier one."""
    found = [
        ExpectedSize(
            bytes=record.size_bytes,
            measured="built",
            date=record.built_at[:10],
            same_plan=record.plan.id == plan.id,
            components=record.component_bytes,
        )
        for record in builds[:1]
    ]
    # The stand-ins of a twin have other sizes.
    if proof is not None and proof.stands_for is None and proof.size_bytes is not None:
        found.append(
            ExpectedSize(
                bytes=proof.size_bytes,
                measured="proven",
                date=proof.date[:10],
                same_plan=proof.plan == plan.id,
                components=proof.components,
            )
        )
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
