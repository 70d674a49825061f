"""Schedules of the learning rate: their numbers count calls of ``step()``, which is batches or epochs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.script.events import Event
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at
from trainwright.script.values import Value

PER_BATCH = Rule(
    code="TW464",
    severity="warning",
    title="a schedule with numbers of epochs is stepped after each batch, so the learning rate is soon gone",
    source="PyTorch's documentation of torch.optim.lr_scheduler, how to adjust learning rate: step_size, milestones "
    "and T_max count calls of step(), which its examples make once per epoch",
    remedy="scheduler.step() after the loop over the batches, or numbers of batches: step_size=30 * len(loader).",
)
RULES = (PER_BATCH,)
_SCHEDULERS = "torch.optim.lr_scheduler."
# Of the first learning rate, what is left after so many batches is nothing.
_BATCHES, _NOTHING = 1000, 1e-4
_RANGES = ("range", "trange", "count", "arange")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rule of this family."""
    if code.incomplete:
        return
    batches = [e for e in code.ran("backward", live=True) if e.loops and _over_batches(code, e)]
    for event in code.ran("step", live=True):
        within = [e for e in batches if e.loops == event.loops]
        made = _made(code, event.receiver)
        if made is None or not within or event.args or event.keywords or not _each_time(event, within):
            continue
        if what := _soon_gone(code, made, event.loops):
            told = f"`{ast.unparse(event.node)[:50]}` for each batch of the loop in line {_line(event.loops[-1])}"
            yield at(PER_BATCH, event, f"{told}: {what}")
            return


def _line(loop: ast.AST) -> int:
    return int(getattr(loop, "lineno", 0))


def _over_batches(code: ScriptFacts, backward: Event) -> bool:
    """Return whether a loop with a backward pass goes over the batches of an epoch, not over epochs."""
    loop = backward.loops[-1]
    value = code.iterated(loop)
    if value is None:
        return False
    chain = [value]
    while chain[-1].of is not None and len(chain) < 9:
        chain.append(chain[-1].of)
    counted = [e for e in code.ran(*_RANGES) if any(e.result is each for each in chain)]
    if counted:
        return len(backward.loops) > 1 and all(any("length" in v.tags for v in e.args) for e in counted)
    return len(backward.loops) > 1 or any("loader" in each.tags for each in chain)


def _made(code: ScriptFacts, scheduler: Value | None) -> Event | None:
    """Return the call of PyTorch's class that made a scheduler; None of several, or of another one."""
    value = scheduler
    while value is not None and "accelerate" in value.tags and value.of is not None:
        value = value.of
    found = [e for e in code.events if e.result is value and e.name.startswith(_SCHEDULERS)]
    return found[0] if len(found) == 1 else None


def _each_time(event: Event, backwards: list[Event]) -> bool:
    """Return whether nothing but an option, or whether there is a scheduler, decides if it is stepped."""
    around = {guard.node for e in backwards for guard in e.guards}
    own = ast.unparse(event.node.func).rpartition(".")[0]
    return all(
        guard.node in around or guard.kind == "flag" or ast.unparse(guard.node) in (own, f"{own} is not None")
        for guard in event.guards
    )


def _number(value: Value | None, otherwise: float | None = None) -> float | None:
    single = otherwise if value is None else value.single()
    return float(single) if isinstance(single, int | float) else None


def _soon_gone(code: ScriptFacts, made: Event, loops: tuple[ast.AST, ...]) -> str:
    """Return what a schedule does to the learning rate within a few batches; nothing if that may be meant."""
    kind, epochs = made.last, _epochs(code, loops)
    gamma = _number(made.arg("gamma", 1 if kind == "ExponentialLR" else 2), 0.1)
    size = 1.0 if kind == "ExponentialLR" else _number(made.arg("step_size", 1))
    if kind in ("StepLR", "ExponentialLR") and gamma is not None and size is not None and size >= 1:
        left = gamma ** (_BATCHES // size)
        return f"after {_BATCHES:,} batches, {left:.0e} of the learning rate is left" if left < _NOTHING else ""
    if epochs is None:
        return ""
    stones = made.arg("milestones", 1)
    last = max((_number(each) or 0 for each in stones.items), default=0) if stones is not None and stones.items else 0
    if kind == "MultiStepLR" and 0 < last <= epochs:
        return f"its last milestone is {last:.0f}, and there are {epochs:.0f} epochs"
    period = _number(made.arg("T_max", 1))
    if kind == "CosineAnnealingLR" and period == epochs:
        return f"T_max is {period:.0f}, the number of the epochs"
    return ""


def _epochs(code: ScriptFacts, loops: tuple[ast.AST, ...]) -> float | None:
    """Return how often the loop around that over the batches runs."""
    value = code.iterated(loops[-2]) if len(loops) > 1 else None
    made = [e for e in code.ran("range", "trange") if e.result is value]
    given = [_number(value) for value in made[0].args] if made else []
    first, end = (0.0, given[0]) if len(given) == 1 else given if len(given) == 2 else (None, None)
    return end - first if first is not None and end is not None else None
