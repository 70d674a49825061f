"""Optimizers and schedules that still hold parameters, or an optimizer, that were replaced later."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule, Severity
from trainwright.preflight.loop import STALE
from trainwright.preflight.versions import before
from trainwright.script.events import Event, Replacement
from trainwright.script.known import FSDP, OPTIMIZER
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at
from trainwright.script.values import Value, within

OLD_SCHEDULE = Rule(
    code="TW552",
    severity="error",
    title="the schedule still changes an optimizer that was replaced, so the learning rate stays the same",
    source="PyTorch, torch/optim/lr_scheduler.py: a schedule sets the rates of the optimizer that it got; "
    "Lightning-AI/pytorch-lightning #12812",
    remedy="Create a schedule for the new optimizer as well, or keep the optimizer and add the new parameters: "
    "optimizer.add_param_group(…).",
)
RULES = (OLD_SCHEDULE,)
# A layer with parameters.
_TRAINED = re.compile(r"^torch\.nn\.(\w+\.)*(Linear|Bilinear|Conv\w+|Embedding\w*|LSTM|GRU|Parameter)$")
_SCHEDULES = re.compile(r"\.lr_scheduler\.\w+$|^transformers\.([\w.]+\.)?get_(\w+_)?schedule")
# From this release on, the old embedding gets the new weights (transformers 4.43.0, modeling_utils.py,
# _get_resized_embeddings); before it, a new one takes its place (4.42.4).
_KEPT_SINCE = "4.43.0"


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete or not code.backwards:
        return
    yield from _from_before(code)
    yield from _new_parameters(code)
    yield from _old_schedule(code)


def _from_before(code: ScriptFacts) -> Iterator[Finding]:
    """Report an optimizer that is made before FSDP, or the move to an XLA device, replaces the parameters."""
    made = [(e, model) for e in _made(code) if (model := _source(code, e)) is not None]
    for event in code.events if made else ():
        if event.detached:
            continue
        replaces = FSDP.search(event.name) or event.name == "torch.sagemaker.transform"
        replaced = event.args[0] if event.args and replaces else None
        if event.last == "to" and code.torch_xla and any("xla-device" in arg.tags for arg in event.args):
            replaced = event.receiver
        kept = event.arg("use_orig_params")  # FSDP then keeps the parameter objects, as views into its own memory
        if replaced is None or event.opened or (kept is not None and kept.single() is not False):
            continue
        before = [e for e, model in made if model is replaced and e.order < event.order]
        if before and not any(e.order > event.order and model in (replaced, event.result) for e, model in made):
            what = f"the optimizer of line {before[-1].line} keeps the parameters from before {event.last}"
            yield at(STALE, event, what)
            return


def _made(code: ScriptFacts) -> list[Event]:
    return [e for e in code.events if "optimizer" in e.result.tags and e.result.made]


def _source(code: ScriptFacts, made: Event) -> Value | None:
    """Return the model whose parameters an optimizer gets.

    Of groups that a function, or a loop before the call, sorts: the one model that is asked for its parameters there.
    """
    given, owner = made.arg("params", 0), made.result.of
    if given is None or (owner is not None and "model" in owner.tags):
        return owner
    sorts = next((e for e in code.events if e.result is given and e.called is not None and e.called.code), None)
    if sorts is None and not any("params" in (group.attrs or {}) for group in given.items or ()):
        return owner
    asked = [e for e in code.ran("parameters", "named_parameters", live=True) if e.order < made.order]
    asked = [e for e in asked if (e.stack == made.stack if sorts is None else e.order > sorts.order)]
    models = [e.receiver for e in asked if e.receiver is not None]
    return models[0] if models and all(model is models[0] for model in models) else owner


def _new_parameters(code: ScriptFacts) -> Iterator[Finding]:
    """Report layers that are replaced, or embeddings that are resized, after an optimizer got the parameters."""
    made = [e for e in _made(code) if not e.detached]
    later = [*(e for e in made if not _wraps(e)), *code.ran("add_param_group", live=True)]
    places: list[tuple[Event | Replacement, Value, Severity]] = [*_layers(code), *_resized(code)]
    for place, model, severity in places:
        if any(guard.off for guard in place.guards) or any(e.order > place.order for e in later):
            continue
        before = [e for e in made if e.order < place.order and _holds(code, e, model) and not _apart(e, place)]
        steps = [e for e in code.ran("step", live=True) if e.order > place.order and _of_optimizer(e)]
        if before and steps:
            what = (
                f"`{ast.unparse(place.node)[:50]}` makes parameters that the optimizer of line {before[0].line} lacks"
            )
            yield at(STALE, (place.module, place.node), what, severity=severity)
            return


def _layers(code: ScriptFacts) -> Iterator[tuple[Replacement, Value, Severity]]:
    """Yield where layers with parameters are put into a model, and the model."""
    for change in code.replacements:
        if _new(code, change.value):
            yield change, change.into, "error"


def _new(code: ScriptFacts, layer: Value) -> bool:
    """Return whether a layer certainly has new parameters: no Sequential of old layers, no class of the script."""
    maker = code.maker(layer)
    if maker is not None and maker.name == "torch.nn.Sequential":
        return any(_new(code, each) for each in maker.args)
    return maker is not None and bool(_TRAINED.search(maker.name))


def _resized(code: ScriptFacts) -> Iterator[tuple[Event, Value, Severity]]:
    """Yield where embeddings are resized, the model, and an error if the job's transformers replaces them."""
    replaced = before(code, "transformers", _KEPT_SINCE)
    adapted = code.mentions("requires_grad_", "get_peft_model")  # what is frozen stays frozen
    if adapted or replaced is False:
        return
    grows = replaced is True and bool(code.ran("add_tokens", "add_special_tokens", live=True))
    for event in code.ran("resize_token_embeddings", live=True):
        if event.receiver is not None:
            yield event, event.receiver, "error" if grows else "warning"


def _wraps(made: Event) -> bool:
    """Return whether an optimizer wraps another one, whose parameter groups it keeps."""
    return any("optimizer" in value.tags for value in (*made.args, *made.keywords.values()))


def _of_optimizer(step: Event) -> bool:
    """Return whether an optimizer steps, or a GradScaler does it for one."""
    return any(value is not None and "optimizer" in value.tags for value in (step.receiver, *step.args))


def _holds(code: ScriptFacts, made: Event, model: Value) -> bool:
    """Return whether an optimizer got the parameters of a model, also through a function of the script."""
    if made.result.of is not None:
        return within(model, made.result.of)
    given = made.arg("params", 0)
    call = next((e for e in code.events if e.result is given and e.name.startswith("script.")), None)
    return call is not None and any(value is model for value in (*call.args, *call.keywords.values()))


def _apart(event: Event, place: Event | Replacement) -> bool:
    """Return whether a call and a place are on different sides of a condition."""
    sides = {guard.node: guard.side for guard in place.guards}
    return any(sides.get(guard.node, guard.side) is not guard.side for guard in event.guards)


def _old_schedule(code: ScriptFacts) -> Iterator[Finding]:
    """Report a schedule that is stepped after its optimizer was replaced, where none is made for the new one."""
    schedules = [e for e in code.events if _SCHEDULES.search(e.name) and not e.detached]
    for change in code.replacements:
        maker = code.maker(change.value)
        if maker is None or not OPTIMIZER.search(maker.name) or _wraps(maker):
            continue
        if any(e.order > change.order for e in schedules) or _given_to_schedule(code):
            continue
        for schedule in schedules:
            held = schedule.arg("optimizer", 0)
            if held is not change.into or schedule.order > maker.order or _apart(schedule, change):
                continue
            step = next((e for e in code.ran("step", live=True) if _steps(e, schedule, change, maker)), None)
            if step is not None:
                what = f"`{ast.unparse(change.node)}` is another optimizer from here on, and `{step.text}` in line"
                yield at(
                    OLD_SCHEDULE, (change.module, change.node), f"{what} {step.line} sets the rates of the one before"
                )
                return


def _steps(step: Event, schedule: Event, change: Replacement, maker: Event) -> bool:
    """Return whether a schedule is still stepped where the new optimizer is in use."""
    mine = step.receiver is schedule.result or (step.receiver is not None and step.receiver.of is schedule.result)
    again = step.order > change.order or bool(set(step.loops) & set(maker.loops))
    return mine and again and set(step.guards) <= set(change.guards)


def _given_to_schedule(code: ScriptFacts) -> bool:
    """Return whether the script hands a schedule another optimizer: ``schedule.optimizer = optimizer``."""
    stores = (n for m in code.modules for n in m.nodes if isinstance(n, ast.Attribute) and n.attr == "optimizer")
    return any(isinstance(n.ctx, ast.Store) and "sched" in ast.unparse(n.value).lower() for n in stores)
