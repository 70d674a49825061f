"""Plants faults in modules, one at a time, and counts those that no unit test of the module's package sees.

``./invoke test --mutants plan/conflict,rehearse/verdict --seed 1`` works on copies of the checkout, so an interruption
leaves nothing behind. Of kept libraries, mutmut runs every mutant of a package in one process after it has traced all
tests, and cosmic-ray needs a database and a configuration file per module; neither draws a sample by a seed.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
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
SEED, SAMPLE = 1, 60  # of those that every whole test run plants
UNIT = "tests/unit"
# Of a module of preflight's rules, the files that test its words and no other's.
# Whose faults users would notice first, and the files that test them where that is not the one of the same name alone.
MODULES: dict[str, tuple[str, ...]] = {
    "plan/resolve": tuple(
        f"plan/test_{name}.py"
        for name in ("resolve_words", "resolve_lines", "extend", "unproven", "resolve", "conflict")
    ),
    "plan/assemble": tuple(
        f"plan/test_{name}.py"
        for name in ("assemble", "extend", "loaded", "other_provider", "unproven", "licences", "destination", "resolve")
    ),
    **{
        f"plan/{name}": tuple(
            f"plan/test_{test}.py"
            for test in ("conflict_reasons", "conflict_answers", "conflict", "unlisted", "offers", "resolve")
        )
        for name in ("conflict", "offers")
    },
    "plan/plan_lock": (),
    "lock/wheels": ("lock/test_wheels.py", "lock/test_uv.py", "lock/test_wheel_choice.py"),
    "prove/probe": ("prove/test_probe.py", "prove/test_base.py"),
    "prove/differences": ("prove/test_differences.py", "prove/test_base.py"),
    "rehearse/verdict": tuple(
        f"rehearse/test_{name}.py" for name in ("verdict_words", "verdict", "tensorflow", "causes")
    ),
    "rehearse/causes": tuple(f"rehearse/test_{name}.py" for name in ("causes", "tensorflow", "verdict")),
    "sagemaker/distribution": (),
    **{
        f"estimator/rules_{name}": tuple(
            f"estimator/test_{test}.py"
            for test in (
                *("rules", "distribution_rules", "good_jobs", "neighbours", "remedies"),
                *("severities", "edges", "cluster_rules", "exact"),
            )
        )
        for name in ("compiler", "distribution", "image", "job", "launch", "options", "sdk3", "smp")
    },
    "push/moving": (),
    "push/proof": ("push/test_proof.py", "push/test_gate.py"),
    "push/upload": (),
    "sources/download": ("sources/test_download.py", "sources/test_download_answers.py"),
    **{
        f"preflight/{name}": (
            *(f"preflight/{path.name}" for path in sorted((ROOT / UNIT / "preflight").glob(f"test_{name}_*.py"))),
            *(
                f"preflight/test_{test}.py"
                for test in ("rules", "neighbours", "near_misses", "hidden_mistakes", "good_scripts", "corpus")
            ),
        )
        for name in (
            *("amp", "collectives", "data", "devices", "distributed", "environment", "hotloop", "huggingface"),
            *("loop", "sagemaker_paths", "saving", "smp", "tensorflow", "xla"),
        )
    },
    "build/context": (
        *("build/test_context.py", "plan/test_plan_lock.py", "plan/test_user_parts.py", "user/test_files.py"),
        *("sources/test_gather.py", "sources/test_locations.py"),
    ),
    "user/files": ("user/test_files.py", "user/test_chosen_files.py"),
}
# A module's tests run once before its faults are tried, which would take minutes for the rules of preflight.
SAMPLED = [name for name in MODULES if not name.startswith("preflight/")]
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


Keep = Callable[[Mapping[str, Sequence[bool]], int], None]


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


def run_mutants(
    modules: str, *, seed: int, sample: int, floor: float, say: Say, keep: Keep = lambda _scores, _seed: None
) -> None:
    """Plant faults and say which were not seen.

    Args:
        modules: such as ``plan/conflict``, comma-separated; ``all`` for :data:`MODULES`.
        seed: of the sample.
        sample: how many faults, of all modules together; 0 for every one.
        floor: the share that must be seen, from 0 to 1.
        say: progress callback.
        keep: gets whether each fault of a module was seen, and the seed.

    Raises:
        RequestError: there is no such module.
        MutantsSurvived: the share is lower.
    """
    chosen = list(MODULES) if modules == "all" else [name.removesuffix(".py") for name in modules.split(",")]
    known = _equivalent()
    mutants = [each for name in chosen for each in mutants_of(name) if each.key not in known]
    drawn = _drawn(mutants, seed)[: sample or None]
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
    keep(seen, seed)
    say(f"{'all':<28} {sum(every):>4} of {len(every):>4} seen  {score:>4.0%} (seed {seed})")
    if score < floor:
        raise MutantsSurvived(
            f"{score:.0%} of the planted faults were seen, and {floor:.0%} have to be",
            remedy=f"Write tests that fail with those above, or name what changes nothing in {EQUIVALENT}.",
        )


def _drawn(mutants: list[Mutant], seed: int) -> list[Mutant]:
    """The mutants in the order of a seed. It goes by what each one is, so that code that comes, goes or moves elsewhere
    changes nothing in a sample but its own share of it.
    """
    return sorted(mutants, key=lambda each: hashlib.sha256(repr((seed, *each.key)).encode()).digest())


def _equivalent() -> set[tuple[str, str, str, str]]:
    rows = yaml.safe_load((ROOT / EQUIVALENT).read_text())["mutants"]
    return {(row["module"], row["function"], row["was"], row["now"]) for row in rows}


def mutants_of(module: str) -> list[Mutant]:
    """Every mutant of a module.

    Raises:
        RequestError: there is no such module.
    """
    path = path_of(module)
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


def text_of(text: str, number: int) -> str:
    """A module's text with the ``number``-th fault that there is, and without comments."""
    tree = ast.parse(text)
    _, fault = next(islice(_faults(tree), number, None))
    setattr(fault.node, fault.attribute, fault.value)
    return ast.unparse(tree)


def path_of(module: str) -> Path:
    return ROOT / "trainwright" / f"{module}.py"


def functions_of(tree: ast.Module) -> list[tuple[str, ast.FunctionDef]]:
    """The functions of a module and the methods of its classes, each with its name."""
    owners: list[tuple[str, list[ast.stmt]]] = [("", tree.body)]
    owners += [(f"{each.name}.", each.body) for each in tree.body if isinstance(each, ast.ClassDef)]
    return [(prefix + each.name, each) for prefix, body in owners for each in body if isinstance(each, ast.FunctionDef)]


def _faults(tree: ast.Module) -> list[tuple[str, Fault]]:
    """Each way to make a function wrong, with the function's name. Messages and annotations are left alone."""
    found = []
    for name, function in functions_of(tree):
        left = {id(part) for node in ast.walk(function) for part in _left_alone(node)}
        nodes = [node for node in ast.walk(function) if node is not function and id(node) not in left]
        found += [(name, fault) for node in nodes for fault in _of_expression(node)]
        found += [(name, fault) for node in ast.walk(function) for fault in _of_statements(node)]
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
    number = os.cpu_count() or 1
    batches = _batches(mutants, number)
    modules = sorted({mutant.module for mutant in mutants})
    free: SimpleQueue[subprocess.Popen[str]] = SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="trainwright-mutants-") as scratch, ExitStack() as running:

        def seen(batch: list[Mutant]) -> list[tuple[Mutant, bool]]:
            worker = free.get()
            try:
                return list(zip(batch, _seen(batch, worker), strict=True))
            finally:
                free.put(worker)

        for each in range(min(number, len(batches))):
            free.put(running.enter_context(_worker(_copy(Path(scratch, str(each))), modules)))
        with ThreadPoolExecutor(number) as pool:
            for batch in pool.map(seen, batches):
                yield from batch


def _batches(mutants: list[Mutant], workers: int) -> list[list[Mutant]]:
    """Mutants that the same tests look at, which one process tries one after another."""
    tested: dict[tuple[str, ...], list[Mutant]] = {}
    for mutant in mutants:
        tested.setdefault(tuple(tests_of(mutant.module)), []).append(mutant)
    size = max(4, -(-len(mutants) // (2 * workers)))
    return [rows[at : at + size] for rows in tested.values() for at in range(0, len(rows), size)]


def _copy(folder: Path) -> Path:
    argv = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603
    for name in filter(None, listed.stdout.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    return folder


@contextmanager
def _worker(folder: Path, modules: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A process that tries faults in a copy of the checkout (:mod:`devtools.mutant_worker`)."""
    argv = [sys.executable, "-m", "devtools.mutant_worker", *modules]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, cwd=folder, env=environment, text=True, stdin=pipe, stdout=pipe) as worker:  # noqa: S603
        try:
            yield worker
        finally:
            worker.kill()


def _seen(batch: list[Mutant], worker: subprocess.Popen[str]) -> list[bool]:
    """Whether each mutant of a batch fails a test.

    Raises:
        MutantsSurvived: the tests fail without any fault, so they say nothing.
    """
    tests = tests_of(batch[0].module)
    assert worker.stdin
    assert worker.stdout
    asked = {"tests": tests, "mutants": [(each.module, each.number) for each in batch]}
    worker.stdin.write(json.dumps(asked) + "\n")
    worker.stdin.flush()
    answer = worker.stdout.readline()
    codes = json.loads(answer) if answer else []
    if len(codes) != len(batch):
        raise MutantsSurvived(f"{batch[0].module}: its tests fail without a fault: {' '.join(tests)}")
    return [bool(code) for code in codes]


def tests_of(module: str) -> list[str]:
    """The test files that look at a module, the quickest first: those of :data:`MODULES`, its own one, those of its
    name in other packages (what reads scripts is tested by the rules that need it), or its package's.
    """
    package, _, name = module.partition("/")
    own = f"{package}/test_{name}.py"
    if not (named := MODULES.get(module, ())):
        named = (own,) if (ROOT / UNIT / own).is_file() else _named_like(name) or (package,)
    return [f"{UNIT}/{each}" for each in named]


def _named_like(name: str) -> tuple[str, ...]:
    """The test files of this name, and of names that begin with it, in any package."""
    found = [*(ROOT / UNIT).glob(f"*/test_{name}.py"), *(ROOT / UNIT).glob(f"*/test_{name}_*.py")]
    return tuple(sorted(path.relative_to(ROOT / UNIT).as_posix() for path in found))
