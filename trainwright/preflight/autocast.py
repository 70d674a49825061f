"""Mixed precision beside the order of a step: what autocast covers, and how long a scaler lives."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.amp import DOCS, PLAIN_STEP, UPDATE_ELSEWHERE
from trainwright.script.events import Event, Guard
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at

UNSCALED_TWICE = Rule(
    code="TW477",
    severity="error",
    title="gradients are unscaled a second time before scaler.update",
    source='torch/amp/grad_scaler.py: "unscale_() has already been called on this optimizer since the last update()"; '
    f"{DOCS}, working with scaled gradients: once per step, after all gradients are accumulated",
    remedy="Call scaler.unscale_(optimizer) once for each step, under the same conditions as scaler.step.",
)
UNSAFE = Rule(
    code="TW478",
    severity="error",
    title="a loss of probabilities under autocast, which refuses it",
    source='PyTorch\'s reference of autocast operations, binary_cross_entropy: "unsafe to autocast" (RuntimeError)',
    remedy="binary_cross_entropy_with_logits, or BCEWithLogitsLoss, of the outputs before the sigmoid.",
)
NEW_SCALER = Rule(
    code="TW479",
    severity="warning",
    title="a new GradScaler for each step, which begins with its first scale again",
    source=f"{DOCS}, typical training: create a GradScaler once at the beginning of training",
    remedy="Create the scaler before the loops.",
)
NO_SCALER = Rule(
    code="TW480",
    severity="warning",
    title="a training in float16 without a GradScaler: small gradients become zero",
    source=f"{DOCS}, gradient scaling: gradients of float16 may underflow; FullyShardedDataParallel's MixedPrecision "
    "with float16 needs ShardedGradScaler",
    remedy="Scale the loss with a GradScaler, or use bfloat16.",
)
WITHIN = Rule(
    code="TW481",
    severity="note",
    title="backward runs within autocast",
    source=f"{DOCS}: backward passes under autocast are not recommended; they use the type of the forward pass anyway",
    remedy="End the autocast block after the loss.",
)
CPU = Rule(
    code="TW482",
    severity="warning",
    title="autocast for the CPU in a job with GPUs",
    source="PyTorch's documentation of torch.autocast, device_type: it concerns operations on that device alone",
    remedy='torch.autocast("cuda", dtype=torch.bfloat16)',
)
HALF_MODEL = Rule(
    code="TW504",
    severity="error",
    title="a GradScaler for a model whose parameters are float16",
    source='torch/amp/grad_scaler.py: "Attempting to unscale FP16 gradients."; '
    f"{DOCS}: do not call half() on the model, autocast chooses the types",
    remedy="Leave the model in float32; autocast with the scaler.",
)
RULES = (UNSCALED_TWICE, UNSAFE, NEW_SCALER, NO_SCALER, WITHIN, CPU, HALF_MODEL)
_HALF = ("torch.float16", "torch.half")
_NAMES = ("torch.autocast", "torch.amp.autocast", "torch.cuda.amp.autocast", "torch.amp.autocast_mode.autocast")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete:
        return
    backwards = [e for e in code.ran("backward", live=True) if e.loops]
    scaler = {name: [e for e in code.ran(name, live=True) if _of_scaler(e)] for name in ("step", "update", "unscale_")}
    yield from _unscaled(scaler["unscale_"], scaler["step"], scaler["update"])
    yield from _step_order(scaler["step"], scaler["update"])
    yield from _past_scaler(code, scaler)
    made = [e for e in code.ran("GradScaler", live=True) if any(e.loops == b.loops for b in backwards)]
    if made:
        yield _at(NEW_SCALER, made[0], "in the loop")
    casts = [e for e in code.events if e.name in _NAMES and not e.detached and not _off(e)]
    if casts and len({e.node for e in casts}) == len({e.node for e in code.events if e.name in _NAMES}):
        yield from _unsafe(code)
    yield from _half(code, casts, backwards)
    yield from _half_model(code, scaler["step"])
    inside = [e for e in backwards if e.contexts and e.contexts[-1] in _NAMES]
    if inside and not code.torch_xla:
        yield _at(WITHIN, inside[0], "within autocast")
    for cast in casts:
        if code.launch.gpus and _device(cast) == "cpu" and any(cast.loops[-1:] == e.loops[-1:] for e in backwards):
            yield _at(CPU, cast, f"and {code.launch.gpus} GPUs on each host")
            return


def _half_model(code: ScriptFacts, steps: list[Event]) -> Iterator[Finding]:
    """Report a trained model that is made float16 though a scaler steps its optimizer."""
    trains = {id(m) for e in code.ran("parameters", live=True) if (m := e.receiver) is not None}
    for event in code.ran("half", live=True) if steps else ():
        model = event.receiver
        mine = model is not None and "model" in model.tags and trains & {id(model), id(event.result)}
        if mine and not any(event.excludes(step) for step in steps):
            yield _at(HALF_MODEL, event, f"and `{ast.unparse(steps[0].node)[:40]}` in line {steps[0].line}")
            return


def _at(rule: Rule, event: Event, message: str) -> Finding:
    return at(rule, event, f"`{ast.unparse(event.node)[:50]}` {message}")


def _of_scaler(event: Event) -> bool:
    return event.receiver is not None and "scaler" in event.receiver.tags


def _off(event: Event) -> bool:
    enabled = event.arg("enabled")
    return enabled is not None and enabled.may_be(False)


def _device(event: Event) -> object:
    given = event.arg("device_type", 0)
    return "cuda" if ".cuda." in event.name else given.single() if given is not None else ...


def _unscaled(unscales: list[Event], steps: list[Event], updates: list[Event]) -> Iterator[Finding]:
    """Report a second unscale_ before the update, or one for each batch where only some of them are updated."""
    for first, second in pairwise(unscales):
        between = [e for e in (*steps, *updates) if first.order < e.order < second.order]
        optimizers = [ast.unparse(e.node.args[0]) for e in (first, second) if e.node.args]
        alike = first.loops == second.loops and set(first.guards) <= set(second.guards)
        other = first.receiver is not second.receiver or len(set(optimizers)) != 1 or first.node is second.node
        if alike and not between and not other:
            yield _at(UNSCALED_TWICE, second, f"again, after line {first.line}")
            return
    for unscale in unscales:
        after = [e for e in updates if e.order > unscale.order and e.loops == unscale.loops and unscale.loops]
        more = [guard for e in after for guard in e.guards if guard not in unscale.guards]
        if len(updates) == len(after) == 1 and more and all(_of_batch(guard, unscale) for guard in more):
            where = ast.unparse(more[0].node)[:40]
            what = f"for every batch, and `{ast.unparse(after[0].node)[:30]}` only where `{where}`"
            yield _at(UNSCALED_TWICE, unscale, what)
            return


def _of_batch(guard: Guard, unscale: Event) -> bool:
    """Return whether a condition tells some batches from others: a counter, or a name that says so."""
    same = ast.unparse(guard.node) in [ast.unparse(each.node) for each in unscale.guards]
    counts = "%" in ast.unparse(guard.node) or isinstance(guard.node, ast.Name)
    return guard.kind == "other" and counts and not same


def _step_order(steps: list[Event], updates: list[Event]) -> Iterator[Finding]:
    if len(steps) == len(updates) == 1 and steps[0].loops == updates[0].loops and steps[0].loops:
        step, update = steps[0], updates[0]
        if update.order < step.order and set(update.guards) == set(step.guards):
            yield _at(UPDATE_ELSEWHERE, update, f"comes before the step in line {step.line}")


def _past_scaler(code: ScriptFacts, scaler: dict[str, list[Event]]) -> Iterator[Finding]:
    """Report an optimizer that steps by itself after unscale_, whether the gradients are finite or not."""
    if scaler["step"] or not scaler["unscale_"] or not scaler["update"] or code.torch_xla or code.mentions("isfinite"):
        return
    for step in code.ran("step", live=True):
        plain = step.receiver is not None and "optimizer" in step.receiver.tags and not _of_scaler(step)
        if plain and step.loops == scaler["update"][0].loops and not code.mentions("found_inf", "isinf", "isnan"):
            what = f"`{ast.unparse(step.node)[:50]}` after unscale_: only the scaler's step skips infinite gradients"
            yield at(PLAIN_STEP, step, what, severity="warning")
            return


def _unsafe(code: ScriptFacts) -> Iterator[Finding]:
    for event in code.events:
        by_class = event.called is not None and event.called.made_by("torch.nn.BCELoss")
        if event.detached or not (by_class or event.name == "torch.nn.functional.binary_cross_entropy"):
            continue
        if any(name.removeprefix("@") in _NAMES for name in event.contexts):
            yield _at(UNSAFE, event, "within autocast")
            return


def _half(code: ScriptFacts, casts: list[Event], backwards: list[Event]) -> Iterator[Finding]:
    """Report float16 where nothing in the script scales the loss."""
    libraries = code.imports("deepspeed", "accelerate", "apex", "fairscale") is not None
    if code.managed or libraries or code.mentions_like("scaler|loss_scale") or not backwards or code.launch.gpus == 0:
        return
    for cast in casts:
        kind = cast.arg("dtype", 1)
        half = _device(cast) == "cuda" if kind is None else kind.name in _HALF
        trains = any(cast.loops == e.loops and cast.order < e.order for e in backwards)
        chosen = isinstance(cast.module.parents.get(cast.node), ast.Dict)  # `with {"fp16": autocast(…), …}[kind]:`
        if half and trains and not cast.opened and not chosen and "flag" not in (kind.tags if kind is not None else ()):
            yield _at(NO_SCALER, cast, "is float16, and nothing scales the loss")
            return
    policies = code.ran("MixedPrecision", "MixedPrecisionPolicy", live=True)
    kinds = [e.arg("param_dtype", 0) for e in policies]
    if any(kind is not None and kind.name not in _HALF for kind in kinds):
        return  # one of several policies, as the GPU has bfloat16
    for event, kind in zip(policies, kinds, strict=True):
        if event.name.startswith("torch.distributed.") and kind is not None and kind.name in _HALF:
            yield _at(NO_SCALER, event, "and nothing scales the loss")
            return
