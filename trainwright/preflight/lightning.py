"""Lightning: what its loop does with a training_step, and Fabric, which leaves the loop to the script."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule, Severity
from trainwright.preflight.collectives import DEADLOCK, condition
from trainwright.preflight.huggingface import PLAIN_BACKWARD
from trainwright.preflight.reader import Module
from trainwright.preflight.script_facts import ScriptFacts
from trainwright.preflight.syntax import Function, at, qualified

DOCS = "Lightning's documentation of LightningModule"
NO_GRAPH = Rule(
    code="TW432",
    severity="error",
    title="training_step returns a loss without its graph, and Lightning calls backward on it",
    source=f"{DOCS}, training_step: the loss tensor; backward of a detached one raises RuntimeError (element 0 of "
    "tensors does not require grad)",
    remedy="return loss; log loss.detach()",
)
BY_HAND = Rule(
    code="TW433",
    severity="error",
    title="optimizers are stepped by hand, though Lightning steps them itself",
    source="Lightning's documentation of manual optimization: it needs automatic_optimization = False; without it, "
    "manual_backward and several optimizers raise an error",
    remedy="self.automatic_optimization = False in __init__",
)
RULES = (NO_GRAPH, BY_HAND)
_PACKAGES = ("lightning", "pytorch_lightning")
_DETACHES = ("detach", "item", "numpy", "tolist")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete or code.imports(*_PACKAGES) is None:
        return
    manual = code.mentions("automatic_optimization")
    for module in code.modules:
        for node in module.nodes:
            if isinstance(node, ast.ClassDef) and _is_lightning(module, node):
                for step in (each for each in node.body if isinstance(each, Function)):
                    if step.name == "training_step" and not manual:
                        yield from _returned(module, step)
                        yield from _stepped(module, step)
    yield from _fabric(code)
    yield from _reduced_by_one(code)


def _is_lightning(module: Module, node: ast.ClassDef) -> bool:
    return any(qualified(module, base).rpartition(".")[2] == "LightningModule" for base in node.bases)


def _inside(step: Function) -> Iterator[ast.AST]:
    """Yield the nodes of a method, without those of functions in it."""
    waiting: list[ast.AST] = list(step.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, Function | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def _returned(module: Module, step: Function) -> Iterator[Finding]:
    """Report a loss that is returned detached; a name counts if all that is assigned to it is detached."""
    nodes = list(_inside(step))
    assigned: dict[str, list[ast.expr]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                assigned.setdefault(ast.unparse(target), []).append(node.value)
    for node in nodes:
        if not isinstance(node, ast.Return) or node.value is None:
            continue
        loss: ast.expr | None = node.value
        if isinstance(loss, ast.Dict):
            pairs = zip(loss.keys, loss.values, strict=True)
            loss = next((v for k, v in pairs if isinstance(k, ast.Constant) and k.value == "loss"), None)
        values = assigned.get(loss.id, []) if isinstance(loss, ast.Name) else [loss]
        if values and all(value is not None and _detached(value) for value in values):
            yield at(NO_GRAPH, (module, node), f"`{ast.unparse(node)[:60]}`")
            return


def _detached(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and (
        (isinstance(value.func, ast.Attribute) and value.func.attr in _DETACHES and not value.args)
        or (isinstance(value.func, ast.Name) and value.func.id == "float")
    )


def _stepped(module: Module, step: Function) -> Iterator[Finding]:
    """Report ``self.optimizers()`` whose result is stepped, or ``self.manual_backward``."""
    calls = [node for node in _inside(step) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    taken = [call for call in calls if ast.unparse(call.func) == "self.optimizers"]
    for call in sorted(calls, key=lambda each: each.lineno):
        name = ast.unparse(call.func)
        steps = name.endswith(".step") and bool(taken) and "sched" not in name
        if name == "self.manual_backward" or steps:
            yield at(BY_HAND, (module, call), f"`{ast.unparse(call)[:50]}` under automatic optimization")
            return


def _fabric(code: ScriptFacts) -> Iterator[Finding]:
    """Report ``loss.backward()`` where Fabric scales and reduces gradients."""
    made = [e for e in code.ran("Fabric", live=True) if e.name.startswith(("lightning", "pytorch_lightning"))]
    backwards = code.ran("backward", live=True)
    if not made or any(e.args for e in backwards):
        return
    scaled = any((v := e.arg("precision", 3)) is not None and str(v.single()).startswith("16") for e in made)
    severity: Severity | None = None if scaled else "warning"
    wrapped = [e for e in code.ran("setup", "setup_module", live=True) if e.order > made[0].order]
    for event in backwards:
        if wrapped and event.receiver is not None and event.loops:
            what = f"`{ast.unparse(event.node)[:50]}` instead of fabric.backward(loss)"
            yield at(PLAIN_BACKWARD, (event.module, event.node), what, severity=severity)
            return


def _reduced_by_one(code: ScriptFacts) -> Iterator[Finding]:
    """Report ``self.log(…, sync_dist=True)`` in some processes: it reduces the value over all of them."""
    if not code.several:
        return
    for event in code.ran("log", "log_dict"):
        synced = event.arg("sync_dist")
        if synced is not None and synced.single() is True and (guard := event.by_rank) is not None:
            what = f"{event.last}(…, sync_dist=True) runs only where {condition(guard)}"
            yield at(DEADLOCK, (event.module, event.node), what)
            return
