"""The best value so far: where it begins, and whether a later one can be better."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule, Severity
from trainwright.script.reader import Module
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at, enclosing_function

NEVER_BETTER = Rule(
    code="TW592",
    severity="error",
    title="the best value begins where no later one is better, so that nothing is kept as the best",
    source="PyTorch Lightning, callbacks/model_checkpoint.py: with mode=min the best score begins at infinity, with "
    "mode=max at minus infinity; Keras, callbacks/model_checkpoint.py: the same",
    remedy='best_loss = float("inf") for what is to become small, best_accuracy = 0.0 for what is to become large.',
)
RULES = (NEVER_BETTER,)
# Measures that are not negative and that are better the smaller they are.
_SMALL = re.compile(
    r"(^|_|val|test|eval)(loss|ppl|perplexity|wer|cer|mae|mse|rmse|error|fid)(_(value|avg|mean|epoch))?$", re.I
)
_SAVES = re.compile(r"(^|\.|_)(save\w*|deepcopy)$")
_KEPT = re.compile(r"""(\['\w+'\]|\.get\('.*\))$""")
_Best = ast.Name | ast.Attribute


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete:
        return
    reached = {event.node for event in code.events if not event.detached}
    for module in code.modules:
        for node in module.nodes:
            if not isinstance(node, ast.If) or not any(n in reached for n in ast.walk(node)):
                continue
            parts = _compared(node)
            if parts is None:
                continue
            value, smaller, best = parts
            begins = _beginning(module, node, best)
            if begins is None or not _never(begins, smaller, value):
                continue
            what = f"`{ast.unparse(node.test)[:50]}` is never true: {ast.unparse(best)} begins as {ast.unparse(begins)}"
            yield at(NEVER_BETTER, (module, node), what, severity=_severity(code, node))


def _compared(node: ast.If) -> tuple[ast.expr, bool, _Best] | None:
    """Return the value that is compared, whether it is to be smaller, and the best one, which gets it if it is."""
    test = node.test
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE):
        return None
    given = {
        ast.unparse(target): ast.unparse(each.value)
        for each in node.body
        if isinstance(each, ast.Assign)
        for target in each.targets
    }
    less = isinstance(test.ops[0], ast.Lt | ast.LtE)
    for best, value, smaller in ((test.comparators[0], test.left, less), (test.left, test.comparators[0], not less)):
        if isinstance(best, ast.Name | ast.Attribute) and given.get(ast.unparse(best)) == ast.unparse(value):
            return value, smaller, best
    return None


def _beginning(module: Module, node: ast.If, best: _Best) -> ast.expr | None:
    """Return what the best value is at first, if that is all that it gets elsewhere, but from a checkpoint."""
    around = enclosing_function(module, node)
    inside = set(ast.walk(node))
    first: ast.expr | None = None
    for each in module.nodes:
        if isinstance(each, ast.Global | ast.Nonlocal) and isinstance(best, ast.Name) and best.id in each.names:
            return None
        if isinstance(each, ast.arg) and isinstance(best, ast.Name) and each.arg == best.id:
            return None
        targets = _targets(each)
        if each in inside or not any(_names(target, best) for target in targets):
            continue
        if isinstance(best, ast.Name) and enclosing_function(module, each) is not around:
            continue
        value = each.value if isinstance(each, ast.Assign | ast.AnnAssign) else None
        plain = value is not None and any(ast.unparse(target) == ast.unparse(best) for target in targets)
        if value is not None and _KEPT.search(ast.unparse(value)):
            continue  # `best = checkpoint["best"]`
        if not plain or value is None or (first is not None and ast.unparse(first) != ast.unparse(value)):
            return None
        first = value
    return first


def _targets(node: ast.AST) -> list[ast.expr]:
    """Return what a statement sets."""
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign | ast.NamedExpr | ast.For) else []


def _names(target: ast.expr, best: _Best) -> bool:
    """Return whether a target, or a part of it, is the best value."""
    text = ast.unparse(best)
    return any(isinstance(n, ast.Name | ast.Attribute) and ast.unparse(n) == text for n in ast.walk(target))


def _never(begins: ast.expr, smaller: bool, value: ast.expr) -> bool:
    """Return whether no value is better than the first one."""
    text = ast.unparse(begins).replace('"', "'")
    infinite = re.fullmatch(r"(-?)(float\('\+?(-?)inf(inity)?'\)|(np|numpy|math|torch)\.inf)", text)
    if infinite is not None:
        negative = bool(infinite[1]) is not bool(infinite[3])
        return negative if smaller else not negative
    zero = isinstance(begins, ast.Constant) and begins.value == 0 and not isinstance(begins.value, bool)
    named = ast.unparse(value).removesuffix(".item()").rpartition(".")[2]
    return zero and smaller and _SMALL.search(named) is not None


def _severity(code: ScriptFacts, node: ast.If) -> Severity:
    """Return "error" if what is saved or copied is saved there alone."""
    saves = [event for event in code.events if _SAVES.search(event.name)]
    there = [any(guard.node is node.test and guard.side for guard in event.guards) for event in saves]
    return "error" if any(there) and all(there) else "warning"
