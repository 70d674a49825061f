"""One meaning per name: no public type of the package is called as another one is."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import trainwright

ROOT = Path(trainwright.__file__).parent


def types(source: str) -> Iterator[str]:
    """The public classes and type aliases of a module."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            yield from [] if node.name.startswith("_") else [node.name]
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            yield from [name] if name[0].isupper() and not name.isupper() and not _is_variable(node) else []


def _is_variable(alias: ast.Assign) -> bool:
    """A type variable stands for whatever its function takes; one letter may mean several things."""
    return isinstance(alias.value, ast.Call) and ast.unparse(alias.value.func) == "TypeVar"


def test_no_two_types_have_one_name():
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        for name in types(path.read_text()):
            places[name].append(str(path.relative_to(ROOT)))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("class Plan: ...", ["Plan"]),
        ("class _Own: ...", []),
        ("Kind = Literal['a']", ["Kind"]),
        ("LIMIT = 2", []),
        ("T = TypeVar('T')", []),
        ("def f():\n    class Inner: ...", []),
    ],
)
def test_types_are_found(source, names):
    assert list(types(source)) == names
