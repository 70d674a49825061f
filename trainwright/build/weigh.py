"""How big an image is, and that it keeps its size budget: looked at right after the build, before any tag is given."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from trainwright.build.ledger import LedgerRow, make_ledger
from trainwright.build.store import BuildRecord, all_records
from trainwright.catalog.budget import TOLERANCE, Budget
from trainwright.core.errors import EngineError, ProofFailed
from trainwright.core.layout import size, table
from trainwright.core.runner import run
from trainwright.engine.engine import Engine
from trainwright.plan.plan import Plan

if TYPE_CHECKING:
    from trainwright.build.build import Built

_SHOWN = 3  # components in the message; --json has all


def layers_in_engine(engine: Engine, image_id: str) -> list[tuple[str, int]]:
    """(created by, bytes) of the steps of an image, newest first. Their sum is the size of the image, unpacked.

    ``docker image inspect`` has a size of its own, which with the containerd image store is that of the compressed
    layers (moby/moby#53398).

    Raises:
        EngineError: the engine does not find the image.
    """
    argv = [engine.client.path, "history", "--no-trunc", "--human=false", "--format", "{{json .}}", image_id]
    rows = run(argv, env=engine.cli_env)
    if not rows.ok:
        raise EngineError(f"the engine cannot find the image that it built: {rows.tail(2)}")
    parsed = [json.loads(line) for line in rows.stdout.splitlines() if line.strip()]
    return [(row["CreatedBy"], int(row["Size"])) for row in parsed]


def check_budget(plan: Plan, built: Built, history: Sequence[tuple[str, int]], dockerfile: str) -> None:
    """Compare a new image with the budget of its plan, if it has one.

    Args:
        plan: of the image.
        built: the image, which has no tag yet.
        history: its steps, as of :func:`layers_in_engine`.
        dockerfile: the text that was built.

    Raises:
        ProofFailed: the image is over its budget by more than the tolerance; no tag was moved.
    """
    if (budget := plan.budget) is None:
        return
    total = sum(count for _, count in history)
    if not budget.broken_by(total):
        return
    ledger = make_ledger(plan, dockerfile, built.progress.steps, history)
    before = _before(plan, built.image_id)
    known = {row.name: row.bytes for row in before.ledger} if before is not None else {}
    raise ProofFailed(
        f"the image is too big, so no tag was moved: {size(total)}, {size(total - budget.bytes)} "
        f"({budget.percent_over(total):.1f} %) over its budget of {size(budget.bytes)} in {budget.file}; "
        f"{TOLERANCE} % are allowed\n{_grown(ledger, known, before)}",
        remedy=_remedy(budget, total, built, before),
        image_id=built.image_id,
        size_bytes=total,
        budget=budget.as_json(),
        components=[
            {"name": row.name, "bytes": row.bytes, "expected_bytes": known.get(row.name)} for row in ledger if row.bytes
        ],
    )


def _before(plan: Plan, image_id: str) -> BuildRecord | None:
    """The last build that gave another image the plan's tag: of this plan, or of an earlier one of the line."""
    records = all_records(mentions=plan.tags[0])
    return next((each for each in records if each.plan.tags[0] == plan.tags[0] and each.image_id != image_id), None)


def _grown(ledger: Iterable[LedgerRow], known: Mapping[str, int], before: BuildRecord | None) -> str:
    """The components that outgrew most what they were; the biggest ones, if none did or no build is known."""
    rows = sorted(ledger, key=lambda row: (-max(row.bytes - known.get(row.name, 0), 0), -row.bytes, row.name))[:_SHOWN]
    lines = []
    for row in rows:
        was, more = known.get(row.name), row.bytes - known.get(row.name, 0)
        if before is None:
            says = "not known from an earlier build"
        elif was is None:
            says = f"new since {before.built_at[:10]}"
        else:
            change = f"{size(abs(more))} {'more' if more > 0 else 'less'} than" if more else "as"
            says = f"{change} on {before.built_at[:10]}"
        lines.append((row.name, size(row.bytes), says))
    return table(lines, indent="  ")


def _remedy(budget: Budget, total: int, built: Built, before: BuildRecord | None) -> str:
    image = built.image_id[7:19]
    lines = [f"If it is meant to be this big, raise budget in {budget.file} to {size(total)}."]
    if before is not None:
        lines.insert(0, f"./invoke report {before.tags[0]} shows what the image of {before.built_at[:10]} holds.")
    lines.append(f"The image is {image}: docker history {image} shows its layers, docker rmi {image} removes it.")
    if built.pushed:
        lines.append(f"In the registry it is {built.pushed}, without any tag.")
    return "\n".join(lines)
