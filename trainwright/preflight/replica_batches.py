"""Batch sizes under a TensorFlow strategy: the global size, or that of one replica."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.script.events import Event
from trainwright.script.known import HELD_OUT
from trainwright.script.reader import Module
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at
from trainwright.script.values import Value

BATCH_OF_REPLICA = Rule(
    code="TW424",
    severity="warning",
    title="the batch of the dataset does not have the size that the strategy expects",
    source="TensorFlow's API documentation of Strategy.experimental_distribute_dataset: it rebatches the data set to "
    "the global batch size divided by the number of replicas in sync, as fit does; the function of "
    "distribute_datasets_from_function makes batches of one replica",
    remedy="dataset.batch(per_replica * strategy.num_replicas_in_sync); in a dataset function "
    "dataset.batch(context.get_per_replica_batch_size(global_batch))",
)
RULES = (BATCH_OF_REPLICA,)
_DIVIDES = "experimental_distribute_dataset"
# What a global batch, divided by the number of replicas, carries.
_SHARE = frozenset({"world", "per-replica"})
# What else is multiplied by the number of replicas.
_OTHERS = re.compile(r"(?<![a-z])(lr|\w*rate)(?![a-z])|loss|momentum|decay|step|epoch|iter", re.I)


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the batches of a script whose strategy has several replicas."""
    found = _divided_twice(code)
    yield from [found] if found is not None else _written(code)


def _divided_twice(code: ScriptFacts) -> Finding | None:
    """Return a training's batches of the global size, divided by the replicas, that the strategy divides again."""
    sized = [e for e in code.ran("batch", live=True) if e.args and e.args[0].tags >= _SHARE]
    for event in code.ran(_DIVIDES, "fit", live=True) if sized else ():
        data = event.arg("dataset" if event.last == _DIVIDES else "x", 0)
        batch = next((e for e in sized if e.order < event.order and _is_of(data, e.result)), None)
        if batch is None or event.name.startswith("script.") or HELD_OUT.search(event.target):
            continue
        size = f"`{ast.unparse(batch.node)[-40:]}` has the size of one replica"
        what = f"{size}, but `{event.text[:50]}` in line {event.line}"
        return at(BATCH_OF_REPLICA, batch, f"{what} divides each batch among the replicas again")
    return None


def _is_of(data: Value | None, batches: Value) -> bool:
    """Return whether a data set is these batches, or made from them."""
    while data is not None and data is not batches:
        data = data.of
    return data is not None


def _written(code: ScriptFacts) -> Iterator[Finding]:
    """Report batches of one replica where the script also computes the global size."""
    every = [e for e in code.ran("batch") if e.args and e.receiver is not None and not e.receiver.name]
    sized = [e for e in every if not e.detached]
    products = ((m, n) for m in code.modules for n in m.nodes if isinstance(n, ast.BinOp))
    known = any(_counts_samples(module, node) for module, node in products)
    for event in every:
        own = [e for e in code.ran("distribute_datasets_from_function") if e.args and _makes(e.args[0], event)]
        of_all = "world" in event.args[0].tags and "per-replica" not in event.args[0].tags
        if own and (of_all or _is_global(code, event.args[0])):
            what = f"`{event.text[-40:]}` in the function of line {own[0].line}, which makes batches of one replica"
            yield at(BATCH_OF_REPLICA, event, f"{what}: get_per_replica_batch_size({ast.unparse(event.node.args[0])})")
            return
    if (
        not sized
        or not known
        or code.mentions("experimental_distribute_datasets_from_function", "distribute_datasets_from_function")
    ):
        return
    if any("world" in e.args[0].tags for e in sized) or any(_divides(code, e.args[0]) for e in sized):
        return
    yield at(BATCH_OF_REPLICA, sized[0], f"`{sized[0].text[-40:]}`, although the global size is computed")


def _makes(function: Value, event: Event) -> bool:
    """Return whether a call is in this function, or in the object's that is called like one."""
    code = function.code.method("__call__") if function.instance and function.code is not None else function.code
    return code is not None and code in event.stack


def _counts_samples(module: Module, node: ast.BinOp) -> bool:
    """Return whether a product with the number of replicas is a number of samples, not a rate or a number of steps."""
    if not isinstance(node.op, ast.Mult) or "replicas" not in ast.unparse(node):
        return False
    around = module.parents.get(node)
    name = around.arg if isinstance(around, ast.keyword) else None
    if isinstance(around, ast.Assign | ast.AnnAssign):
        name = ast.unparse(around.targets[0] if isinstance(around, ast.Assign) else around.target)
    fraction = any(isinstance(n, ast.Constant) and isinstance(n.value, float) for n in ast.walk(node))
    return not fraction and _OTHERS.search(f"{name or ''} {ast.unparse(node)}") is None


def _is_global(code: ScriptFacts, size: Value) -> bool:
    """Return whether losses are divided by the size of these batches although there are several replicas."""
    return ((code.launch.gpus or 1) > 1 or code.several_hosts) and _divides(code, size)


def _divides(code: ScriptFacts, size: Value) -> bool:
    """Return whether losses are divided by a number, as by the global batch."""
    divisors = [given for e in code.ran("compute_average_loss") if (given := e.arg("global_batch_size", 2)) is not None]
    return any(each is size or (isinstance(size.single(), int) and each.single() == size.single()) for each in divisors)
