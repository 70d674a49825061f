"""Whether the gradients of every step are averaged: DistributedDataParallel does it in its own forward and backward."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.preflight import accumulating
from trainwright.preflight.horovod import NO_BROADCAST
from trainwright.preflight.unalike import own_seed, seeded
from trainwright.script.events import Event
from trainwright.script.known import NO_GRAPH
from trainwright.script.reader import Module
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at, conditions, enclosing_function, enclosing_loop, meant

PAST = Rule(
    code="TW434",
    severity="error",
    title="gradients are computed past DistributedDataParallel, so each process trains alone",
    source="PyTorch's documentation of DistributedDataParallel, forward and no_sync: the wrapper's forward prepares "
    "the reduction, and the backward after it does it; what is added to the gradients later stays in the process; "
    "jingyaogong/minimind #853, of a call through .module",
    remedy="Call the wrapper, model(batch), in training; synchronise at the last of the accumulated batches.",
)
NO_SYNC = Rule(
    code="TW438",
    severity="note",
    title="no_sync is only around backward, so the gradients of every batch are still averaged",
    source="PyTorch's documentation of DistributedDataParallel.no_sync: the forward pass belongs inside of it, too, or "
    "gradients will still be synchronised",
    remedy="with model.no_sync(): loss = …model(batch)…; loss.backward()",
)
SUMMED = Rule(
    code="TW448",
    severity="warning",
    title="gradients are summed over the processes, and nothing divides by their number",
    source="PyTorch's tutorial on writing distributed applications, average_gradients: all_reduce with SUM, then a "
    "division by the number of processes",
    remedy="parameter.grad /= dist.get_world_size() after all_reduce, or op=dist.ReduceOp.AVG",
)
INVERTED = Rule(
    code="TW496",
    severity="error",
    title="no_sync is for the batch after which the optimizer steps, so the gradients of that step are not averaged",
    source="PyTorch's documentation of DistributedDataParallel.no_sync: gradients are accumulated within it, and "
    "synchronised in the first forward-backward pass after it",
    remedy="with nullcontext() if step_now else model.no_sync():",
)
MEANS = Rule(
    code="TW505",
    severity="warning",
    title="means of the processes' shares are summed, and nothing divides by the number of processes",
    source="PyTorch's documentation of torch.distributed.ReduceOp: SUM adds, AVG averages",
    remedy="Sum the numerator and the denominator, then divide; or divide the sum by dist.get_world_size().",
)
RULES = (PAST, NO_SYNC, SUMMED, INVERTED, MEANS)


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete or not code.several:
        return
    yield from _inner_forward(code)
    yield from _first_of_several(code)
    yield from _summed(code)
    yield from _means(code)
    yield from _backward_alone(code)
    yield from _inverted(code)
    yield from _unsent(code)


_SENDS = r"broadcast|(sync|average|share|scatter|copy)\w*_(param|model|weight|state|module|init)"
_WEIGHTS = re.compile(r"param|\.data\b|weight|buffer|state")


def _unsent(code: ScriptFacts) -> Iterator[Finding]:
    """Report a model with other initial weights in each process, where the script averages the gradients itself."""
    others = code.managed or code.horovod or code.smp or code.torch_xla or code.wraps is not None
    if others or code.group is None or code.mentions_like(_SENDS):
        return
    reduced = [e for e in code.ran("all_reduce", live=True) if e.args and e.by_rank is None and e.node.args]
    averaged = [e for e in reduced if "grad" in e.args[0].tags]
    joined = [e for e in reduced if "grad" not in e.args[0].tags and _WEIGHTS.search(ast.unparse(e.node.args[0]))]
    read = [e for e in code.ran("load_state_dict", "from_pretrained", live=True) if not e.guards]
    if not averaged or joined or read:
        return
    for optimizer in (e for e in code.events if "optimizer" in e.result.tags and not e.detached):
        maker = code.maker(optimizer.result.of) if optimizer.result.of is not None else None
        if (
            maker is None
            or "model" not in maker.result.tags
            or _READ.search(maker.name)
            or maker.keywords.keys() & _GIVEN
        ):
            continue
        own = own_seed(code, maker)
        if own is not None or not seeded(code):
            why = f"`{own.text}` in line {own.line} seeds each process differently" if own else "nothing seeds it"
            what = f"`{maker.text}`: {why}, and nothing sends the weights of one process to the others"
            yield at(NO_BROADCAST, maker, what)
            return


# Weights that are read are the same in all processes.
_READ = re.compile(r"from_pretrained$|\.load$|create_model$")
_GIVEN = frozenset({"weights", "pretrained"})


def _inverted(code: ScriptFacts) -> Iterator[Finding]:
    """Report a no_sync that is taken for a batch after which the optimizer steps."""
    steps = [
        step
        for step in code.ran("step", live=True)
        if any("optimizer" in value.tags for value in (step.receiver, *step.args) if value is not None)
    ]
    for event in code.ran("no_sync", live=True):
        if not event.loops or _averages_gradients(code) or _averages_weights(code):
            continue
        chosen = conditions(event.module, event.node, event.loops[-1])[:1]
        where = {_fact(event.module, *each) for each in chosen}
        later = [step for step in steps if step.order > event.order]
        same = bool(where) and any(where <= _facts(event, step) for step in later)
        found = "also before the step of the optimizer" if same else accumulating.unreduced(code, event, later)
        if chosen and found:
            what = f"`{ast.unparse(event.node)}` is taken for `{ast.unparse(chosen[0][0])}`, {found}"
            yield at(INVERTED, event, what, "warning" if accumulating.LAST in found else None)
            return


def _averages_gradients(code: ScriptFacts) -> bool:
    """Return whether the script reduces the gradients itself."""
    return any("grad" in value.tags for event in code.roles("collective") for value in event.args)


def _averages_weights(code: ScriptFacts) -> bool:
    """Return whether the weights are averaged instead, every few steps."""
    joined = (value for event in code.roles("collective") if event.loops for value in event.args)
    return code.mentions(*_OF_WEIGHTS) or any("params" in value.tags for value in joined)


_OF_WEIGHTS = ("PostLocalSGDOptimizer", "PeriodicModelAverager", "average_parameters", "LocalSGD", "DiLoCo")


def _facts(event: Event, step: Event) -> set[tuple[str, bool]]:
    """Return what holds at a step, in the function of another call: by ``if``, or ``if not last: continue``."""
    if step.stack[: len(event.stack)] != event.stack:
        return set()
    function = enclosing_function(event.module, event.node)
    tests = [(guard.node, guard.side) for guard in step.guards if guard.node in event.module.parents]
    tests = [each for each in tests if enclosing_function(event.module, each[0]) is function]
    if step.stack == event.stack:
        tests += conditions(step.module, step.node)
    return {_fact(event.module, *each) for each in tests}


def _fact(module: Module, test: ast.expr, side: bool, depth: int = 4) -> tuple[str, bool]:
    """Return a condition and its side in one of the ways to write it: ``not i % n``, ``i % n == 0``, ``i % n != 0``."""
    test = meant(module, test) if depth else test  # `last = not last`
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _fact(module, test.operand, not side, max(depth - 1, 0))
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq | ast.NotEq):
        right = test.comparators[0]
        equal = isinstance(test.ops[0], ast.Eq)
        if isinstance(right, ast.Constant) and right.value == 0 and right.value is not False:
            return _fact(module, test.left, side is not equal, max(depth - 1, 0))
        return f"{ast.unparse(test.left)} == {ast.unparse(right)}", side is equal
    return ast.unparse(test), side


def _backward_alone(code: ScriptFacts) -> Iterator[Finding]:
    """Report a backward within no_sync whose forward passes of the wrapper were all before it."""
    for event in code.ran("backward", live=True):
        if not event.loops or not any("no_sync" in name for name in event.contexts):
            continue
        forwards = [
            e
            for e in code.events
            if e.order < event.order
            and e.loops[-1:] == event.loops[-1:]
            and "wrapped-out" in e.result.tags
            and not any("out" in value.tags for value in (*e.args, *e.keywords.values()))
            and (e.receiver is None or "out" not in e.receiver.tags)
        ]
        if forwards and not any("no_sync" in name for e in forwards for name in e.contexts):
            what = f"`{ast.unparse(event.node)[:50]}`, but the forward pass in line {forwards[-1].line} is outside"
            yield at(NO_SYNC, event, what)
            return


def _summed(code: ScriptFacts) -> Iterator[Finding]:
    """Report gradients that are reduced by hand where nothing in the script divides by the number of processes."""
    if code.mentions(*_AVERAGES):
        return
    for event in code.ran("all_reduce", live=True):
        given = event.arg("tensor", 0)
        if not event.name.startswith("torch.distributed.") or given is None or "grad" not in given.tags:
            continue
        operation = event.arg("op", 1)
        if operation is not None and not operation.name.endswith(".SUM"):
            continue
        if not any(_divides(node) for module in code.modules for node in module.nodes):
            yield at(SUMMED, event, f"`{ast.unparse(event.node)[:60]}`")
        return


def _means(code: ScriptFacts) -> Iterator[Finding]:
    """Report a mean over the process's own share that is added to those of the others, and not divided again."""
    if code.mentions(*_AVERAGES):
        return
    others = {enclosing_function(call.module, call.node) for call in code.called("all_reduce", "reduce")}
    for event in code.ran("all_reduce", "reduce", live=True):
        given, operation = event.arg("tensor", 0), event.arg("op", 1 if event.last == "all_reduce" else 2)
        summed = operation is None or operation.name.endswith(".SUM")
        own = given is not None and "mean-of-own" in given.tags
        if not event.name.startswith("torch.distributed.") or not own or not summed or "group" in event.keywords:
            continue
        if _divided_by_a_part(event):
            continue
        here = {None, *(each.node for each in event.stack)}
        divided = ((module, node) for module in code.modules for node in module.nodes if _by_count(node, ast.Div))
        # What another function of the script reduces, it divides for itself.
        if all(enclosing_function(module, node) in others - here for module, node in divided):
            yield at(MEANS, event, f"`{ast.unparse(event.node)[:60]}`")
            return


def _divided_by_a_part(event: Event) -> bool:
    """Return whether a tensor is reduced together with what divides it: ``t = [mean, 1.0]``, then ``t[0] / t[1]``."""
    tensor = ast.unparse(event.node.args[0]) if event.node.args else ""
    function = enclosing_function(event.module, event.node) or event.module.tree
    quotients = (n for n in ast.walk(function) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div))
    sides = ((n.left, n.right) for n in quotients)
    return any(all(isinstance(s, ast.Subscript) and ast.unparse(s.value) == tensor for s in pair) for pair in sides)


def _by_count(node: ast.AST, *operations: type[ast.operator]) -> bool:
    """Return whether one of these operations, such as a division, may be by the number of processes."""
    if not isinstance(node, ast.BinOp | ast.AugAssign) or not isinstance(node.op, operations):
        return False
    return bool(_COUNT.search(ast.unparse(node.right if isinstance(node, ast.BinOp) else node.value)))


# What averages without a division that can be read.
_AVERAGES = ("AVG", "div_", "mul_", "div", "mul", "average", "pre_divide", "gradient_predivide_factor")
_COUNT = re.compile(r"world|size|replicas|procs|num_?(gpus|proc)|workers|ranks|hosts", re.I)
_STATISTIC = re.compile(
    r"acc\b|accuracy|total|correct|count|test|val|print|loader|dataset|steps|hosts|\.item\(\)", re.I
)


def _divides(node: ast.AST) -> bool:
    """Return whether a division, or a product, may be by the number of processes, and not for a statistic."""
    if not isinstance(node, ast.BinOp | ast.AugAssign) or not _by_count(node, ast.Div, ast.Mult):
        return False
    return not _STATISTIC.search(ast.unparse(node.left if isinstance(node, ast.BinOp) else node.target))


def _inner_forward(code: ScriptFacts) -> Iterator[Finding]:
    """Report ``model.module(batch)`` where the same function trains, and never calls the wrapper."""
    wrapped = [e for e in code.events if e.result.tags & {"wrapped-out"} and not e.detached]
    for event in code.ran("module", live=True):
        tags = event.receiver.tags if event.receiver is not None else frozenset()
        if "ddp" not in tags or "out" not in event.result.tags or not event.loops:
            continue
        if any(NO_GRAPH.search(name) for name in event.contexts):
            continue
        here = [e for e in code.events if e.loops[-1:] == event.loops[-1:] and not e.detached]
        other = [e for e in wrapped if e.stack == event.stack or e.loops[-1:] == event.loops[-1:]]
        if any(_updates(e) for e in here) and not other:
            yield at(PAST, event, f"`{ast.unparse(event.node)[:50]}` calls the model in the wrapper")
            return
    yield from _inner_method(code, wrapped)


def _inner_method(code: ScriptFacts, wrapped: list[Event]) -> Iterator[Finding]:
    """Report ``model.module.evaluate(batch)``, a method that calls the model itself, in a step that never calls it."""
    wraps = [e for e in code.wrapped_events if "ddp" in e.result.tags and not e.detached]
    inner = [model for e in wraps if (model := e.arg("module", 0)) is not None]
    for event in code.events if inner and not _averages_gradients(code) else ():
        method = event.called.code if event.called is not None else None
        own = event.receiver is not None and any(event.receiver is model for model in inner)
        if method is None or not own or event.detached or not event.loops or ".module." not in event.text:
            continue
        if "out" not in event.result.tags or any(NO_GRAPH.search(name) for name in event.contexts):
            continue
        near = [e for e in code.events if e.loops[-1:] == event.loops[-1:] and not e.detached]
        calls = any(e.model is not None and method in e.stack and e.order > event.order for e in near)
        if calls and any(_updates(e) and e.order > event.order for e in near) and not any(e in wrapped for e in near):
            yield at(PAST, event, f"`{event.text[:50]}` calls the model in the wrapper")
            return


def _updates(event: Event) -> bool:
    """Return whether a call is a part of a training step: a backward, an optimizer's step, or a helper for both."""
    optimizer = event.receiver is not None and bool(event.receiver.tags & {"optimizer", "scaler"})
    loss = any("out" in value.tags for value in event.args)
    given = loss and any("optimizer" in value.tags for value in event.args)  # loss_scaler(loss, optimizer)
    return event.last == "backward" or (event.last == "step" and optimizer) or given


def _first_of_several(code: ScriptFacts) -> Iterator[Finding]:
    """Report ``model.require_backward_grad_sync = micro_step == 0``: the others are added without the other ranks."""
    for module in code.modules:
        for node in module.nodes:
            if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Compare):
                continue
            if not any(isinstance(t, ast.Attribute) and t.attr == "require_backward_grad_sync" for t in node.targets):
                continue
            loop, test = enclosing_loop(module, node), node.value
            counter = loop.target if isinstance(loop, ast.For) else None
            first = isinstance(test.comparators[0], ast.Constant) and test.comparators[0].value == 0
            counted = counter.id if isinstance(counter, ast.Name) else None
            if isinstance(test.ops[0], ast.Eq) and first and counted and ast.unparse(test.left) == counted:
                what = f"`{ast.unparse(node)[:60]}`: the gradients of all but the first batch stay in the process"
                yield at(PAST, (module, node), what)
                return
