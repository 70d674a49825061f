"""Keras: how many epochs fit runs, and whether the data last that long."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule, Severity
from trainwright.script.events import Event
from trainwright.script.reader import Module
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at, meant

USED_UP = Rule(
    code="TW566",
    severity="warning",
    title="data that do not repeat run out after the first epoch, as steps_per_epoch covers all of them",
    source="TensorFlow's API documentation of Model.fit: \"Your input ran out of data; interrupting training. Make "
    'sure that your dataset can generate at least steps_per_epoch * epochs batches"; tensorflow/tensorflow #36153, '
    "#25254",
    remedy="dataset = dataset.repeat(), or no steps_per_epoch.",
)
FEWER_EPOCHS = Rule(
    code="TW567",
    severity="warning",
    title="both the epochs and the data are divided by the number of processes",
    source="Horovod's examples for Keras divide the epochs where every process reads all of the data, or the steps of "
    "an epoch; horovod/horovod #1857, #1008",
    remedy="epochs=args.epochs, where each process has its share of the data.",
)
RULES = (USED_UP, FEWER_EPOCHS)
# Data that may be endless, or have several passes.
_MORE = ("repeat", "from_generator", "shuffle_and_repeat", "sample_from_datasets", "choose_from_datasets", "Counter")
_ROUNDS = ("int", "math.ceil", "math.floor", "np.ceil", "numpy.ceil", "round", "max")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete or not code.tensorflow:
        return
    for event in code.ran("fit", live=True):
        if event.opened or event.name.startswith("script."):
            continue
        yield from _used_up(code, event)
        yield from _fewer(code, event)


def _used_up(code: ScriptFacts, fit: Event) -> Iterator[Finding]:
    data, steps, epochs = fit.arg("x", 0), fit.arg("steps_per_epoch"), fit.arg("epochs", 3)
    if data is None or steps is None or epochs is None or epochs.single() == 1 or code.mentions(*_MORE):
        return
    ends = {"dataset"} == data.tags & {"dataset", "endless"} and bool(data.made)
    if not ends or not all(made.startswith("tensorflow.data.") for made in data.made):
        return
    # Where each process reads all of the data, but counts the steps of its share, they last for several epochs.
    if code.horovod and "world" in steps.tags and not data.tags & {"own", "sharded"}:
        return
    whole = _whole_epoch(fit)
    if whole:
        severity: Severity | None = "error" if "len(" in whole or "cardinality" in whole else None
        yield at(USED_UP, fit, f"steps_per_epoch={whole[:50]} is one pass over data that do not repeat", severity)


def _whole_epoch(fit: Event) -> str:
    """Return the expression for the steps of an epoch if it is all samples divided by a batch, or an empty string."""
    node = _unrounded(fit, "steps_per_epoch")[-1]
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.FloorDiv | ast.Div):
        return ""
    samples, batch = ast.unparse(node.left), ast.unparse(_written(fit.module, node.right))
    part = any(isinstance(each, ast.BinOp) for each in ast.walk(node.left)) or "epoch" in samples
    by_batch = "batch" in batch or "batch" in ast.unparse(node.right)
    return ast.unparse(node) if by_batch and not part else ""


def _unrounded(fit: Event, keyword: str) -> list[ast.expr | None]:
    """Return an argument as it is computed: the calls that round it, outermost first, and what they round."""
    node = next((k.value for k in fit.node.keywords if k.arg == keyword), None)
    found = [_written(fit.module, node) if node is not None else None]
    while isinstance(last := found[-1], ast.Call) and ast.unparse(last.func) in _ROUNDS and last.args:
        found.append(last.args[0])
    return found


def _written(module: Module, node: ast.expr) -> ast.expr:
    """Return what a name or an attribute stands for, if it is set once in the file."""
    if not isinstance(node, ast.Attribute):
        return meant(module, node)
    given = [n.value for n in module.nodes if isinstance(n, ast.Assign) and ast.dump(n.targets[0]) == _stored(node)]
    return given[0] if len(given) == 1 else node


def _stored(node: ast.Attribute) -> str:
    return ast.dump(node).removesuffix("ctx=Load())") + "ctx=Store())"


def _fewer(code: ScriptFacts, fit: Event) -> Iterator[Finding]:
    """Report epochs that are divided by the number of processes although the data are divided, too."""
    epochs, data = fit.arg("epochs", 3), fit.arg("x", 0)
    if not code.horovod or not code.several or epochs is None or data is None:
        return
    shared = data.tags & {"own", "sharded"} and "endless" not in data.tags
    rounded = _unrounded(fit, "epochs")[:-1]
    given = [value for e in code.events if e.node in rounded for value in e.args[:1]]
    divided = any({"world", "per-replica"} <= value.tags for value in (epochs, *given))
    if divided and shared and fit.arg("steps_per_epoch") is None:
        yield at(FEWER_EPOCHS, fit, f"`{fit.text}`: the data are divided as well")
