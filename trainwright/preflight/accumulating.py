"""Gradient accumulation: which batches are within ``no_sync``, and whether the optimizer steps right after one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from trainwright.preflight.counting import MANY, Counter, counters, divisors, first_name, holds_for, number
from trainwright.script.events import Event, Guard
from trainwright.script.known import OPTIMIZER
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import ancestors, enclosing_function
from trainwright.script.values import Value

LAST = "the last batch"
# Batches that are accumulated, where neither the script nor the job says how many.
_FEW = 4
# How many batches there may be: no number of accumulated ones divides these.
_LENGTHS = (211, 223, 227)
# Conditions beside the counter that hold in most steps: whether there is a scaler, or the gradients are finite.
_ASIDE = re.compile(r"is (not )?None$|scaler|\bamp\b|fp16|finite|isnan|isinf|^(isinstance|hasattr)\(", re.I)


def unreduced(code: ScriptFacts, event: Event, steps: Iterable[Event]) -> str:
    """Return for which batch a ``no_sync`` is taken before a step of the optimizer; empty if for none, or not known."""
    for step in steps:
        if _without(code, event, step, None):
            return f"also before the step of the optimizer in line {step.line}"
    for step in steps:
        if all(_without(code, event, step, batches) for batches in _LENGTHS):
            return f"also for {LAST}, where the optimizer steps in line {step.line}"
    return ""


def _without(code: ScriptFacts, event: Event, step: Event, batches: int | None) -> bool:
    """Return whether a step comes after a batch whose gradients no backward has reduced.

    Args:
        batches: how many there are; None if the end is not looked at.
    """
    within = step.loops == event.loops
    if step.stack[: len(event.stack)] != event.stack or not (within or step.loops == event.loops[:-1]):
        return False
    if _of_another(code, event, step) or _reduced(code, event, step):
        return False
    both = {guard.node for guard in event.guards} & {guard.node for guard in step.guards}
    around, before = ([g for g in each.guards if g.node not in both] for each in (event, step))
    numbers = _numbers(code, event, [guard.node for guard in (*around, *before)])
    counter = Counter(event.module, counters(event.loops[-1]), numbers)
    counter = counter if batches is None else Counter(counter.module, counter.names, numbers, batches)
    function = enclosing_function(event.module, event.node)
    held = _passes(counter, function, around)
    if within:
        stepped = _passes(counter, function, before)
    else:
        stepped = _last_part(counter, event.loops[-1]) if all(map(_aside, before)) else None
    if not held or not stepped or (within and len(stepped) == min(MANY, counter.batches)):
        return False
    return bool(held & stepped if batches is None else held & stepped & {batches - 1})


def _passes(counter: Counter, function: ast.AST | None, guards: Iterable[Guard]) -> set[int] | None:
    """Return the passes of a loop in which all conditions hold; None without any, or if one is not understood."""
    found: list[set[int]] = []
    for guard in guards:
        here = guard.node in counter.module.parents and enclosing_function(counter.module, guard.node) is function
        passes = holds_for(counter, guard.node, guard.side) if here else None
        if passes is not None:
            found.append(passes)
        elif not _aside(guard):
            return None
    return set.intersection(*found) if found else None


def _aside(guard: Guard) -> bool:
    return (guard.kind == "flag" and not guard.off) or bool(_ASIDE.search(ast.unparse(guard.node)))


def _last_part(counter: Counter, loop: ast.AST) -> set[int] | None:
    """Return the last pass of ``for part in range(n)``."""
    made = loop.iter if isinstance(loop, ast.For) else None
    if not isinstance(made, ast.Call) or ast.unparse(made.func) != "range" or len(made.args) != 1:
        return None
    parts = number(counter, made.args[0])
    return {parts - 1} if parts is not None and 1 < parts < MANY else None


def _numbers(code: ScriptFacts, event: Event, tests: list[ast.expr]) -> dict[str, int]:
    """Return the numbers of batches that are accumulated, as the job or the script sets them."""
    names = {name for test in tests for name in divisors(event.module, test)}
    loop = event.loops[-1]
    if isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call) and ast.unparse(loop.iter.func) == "range":
        names |= {ast.unparse(first_name(event.module, arg)) for arg in loop.iter.args}
    found: dict[str, int] = {}
    for name in names:
        value = _given(code, event, name) or code.arguments_of_script.get(name.rpartition(".")[2])
        known = value.single() if value is not None and code.decided(value) else None
        found[name] = known if isinstance(known, int) and 0 < known < MANY // 2 else _FEW
    return found


def _given(code: ScriptFacts, event: Event, name: str) -> Value | None:
    """Return what a function's argument is, as the script calls it."""
    function = event.stack[-1] if event.stack else None
    call = next((e for e in code.events if e.called is not None and e.called.code is function), None)
    if function is None or call is None or name not in function.parameters:
        return None
    return call.arg(name, function.parameters.index(name))


def _of_another(code: ScriptFacts, event: Event, step: Event) -> bool:
    """Return whether a step is that of another model's optimizer, in a script with several."""
    optimizers = [e for e in code.events if OPTIMIZER.search(e.name) and not e.detached and e.last[:1].isupper()]
    trained = next((v for v in (step.receiver, *step.args) if v is not None and "optimizer" in v.tags), None)
    model = event.args[0] if event.args else event.receiver
    return len(optimizers) > 1 and not _parts(model) & _parts(trained)


def _parts(value: Value | None) -> set[int]:
    """Return what a value was made from, itself included."""
    found: set[int] = set()
    while value is not None:
        found.add(id(value))
        value = value.of
    return found


def _reduced(code: ScriptFacts, event: Event, step: Event) -> bool:
    """Return whether a backward reduces the gradients between a ``no_sync`` and a step, or none is seen within it."""
    end = _end(event)
    between = [e for e in code.ran("backward", live=True) if event.order < e.order < step.order]
    between = [e for e in between if not e.excludes(event)]
    inside = [e for e in between if e.loops[: len(event.loops)] == event.loops]
    return end is None or not inside or any(e.stack == event.stack and e.line > end for e in between)


def _end(event: Event) -> int | None:
    """Return the last line of the block that a ``no_sync`` is for; None if that is not seen."""
    parents = event.module.parents
    outer = next((n for n in ancestors(event.module, event.node) if isinstance(n, ast.withitem | ast.stmt)), None)
    if isinstance(outer, ast.withitem):
        return getattr(parents[outer], "end_lineno", None)
    names: set[str] = set()
    if isinstance(outer, ast.Assign):  # context = model.no_sync()
        names = {ast.unparse(target) for target in outer.targets}
    elif isinstance(outer, ast.Expr) and isinstance(outer.value, ast.Call):  # stack.enter_context(model.no_sync())
        names = {ast.unparse(outer.value.func).removesuffix(".enter_context")}
    blocks = (n for n in ast.walk(event.loops[-1]) if isinstance(n, ast.With))
    ends = [n.end_lineno or 0 for n in blocks if any(names & _words(item) for item in n.items)]
    return max(ends) if ends else None


def _words(item: ast.withitem) -> set[str]:
    parts = (item.context_expr, item.optional_vars)
    return {ast.unparse(part) for part in parts if part is not None}
