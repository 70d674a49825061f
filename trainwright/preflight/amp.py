"""The order of a step with mixed precision: scale, backward, (all-reduce,) unscale, clip, step, update, mark_step."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.script.call import Call
from trainwright.script.events import Event, Guard
from trainwright.script.reader import Module
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at, conditions, enclosing_function, enclosing_loop, is_optimizer, same_path

DOCS = "PyTorch's documentation of automatic mixed precision"
GUIDE = "AWS guide for the SageMaker Training Compiler, order of a training step with AMP"
CLIP_SCALED = Rule(
    code="TW130",
    severity="error",
    title="gradients are clipped while they are still scaled",
    source=DOCS,
    remedy="Call scaler.unscale_(optimizer) between backward and clip_grad_norm_.",
)
CLIP_LATE = Rule(
    code="TW131",
    severity="error",
    title="gradients are clipped or unscaled after the optimizer has used them",
    source=DOCS,
    remedy="Use this order: backward, unscale_, clip, step, update.",
)
PLAIN_STEP = Rule(
    code="TW132",
    severity="error",
    title="the loss is scaled, but the optimizer steps with scaled gradients",
    source=DOCS,
    remedy="scaler.step(optimizer); scaler.update()",
)
NO_UPDATE = Rule(
    code="TW133",
    severity="error",
    title="scaler.step without scaler.update",
    source=f"{DOCS}: the scale would never be adjusted",
    remedy="Call scaler.update() after scaler.step(optimizer).",
)
NOT_SCALED = Rule(
    code="TW134",
    severity="error",
    title="scaler.step after backward on a loss that was not scaled",
    source=f"{DOCS}: step divides gradients by a scale that was never applied",
    remedy="scaler.scale(loss).backward()",
)
REDUCE_LATE = Rule(
    code="TW135",
    severity="error",
    title="gradients are reduced after they were unscaled, clipped or used",
    source=f"{GUIDE}: the all-reduce belongs between backward and unscale",
    remedy="Move the all-reduce right after backward.",
)
MARK_EARLY = Rule(
    code="TW136",
    severity="warning",
    title="mark_step is called between backward and scaler.update",
    source=f"{GUIDE}: update, then mark_step",
    remedy="Move xm.mark_step() after scaler.update().",
)
UPDATE_ELSEWHERE = Rule(
    code="TW429",
    severity="error",
    title="scaler.update is not called once for each scaler.step",
    source='torch/amp/grad_scaler.py: a second step raises "step() has already been called since the last update()", '
    'and an update without one "No inf checks were recorded prior to update"',
    remedy="Call scaler.update() right after scaler.step(optimizer), in the same loop and under the same conditions.",
)
PLAIN_SCALER = Rule(
    code="TW452",
    severity="error",
    title="a plain GradScaler for a model that FSDP shards: the processes disagree on which steps to skip",
    source="PyTorch's documentation of FullyShardedDataParallel, mixed precision: use ShardedGradScaler, which agrees "
    "on infinite gradients over all shards",
    remedy="from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler",
)
RULES = (
    PLAIN_SCALER,
    CLIP_SCALED,
    CLIP_LATE,
    PLAIN_STEP,
    NO_UPDATE,
    NOT_SCALED,
    REDUCE_LATE,
    MARK_EARLY,
    UPDATE_ELSEWHERE,
)
CLIPS = ("clip_grad_norm_", "clip_grad_value_", "clip_grad_norm")
REDUCES = ("all_reduce", "reduce_gradients")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family, for each function (or the top level of a file) that calls backward."""
    for calls in _regions(code):
        yield from _check(code, calls)
    yield from _clipped_elsewhere(code)
    yield from _stepped_elsewhere(code)
    yield from _updates(code)
    yield from _scaled_in_vain(code)
    yield from _sharded(code)


def _scaled_in_vain(code: ScriptFacts) -> Iterator[Finding]:
    """Report a loss that is scaled, and a backward of the loss as it was; or an update where nothing steps."""
    if code.incomplete or code.managed:
        return
    for scale in code.ran("scale"):
        after = [e for e in code.ran("backward") if e.order > scale.order and e.stack == scale.stack]
        if not scale.args or not after or scale.receiver is None or "scaler" not in scale.receiver.tags:
            continue
        lost = after[0].args[0] if after[0].args else after[0].receiver
        if lost is scale.args[0] and isinstance(scale.module.parents.get(scale.node), ast.Assign):
            what = f"`{ast.unparse(after[0].node)[:40]}` of the loss that line {scale.line} scales"
            yield at(NOT_SCALED, after[0], what)
            return
    updates = [e for e in code.ran("update", live=True) if _of_scaler(e) and e.loops]
    steps = [c for c in code.called("step") if _is_scaler(c)]
    plain = [e for e in code.ran("step", live=True) if e.receiver is not None and "optimizer" in e.receiver.tags]
    if updates and not steps and any(e.loops == updates[0].loops for e in plain) and not code.mentions("unscale_"):
        step = next(e for e in plain if e.loops == updates[0].loops)
        what = f"`{ast.unparse(step.node)[:40]}` instead of a step of the scaler that line {updates[0].line} updates"
        yield at(PLAIN_STEP, step, what)


def _sharded(code: ScriptFacts) -> Iterator[Finding]:
    """Report torch's own scaler where the optimizer has the parameters of a model in FSDP."""
    if code.incomplete or not code.several or code.mentions("ShardedGradScaler", "NO_SHARD"):
        return
    for event in code.ran("step", live=True):
        if not _of_scaler(event) or not event.args or event.receiver is None:
            continue
        model = event.args[0].of
        plain = all(made.startswith("torch.") and "sharded" not in made for made in event.receiver.made)
        if plain and model is not None and "fsdp" in model.tags and model.made_by("FullyShardedDataParallel", "FSDP"):
            yield at(PLAIN_SCALER, event, f"`{ast.unparse(event.node)[:50]}`")
            return


def _clipped_elsewhere(code: ScriptFacts) -> Iterator[Finding]:
    """Report a clip before the scaler's step in another function than the backward, if nothing unscales at all."""
    if code.incomplete or code.managed or code.mentions("unscale_"):
        return
    backwards = [e for e in code.ran("backward", live=True) if e.receiver is not None]
    steps = [e for e in code.ran("step", live=True) if _of_scaler(e)]
    for clip in code.ran(*CLIPS, live=True):
        before = [e for e in backwards if e.order < clip.order and not _opposed(e, clip)]
        after = [e for e in steps if e.order > clip.order and not _opposed(e, clip)]
        loss = before[-1].receiver if before and after else None
        # What is in one function is reported by the order there.
        if loss is not None and "scaled" in loss.tags and before[-1].stack != clip.stack:
            yield at(CLIP_SCALED, clip, f"{clip.last} without scaler.unscale_ before it")
            return


def _stepped_elsewhere(code: ScriptFacts) -> Iterator[Finding]:
    """Report steps in another function than the backward: with scaled gradients, or a scaler that is never updated."""
    if code.incomplete or code.managed or code.smp:
        return
    backwards = [e for e in code.ran("backward", live=True) if e.receiver is not None]
    scaled = [e for e in backwards if e.receiver is not None and "scaled" in e.receiver.tags]
    by_scaler = [c for c in code.called("step", "unscale_") if _is_scaler(c)]
    for step in code.ran("step", live=True):
        begun = [e for e in scaled if e.order < step.order and e.loops[:1] == step.loops[:1] and e.stack != step.stack]
        receiver = step.receiver
        if not begun or receiver is None or not step.loops or any(_opposed(e, step) for e in begun):
            continue
        if _of_scaler(step):
            if not any(_is_scaler(c) for c in code.called("update")):
                yield at(NO_UPDATE, step, f"`{ast.unparse(step.node)[:40]}` without an update")
                return
        elif "optimizer" in receiver.tags and not by_scaler and not receiver.tags & _SCALE_THEMSELVES:
            what = f"`{ast.unparse(step.node)[:40]}` after `{ast.unparse(begun[-1].node)[:40]}`"
            yield at(PLAIN_STEP, step, what)
            return


# Libraries that know of the scale.
_SCALE_THEMSELVES = {"deepspeed", "accelerate"}


def _opposed(first: Event, second: Event) -> bool:
    """Return whether the conditions around two calls are opposite ones: ``if half``, and later ``if not half``."""
    return any(_sides(second).get(text, side) is not side for text, side in _sides(first).items())


def _sides(event: Event) -> dict[str, bool]:
    sides = {}
    for guard in event.guards:
        negated = isinstance(guard.node, ast.UnaryOp) and isinstance(guard.node.op, ast.Not)
        sides[ast.unparse(guard.node).removeprefix("not ")] = guard.side is not negated
    return sides


def _updates(code: ScriptFacts) -> Iterator[Finding]:
    """Report a scaler that is updated in another loop than it steps in, or also where it does not step."""
    if code.incomplete or code.managed:
        return
    steps = [e for e in code.ran("step", live=True) if _of_scaler(e)]
    updates = [e for e in code.ran("update", live=True) if _of_scaler(e)]
    if not steps or not updates or any(_tells_itself(e) for e in code.ran("GradScaler")):
        return
    for step in steps:
        what = ""
        update = updates[-1]
        around, inner = len(update.loops), len(step.loops)
        if all(len(u.loops) < inner and u.loops == step.loops[: len(u.loops)] for u in updates):
            if _repeats(code, step, step.loops[around:]):
                what = "is not in the loop in which"
        elif all(len(u.loops) > inner and u.loops[:inner] == step.loops for u in updates) and len(steps) == 1:
            what = "is in an inner loop, outside of which"
        elif len(steps) == 1 and all(u.loops == step.loops and _also_without(u, step) for u in updates):
            records = any(_of_scaler(e) and not _counted(e.guards) for e in code.ran("unscale_", live=True))
            what = "" if records else "also runs for batches for which"
        if what:
            message = (
                f"`{ast.unparse(update.node)[:40]}` {what} `{ast.unparse(step.node)[:40]}` in line {step.line} runs"
            )
            yield at(UPDATE_ELSEWHERE, update, message)
            return


def _of_scaler(event: Event) -> bool:
    return event.receiver is not None and "scaler" in event.receiver.tags and event.receiver.made_by("GradScaler")


def _tells_itself(event: Event) -> bool:
    """Return whether the scaler is switched off for certain: then its methods do nothing."""
    enabled = event.arg("enabled")
    return enabled is not None and enabled.single() is False


def _repeats(code: ScriptFacts, step: Event, loops: tuple[ast.AST, ...]) -> bool:
    """Return whether loops repeat the step of one optimizer: each pass has a backward, and the same optimizer."""
    named = {node.id for arg in step.node.args for node in ast.walk(arg) if isinstance(node, ast.Name)}
    for loop in loops:
        targets = ast.walk(loop.target) if isinstance(loop, ast.For | ast.AsyncFor) else ()
        if any(isinstance(node, ast.Name) and node.id in named for node in targets):
            return False
    leaves = any(leave.loops[-1:] == loops[-1:] and leave.kind == "break" for leave in code.exits)
    backwards = [e for e in code.ran("backward", live=True) if e.loops[: len(step.loops)] == step.loops]
    return bool(backwards) and not leaves and not _counted(step.guards)


def _counted(guards: tuple[Guard, ...]) -> list[Guard]:
    """Return the conditions that count batches: ``(i + 1) % accumulation == 0``, ``not i % accumulation``."""
    return [guard for guard in guards if "%" in ast.unparse(guard.node)]


def _also_without(update: Event, step: Event) -> bool:
    """Return whether the update runs also for batches for which a counter skips the step."""
    more = [guard for guard in step.guards if guard not in update.guards]
    return bool(more) and more == _counted(tuple(more)) and set(update.guards) <= set(step.guards)


def _regions(code: ScriptFacts) -> Iterator[list[Call]]:
    places: dict[tuple[Module, ast.AST], None] = {}
    for call in code.backwards:
        places[call.module, enclosing_function(call.module, call.node) or call.module.tree] = None
    for _, node in places:
        yield code.calls_in.get(node, [])


def _is_scaler(call: Call) -> bool:
    return "scaler" in call.receiver.lower()


def _after(first: Call, second: Call) -> bool:
    """``second`` follows ``first`` in the text and both run in one pass."""
    return _end(first) <= _end(second) and same_path(first, second)


def _end(call: Call) -> tuple[int, int]:
    return call.node.end_lineno or 0, call.node.end_col_offset or 0


def _check(code: ScriptFacts, calls: list[Call]) -> Iterator[Finding]:
    backwards = [c for c in calls if c in code.backwards]
    # `scaler.scale(loss).backward()`, and a loss that was scaled the line before.
    scaling = [c for c in calls if c.last == "scale" and _is_scaler(c)]
    unscales = [c for c in calls if c.last == "unscale_" and _is_scaler(c)]
    scaler_steps = [c for c in calls if c.last == "step" and _is_scaler(c)]
    updates = [c for c in calls if c.last == "update" and _is_scaler(c)]
    plain_steps = [c for c in calls if c.last == "step" and is_optimizer(c.receiver) and not _is_scaler(c)]
    plain_steps += [c for c in calls if c.last == "optimizer_step"]
    steps = scaler_steps + plain_steps
    for clip in (c for c in calls if c.last in CLIPS):
        scaled = [s for s in scaling if _after(s, clip)]
        if scaled and scaler_steps and not any(_after(u, clip) for u in unscales):
            yield at(CLIP_SCALED, clip, f"{clip.last} without scaler.unscale_ before it")
        elif not scaled or unscales:
            yield from _late(clip, backwards, steps)
    for unscale in unscales:
        yield from _late(unscale, backwards, scaler_steps)
    for step in plain_steps:
        scaled = [s for s in scaling if _after(s, step)]
        # After unscale_ the gradients are correct: torch_xla's own examples then reduce and step by hand.
        right = any(_after(u, step) and _tests(u) <= _tests(step) for u in unscales)
        if scaled and not any(same_path(step, s) for s in scaler_steps) and not right:
            yield at(PLAIN_STEP, step, f"{step.receiver or 'xm'}.{step.last}(…) after scaler.scale(…).backward()")
    for step in scaler_steps:
        if not any(c.last == "update" and _is_scaler(c) for c in code.calls):
            yield at(NO_UPDATE, step, f"{step.receiver}.step without {step.receiver}.update")
        earlier = [b for b in backwards if _after(b, step)]
        if earlier and not any(c.last == "scale" and _is_scaler(c) for c in code.calls):
            yield at(NOT_SCALED, earlier[-1], f"{earlier[-1].receiver}.backward() before {step.receiver}.step")
    if code.torch_xla:
        yield from _xla(calls, backwards, unscales, steps, updates)


def _tests(call: Call) -> set[ast.expr]:
    return {test for test, _ in conditions(call.module, call.node)}


def _late(call: Call, backwards: list[Call], steps: list[Call]) -> Iterator[Finding]:
    """Report a call after the optimizer step, unless a backward of the same pass comes between or after."""
    loop = enclosing_loop(call.module, call.node)
    before = [s for s in steps if _after(s, call) and enclosing_loop(s.module, s.node) is loop]
    if not before or any(_after(s, call) for s in backwards if s.line > before[-1].line):
        return
    # Where a step also follows, the order may be a wrapped-around one: step of the last batch, then the next.
    if any(_after(call, s) for s in steps) or not any(_after(b, before[-1]) for b in backwards):
        return
    yield at(CLIP_LATE, call, f"{call.last} after the step in line {before[-1].line}")


def _xla(
    calls: list[Call], backwards: list[Call], unscales: list[Call], steps: list[Call], updates: list[Call]
) -> Iterator[Finding]:
    users = [*unscales, *(c for c in calls if c.last in CLIPS), *steps]
    for reduce in (c for c in calls if c.last in REDUCES and not c.name.startswith("torch.distributed")):
        if "grad" not in ast.unparse(reduce.node):
            continue
        begun = [b for b in backwards if _after(b, reduce)]
        late = [u for u in users if begun and _after(begun[-1], u) and _after(u, reduce)]
        if late:
            yield at(REDUCE_LATE, reduce, f"{reduce.last} after {late[0].last} in line {late[0].line}")
    reduced = [c for c in calls if c.last in REDUCES and "grad" in ast.unparse(c.node)]
    for step in (c for c in steps if c.name.endswith("xla_model.optimizer_step") and not reduced):
        clips = [c for c in calls if c.last in CLIPS and _after(c, step) and any(_after(b, c) for b in backwards)]
        if clips:
            what = f"in line {clips[0].line}: each process clips by the norm of its own gradients"
            yield at(REDUCE_LATE, step, f"{step.last} reduces gradients after {clips[0].last} {what}")
    for mark in (c for c in calls if c.last == "mark_step"):
        begun = [b for b in backwards if _after(b, mark)]
        ended = [u for u in updates if _after(mark, u)]
        between = [u for u in updates if begun and _after(begun[-1], u) and _after(u, mark)]
        if begun and ended and not between:
            yield at(MARK_EARLY, mark, f"mark_step before scaler.update in line {ended[0].line}")
