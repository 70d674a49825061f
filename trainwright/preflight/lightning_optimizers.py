"""Lightning: manual optimization, and how often a Trainer steps a schedule."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.script.events import Event
from trainwright.script.known import LIGHTNING
from trainwright.script.reader import Module
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import ancestors, at, enclosing_function
from trainwright.script.values import Code, Value

BY_THE_TRAINER = Rule(
    code="TW578",
    severity="error",
    title="the Trainer cannot clip or accumulate gradients of a module with manual optimization",
    source='lightning, trainer/configuration_validator.py: "Automatic gradient clipping is not supported for manual '
    'optimization", and the same of accumulation (MisconfigurationException)',
    remedy="self.clip_gradients(optimizer, gradient_clip_val=…) in training_step; steps after each n-th batch as well.",
)
PER_EPOCH = Rule(
    code="TW579",
    severity="error",
    title="Lightning steps a schedule once per epoch, but its length is in batches, so the rate hardly changes",
    source="Lightning's documentation of configure_optimizers: the default interval of lr_scheduler is epoch; "
    "Lightning-AI/pytorch-lightning #19774, #9300; pytorch/pytorch #65417",
    remedy='return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}',
)
RULES = (BY_THE_TRAINER, PER_EPOCH)
# What a Trainer does itself, with the value that leaves it out.
_AUTOMATIC = {"gradient_clip_val": 0, "accumulate_grad_batches": 1}
_LIBRARIES = ("torch.optim.lr_scheduler.", "transformers.")
_SCHEDULES = (
    *("OneCycleLR", "CosineAnnealingLR", "LinearLR", "PolynomialLR", "LambdaLR", "get_scheduler"),
    *(
        "get_linear_schedule_with_warmup",
        "get_cosine_schedule_with_warmup",
        "get_polynomial_decay_schedule_with_warmup",
    ),
)
_BATCHES = "estimated_stepping_batches"


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete or code.imports(*LIGHTNING) is None:
        return
    yield from _by_hand(code)
    yield from _per_epoch(code)


def _by_hand(code: ScriptFacts) -> Iterator[Finding]:
    """Report a Trainer that is to clip or accumulate gradients of a module with manual optimization."""
    if not code.mentions("automatic_optimization") or _chosen(code):
        return
    for fit in code.ran("fit", live=True):
        model = fit.arg("model", 0)
        trainer = code.maker(fit.receiver) if fit.receiver is not None else None
        if model is None or trainer is None or trainer.last != "Trainer" or not trainer.name.startswith(LIGHTNING):
            continue
        if not _manual(model):
            continue
        for name, off in _AUTOMATIC.items():
            given = trainer.arg(name)
            number = given.single() if given is not None and code.decided(given) else None
            if isinstance(number, int | float) and number > off:
                what = f"{name}={number!r}, and automatic_optimization of the model in line {fit.line} is False"
                yield at(BY_THE_TRAINER, trainer, what)
                return


def _chosen(code: ScriptFacts) -> bool:
    """Return whether a condition decides if a module optimizes by hand."""
    for module in code.modules:
        for node in module.nodes:
            target = node.targets[0] if isinstance(node, ast.Assign) else None
            named = isinstance(target, ast.Attribute) and target.attr == "automatic_optimization"
            if named and any(isinstance(outer, ast.If | ast.Try) for outer in ancestors(module, node)):
                return True
    return False


def _manual(model: Value) -> bool:
    """Return whether a module certainly says that it has no automatic optimization."""
    if model.code is None or sum(made.startswith("script.") for made in model.made) > 1:
        return False
    own = (model.attrs or {}).get("automatic_optimization") or model.code.fields.get("automatic_optimization")
    if own is not None:
        return own.single() is False and own.sure
    method = model.code.method("automatic_optimization")
    returns = [n.value for n in ast.walk(method.node) if isinstance(n, ast.Return)] if method is not None else []
    return bool(returns) and all(isinstance(v, ast.Constant) and v.value is False for v in returns)


def _per_epoch(code: ScriptFacts) -> Iterator[Finding]:
    """Report a schedule over all batches that configure_optimizers returns without an interval."""
    if code.mentions("lr_schedulers", "lr_scheduler_step", "LightningCLI", "automatic_optimization"):
        return  # the script may step it
    for event in code.ran(*_SCHEDULES):
        function = next((each for each in event.stack if each.name == "configure_optimizers"), None)
        if function is None or not _in_module(function.owner) or not event.name.startswith(_LIBRARIES):
            continue
        length, returned = _in_batches(event), code.returned(function)
        if length and returned is not None and _without_interval(code, returned, _with_outer(code, event.result)):
            what = f"the length of `{event.last}` is {length}, but Lightning steps it after each epoch"
            yield at(PER_EPOCH, event, what)
            return


def _in_module(owner: Code | None) -> bool:
    return owner is not None and any(each.endswith("LightningModule") for each in owner.origins())


def _in_batches(schedule: Event) -> str:
    """Return by which number a schedule is as long as all batches of the training are; else nothing."""
    per_epoch = schedule.arg("steps_per_epoch", 4)
    if schedule.last == "OneCycleLR" and per_epoch is not None and per_epoch.single() not in (None, 1):
        return "steps_per_epoch"
    numbers = (*schedule.node.args[1:], *(k.value for k in schedule.node.keywords if k.arg != "optimizer"))
    return _BATCHES if any(_of_batches(schedule.module, each, each) for each in numbers) else ""


def _of_batches(module: Module, node: ast.expr, place: ast.AST, depth: int = 3) -> bool:
    """Return whether a number is made from the Trainer's number of batches, and not of those of an epoch by a division.

    Args:
        place: where it is used; what a name stands for is looked up in the function there.
    """
    parts = list(ast.walk(node))
    if not depth or any(isinstance(each, ast.Div | ast.FloorDiv) for each in parts):
        return False
    if any(isinstance(each, ast.Attribute) and each.attr == _BATCHES for each in parts):
        return True
    function = enclosing_function(module, place)
    for name in (each for each in parts if isinstance(each, ast.Name)):
        assigned = [
            each.value
            for each in (ast.walk(function) if function is not None else ())
            if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == name.id
        ]
        if len(assigned) == 1 and _of_batches(module, assigned[0], place, depth - 1):
            return True
    return False


def _with_outer(code: ScriptFacts, schedule: Value) -> list[Value]:
    """Return a schedule and those that it is a part of: ``SequentialLR(optimizer, [warmup, decay], …)``."""
    found = [schedule]
    for outer in code.ran("SequentialLR", "ChainedScheduler"):
        parts = outer.arg("schedulers", 0 if outer.last == "ChainedScheduler" else 1)
        if parts is not None and any(each is schedule for each in parts.items or ()):
            found.append(outer.result)
    return found


def _without_interval(code: ScriptFacts, returned: Value, schedules: list[Value], depth: int = 3) -> bool:
    """Return whether what configure_optimizers returns has a schedule without an interval of its own, or ``epoch``."""
    attrs, elsewhere = returned.attrs or {}, code.says("^interval$") or code.mentions("interval")
    if returned.code is not None or "**" in attrs or not depth:
        return False
    if any(attrs.get("scheduler") is each for each in schedules):
        interval = attrs.get("interval")
        return interval.single() == "epoch" if interval is not None else not elsewhere
    if any(attrs.get("lr_scheduler") is each for each in schedules):
        return "interval" in attrs or not elsewhere  # it belongs into the dict of the schedule
    if any(item is each for item in returned.items or () for each in schedules):
        return not elsewhere
    inner = (*attrs.values(), *(returned.items or ()))
    return any(_without_interval(code, each, schedules, depth - 1) for each in inner)
