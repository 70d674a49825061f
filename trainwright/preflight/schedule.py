"""The order of a training loop: gradients of one step, the scheduler after the optimizer, the model's two modes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.loop import NO_ZERO, each_nth
from trainwright.script.events import Event
from trainwright.script.known import NO_GRAPH
from trainwright.script.reader import Module
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at, enclosing_function, enclosing_loop
from trainwright.script.values import Value

SCHEDULER_FIRST = Rule(
    code="TW407",
    severity="warning",
    title="the learning rate's scheduler steps before the optimizer",
    source="PyTorch's documentation of torch.optim, how to adjust the learning rate: scheduler.step() comes after "
    "optimizer.step(), or the first value of the schedule is skipped",
    remedy="Call scheduler.step() after the optimizer's steps.",
)
STAYS_IN_EVAL = Rule(
    code="TW408",
    severity="warning",
    title="the model is set to evaluation in the training loop, and never back to training",
    source="PyTorch's documentation of nn.Module.train and eval: dropout and batch normalization act differently",
    remedy="model.train() at the start of each epoch",
)
EVAL_WITH_GRAPH = Rule(
    code="TW409",
    severity="note",
    title="an evaluation keeps what backward would need, and so takes as much memory as training",
    source="PyTorch's notes on autograd mechanics, locally disabling gradient computation",
    remedy="with torch.no_grad(): …, or @torch.inference_mode() on the function",
)
ON_CPU = Rule(
    code="TW411",
    severity="warning",
    title="the job has GPUs, and the script trains on the CPU",
    source="PyTorch's documentation of torch.device: tensors and modules are made on the CPU",
    remedy='device = torch.device("cuda"); model.to(device), and each batch, too',
)
SUMMED = Rule(
    code="TW418",
    severity="note",
    title="gradients of several batches are added, and the loss is not divided by their number",
    source="PyTorch's examples of automatic mixed precision, gradient accumulation: loss = loss / iters_to_accumulate",
    remedy="loss = loss / accumulation, before backward; or a learning rate that was tuned for the sum",
)
NEVER_EVAL = Rule(
    code="TW457",
    severity="warning",
    title="a model is validated as it trains, with dropout and batch normalization of the batch",
    source="PyTorch's documentation of Module.eval: dropout and batch normalization behave differently in evaluation; "
    "no_grad does not change that",
    remedy="model.eval() before the validation, model.train() before the training.",
)
RULES = (NEVER_EVAL, SCHEDULER_FIRST, STAYS_IN_EVAL, EVAL_WITH_GRAPH, ON_CPU, SUMMED)
# Other models than the one that is trained: they stay in evaluation.
_FROZEN = re.compile(r"teacher|ema|disc|clip|vae|encoder|ref|target|critic|frozen|lpips|vgg|inception", re.I)


_MODEL = re.compile(r"^(self\.)?\w*(model|net|network)$")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete or code.tensorflow:
        return
    yield from _on_cpu(code)
    nodes = {call.node for call in code.backwards}
    backwards = [e for e in code.ran("backward", live=True) if e.node in nodes and e.loops]
    if not backwards:
        return
    yield from _kept(code, backwards)
    yield from _scheduler(code)
    yield from _modes(code, backwards)
    yield from _never_eval(code)
    yield from _summed(code, backwards)


def _steps(code: ScriptFacts) -> list[Event]:
    """The optimizer's steps, without those of schedulers."""
    return [
        e
        for e in code.ran("step", "optimizer_step", live=True)
        if e.loops
        and (e.last == "optimizer_step" or (e.receiver is not None and e.receiver.tags & {"optimizer", "scaler"}))
        and not _scheduler_of(e)
    ]


def _scheduler_of(event: Event) -> bool:
    made = event.receiver.made if event.receiver is not None else frozenset()
    return any("lr_scheduler" in name or "scheduler" in name.rpartition(".")[2].lower() for name in made)


def _kept(code: ScriptFacts, backwards: list[Event]) -> Iterator[Finding]:
    """Report gradients that are cleared around the loop over batches, and used in it."""
    zeroes = [e for e in code.ran("zero_grad", "clear_gradients") if e.loops or e.stack or not e.detached]
    steps = _steps(code)
    own = not (code.managed and not code.imports("accelerate")) and code.imports("deepspeed", "ignite") is None
    if not own or not steps:
        return
    if not zeroes:
        made = any("optimizer" in e.result.tags and e.result.made and e.name[:1] != "?" for e in code.events)
        trainer = code.mentions("Trainer", "LightningModule", "zero_grad")
        # Without Accelerate, the rule of the loop itself says so.
        if code.imports("accelerate") is not None and made and not trainer:
            yield at(NO_ZERO, backwards[0], "no zero_grad in what was read")
        return
    inner = steps[0].loops[-1]
    if any(inner in zero.loops for zero in zeroes) or any(zero.detached for zero in zeroes):
        return
    around = [zero for zero in zeroes if set(zero.loops) < set(steps[0].loops) and zero.order < steps[0].order]
    each = enclosing_loop(steps[0].module, steps[0].node)
    if around and len(around) == len(zeroes) and each is inner and backwards[0].loops[-1] is inner:
        what = f"`{around[-1].text}` runs before the loop, and step in line {steps[0].line} at each of its passes"
        yield at(NO_ZERO, around[-1], what)


def _scheduler(code: ScriptFacts) -> Iterator[Finding]:
    optimizers = _steps(code)
    for event in code.ran("step", live=True):
        made = event.receiver.made if event.receiver is not None else frozenset()
        if not any(name.startswith("torch.optim.lr_scheduler.") for name in made) or event.args or not event.loops:
            continue
        own = event.receiver.code if event.receiver is not None else None
        if own is not None and own.method("step") is not None:
            continue  # the script's own schedule says when it steps
        loop = event.loops[-1]
        passes = [e for e in optimizers if loop in e.loops]
        if not passes or any(e.order < event.order for e in passes):
            continue
        if all(guard in passes[0].guards for guard in event.guards) and passes[0].order > event.order:
            yield at(
                SCHEDULER_FIRST, event, f"`{event.text}`, and the optimizer's first step is in line {passes[0].line}"
            )
            return


def _summed(code: ScriptFacts, backwards: list[Event]) -> Iterator[Finding]:
    """Report steps after several batches, where nothing divides by how many they are."""
    if code.managed or code.horovod or code.imports("deepspeed", "accelerate") is not None:
        return
    divided = False
    for module in code.modules:
        for node in module.nodes:
            if isinstance(node, ast.BinOp | ast.AugAssign | ast.Assign) and _validates(module, node):
                continue
            if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Div | ast.Mult):
                text = ast.unparse(node).lower()
                # `len(loader) // accumulation * epochs` counts the steps.
                divided = divided or "loss" in text or ("accum" in text and isinstance(node.op, ast.Div))
            elif isinstance(node, ast.Assign) and "loss" in ast.unparse(node.targets[0]).lower():
                inner = node.value
                divided = divided or (isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Div | ast.Mult))
    reduces = any(call.given("reduction") is not None and not _validates(call.module, call.node) for call in code.calls)
    if divided or reduces or code.mentions("mul_", "div_"):
        return
    for step in _steps(code):
        inside = [e for e in backwards if e.loops == step.loops and e.order < step.order]
        every = [g for g in each_nth(step) if inside and g not in inside[-1].guards]
        if every:
            what = f"`{step.text}` only where `{ast.unparse(every[0].node)[:40]}`"
            yield at(SUMMED, inside[-1], what)
            return


def _validates(module: Module, node: ast.AST) -> bool:
    """Return whether code is in a function that keeps no graph, so that it is no part of training."""
    function = enclosing_function(module, node)
    return function is not None and any(NO_GRAPH.search(ast.unparse(each)) for each in function.decorator_list)


def trained(code: ScriptFacts) -> list[Value]:
    """The models whose parameters an optimizer has, each with what it was made from."""
    found: list[Value] = []
    for event in code.events:
        given = event.args[0] if "optimizer" in event.result.tags and event.args else None
        chained = code.maker(given) if given is not None and given.made_by("chain") else None
        several = chained.args if chained is not None else given.sources if given is not None else ()
        for value in (event.result if given is not None else None, *several):
            of = value.of if value is not None else None
            while of is not None:
                found.append(of)
                of = of.of
    return found


def is_of(value: Value | None, models: list[Value]) -> bool:
    """Return whether a value, or what it was made from, is one of the models."""
    while value is not None:
        if any(value is model for model in models):
            return True
        value = value.of
    return False


def _modes(code: ScriptFacts, backwards: list[Event]) -> Iterator[Finding]:
    if code.managed and code.imports("accelerate") is None:
        return
    evals = [
        e
        for e in code.ran("eval", "train", live=True)
        if e.receiver is not None
        and {"model"} == e.receiver.tags & {"model", "copy"}
        and (not e.args if e.last == "eval" else _set_to(e) is False)
        and not _FROZEN.search(e.text)
    ]
    yield from _stays(code, evals, backwards)
    nodes = {b.stack[-1:] for b in backwards}
    for event in evals:
        if event.stack[-1:] in nodes or not event.stack or code.mentions("set_grad_enabled"):
            continue
        forwards = [
            e
            for e in code.events
            if e.stack == event.stack
            and e.order > event.order
            and {"out", "known-out"} & e.result.tags
            and e.loops
            and _MODEL.search(ast.unparse(e.node.func))
        ]
        if forwards and not any(NO_GRAPH.search(name) for name in (*forwards[0].contexts, *event.contexts)):
            yield at(EVAL_WITH_GRAPH, forwards[0], f"`{forwards[0].text}` without torch.no_grad()")
            return


def _set_to(event: Event) -> object:
    """Return to which mode ``model.train(mode)`` sets; Ellipsis if that is not known."""
    mode = event.arg("mode", 0)
    return True if mode is None else mode.single()


def _stays(code: ScriptFacts, evals: list[Event], backwards: list[Event]) -> Iterator[Finding]:
    """Report a model that trains on in evaluation: for good, or for the rest of the batches of an epoch."""
    models = trained(code)
    # A function of the script that is called so does it only if the method is called in it.
    trains = [e for e in code.ran("train") if e.name != "script.train" and _set_to(e) is not False]
    if any(e.detached for e in trains) or code.mentions("set_mode", "eval_mode") or _sets_training(code):
        return  # what is set back need not be seen to be called
    for event in evals:
        shared = [each for each in event.loops if any(each in b.loops for b in backwards)]
        if not shared or not is_of(event.receiver, models) or _same_in_both(code, event):
            continue
        if not any(shared[0] in e.loops for e in trains):
            yield at(STAYS_IN_EVAL, event, f"`{event.text}` at each pass of the loop in line {_line(shared[0])}")
            return
        inner = shared[-1]
        again = [b for b in backwards if b.loops[-1] is inner]
        if again and not any(inner in e.loops for e in trains) and not _ends_pass(code, event, inner):
            what = f"`{event.text}`: the batches that follow in the loop in line {_line(inner)} train in evaluation"
            yield at(STAYS_IN_EVAL, event, what)
            return


def _sets_training(code: ScriptFacts) -> bool:
    """Return whether something sets or asks a model's mode otherwise: ``model.training``, not ``self.training``."""
    attributes = (n for m in code.modules for n in m.nodes if isinstance(n, ast.Attribute) and n.attr == "training")
    return any(isinstance(n.ctx, ast.Store) or ast.unparse(n.value) != "self" for n in attributes)


def _ends_pass(code: ScriptFacts, event: Event, loop: ast.AST) -> bool:
    """Return whether a loop may end after a call: by ``break``, or since it comes after the last of the batches."""
    left = any(each.loops[-1:] == (loop,) and each.kind != "continue" for each in code.exits)
    return left or any("len(" in ast.unparse(guard.node) for guard in event.guards)


def _never_eval(code: ScriptFacts) -> Iterator[Finding]:
    """Report a validation of a model with dropout or batch normalization in a script that never calls ``eval``."""
    calls = [c for c in code.calls if c.last == "eval" and not c.node.args and c.receiver]
    other = code.mentions("training", "set_mode", "eval_mode", "train_mode") or code.mentions_like("eval_step")
    switched = any(e.args for e in code.ran("train") if e.receiver is not None and "model" in e.receiver.tags)
    if calls or other or switched or (code.managed and code.imports("accelerate") is None):
        return
    if not code.mentions_like(_DIFFERS) or not any(not e.args for e in code.ran("train", live=True)):
        return
    for event in code.events:
        around = (*(ast.unparse(loop.iter) for loop in event.loops[-1:] if isinstance(loop, ast.For)), *_names(event))
        validates = any(_HELD_OUT.search(name) for name in around)
        out = {"out", "known-out"} & event.result.tags or "wrapped-out" in event.result.tags
        graphless = any(NO_GRAPH.search(name) for name in event.contexts)
        if out and graphless and validates and event.loops and not event.detached and _MODEL.search(_called(event)):
            yield at(NEVER_EVAL, event, f"`{event.text}`, and nothing calls model.eval()")
            return


# Layers, and libraries of models with them, that differ between training and evaluation.
_DIFFERS = r"dropout|batch_?norm|resnet|resnext|efficientnet|vgg|densenet|mobilenet|inception|convnext|vit_|swin|timm"
_HELD_OUT = re.compile(r"val|test|eval|dev(?!ice)|held", re.I)


def _called(event: Event) -> str:
    return ast.unparse(event.node.func)


def _names(event: Event) -> tuple[str, ...]:
    return tuple(code.name for code in event.stack[-1:])


def _same_in_both(code: ScriptFacts, event: Event) -> bool:
    """Return whether a model of the script has no layer that differs between training and evaluation."""
    own = event.receiver.code if event.receiver is not None else None
    return own is not None and not code.mentions_like(
        r"drop|norm|pretrained|torchvision|timm|hub|transformer|lstm|gru|rnn"
    )


def _line(loop: ast.AST) -> int:
    return int(getattr(loop, "lineno", 0))


def _on_cpu(code: ScriptFacts) -> Iterator[Finding]:
    if not code.launch.gpus or not code.backwards or code.imports("torch", certain=True) is None:
        return
    if code.torch_xla or code.smp or code.horovod or (code.several and not code.cooperates):
        return
    accelerators = [e for e in code.ran("Accelerator", live=True) if e.name.startswith("accelerate")]
    forced = [e for e in accelerators if (v := e.arg("cpu")) is not None and v.single() is True]
    if forced:
        yield at(ON_CPU, forced[0], f"`{forced[0].text}`")
        return
    words = r"cuda|gpu|device|accelerat|fabric|backend|to_|lightning"
    if code.managed or (code.mentions_like(words) and not _only_cpu(code)):
        return
    if not code.says(r"cuda|gpu|\bdevice"):
        first = code.backwards[0]
        gpus = code.launch.gpus
        where = "the GPU" if gpus == 1 else f"one of the {gpus} GPUs"
        yield at(ON_CPU, first, f"nothing moves the model to {where}")


def _only_cpu(code: ScriptFacts) -> bool:
    """Return whether every device of the script is the CPU."""
    devices = [e for e in code.ran("device") if e.name == "torch.device"]
    return (
        bool(devices)
        and all(e.result.single() == "cpu" for e in devices)
        and not code.mentions("cuda", "accelerator", "accelerate")
    )
