"""FSDP with CPU offload, which overwrites accumulated gradients."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.loop import each_nth
from trainwright.script.events import Event, Guard
from trainwright.script.known import FSDP
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at, meant
from trainwright.script.values import Value

REPLACED = Rule(
    code="TW573",
    severity="error",
    title="with FSDP's CPU offload, accumulated gradients are overwritten: only the last batch counts",
    source="PyTorch's documentation of FullyShardedDataParallel, limitations: no gradient accumulation outside "
    "no_sync() with CPU offloading, as the newly reduced gradient is used; torch/distributed/fsdp/_flat_param.py",
    remedy="with model.no_sync(): … for all batches of a step but the last; or no CPUOffload(offload_params=True).",
)
RULES = (REPLACED,)


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rule of this family."""
    if not code.mentions("CPUOffload") or code.mentions("no_sync", "NO_SHARD") or code.incomplete:
        return
    wraps = [e for e in code.wrapped_events if FSDP.search(e.name) and e.last != "fully_shard" and not e.detached]
    if not code.several or code.managed or not wraps or not all(_offloads(code, each) for each in wraps):
        return
    for backward in code.ran("backward", live=True):
        for step in code.ran("step", live=True):
            number = _accumulated(code, backward, step) if _optimizes(step) else 1
            if number != 1 and not _cleared(code, backward):
                known = isinstance(number, int)
                count = f"{number} batches" if known else "several batches"
                what = f"`{backward.text}` runs for {count} before `{step.text}` in line {step.line}"
                yield at(REPLACED, backward, f"{what}, without no_sync", severity=None if known else "warning")
                return


def _offloads(code: ScriptFacts, wrap: Event) -> bool:
    """Return whether a model is wrapped with ``CPUOffload(offload_params=True)``."""
    given = wrap.arg("cpu_offload", 3)
    made = code.maker(given) if given is not None else None
    asked = made.arg("offload_params", 0) if made is not None and made.last == "CPUOffload" else None
    return asked is not None and asked.single() is True and code.decided(asked)


def _optimizes(step: Event) -> bool:
    values = (step.receiver, *step.args)
    return any(value is not None and "optimizer" in value.tags for value in values)


def _accumulated(code: ScriptFacts, backward: Event, step: Event) -> object:
    """Return how many batches have a backward pass before a step; Ellipsis if that is not known."""
    if backward.loops and step.loops == backward.loops[:-1] and step.order > backward.order:
        value = code.iterated(backward.loops[-1])
        counted = next((e for e in code.ran("range") if e.result is value), None)
        return _number(code, counted.args[0]) if counted is not None and len(counted.args) == 1 else ...
    if step.loops != backward.loops or not backward.loops:
        return 1
    every = [guard for guard in each_nth(step) if guard not in backward.guards]
    return _divisor(code, step, every[0]) if every else 1


def _divisor(code: ScriptFacts, step: Event, guard: Guard) -> object:
    """Return the number in ``(i + 1) % n == 0``, or Ellipsis; 1 if the step is not on that side."""
    test = meant(step.module, guard.node)
    test = test.values[0] if isinstance(test, ast.BoolOp) else test
    if not isinstance(test, ast.Compare) or not isinstance(test.left, ast.BinOp):
        return ...
    if isinstance(test.ops[0], ast.NotEq) is guard.side:
        return 1
    right = test.left.right
    if isinstance(right, ast.Constant):
        return right.value
    named = meant(step.module, right)
    given = code.arguments_of_script.get(ast.unparse(named).rpartition(".")[2])
    return named.value if isinstance(named, ast.Constant) else _number(code, given)


def _number(code: ScriptFacts, value: Value | None) -> object:
    """Return a number that the script or its job decides; Ellipsis if it is not known."""
    known = value.single() if value is not None else ...
    return known if known == 1 or code.decided(value) else ...


def _cleared(code: ScriptFacts, backward: Event) -> bool:
    """Return whether the gradients are set to zero for each batch."""
    zeros = code.ran("zero_grad", live=True)
    return any(e.loops == backward.loops and set(e.guards) <= set(backward.guards) for e in zeros)
