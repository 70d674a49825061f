"""Questions about syntax trees that the rules share: what is called, under which conditions, in which loop."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from trainwright.core.findings import Finding, Rule, Severity
from trainwright.preflight.reader import Module, Script

# What a script's own beginning is called.
MAIN = ("main", "train", "fit", "run", "_mp_fn")
Function = ast.FunctionDef | ast.AsyncFunctionDef
Loop = ast.For | ast.AsyncFor | ast.While
# Conditions that choose the process, not the step: code below them still runs at every step.
RANK = re.compile(r"rank|is_main|is_master|is_local_main|is_primary|world_process_zero|ordinal|main_process", re.I)


@dataclass(frozen=True, eq=False)
class Call:
    """A call in a script.

    Attributes:
        module: where it is.
        node: its syntax tree.
        name: what is called, with imported names spelled out: ``torch.save``; ``?`` stands for an expression.
    """

    module: Module
    node: ast.Call
    name: str

    @property
    def last(self) -> str:
        """``save`` of ``torch.save``."""
        return self.name.rsplit(".", 1)[-1]

    @property
    def receiver(self) -> str:
        """What a method is called on, as it stands in the script; empty for a plain function."""
        return ast.unparse(self.node.func.value) if isinstance(self.node.func, ast.Attribute) else ""

    @property
    def line(self) -> int:
        """Its line."""
        return self.node.lineno

    def given(self, keyword: str, position: int | None = None) -> ast.expr | None:
        """The argument of that name, or at that position (from 0)."""
        for each in self.node.keywords:
            if each.arg == keyword:
                return each.value
        if position is not None and position < len(self.node.args):
            argument = self.node.args[position]
            return None if any(isinstance(a, ast.Starred) for a in self.node.args[: position + 1]) else argument
        return None

    def constant(self, keyword: str, position: int | None = None) -> object:
        """The value of a constant argument; ``None`` where it is absent or no constant."""
        value = self.given(keyword, position)
        return value.value if isinstance(value, ast.Constant) else None


@dataclass(frozen=True, eq=False)
class TrainingStep:
    """The code of one training step: the innermost loop around ``backward``, or a function that such a loop calls.

    Attributes:
        module: where it is.
        node: the loop or function.
        looped: it is known to run once per batch.
    """

    module: Module
    node: ast.AST
    looped: bool


class ScriptCode:
    """A script's trees with an index of what is in them.

    Args:
        script: as it was read.
    """

    def __init__(self, script: Script) -> None:
        self.script = script
        self.modules = script.modules
        self._of_rank: dict[ast.expr, bool] = {}

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """Every call, file by file, in the order of the text."""
        return tuple(
            Call(module, node, qualified(module, node.func))
            for module in self.modules
            for node in module.nodes
            if isinstance(node, ast.Call)
        )

    @cached_property
    def _words(self) -> frozenset[str]:
        words: set[str] = set()
        for module in self.modules:
            for node in ast.walk(module.tree):
                if isinstance(node, ast.Name):
                    words.add(node.id)
                elif isinstance(node, ast.Attribute):
                    words.add(node.attr)
                elif isinstance(node, ast.keyword | ast.arg) and node.arg:
                    words.add(node.arg)
                elif isinstance(node, Function | ast.ClassDef):
                    words.add(node.name)
            # An import alone is no use: only names that occur stand for what they were imported from.
            names = {node.id for node in module.nodes if isinstance(node, ast.Name)}
            words.update(part for name, origin in module.aliases.items() if name in names for part in origin.split("."))
        return frozenset(words)

    @cached_property
    def texts(self) -> tuple[tuple[Module, ast.Constant], ...]:
        """Every text constant that is no docstring."""
        found = []
        for module in self.modules:
            for node in module.nodes:
                if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
                    continue
                if not isinstance(module.parents.get(node), ast.Expr):
                    found.append((module, node))
        return tuple(found)

    def mentions(self, *words: str) -> bool:
        """One of these names is used anywhere: as a name, an attribute or a keyword, imported under whatever name."""
        return any(word in self._words for word in words)

    def mentions_like(self, pattern: str) -> bool:
        """A name that is used anywhere holds the pattern (case does not matter)."""
        found = re.compile(pattern, re.I)
        return any(found.search(word) for word in self._words)

    def says(self, pattern: str) -> bool:
        """A text constant holds the pattern."""
        found = re.compile(pattern)
        return any(found.search(str(node.value)) for _, node in self.texts)

    def called(self, *names: str) -> Iterator[Call]:
        """Calls by their whole name (with a dot in it) or by their last part."""
        whole = {name for name in names if "." in name}
        last = {name for name in names if "." not in name}
        for call in self.calls:
            if call.last in last or call.name in whole:
                yield call

    def imports(self, *packages: str, certain: bool = False) -> ast.AST | None:
        """The first import of one of these packages (or of what is below them).

        Args:
            certain: only an import at the top level of a file that is itself imported in any case, and below no
                ``if`` and in no ``try`` (in the entry point its main function may hold it, too).
        """
        for index, module in enumerate(self.modules):
            if certain and not module.certain:
                continue
            for node in module.nodes:
                if isinstance(node, ast.Import):
                    names = [name.name for name in node.names]
                elif isinstance(node, ast.ImportFrom) and not node.level:
                    names = [f"{node.module}.{name.name}" for name in node.names]
                else:
                    continue
                if not any(name == p or name.startswith(p + ".") for name in names for p in packages):
                    continue
                around = set(map(type, ancestors(module, node)))
                function = enclosing_function(module, node)
                main = function is None or (index == 0 and function.name in MAIN)
                if not certain or (main and not around & {ast.If, ast.Try}):
                    return node
        return None

    @cached_property
    def _rank_names(self) -> frozenset[str]:
        """Names that were given a value with the rank in it: ``args.save_logs`` of ``… and is_master(args)``."""
        names: set[str] = set()
        for module in self.modules:
            for node in module.nodes:
                value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
                if isinstance(value, ast.BoolOp | ast.Compare | ast.Call | ast.UnaryOp) and RANK.search(
                    ast.unparse(value)
                ):
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]  # type: ignore[attr-defined]
                    names.update(ast.unparse(target) for target in targets)
        return frozenset(names)

    def only_of_rank(self, test: ast.expr) -> bool:
        """A condition asks which process this is, and nothing else: `step % 10 == 0 and rank == 0` asks more."""
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            return all(self.only_of_rank(value) for value in test.values)
        return self.of_rank(test)

    def of_rank(self, test: ast.expr) -> bool:
        """A condition asks which process this is."""
        if test not in self._of_rank:
            names = (ast.unparse(node) for node in ast.walk(test) if isinstance(node, ast.Name | ast.Attribute))
            found = bool(RANK.search(ast.unparse(test))) or any(name in self._rank_names for name in names)
            self._of_rank[test] = found
        return self._of_rank[test]

    @cached_property
    def backwards(self) -> tuple[Call, ...]:
        """Calls of ``….backward(…)`` that are a step of training, not a gradient rule of a layer."""
        found = []
        for call in self.called("backward"):
            function = enclosing_function(call.module, call.node)
            if function is not None and function.name in ("backward", "forward"):
                continue
            if isinstance(call.node.func, ast.Attribute) and call.receiver not in ("super()", "ctx"):
                found.append(call)
        return tuple(found)

    @cached_property
    def steps(self) -> tuple[TrainingStep, ...]:
        """The code that runs once per batch, as far as it can be seen."""
        found: dict[ast.AST, TrainingStep] = {}
        for call in self.backwards:
            self._add_step(found, call.module, call.node, depth=3)
        return tuple(found.values())

    def _add_step(self, found: dict[ast.AST, TrainingStep], module: Module, node: ast.AST, depth: int) -> bool:
        """Add the step around a node; whether it is in a loop."""
        loop = enclosing_loop(module, node)
        if loop is not None:
            found[loop] = TrainingStep(module, loop, True)
            return True
        function = enclosing_function(module, node)
        if function is None or not depth or function.name in MAIN:
            return False
        if enclosing_loop(module, function) is not None:
            found[function] = TrainingStep(module, function, True)
            return True
        callers = [c for c in self.called(function.name) if c.node is not node]
        # A function inside a function may be handed on (`scaler.step(opt, closure)`); then nothing is known.
        looped = [self._add_step(found, c.module, c.node, depth - 1) for c in callers if _plain(c)]
        if any(looped):
            found[function] = TrainingStep(module, function, True)
        return any(looped)

    def within(self, region: ast.AST) -> list[Call]:
        """The calls inside a loop or function, without those of functions defined in it."""
        return [c for c in self.calls if any(n is region for n in _until_function(c.module, c.node, region))]


def _plain(call: Call) -> bool:
    """``f(…)`` or ``self.f(…)``."""
    function = call.node.func
    return isinstance(function, ast.Name) or (
        isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "self"
    )


def _until_function(module: Module, node: ast.AST, region: ast.AST) -> Iterator[ast.AST]:
    for outer in ancestors(module, node):
        yield outer
        if isinstance(outer, Function | ast.Lambda) and outer is not region:
            return


def ancestors(module: Module, node: ast.AST) -> Iterator[ast.AST]:
    """The nodes around a node, the nearest first."""
    parents = module.parents
    while node in parents:
        node = parents[node]
        yield node


def qualified(module: Module, node: ast.AST) -> str:
    """A dotted name with its imported beginning spelled out; ``?`` stands for what is no name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    first = module.aliases.get(node.id, node.id) if isinstance(node, ast.Name) else "?"
    return ".".join([first, *reversed(parts)])


def enclosing_function(module: Module, node: ast.AST) -> Function | None:
    """The function around a node."""
    return next((n for n in ancestors(module, node) if isinstance(n, Function)), None)


def enclosing_loop(module: Module, node: ast.AST) -> Loop | None:
    """The innermost loop around a node, in the same function."""
    inner = node
    for outer in ancestors(module, node):
        if isinstance(outer, Function | ast.Lambda | ast.ClassDef):
            return None
        if isinstance(outer, Loop) and inner not in outer.orelse and inner is not getattr(outer, "iter", None):
            return outer
        inner = outer
    return None


def conditions(module: Module, node: ast.AST, until: ast.AST | None = None) -> list[tuple[ast.expr, bool]]:
    """What has to hold for a node to run: tests with the side on which it is; up to ``until`` or the function."""
    found: list[tuple[ast.expr, bool]] = []
    inner = node
    for outer in ancestors(module, node):
        if outer is until or isinstance(outer, Function | ast.Lambda):
            break
        if isinstance(outer, ast.If) and inner is not outer.test:
            found.append((outer.test, inner in outer.body))
        elif isinstance(outer, ast.IfExp) and inner is not outer.test:
            found.append((outer.test, inner is outer.body))
        elif isinstance(outer, ast.ExceptHandler):
            found.append((ast.Constant("an exception"), True))
        elif isinstance(outer, ast.BoolOp) and inner is not outer.values[0]:
            found.append((outer.values[0], isinstance(outer.op, ast.And)))
        inner = outer
    return found


def same_path(first: Call, second: Call) -> bool:
    """Both can run in one pass: no condition stands on one side for the first and on the other for the second."""
    one = {ast.unparse(test): side for test, side in conditions(first.module, first.node)}
    other = {ast.unparse(test): side for test, side in conditions(second.module, second.node)}
    return all(one[test] == side for test, side in other.items() if test in one)


def is_optimizer(receiver: str) -> bool:
    """What ``step`` is called on is an optimizer by its name, not a scheduler of one."""
    name = receiver.lower()
    return "opt" in name and "sched" not in name


def every_step(code: ScriptCode, step: TrainingStep, call: Call) -> bool:
    """The call runs at each step: inside the step nothing but the choice of a process stands before it."""
    return all(code.only_of_rank(test) for test, _ in conditions(call.module, call.node, step.node))


def reachable(code: ScriptCode, call: Call, depth: int = 3) -> bool:
    """A call of the entry point, or of an imported file where something that runs calls its function.

    What an imported file does in its own main part, or in functions that nobody calls, is no part of the training.
    """
    if call.module is code.script.entry:
        return True
    if any("__name__" in ast.unparse(test) for test, _ in conditions(call.module, call.node)):
        return False
    function = enclosing_function(call.module, call.node)
    if function is None:
        return call.module.certain
    callers = (c for c in code.called(function.name) if c.node is not call.node)
    return depth > 0 and any(reachable(code, caller, depth - 1) for caller in callers)


def of_one_rank(code: ScriptCode, call: Call, depth: int = 2) -> bool:
    """Only one process runs the call, as far as can be seen: a condition on the rank, or each caller has one.

    True as well where a function has no caller in the files: then nothing is known.
    """
    around = [test for test, _ in conditions(call.module, call.node)]
    imported = call.module is not code.script.entry
    # The main part of a file that is only imported does not run at all.
    if any(code.of_rank(test) or (imported and "__name__" in ast.unparse(test)) for test in around):
        return True
    function = enclosing_function(call.module, call.node)
    if function is None:
        return False
    for node in ast.walk(function):
        # `if rank != 0: return`, and a decorator such as `@rank_zero_only`.
        leaves = isinstance(node, ast.If) and isinstance(node.body[-1], ast.Return | ast.Continue)
        if leaves and node.lineno < call.line and code.of_rank(node.test):  # type: ignore[attr-defined]
            return True
    if any(RANK.search(ast.unparse(decorator)) for decorator in function.decorator_list):
        return True
    callers = [c for c in code.called(function.name) if c.node is not call.node]
    if not callers:
        return imported and function.name != "main"
    return depth > 0 and all(of_one_rank(code, caller, depth - 1) for caller in callers)


def at(
    rule: Rule,
    where: Call | tuple[Module, ast.AST],
    message: str,
    *,
    severity: Severity | None = None,
    remedy: str | None = None,
) -> Finding:
    """A finding at a call or a node."""
    module, node = (where.module, where.node) if isinstance(where, Call) else where
    line = getattr(node, "lineno", None)
    return rule.finding(message, path=module.name, line=line, severity=severity, remedy=remedy)


def first(calls: Iterable[Call]) -> Call | None:
    """The first of some calls."""
    return next(iter(calls), None)
