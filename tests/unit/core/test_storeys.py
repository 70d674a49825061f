"""The packages stand on each other one way: none imports one above it. Lazy imports and those for types count."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import trainwright

ROOT = Path(trainwright.__file__).parent
# From the ground up; docs/architecture.md says why in this order.
STOREYS = [
    *("core", "site", "user", "catalog", "sagemaker", "plan", "engine", "sources", "prove", "build", "lock"),
    *(
        "soci",
        "push",
        "scan",
        "signing",
        "pipeline",
        "diagnose",
        "preflight",
        "estimator",
        "rehearse",
        "proofs",
        "report",
    ),
    *("fresh", "fleet", "doctor", "cli", "verbs"),
]
# What holds no logic: the version, and the doors of ``python -m trainwright`` and of Python programs.
OUTSIDE = {"__init__.py", "__main__.py", "api.py"}


def imported(source: str) -> Iterator[tuple[int, str]]:
    """The packages of Trainwright that a module imports, each with its line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for each in node.names:
                first, _, rest = each.name.partition(".")
                if first == "trainwright":
                    yield node.lineno, rest.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.level:
            yield node.lineno, "a relative import"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "trainwright":
            below = (node.module or "").split(".")[1:2]
            for name in below or [each.name for each in node.names]:
                yield node.lineno, name


def above(source: str, package: str) -> list[str]:
    """What a module of a package imports from above it, or from nowhere."""
    allowed = {*STOREYS[: STOREYS.index(package) + 1], "__version__"}
    return [f"{line} imports {name}" for line, name in imported(source) if name not in allowed]


def test_every_package_has_its_storey_and_says_what_it_is_for():
    assert {path.parent.name for path in ROOT.glob("*/__init__.py")} == set(STOREYS)
    assert {path.name for path in ROOT.glob("*.py")} == OUTSIDE
    for package in STOREYS:
        said = ast.get_docstring(ast.parse((ROOT / package / "__init__.py").read_text())) or ""
        assert said.endswith("."), package
        assert "\n" not in said, f"{package}: one sentence"


@pytest.mark.parametrize("package", STOREYS)
def test_no_package_imports_one_above_it(package):
    faults = [
        f"{path.relative_to(ROOT)}:{fault}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for fault in above(path.read_text(), package)
    ]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("from trainwright.plan.plan import Plan", "1 imports plan"),
        ("from trainwright import verbs", "1 imports verbs"),
        ("import trainwright.build.build", "1 imports build"),
        ("def f():\n    from trainwright.cli import program", "2 imports cli"),
        ("if TYPE_CHECKING:\n    from trainwright.catalog.catalog import Catalog", "2 imports catalog"),
        ("from . import site", "1 imports a relative import"),
        ("from trainwright.nowhere import x", "1 imports nowhere"),
    ],
)
def test_an_import_from_above_is_found(source, fault):
    assert above(source, "site") == [fault]


@pytest.mark.parametrize("source", ["from trainwright import __version__", "from trainwright.core import paths"])
def test_an_import_from_below_is_none(source):
    assert above(source, "site") == []


def test_the_tests_stand_in_folders_of_the_same_names():
    beside = {"templates", "devtools"}
    folders = {path.parent.name for path in Path(__file__).parents[1].glob("*/test_*.py")}
    assert folders - beside <= set(STOREYS)
    assert not list(Path(__file__).parents[1].glob("test_*.py"))
