"""Imports run one way: no package imports one above it, and no files of a package import each other in a circle.

Lazy imports and those for types count.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
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
        "script",
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


def neighbours(source: str, package: str) -> Iterator[str]:
    """The modules of its own package that a module imports (or names that ``__init__.py`` defines)."""
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{each.name}" for each in node.names]
        start = f"trainwright.{package}."
        yield from (name.removeprefix(start).partition(".")[0] for name in names if name.startswith(start))


def circle(sources: Mapping[str, str], package: str) -> list[str]:
    """Files of a package of which each imports the next, and the last is the first; empty if there is no circle."""
    imports = {name: sorted(sources.keys() & set(neighbours(source, package))) for name, source in sources.items()}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as found:
        return list(reversed(found.args[1]))
    return []


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


@pytest.mark.parametrize("package", STOREYS)
def test_no_files_of_a_package_import_each_other_in_a_circle(package):
    # A package's __init__.py says what the package is for, and hands none of its names on.
    modules = [path for path in sorted((ROOT / package).glob("*.py")) if path.name != "__init__.py"]
    found = circle({path.stem: path.read_text() for path in modules}, package)
    assert not found, " -> ".join(found)


@pytest.mark.parametrize(
    "back",
    [
        "from trainwright.site import a",
        "from trainwright.site.a import f",
        "import trainwright.site.a as other",
        "def g():\n    from trainwright.site.a import f",
        "if TYPE_CHECKING:\n    from trainwright.site.a import F",
    ],
)
def test_a_circle_of_files_is_found(back):
    forth = "from trainwright.site.b import g"
    assert set(circle({"a": forth, "b": back}, "site")) == {"a", "b"}
    assert circle({"a": forth, "b": "from trainwright.site.c import h", "c": back}, "site") in (
        ["a", "b", "c", "a"],
        ["b", "c", "a", "b"],
        ["c", "a", "b", "c"],
    )


def test_a_chain_of_files_is_no_circle():
    chain = {
        "a": "from trainwright.site import b, c",
        "b": "def g():\n    import trainwright.site.c",
        "c": "import ast",
    }
    assert circle(chain, "site") == []
    # Files of the same name in another package are other files.
    assert circle(chain | {"c": "from trainwright.core import a\nfrom trainwright.core.b import g"}, "site") == []


def test_the_tests_stand_in_folders_of_the_same_names():
    beside = {"templates", "devtools"}
    folders = {path.parent.name for path in Path(__file__).parents[1].glob("*/test_*.py")}
    assert folders - beside <= set(STOREYS)
    assert not list(Path(__file__).parents[1].glob("test_*.py"))
