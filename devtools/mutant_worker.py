"""Tries faults in a copy of the checkout, for :mod:`devtools.mutants`.

Everything that does not depend on the modules is imported once, and each fault is tried in a fork of that: starting
Python and pytest, and reading the catalog, would take longer than the tests. A first run without a fault notes which
tests call which function, and a fault is tried with those that call its function. Generated tests are left out, as
they would find other faults in each run.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from devtools.mutants import ROOT, functions_of, mutants_of, path_of, tests_of, text_of

if TYPE_CHECKING:
    import pytest

SECONDS = 120  # for the tests of one fault; one that never ends is seen
SECONDS_WITHOUT = 900  # for those tests without a fault, which do end, on a busy machine too
ENDLESS = 124
CALLS = "_functions_called"  # a set among the builtins: the module's text may not import more than it does


def main(modules: list[str]) -> None:
    """Try the faults that each line of standard input asks for: ``mutants``, pairs of a module and a number, that the
    same ``tests`` look at.

    Answers with a line each: the list of pytest's exit codes, where 0 is a fault that no test has seen, or an empty
    one if the tests fail without any fault.

    Args:
        modules: those that will be asked for, such as ``plan/conflict``.
    """
    _preload(modules)
    known: dict[tuple[str, ...], dict[str, list[str]] | None] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        targets = asked["tests"]
        if (key := tuple(targets)) not in known:
            known[key] = _calls([module for module in modules if tests_of(module) == targets], targets)
        calls, codes = known[key], []
        for module, number in asked["mutants"] if calls is not None else []:
            function = mutants_of(module)[number].function
            with _instead({module: partial(text_of, number=number)}):
                chosen = (calls or {}).get(f"{module}:{function}", [])
                files = list(dict.fromkeys(test.partition("::")[0] for test in chosen))
                codes.append(_code(files or targets, Choose(chosen)))
        print(json.dumps(codes), flush=True)


@contextmanager
def _instead(texts: Mapping[str, Callable[[str], str]]) -> Iterator[None]:
    """Modules with other texts, each made of its own one."""
    whole = {module: path_of(module).read_text() for module in texts}
    try:
        for module, other in texts.items():
            path_of(module).write_text(other(whole[module]))
        yield
    finally:
        for module, text in whole.items():
            path_of(module).write_text(text)


def _calls(modules: list[str], targets: list[str]) -> dict[str, list[str]] | None:
    """The tests that call each function of some modules, in one run of them; nothing if one fails."""
    with tempfile.NamedTemporaryFile() as file:
        with _instead({module: partial(_noted, module) for module in modules}):
            code = _code(targets, Watch(), Path(file.name))
        for path in map(path_of, modules):
            for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
                compiled.unlink()
        return None if code else json.loads(Path(file.name).read_text())


def _noted(module: str, text: str) -> str:
    """A module's text whose functions note that they were called."""
    tree = ast.parse(text)
    for name, function in functions_of(tree):
        note = f'__import__("builtins").__dict__.setdefault({CALLS!r}, set()).add({f"{module}:{name}"!r})'
        function.body.insert(0, ast.parse(note).body[0])
    return ast.unparse(ast.fix_missing_locations(tree))


class Watch:
    """A plugin of pytest that notes which tests call which functions, the quickest first.

    What a module calls while it is imported, or in a fixture, counts for all tests of its file.
    """

    def __init__(self) -> None:
        self.found: dict[str, dict[str, float]] = {}
        self.of_file: dict[str, set[str]] = {}
        self.items: list[pytest.Item] = []
        self.seconds: dict[str, float] = {}

    def _called(self) -> set[str]:
        import builtins

        names: set[str] = builtins.__dict__.setdefault(CALLS, set())
        called = set(names)
        names.clear()
        return called

    def pytest_pycollect_makemodule(self) -> None:
        self._called()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.of_file.setdefault(report.nodeid.partition("::")[0], set()).update(self._called())

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.items = items

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        called, test = self._called(), report.nodeid
        self.seconds[test] = self.seconds.get(test, 0) + report.duration
        if report.when == "call":
            for name in called:
                self.found.setdefault(name, {})[test] = 0
        else:
            self.of_file.setdefault(test.partition("::")[0], set()).update(called)

    def tests(self) -> dict[str, list[str]]:
        """The tests of each function."""
        for item in self.items:
            for name in self.of_file.get(item.nodeid.partition("::")[0], set()):
                self.found.setdefault(name, {})[item.nodeid] = 0
        return {name: sorted(tests, key=lambda test: self.seconds.get(test, 0)) for name, tests in self.found.items()}


class Choose:
    """A pytest plugin that runs the given tests in the given order, or all tests if none are given."""

    def __init__(self, tests: list[str]) -> None:
        self.tests = {test: number for number, test in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.tests:
            chosen = [item for item in items if item.nodeid in self.tests]
            items[:] = sorted(chosen, key=lambda item: self.tests[item.nodeid])


def _preload(modules: list[str]) -> None:
    """Import what does not need the modules, directly or not."""
    names = {_name(str(path.relative_to(ROOT).with_suffix(""))): path for path in (ROOT / "trainwright").glob("*/*.py")}
    needs = {name: set(_imports(ast.parse(path.read_text()))) for name, path in names.items()}
    without, more = {_name(f"trainwright/{module}") for module in modules}, True
    while more:
        found = {name for name, needed in needs.items() if needed & without} - without
        without, more = without | found, bool(found)
    for name in ("pytest", "hypothesis", "xdist", "testinfra", "boto3", "docker", "jinja2"):
        importlib.import_module(name)
    for name in sorted(names.keys() - without):
        importlib.import_module(name)
    if "trainwright.catalog.catalog" not in without:
        from tests.support.catalogs import read_once
        from trainwright.catalog.catalog import load_catalog

        read_once()
        load_catalog()


def _name(path: str) -> str:
    return path.removesuffix("/__init__").replace("/", ".")


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)


def _code(targets: list[str], plugin: Watch | Choose, result: Path | None = None) -> int:
    """pytest's exit code for the tests, in a process of their own."""
    pid = os.fork()
    if pid == 0:
        _test(targets, plugin, result)
    for _ in range((SECONDS if result is None else SECONDS_WITHOUT) * 50):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return ENDLESS


def _test(targets: list[str], plugin: Watch | Choose, result: Path | None) -> None:
    code = 1
    try:
        os.setsid()
        os.environ["PYTHONDONTWRITEBYTECODE"] = "" if result else "1"
        sys.dont_write_bytecode = result is None
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        import pytest

        marks = "not engine and not hypothesis"
        options = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-m", marks]
        code = pytest.main([*options, *targets], plugins=[plugin])
        if result is not None and isinstance(plugin, Watch):
            result.write_text(json.dumps(plugin.tests()))
    finally:
        os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
