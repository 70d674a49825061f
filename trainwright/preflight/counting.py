"""Conditions on the counter of a loop, such as ``(i + 1) % n == 0``: for which of its values do they hold?"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainwright.script.arithmetic import OPERATIONS
from trainwright.script.reader import Module
from trainwright.script.syntax import meant

MANY = 256  # values of a counter: several rounds of any usual number of batches
ENDLESS = 10**9  # batches of a loader whose end is not looked at
_COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
# What asks whether gradients are averaged at all: `hasattr(model, "no_sync")`, `args.distributed`.
_WHETHER = re.compile(r"^(isinstance|hasattr)\(|(^|[._])(is_)?(distributed|ddp|use_ddp|multi_gpu)$", re.I)


@dataclass(frozen=True)
class Counter:
    """A loop whose passes are counted, and the numbers that conditions on them ask for.

    Attributes:
        module: its file.
        names: the counters, each with the line after which it is one more: 0 if the loop itself sets it.
        numbers: what is known of other names, by their text.
        batches: the length of whatever is asked for its length.
    """

    module: Module
    names: Mapping[str, int]
    numbers: Mapping[str, int] = field(default_factory=dict)
    batches: int = ENDLESS


def counters(loop: ast.AST) -> dict[str, int]:
    """Return the names that count the passes of a loop: those that a ``for`` sets, and those of ``step += 1`` in it."""
    if not isinstance(loop, ast.For | ast.While):
        return {}
    found: dict[str, int] = {}
    if isinstance(loop, ast.For):
        found = {node.id: 0 for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
    stored = [n.id for n in ast.walk(loop) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    added = (n for n in loop.body if isinstance(n, ast.AugAssign) and isinstance(n.op, ast.Add))
    for node in added:
        name = ast.unparse(node.target)
        if ast.unparse(node.value) == "1" and stored.count(name) == 1:
            found[name] = node.lineno
    return found


def divisors(module: Module, test: ast.expr, depth: int = 4) -> set[str]:
    """Return the names by which a condition divides: how many batches are accumulated."""
    found: set[str] = set()
    for node in ast.walk(test):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            found.add(ast.unparse(first_name(module, node.right)))
        told = meant(module, node) if isinstance(node, ast.Name) else None
        if told is not None and told is not node and depth:
            found |= divisors(module, told, depth - 1)
    return found


def first_name(module: Module, node: ast.expr, depth: int = 4) -> ast.expr:
    """Return what a name is another name for: ``args.accumulate`` of ``accumulate``."""
    told = meant(module, node)
    return first_name(module, told, depth - 1) if depth and isinstance(told, ast.Name | ast.Attribute) else node


def holds_for(counter: Counter, test: ast.expr, side: bool) -> set[int] | None:
    """Return the passes, below :data:`MANY`, for which a condition is on a side; None if that is not known."""
    try:
        values = [_value(counter, test, count) for count in range(min(MANY, counter.batches))]
    except (LookupError, ArithmeticError):
        return None
    return {count for count, value in enumerate(values) if bool(value) is side}


def number(counter: Counter, node: ast.expr) -> int | None:
    """Return the value of an expression that does not ask for the counter; None if it is not known."""
    try:
        value = _value(counter, node, 0)
    except (LookupError, ArithmeticError):
        return None
    return value if isinstance(value, int) else None


def _value(counter: Counter, node: ast.expr, count: int, depth: int = 8) -> Any:
    """Return the value of an expression. Raises: LookupError: it is not one of whole numbers."""
    if not depth:
        raise LookupError

    def inner(each: ast.expr) -> Any:
        return _value(counter, each, count, depth - 1)

    match node:
        case ast.Constant() if isinstance(node.value, int):
            result: Any = node.value
        case ast.Name() | ast.Attribute():
            result = _named(counter, first_name(counter.module, node), count, inner)
        case ast.BinOp():
            result = OPERATIONS[type(node.op)](inner(node.left), inner(node.right))
        case ast.UnaryOp(op=ast.Not()):
            result = not inner(node.operand)
        case ast.Compare() if len(node.ops) == 1:
            result = _COMPARED[type(node.ops[0])](inner(node.left), inner(node.comparators[0]))
        case ast.BoolOp():
            every = isinstance(node.op, ast.And)
            asked = [bool(inner(each)) for each in node.values if not (every and _WHETHER.search(ast.unparse(each)))]
            result = all(asked) if every else any(asked)
        case ast.Call() if ast.unparse(node.func) == "len":
            result = counter.batches
        case _:
            raise LookupError
    return result


def _named(counter: Counter, node: ast.expr, count: int, inner: Callable[[ast.expr], Any]) -> Any:
    """Return the value of a name: of a counter, of a number, or of what the file gives it."""
    text, told = ast.unparse(node), meant(counter.module, node)
    if text in counter.names:
        return count + (0 < counter.names[text] < node.lineno)
    if text in counter.numbers and not isinstance(told, ast.Constant):
        return counter.numbers[text]
    if told is node:
        raise LookupError
    return inner(told)
