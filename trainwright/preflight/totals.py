"""Totals over all processes: once a tensor was all-reduced in place, it no longer holds the process's own part."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.script.events import Event
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import Function, at, enclosing_function
from trainwright.script.values import Code

SUMMED_AGAIN = Rule(
    code="TW554",
    severity="error",
    title="a total that was summed over all processes is summed again, so earlier values count several times",
    source="PyTorch's documentation of all_reduce: the tensor is changed in place; pytorch/ignite #2803",
    remedy="Sum a copy: total = self.total.clone(); dist.all_reduce(total). Or reset it before the next epoch.",
)
RULES = (SUMMED_AGAIN,)


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete or not code.several:
        return
    for event in code.ran("all_reduce", live=True):
        alone = any(guard.kind != "world" for guard in event.guards)
        if alone or event.name != "torch.distributed.all_reduce" or not event.node.args or not _adds_up(event):
            continue
        total = event.node.args[0]
        again = _of_object(code, event, total) if isinstance(total, ast.Attribute) else _of_loop(event, total)
        if again is not None:
            what = f"`{event.text}` in each pass of the loop in line {again.lineno}, and nothing clears it between them"
            yield at(SUMMED_AGAIN, event, what)
            return


def _adds_up(event: Event) -> bool:
    """Return whether a collective takes the sum; a mean of means is harmless."""
    given = [k.value for k in event.node.keywords if k.arg == "op"] or event.node.args[1:2]
    return not given or ast.unparse(given[0]).endswith("SUM")


def _of_loop(event: Event, total: ast.expr) -> ast.stmt | None:
    """Return the loop that, in each pass, adds to a variable from outside and all-reduces it."""
    if not isinstance(total, ast.Name):
        return None
    function = enclosing_function(event.module, event.node) or event.module.tree
    for loop in event.loops:
        inside = isinstance(loop, ast.For | ast.While) and any(each is loop for each in ast.walk(function))
        if inside and isinstance(loop, ast.For | ast.While) and _only_added(list(ast.walk(loop)), ast.unparse(total)):
            return loop
    return None


def _only_added(nodes: list[ast.AST], total: str) -> bool:
    """Return whether these statements add to a tensor and do not change it in any other way.

    ``stop += 1`` is a signal on which all processes leave the loop.
    """
    added = False
    for node in nodes:
        if isinstance(node, ast.AugAssign) and ast.unparse(node.target) == total:
            if not isinstance(node.op, ast.Add):
                return False
            added = added or not isinstance(node.value, ast.Constant)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            added_to = any(isinstance(each, ast.AugAssign) and each.target is node for each in nodes)
            if ast.unparse(node) == total and not added_to:
                return False
        elif isinstance(node, ast.Attribute) and node.attr.endswith("_") and ast.unparse(node.value) == total:
            return False  # zero_, fill_, div_
    return added


def _of_object(code: ScriptFacts, event: Event, total: ast.Attribute) -> ast.stmt | None:
    """Return the loop in which an object from outside adds to an attribute and all-reduces it, in each pass."""
    method = event.stack[-1] if event.stack else None
    owner = method.owner if method is not None else None
    if method is None or owner is None or not isinstance(total.value, ast.Name) or _cleared(code, owner, total):
        return None
    calls = [e for e in code.events if e.called is not None and e.called.code is method and e.order < event.order]
    made = code.maker(calls[-1].receiver) if calls and calls[-1].receiver is not None else None
    if made is None or made.result.code is not owner:
        return None
    adds = {name for name, each in owner.methods.items() if _adds_to(each, ast.unparse(total))}
    inner = set(ast.walk(method.node))
    for loop in event.loops:
        if loop in made.loops or loop in inner or not isinstance(loop, ast.For | ast.While):
            continue
        added = [e for e in code.ran(*adds) if loop in e.loops and e.receiver is calls[-1].receiver] if adds else []
        return loop if added else None
    return None


def _adds_to(method: Code, total: str) -> bool:
    return any(isinstance(n, ast.AugAssign) and ast.unparse(n.target) == total for n in ast.walk(method.node))


def _cleared(code: ScriptFacts, owner: Code, total: ast.Attribute) -> bool:
    """Return whether an attribute is set, or may be cleared, outside of ``__init__`` and what only that calls."""
    text = ast.unparse(owner.node)
    derived = any(base.code is not None for base in owner.bases)
    if derived or any(word in text for word in ("zero_(", "fill_(", "setattr(", "__dict__", "vars(")):
        return True
    firsts = {"__init__", *(name for name in owner.methods if _called_by_init(code, owner, name))}
    others = [n for name, each in owner.methods.items() if name not in firsts for n in ast.walk(each.node)]
    if not _only_added(others, ast.unparse(total)):
        return True
    own = set(ast.walk(owner.node))
    return any(
        isinstance(node, ast.Attribute) and node.attr == total.attr and isinstance(node.ctx, ast.Store)
        for module in code.modules
        for node in module.nodes
        if node not in own
    )


def _called_by_init(code: ScriptFacts, owner: Code, name: str) -> bool:
    """Return whether a method is called by ``__init__`` of its class alone."""
    init = owner.methods.get("__init__")
    within = set(ast.walk(init.node)) if init is not None and isinstance(init.node, Function) else set()
    calls = list(code.called(name))
    return bool(calls) and all(call.node in within for call in calls)
