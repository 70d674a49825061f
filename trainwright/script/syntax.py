"""Questions about syntax trees that the rules share: what is called, under which conditions, in which loop."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from trainwright.core.findings import Finding, Rule, Severity
from trainwright.script.call import Call, Placed
from trainwright.script.reader import MAIN, Module, Script

Function = ast.FunctionDef | ast.AsyncFunctionDef
Loop = ast.For | ast.AsyncFor | ast.While
# Conditions that select the process, not the step: code under them still runs at every step.
RANK = re.compile(r"rank|is_main|is_master|is_local_main|is_primary|world_process_zero|ordinal|main_process", re.I)


@dataclass(frozen=True, eq=False)
class TrainingStep:
    """The code of one training step: the innermost loop around ``backward``, or a function that such a loop calls.

    Attributes:
        module: the file.
        node: the loop or function.
        looped: whether it is known to run once per batch.
    """

    module: Module
    node: ast.AST
    looped: bool


class ScriptCode:
    """The syntax trees of a script, indexed.

    Args:
        script: the parsed script.
    """

    def __init__(self, script: Script) -> None:
        self.script = script
        self.modules = script.modules
        self._of_rank: dict[ast.expr, bool] = {}

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """Every call, file by file, in source order."""
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
            for node in module.parents:
                if isinstance(node, ast.Name):
                    words.add(node.id)
                elif isinstance(node, ast.Attribute):
                    words.add(node.attr)
                elif isinstance(node, ast.keyword | ast.arg) and node.arg:
                    words.add(node.arg)
                elif isinstance(node, Function | ast.ClassDef):
                    words.add(node.name)
            # An import alone is not a use: only names that occur count as what they were imported from.
            names = {node.id for node in module.nodes if isinstance(node, ast.Name)}
            words.update(part for name, origin in module.aliases.items() if name in names for part in origin.split("."))
        return frozenset(words)

    @cached_property
    def texts(self) -> tuple[tuple[Module, ast.Constant], ...]:
        """Every string constant that is not a docstring."""
        found = []
        for module in self.modules:
            for node in module.nodes:
                if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
                    continue
                if not isinstance(module.parents.get(node), ast.Expr):
                    found.append((module, node))
        return tuple(found)

    def mentions(self, *words: str) -> bool:
        """Return whether one of these names is used: as a name, attribute or keyword, imported under any name."""
        return any(word in self._words for word in words)

    def mentions_like(self, pattern: str) -> bool:
        """Return whether a name that is used matches the pattern, ignoring case."""
        found = re.compile(pattern, re.I)
        return any(found.search(word) for word in self._words)

    def says(self, pattern: str) -> bool:
        """Return whether a string constant matches the pattern."""
        found = re.compile(pattern)
        return any(found.search(str(node.value)) for _, node in self.texts)

    def called(self, *names: str) -> Iterator[Call]:
        """Yield calls by full name (with a dot in it) or by last part, file by file, in source order."""
        for place in sorted({place for name in names for place in self._places.get(name, ())}):
            yield self.calls[place]

    @cached_property
    def _places(self) -> dict[str, list[int]]:
        """The positions in ``calls`` of each name: a full name with a dot in it, or its last part."""
        found: dict[str, list[int]] = defaultdict(list)
        for place, call in enumerate(self.calls):
            for name in {call.last, call.name}:
                if name == call.last or "." in name:
                    found[name].append(place)
        return found

    def imports(self, *packages: str, certain: bool = False) -> ast.AST | None:
        """Return the first import of one of these packages or their submodules; None if not imported.

        Args:
            certain: only count unconditional imports: at the top level of a file that is always imported (or in the
                main function of the entry point), outside of ``if`` and ``try``.
        """
        first = self.script.first_imports
        found = [first[package, certain] for package in packages if (package, certain) in first]
        return min(found, key=lambda placed: placed[0])[1] if found else None

    @cached_property
    def _rank_names(self) -> frozenset[str]:
        """Names assigned a value that depends on the rank: ``args.save_logs`` in ``… and is_master(args)``."""
        names: set[str] = set()
        for module in self.modules:
            lines = {number for number, line in enumerate(module.text.split("\n"), 1) if RANK.search(line)}
            for node in module.nodes:
                value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
                if value is None or lines.isdisjoint(range(value.lineno, (value.end_lineno or value.lineno) + 1)):
                    continue
                if isinstance(value, ast.BoolOp | ast.Compare | ast.Call | ast.UnaryOp) and RANK.search(
                    ast.unparse(value)
                ):
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]  # type: ignore[attr-defined]
                    names.update(ast.unparse(target) for target in targets)
        return frozenset(names)

    def only_of_rank(self, test: ast.expr) -> bool:
        """Return whether a condition depends on the rank alone: `step % 10 == 0 and rank == 0` does not."""
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            return all(self.only_of_rank(value) for value in test.values)
        counts = [node.left for node in ast.walk(test) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod)]
        return self.of_rank(test) and all(RANK.search(ast.unparse(left)) for left in counts)

    def of_rank(self, test: ast.expr) -> bool:
        """Return whether a condition depends on the rank."""
        if test not in self._of_rank:
            names = (ast.unparse(node) for node in ast.walk(test) if isinstance(node, ast.Name | ast.Attribute))
            found = bool(RANK.search(ast.unparse(test))) or any(name in self._rank_names for name in names)
            self._of_rank[test] = found
        return self._of_rank[test]

    @cached_property
    def backwards(self) -> tuple[Call, ...]:
        """Calls of ``….backward(…)`` that are part of a training step, not the gradient of a custom layer."""
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
        """The code that is known to run once per batch."""
        found: dict[ast.AST, TrainingStep] = {}
        for call in self.backwards:
            self._add_step(found, call.module, call.node, depth=3)
        return tuple(found.values())

    def _add_step(self, found: dict[ast.AST, TrainingStep], module: Module, node: ast.AST, depth: int) -> bool:
        """Add the step around a node; return whether it is in a loop."""
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
        # A nested function may be passed on (`scaler.step(opt, closure)`); then its caller is unknown.
        looped = [self._add_step(found, c.module, c.node, depth - 1) for c in callers if _plain(c)]
        if any(looped):
            found[function] = TrainingStep(module, function, True)
        return any(looped)

    def within(self, region: ast.AST) -> list[Call]:
        """Return the calls inside a loop or function, except in functions defined in it."""
        found: list[Call] = []
        waiting = list(ast.iter_child_nodes(region))
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.Call) and node in self._call_of:
                found.append(self._call_of[node])
            if isinstance(node, Function | ast.Lambda):
                continue
            waiting += ast.iter_child_nodes(node)
        return sorted(found, key=lambda call: (call.line, call.node.col_offset))

    @cached_property
    def _call_of(self) -> dict[ast.Call, Call]:
        return {call.node: call for call in self.calls}

    @cached_property
    def calls_in(self) -> dict[ast.AST, list[Call]]:
        """The calls of each function, without those of functions inside it; of a module, those outside of functions."""
        found: dict[ast.AST, list[Call]] = {}
        for call in self.calls:
            found.setdefault(call.module.functions.get(call.node, call.module.tree), []).append(call)
        return found


def _plain(call: Call) -> bool:
    """``f(…)`` or ``self.f(…)``."""
    function = call.node.func
    return isinstance(function, ast.Name) or (
        isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "self"
    )


def ancestors(module: Module, node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes around a node, innermost first."""
    parents = module.parents
    while node in parents:
        node = parents[node]
        yield node


def qualified(module: Module, node: ast.AST) -> str:
    """Return a dotted name with its import resolved; ``?`` stands for other expressions."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    first = module.aliases.get(node.id, node.id) if isinstance(node, ast.Name) else "?"
    return ".".join([first, *reversed(parts)])


def enclosing_function(module: Module, node: ast.AST) -> Function | None:
    """Return the function around a node; None at module level."""
    return module.functions.get(node)


def enclosing_loop(module: Module, node: ast.AST) -> Loop | None:
    """Return the innermost loop around a node in the same function; None if there is none."""
    inner = node
    for outer in ancestors(module, node):
        if isinstance(outer, Function | ast.Lambda | ast.ClassDef):
            return None
        if isinstance(outer, Loop) and inner not in outer.orelse and inner is not getattr(outer, "iter", None):
            return outer
        inner = outer
    return None


def conditions(module: Module, node: ast.AST, until: ast.AST | None = None) -> list[tuple[ast.expr, bool]]:
    """Return the conditions for a node to run, each with the branch it is on; up to ``until`` or the function."""
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
    """Return whether both calls can run in one pass: no condition has them on opposite branches."""
    one = {ast.unparse(test): side for test, side in conditions(first.module, first.node)}
    other = {ast.unparse(test): side for test, side in conditions(second.module, second.node)}
    return all(one[test] == side for test, side in other.items() if test in one)


def is_optimizer(receiver: str) -> bool:
    """Return whether the name suggests an optimizer, not its scheduler."""
    name = receiver.lower()
    return "opt" in name and "sched" not in name


def every_step(code: ScriptCode, step: TrainingStep, call: Call) -> bool:
    """Return whether the call runs at every step: only conditions on the rank apply to it."""
    return all(code.only_of_rank(test) for test, _ in conditions(call.module, call.node, step.node))


def reachable(code: ScriptCode, call: Call, depth: int = 3) -> bool:
    """Return whether a call is in the entry point, or in an imported function that is called from there.

    The main part of an imported file, and functions that are never called, are not part of the training.
    """
    if call.module is code.script.entry:
        return True
    if any("__name__" in ast.unparse(test) for test, _ in conditions(call.module, call.node)):
        return False
    function = enclosing_function(call.module, call.node)
    if function is None:
        return call.module.certain
    within = call.module.parents.get(function)
    made = (within.name,) if function.name == "__init__" and isinstance(within, ast.ClassDef) else ()
    calls = (c for c in code.called(function.name, *made) if c.node is not call.node)
    callers = (c for c in calls if _means(c, call.module, function))
    return depth > 0 and any(reachable(code, caller, depth - 1) for caller in callers)


def _means(call: Call, module: Module, function: Function) -> bool:
    """Return whether ``f(…)`` may be this function: not where its file has, or imports, another one of that name."""
    called = call.node.func
    if function not in module.tree.body:
        return True  # a method
    if isinstance(called, ast.Attribute):
        return qualified(call.module, called.value).rpartition(".")[2] == module.path.stem  # `utils.main()`
    if call.module is module or not isinstance(called, ast.Name):
        return True
    name = called.id
    origin = call.module.aliases.get(name)
    if origin is not None:
        return origin.rpartition(".")[0].rpartition(".")[2] in ("", module.path.stem, module.path.parent.name)
    return not any(isinstance(node, Function) and node.name == name for node in call.module.tree.body)


def of_one_rank(code: ScriptCode, call: Call, depth: int = 2) -> bool:
    """Return whether only one process runs the call: it, or each of its callers, has a condition on the rank.

    Also true for an imported function without a known caller.
    """
    around = [test for test, _ in conditions(call.module, call.node)]
    imported = call.module is not code.script.entry
    # The main part of an imported file does not run.
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
    where: Placed | tuple[Module, ast.AST],
    message: str,
    severity: Severity | None = None,
    *,
    remedy: str | None = None,
) -> Finding:
    """Return a finding at a call, as it is written or as it runs, or at a node."""
    module, node = where if isinstance(where, tuple) else (where.module, where.node)
    line = getattr(node, "lineno", None)
    return rule.finding(message, path=module.name, line=line, severity=severity, remedy=remedy)


def meant(module: Module, node: ast.expr) -> ast.expr:
    """Return the expression that a name of a file stands for: ``last = (i + 1) % n == 0``, ``if last:``."""
    if not isinstance(node, ast.Name):
        return node
    given = module.assigned.get(node.id, ())
    return given[0] if len(given) == 1 else node


def differs_by_rank(code: ScriptCode, module: Module, node: ast.expr) -> bool:
    """Return whether an expression depends on the rank, by itself or by what the file assigns to its name."""
    text = ast.unparse(node)
    assigned = [n for n in module.nodes if isinstance(n, ast.Assign) and type(n.targets[0]) is type(node)]
    return any(map(code.of_rank, [node, *(n.value for n in assigned if ast.unparse(n.targets[0]) == text)]))


def first(calls: Iterable[Call]) -> Call | None:
    """Return the first call; None if there is none."""
    return next(iter(calls), None)
