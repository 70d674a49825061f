"""Schedules of the learning rate: their numbers count calls of ``step()``, which is batches or epochs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.script.events import Event
from trainwright.script.known import SCHEDULE_STEPS
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at, meant
from trainwright.script.values import Value

PER_BATCH = Rule(
    code="TW464",
    severity="warning",
    title="a schedule with numbers of epochs is stepped after each batch, so the learning rate is soon gone",
    source="PyTorch's documentation of torch.optim.lr_scheduler, how to adjust learning rate: step_size, milestones "
    "and T_max count calls of step(), which its examples make once per epoch",
    remedy="scheduler.step() after the loop over the batches, or numbers of batches: step_size=30 * len(loader).",
)
PER_EPOCH = Rule(
    code="TW583",
    severity="error",
    title="the script steps a schedule once per epoch, but its length is in batches",
    source="PyTorch's documentation of OneCycleLR: it changes the learning rate after every batch, and total_steps is "
    "epochs * steps_per_epoch; pytorch/pytorch #65417, ageron/handson-mlp #28",
    remedy="scheduler.step() after optimizer.step(), for each batch; or numbers of epochs: total_steps=epochs.",
)
RULES = (PER_BATCH, PER_EPOCH)
_SCHEDULERS = "torch.optim.lr_scheduler."
# Of the first learning rate, what is left after so many batches is nothing.
_BATCHES, _NOTHING = 1000, 1e-4
# LinearLR warms up: its steps may be those of one epoch.
_LENGTHS = {name: steps for name, steps in SCHEDULE_STEPS.items() if name != "LinearLR"}
_IN_BATCHES = frozenset({"own-batches", "all-batches", "share-length"})
_RANGES = ("range", "trange", "count", "arange")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete:
        return
    yield from _per_epoch(code)
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


def _per_epoch(code: ScriptFacts) -> Iterator[Finding]:
    """Report a schedule over all batches that is stepped where an epoch ends, and nowhere else."""
    if code.imports("deepspeed") is not None or not any(code.ran(*_LENGTHS)):
        return
    steps = [e for e in code.ran("step") if not (e.receiver and e.receiver.tags & {"optimizer", "scaler"})]
    passes = [e for e in code.ran("backward", live=True) if len(e.loops) > 1]
    for step in steps:
        epochs = step.loops
        inner = [e.loops for e in passes if e.loops[: len(epochs)] == epochs and len(e.loops) > len(epochs) > 0]
        made = _made(code, step.receiver, *_LENGTHS)
        length = _in_batches(code, made) if made is not None and inner and not (step.args or step.keywords) else ""
        if made is None or not length or step.detached or _loader(code, epochs[-1]):
            continue
        batches = next((loop for loops in inner for loop in loops[len(epochs) :] if _loader(code, loop)), None)
        if batches is None or any(e.detached or batches in e.loops for e in steps) or not _whenever(step, made, passes):
            continue
        what = f"{made.last}({length}) is stepped in line {step.line}, after the loop in line {_line(batches)}"
        yield at(PER_EPOCH, made, f"{what} over all batches of an epoch")
        return


def _whenever(step: Event, made: Event, passes: list[Event]) -> bool:
    """Return whether a schedule is stepped unconditionally, or only if it exists."""
    around = {guard.node for each in passes for guard in each.guards}
    own = ast.unparse(step.node.func).rpartition(".")[0]
    told = {own, f"{own} is not None", *(ast.unparse(guard.node) for guard in made.guards)}
    return all(guard.node in around or ast.unparse(guard.node) in told for guard in step.guards)


def _loader(code: ScriptFacts, loop: ast.AST) -> bool:
    """Return whether a loop goes over the batches of a loader, also if it counts them."""
    value = code.iterated(loop)
    while value is not None and "loader" not in value.tags:
        value = value.of if "element" in value.tags or value.made_by("enumerate", "tqdm") else None
    return value is not None


def _in_batches(code: ScriptFacts, made: Event) -> str:
    """Return the argument by which a schedule is as long as there are batches; nothing if that cannot be seen."""
    for name, place in _LENGTHS.get(made.last, ()):
        value = made.arg(name, place)
        given = next((k.value for k in made.node.keywords if k.arg == name), None)
        if given is None and len(made.node.args) > place:
            given = made.node.args[place]
        if value is None or given is None:
            continue
        by_loader = any("len(" in ast.unparse(each) for each in _divisors(meant(made.module, given)))
        if not by_loader and (value.tags & _IN_BATCHES or _counts_loader(code, made, given)):
            return f"{name}={ast.unparse(given)[:40]}"
    return ""


def _divisors(node: ast.expr) -> Iterator[ast.expr]:
    for each in ast.walk(node):
        if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Div | ast.FloorDiv):
            yield each.right


def _counts_loader(code: ScriptFacts, made: Event, node: ast.expr, depth: int = 3) -> bool:
    """Return whether a number is the length of a loader, or a multiple of it."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return any(_counts_loader(code, made, each, depth) for each in (node.left, node.right))
    told = meant(made.module, node)
    if told is not node and depth:
        return _counts_loader(code, made, told, depth - 1)
    lengths = [e for e in code.ran("len") if e.node is node]
    return any(e.args and "loader" in e.args[0].tags for e in lengths)


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


def _made(code: ScriptFacts, scheduler: Value | None, *names: str) -> Event | None:
    """Return the call of PyTorch's class that made a scheduler; None of several, or of another one.

    Args:
        names: those that are meant, also functions of transformers.
    """
    value = scheduler
    while value is not None and "accelerate" in value.tags and value.of is not None:
        value = value.of
    libraries = (_SCHEDULERS, "transformers.") if names else (_SCHEDULERS,)
    among = code.ran(*names) if names else code.events
    found = [e for e in among if e.result is value and e.name.startswith(libraries)]
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
