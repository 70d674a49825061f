"""Conditions on the counter of a loop, such as ``(i + 1) % n == 0``: for which of its values do they hold?"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Collection
from typing import Any

from trainwright.script.arithmetic import OPERATIONS
from trainwright.script.reader import Module
from trainwright.script.syntax import meant

MANY = 48  # values of a counter: several rounds of any usual number of batches
_NUMBER = 4  # what a number is taken for that the script gets from its arguments
_COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def counters(loop: ast.AST) -> set[str]:
    """Return the names that a ``for`` gives its values to."""
    return (
        {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
        if isinstance(loop, ast.For)
        else set()
    )


def holds_for(module: Module, test: ast.expr, side: bool, names: Collection[str]) -> set[int] | None:
    """Return the values of a counter, below :data:`MANY`, for which a condition is on a side.

    Args:
        names: the names in the condition that are the counter.

    Returns:
        None if the condition asks anything but whole numbers, or does not ask for the counter.
    """
    try:
        values = [_value(module, test, names, count) for count in range(MANY)]
    except (LookupError, ArithmeticError):
        return None
    found = {count for count, value in enumerate(values) if bool(value) is side}
    return found if 0 < len(found) < MANY else None


def _value(module: Module, node: ast.expr, names: Collection[str], count: int, depth: int = 8) -> Any:
    """Return the value of an expression. Raises: LookupError: it is not one of whole numbers."""
    if not depth:
        raise LookupError

    def inner(each: ast.expr) -> Any:
        return _value(module, each, names, count, depth - 1)

    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name) and node.id in names:
        return count
    if isinstance(node, ast.Name | ast.Attribute):
        told = meant(module, node)
        return inner(told) if told is not node and isinstance(told, ast.BinOp | ast.Compare | ast.UnaryOp) else _NUMBER
    if isinstance(node, ast.BinOp):
        return OPERATIONS[type(node.op)](inner(node.left), inner(node.right))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return not inner(node.operand)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return _COMPARED[type(node.ops[0])](inner(node.left), inner(node.comparators[0]))
    raise LookupError
