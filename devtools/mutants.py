"""Plants faults in modules, one at a time, and counts those that no unit test of the module's package sees.

``./invoke test --mutants plan/conflict,rehearse/verdict --seed 1`` works on copies of the checkout, so an interruption
leaves nothing behind. Of kept libraries, mutmut runs every mutant of a package in one process after it has traced all
tests, and cosmic-ray needs a database and a configuration file per module; neither draws a sample by a seed.
"""

from __future__ import annotations

import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import yaml

from trainwright.core.errors import Failure, RequestError, did_you_mean
from trainwright.core.say import Say

ROOT = Path(__file__).resolve().parent.parent
EQUIVALENT = "tests/equivalent_mutants.yaml"
FLOOR = 0.85  # of the planted faults have to be seen
SECONDS = 300  # for the tests of one mutant; one that never ends is seen
# Whose faults users would notice first.
MODULES = (
    *("plan/resolve", "plan/assemble", "plan/conflict", "plan/plan_lock", "lock/wheels", "prove/probe"),
    *("rehearse/verdict", "rehearse/causes", "sagemaker/distribution", "estimator/rules_job", "estimator/rules_image"),
    *("push/moving", "push/proof", "push/upload", "sources/download", "user/files"),
)
_OTHER: dict[type, type] = {
    **{
        ast.Eq: ast.NotEq,
        ast.NotEq: ast.Eq,
        ast.Is: ast.IsNot,
        ast.IsNot: ast.Is,
        ast.In: ast.NotIn,
        ast.NotIn: ast.In,
    },
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.And: ast.Or, ast.Or: ast.And},
    **{ast.Add: ast.Sub, ast.Sub: ast.Add},
}
_NAMES = {"any": "all", "all": "any", "min": "max", "max": "min"}


class MutantsSurvived(Failure):
    """Fewer planted faults were seen than asked for."""

    kind = "tests"


@dataclass(frozen=True)
class Mutant:
    """A module with one fault, the ``number``-th there is: ``was`` became ``now`` in a function."""

    module: str
    number: int
    function: str
    line: int
    was: str
    now: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What names it, also after lines have moved."""
        return self.module, self.function, self.was, self.now

    def __str__(self) -> str:
        return f"{self.module}:{self.line} {self.function}: {self.was} -> {self.now}"


class Fault(NamedTuple):
    """A node whose attribute gets another value; ``shown`` is the part that people are told."""

    node: ast.AST
    attribute: str
    value: Any
    shown: ast.AST


def run_mutants(modules: str, *, seed: int, sample: int, floor: float, say: Say) -> None:
    """Plant faults and say which were not seen.

    Args:
        modules: such as ``plan/conflict``, comma-separated; ``all`` for :data:`MODULES`.
        seed: of the sample.
        sample: how many faults, of all modules together; 0 for every one.
        floor: the share that must be seen, from 0 to 1.
        say: progress callback.

    Raises:
        RequestError: there is no such module.
        MutantsSurvived: the share is lower.
    """
    chosen = list(MODULES) if modules == "all" else [name.removesuffix(".py") for name in modules.split(",")]
    known = _equivalent()
    mutants = [each for name in chosen for each in mutants_of(name) if each.key not in known]
    drawn = random.Random(seed).sample(mutants, min(sample or len(mutants), len(mutants)))  # noqa: S311
    seen: dict[str, list[bool]] = {name: [] for name in chosen}
    for mutant, killed in _tried(drawn):
        seen[mutant.module].append(killed)
        if not killed:
            say(f"not seen: {mutant}")
    for name, row in seen.items():
        if row:
            say(f"{name:<28} {sum(row):>4} of {len(row):>4} seen  {sum(row) / len(row):>4.0%}")
    every = [each for row in seen.values() for each in row]
    score = sum(every) / len(every) if every else 1.0
    say(f"{'all':<28} {sum(every):>4} of {len(every):>4} seen  {score:>4.0%} (seed {seed})")
    if score < floor:
        raise MutantsSurvived(
            f"{score:.0%} of the planted faults were seen, and {floor:.0%} have to be",
            remedy=f"Write tests that fail with those above, or name what changes nothing in {EQUIVALENT}.",
        )


def _equivalent() -> set[tuple[str, str, str, str]]:
    rows = yaml.safe_load((ROOT / EQUIVALENT).read_text())["mutants"]
    return {(row["module"], row["function"], row["was"], row["now"]) for row in rows}


def mutants_of(module: str) -> list[Mutant]:
    """Every mutant of a module.

    Raises:
        RequestError: there is no such module.
    """
    path = _path(ROOT, module)
    if not path.is_file():
        names = [str(each.relative_to(ROOT / "trainwright"))[:-3] for each in (ROOT / "trainwright").glob("*/*.py")]
        raise RequestError(f"--mutants {module}: no such module. {did_you_mean(module, names)}")
    found = []
    for number, (function, fault) in enumerate(_faults(ast.parse(path.read_text()))):
        right = getattr(fault.node, fault.attribute)
        was, line = _shown(fault, right), getattr(fault.shown, "lineno", 0)
        setattr(fault.node, fault.attribute, fault.value)
        found.append(Mutant(module, number, function, line, was, _shown(fault, fault.value)))
        setattr(fault.node, fault.attribute, right)
    return found


def _shown(fault: Fault, value: Any) -> str:
    if isinstance(fault.shown, ast.Raise):
        return "raise …" if fault.shown in value else "pass"
    return ast.unparse(value if isinstance(fault.node, ast.If) else fault.shown)[:100]


def text_of(mutant: Mutant) -> str:
    """The module with the fault, without comments."""
    tree = ast.parse(_path(ROOT, mutant.module).read_text())
    _, fault = next(islice(_faults(tree), mutant.number, None))
    setattr(fault.node, fault.attribute, fault.value)
    return ast.unparse(tree)


def _path(folder: Path, module: str) -> Path:
    return folder / "trainwright" / f"{module}.py"


def _faults(tree: ast.Module) -> list[tuple[str, Fault]]:
    """Each way to make a function wrong, with the function's name. Messages and annotations are left alone."""
    owners: list[tuple[str, list[ast.stmt]]] = [("", tree.body)]
    owners += [(f"{each.name}.", each.body) for each in tree.body if isinstance(each, ast.ClassDef)]
    found = []
    for prefix, body in owners:
        for function in (each for each in body if isinstance(each, ast.FunctionDef)):
            left = {id(part) for node in ast.walk(function) for part in _left_alone(node)}
            nodes = [node for node in ast.walk(function) if node is not function and id(node) not in left]
            found += [(f"{prefix}{function.name}", fault) for node in nodes for fault in _of_expression(node)]
            found += [
                (f"{prefix}{function.name}", fault) for node in ast.walk(function) for fault in _of_statements(node)
            ]
    return found


def _left_alone(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a node whose change no test should see: texts for people, docstrings and annotations."""
    parts = [getattr(node, name, None) for name in ("annotation", "returns")]
    if isinstance(node, ast.Raise | ast.JoinedStr):
        parts.append(node)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        parts.append(node)
    for part in parts:
        if isinstance(part, ast.AST):
            yield from ast.walk(part)


def _of_expression(node: ast.AST) -> Iterator[Fault]:
    match node:
        case ast.Compare(ops=[op]) if type(op) in _OTHER:
            yield Fault(node, "ops", [_OTHER[type(op)]()], node)
        case ast.BoolOp(op=op, values=values):
            yield Fault(node, "op", _OTHER[type(op)](), node)
            yield Fault(node, "values", [*values[1:], values[-1]], node)
            yield Fault(node, "values", [values[0], *values[:-1]], node)
        case ast.BinOp(op=op) if type(op) in _OTHER:
            yield Fault(node, "op", _OTHER[type(op)](), node)
        case ast.If(test=test) | ast.IfExp(test=test) | ast.comprehension(ifs=[test]) if not _is_turned(test):
            attribute, wrong = ("ifs", [_not(test)]) if isinstance(node, ast.comprehension) else ("test", _not(test))
            yield Fault(node, attribute, wrong, test if isinstance(node, ast.If) else node)
        case ast.Return(value=ast.Constant(value=value)) if not value:
            pass
        case ast.Return(value=ast.AST()):
            yield Fault(node, "value", ast.Constant(None), node)
        case ast.Name(id=name) if name in _NAMES:
            yield Fault(node, "id", _NAMES[name], node)
        case ast.Constant(value=bool(truth)):
            yield Fault(node, "value", not truth, node)
        case ast.Constant(value=int(number)):
            yield Fault(node, "value", number + 1, node)
        case ast.Constant(value=str(text)) if text and " " not in text:
            yield Fault(node, "value", f"{text}XX", node)


def _is_turned(test: ast.expr) -> bool:
    """Whether a condition is turned round by the fault of an expression in it."""
    return isinstance(test, ast.Compare) and len(test.ops) == 1


def _not(test: ast.expr) -> ast.expr:
    return (
        test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else ast.UnaryOp(ast.Not(), test)
    )


def _of_statements(node: ast.AST) -> Iterator[Fault]:
    """Each ``raise`` left out."""
    for attribute in ("body", "orelse", "handlers", "finalbody"):
        statements = getattr(node, attribute, [])
        for number, each in enumerate(statements if isinstance(statements, list) else []):
            if isinstance(each, ast.Raise):
                yield Fault(node, attribute, [*statements[:number], ast.Pass(), *statements[number + 1 :]], each)


def _tried(mutants: list[Mutant]) -> Iterator[tuple[Mutant, bool]]:
    """Whether each mutant is seen; as many at a time as there are processors."""
    with tempfile.TemporaryDirectory(prefix="trainwright-mutants-") as scratch:
        copies: SimpleQueue[Path] = SimpleQueue()
        workers = os.cpu_count() or 1
        for number in range(workers):
            copies.put(_copy(Path(scratch, str(number))))

        def seen(mutant: Mutant) -> bool:
            folder = copies.get()
            try:
                return _is_seen(mutant, folder)
            finally:
                copies.put(folder)

        with ThreadPoolExecutor(workers) as pool:
            yield from zip(mutants, pool.map(seen, mutants), strict=True)


def _copy(folder: Path) -> Path:
    argv = ["git", "ls-files", "-z"]
    listed = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603
    for name in filter(None, listed.stdout.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    return folder


def _is_seen(mutant: Mutant, folder: Path) -> bool:
    package, _, name = mutant.module.partition("/")
    path = _path(folder, mutant.module)
    whole = path.read_text()
    own = folder / "tests" / "unit" / package / f"test_{name}.py"
    path.write_text(text_of(mutant))
    try:
        return any(_fails(folder, target) for target in (own, own.parent) if target.exists())
    finally:
        path.write_text(whole)


def _fails(folder: Path, target: Path) -> bool:
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "-m",
        "not engine",
        str(target),
    ]
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(argv, cwd=folder, env=environment, capture_output=True, timeout=SECONDS, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        return True
    return done.returncode not in (0, 5)
