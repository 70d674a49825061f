"""Which image tests there are, read from their files: what a smoke run of an image must have reported, no less."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from trainwright.core.paths import templates_dir


def expected(components: Iterable[str]) -> set[tuple[str, str]]:
    """The tests of the contract and of these components, as (component, function)."""
    folders = {"contract": templates_dir() / "contract"}
    folders |= {name: templates_dir() / "components" / name for name in components}
    return {
        (name, node.name)
        for name, folder in folders.items()
        for path in folder.glob("test_*.py")
        for node in ast.walk(ast.parse(Path(path).read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def reported(rows: Iterable[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """The tests of a smoke report, with all parameters of one as one."""
    return {(row["component"], row["check"].partition("[")[0]) for row in rows}


def of(rows: Iterable[Mapping[str, Any]], components: Iterable[str]) -> list[str]:
    """The names of the tests of these components in a smoke report, with their parameters."""
    return [f"{row['component']}::{row['check']}" for row in rows if row["component"] in set(components)]


def skipped(rows: Iterable[Mapping[str, Any]]) -> dict[str, set[str]]:
    """What was skipped, by the reason given."""
    found: dict[str, set[str]] = {}
    for row in rows:
        if row["outcome"] == "skipped":
            found.setdefault(row["reason"], set()).add(f"{row['component']}::{row['check'].partition('[')[0]}")
    return found
