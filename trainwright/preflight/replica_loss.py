"""The loss of a replica in a training loop of one's own under a TensorFlow strategy: its part of the global batch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at

REPLICA_LOSS = Rule(
    code="TW422",
    severity="error",
    title="the loss of a replica is not divided by the global batch",
    source="TensorFlow's guide, Custom training with tf.distribute.Strategy: gradients are summed over the replicas; a "
    "loss object with the default reduction raises an error",
    remedy="Losses with reduction=NONE, and tf.nn.compute_average_loss(loss, global_batch_size=…)",
)
SUMMED_TWICE = Rule(
    code="TW568",
    severity="error",
    title="gradients are summed over the replicas by hand, and again by apply_gradients",
    source="TensorFlow's API documentation of Optimizer.apply_gradients: it sums gradients of all replicas unless "
    "experimental_aggregate_gradients (skip_gradients_aggregation) says otherwise; tensorflow/models #8433",
    remedy="apply_gradients(…, experimental_aggregate_gradients=False) (skip_gradients_aggregation=True from 2.11).",
)
RULES = (REPLICA_LOSS, SUMMED_TWICE)
# Of what these return, no gradient can be made again.
_NUMBER = re.compile(r"(?<!clip_by_)(?<!clip_by_global_)\b(global_)?norm$|\breduce_\w+$")
_LEAVES_OUT = ("experimental_aggregate_gradients", "skip_gradients_aggregation", "**")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the losses of a script whose steps run in replicas."""
    for event in code.events:
        if not event.name.startswith(("tensorflow.keras.losses.", "keras.losses.")) or not event.last[:1].isupper():
            continue
        if "reduction" not in event.keywords and not event.opened and not event.detached:
            what = "without reduction=: under a strategy, the default raises an error in a loop of your own"
            yield at(REPLICA_LOSS, event, f"`{event.text}` {what}")
            break
    else:
        yield from _by_part(code)
        yield from _regularization(code)
        inside = [e for e in code.ran("reduce_mean") if e.stack]
        around = [(e, e.module.parents.get(e.node, e.node)) for e in inside]
        texts = [(e, f"{e.stack[-1].name} {ast.unparse(n)}".lower()) for e, n in around]
        averaged = [e for e, text in texts if e.name.startswith("tensorflow") and "loss" in text]
        if averaged and not code.mentions("compute_average_loss") and not _divided(code):
            what = "the mean over the replica's batch: summed over the replicas, it is that many times too large"
            yield at(REPLICA_LOSS, averaged[0], f"`{averaged[0].text}`: {what}", "warning")


def summed_twice(code: ScriptFacts) -> Iterator[Finding]:
    """Report gradients that a replica sums itself before apply_gradients sums them again."""
    for event in code.ran("all_reduce"):
        operation, given = event.arg("reduce_op", 0), event.arg("value", 1)
        sums = operation is not None and (operation.name.endswith(".SUM") or operation.single() == "sum")
        if not sums or given is None or "grad" not in given.tags or not event.stack:
            continue
        function = event.stack[-1].node
        for step in code.ran("apply_gradients"):
            inside = step.order > event.order and step.stack and step.stack[-1].node is function
            if inside and not set(_LEAVES_OUT) & set(step.keywords) and _comes_to(function, event.node, step.node):
                what = f"`{event.text}` in line {event.line} has summed them: the updates are that many times too large"
                yield at(SUMMED_TWICE, step, f"`{step.text}`: {what}")
                return


def _comes_to(function: ast.AST, made: ast.Call, used: ast.Call) -> bool:
    """Return whether the result of one call reaches another call of the function, directly or by assigned names."""
    names: set[str] = set()
    assigned = [node for node in ast.walk(function) if isinstance(node, ast.Assign) and node.lineno <= used.lineno]
    for node in sorted(assigned, key=lambda each: each.lineno):
        given = any(inner is made or _named(inner, names) for inner in _tensors(node.value))
        targets = {inner.id for target in node.targets for inner in ast.walk(target) if isinstance(inner, ast.Name)}
        names = names | targets if given else names - targets
    return any(inner is made or _named(inner, names) for inner in _tensors(used))


def _tensors(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of an expression, except those that are reduced to a number, such as a norm."""
    if isinstance(node, ast.Call) and _NUMBER.search(ast.unparse(node.func)):
        return
    yield node
    for inner in ast.iter_child_nodes(node):
        yield from _tensors(inner)


def _named(node: ast.AST, names: set[str]) -> bool:
    return isinstance(node, ast.Name) and node.id in names


def _by_part(code: ScriptFacts) -> Iterator[Finding]:
    """Report compute_average_loss with the number that times the replicas is the global batch."""
    factors: set[str] = set()
    for module in code.modules:
        for node in module.nodes:
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
                left, right = ast.unparse(node.left), ast.unparse(node.right)
                factors |= {a for a, b in ((left, right), (right, left)) if b.endswith("num_replicas_in_sync")}
    for event in code.ran("compute_average_loss"):
        size = event.arg("global_batch_size", 2)
        given = [k.value for k in event.node.keywords if k.arg == "global_batch_size"] or event.node.args[2:3]
        of_one = bool(given) and _one_of(given[0], factors) and not _divided(code)
        if size is not None and "world" not in size.tags and of_one:
            what = f"`{event.text[-50:]}`: divided by the batch of one replica, and summed over the replicas"
            yield at(REPLICA_LOSS, event, what)
            return


def _one_of(given: ast.expr, factors: set[str]) -> bool:
    """Return whether an expression is one of the factors, or their field: ``self.config.size`` of ``config.size``."""
    text = ast.unparse(given).removeprefix("self.")
    names = {factor.removeprefix("self.") for factor in factors}
    fields = {name.rpartition(".")[2] for name in names if "." in name}
    return text in names or (isinstance(given, ast.Attribute) and "." in text and given.attr in fields)


def _regularization(code: ScriptFacts) -> Iterator[Finding]:
    """Report losses of the model's layers that each replica adds as they are, in a step that strategy.run takes."""
    if code.mentions("scale_regularization_loss") or not code.ran("apply_gradients"):
        return
    for event in code.ran("add_n", "sum", "reduce_sum"):
        text = ast.unparse(event.node.args[0]) if event.node.args else ""
        around = event.module.parents.get(event.node)
        part = isinstance(around, ast.BinOp) and isinstance(around.op, ast.Div | ast.Mult)
        if text.endswith(".losses") and not part and event.stack and not _divided(code):
            what = "every replica adds all of it, and their gradients are summed; see tf.nn.scale_regularization_loss"
            yield at(REPLICA_LOSS, event, f"`{event.text}`: {what}", "warning")
            return


def _divided(code: ScriptFacts) -> bool:
    """Return whether a loss is divided by a number of replicas or a global batch."""
    for module in code.modules:
        for node in module.nodes:
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.Mult):
                text = ast.unparse(node).lower()
                if "loss" in text and any(word in text for word in ("global", "replicas", "batch_size")):
                    return True
    return False
