"""A call as it is written in a script; `events.Event` is one as it runs."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from trainwright.script.reader import Module


class Placed(Protocol):
    """What has a place in a script: a call as it is written or as it runs, a training step."""

    @property
    def module(self) -> Module:
        """The file."""

    @property
    def node(self) -> ast.AST:
        """The syntax tree."""


@dataclass(frozen=True, eq=False)
class Call:
    """A call in a script.

    Attributes:
        module: the file.
        node: the syntax tree.
        name: the function, with imported names resolved: ``torch.save``; ``?`` stands for an expression.
    """

    module: Module
    node: ast.Call
    name: str

    def is_for_others(self, modules: Iterable[Module]) -> bool:
        """Return whether other files import a function that makes this call, or calls one of its file that does.

        Of a file that is imported for another function, the ``main`` does not run.
        """
        functions = [n for n in self.module.nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
        makes = {f.name for f in functions if any(n is self.node for n in ast.walk(f))}
        for _ in range(3):
            makes |= {f.name for f in functions for n in ast.walk(f) if isinstance(n, ast.Name) and n.id in makes}
        classes = (n for n in self.module.nodes if isinstance(n, ast.ClassDef))
        makes |= {c.name for c in classes if any(isinstance(n, ast.FunctionDef) and n.name in makes for n in c.body)}
        taken = set()
        for node in (n for module in modules if module is not self.module for n in module.nodes):
            taken |= {alias.name for alias in node.names} if isinstance(node, ast.ImportFrom) else set()
            taken |= {node.attr} if isinstance(node, ast.Attribute) else set()
        return not makes or "*" in taken or bool(makes & taken)

    @property
    def last(self) -> str:
        """``save`` of ``torch.save``."""
        return self.name.rsplit(".", 1)[-1]

    @property
    def receiver(self) -> str:
        """The object whose method is called, as written in the script; empty for a plain function."""
        return ast.unparse(self.node.func.value) if isinstance(self.node.func, ast.Attribute) else ""

    @property
    def line(self) -> int:
        """The line number."""
        return self.node.lineno

    def given(self, keyword: str, position: int | None = None) -> ast.expr | None:
        """Return the argument with this name or position (from 0); None if missing."""
        for each in self.node.keywords:
            if each.arg == keyword:
                return each.value
        if position is not None and position < len(self.node.args):
            argument = self.node.args[position]
            return None if any(isinstance(a, ast.Starred) for a in self.node.args[: position + 1]) else argument
        return None

    def constant(self, keyword: str, position: int | None = None) -> object:
        """Return the value of a constant argument; None if it is missing or not a constant."""
        value = self.given(keyword, position)
        return value.value if isinstance(value, ast.Constant) else None
