"""Exceptions that a script hides: from SageMaker, or from the other processes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.collectives import collective
from trainwright.preflight.lockstep import OWN_DECISION
from trainwright.script.events import Event
from trainwright.script.known import NO_GRAPH
from trainwright.script.reader import Module
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import Loop, ancestors, at, enclosing_function, enclosing_loop

HIDDEN = Rule(
    code="TW473",
    severity="warning",
    title="an exception of the training is only printed, so the job ends as Completed",
    source="SageMaker's container contract, how training ends: exit code 0 is success, and any other is a failure",
    remedy="raise after the message, or sys.exit(1).",
)
RULES = (HIDDEN,)
_ALL = {"", "Exception", "BaseException", "RuntimeError"}
# What comes to all processes at once: the end of their data, a signal, a failure of the communication itself.
_OF_EACH = re.compile(r"(^|\.)(Stop(Async)?Iteration|SystemExit|Dist\w*|Horovod\w*|\w*Interrupt)$")
_SEVERAL = re.compile(r"world|dist|ddp|rank|num_processes", re.I)
_REMEDY = (
    "Let the exception end the job, which can go on from a checkpoint; or agree before backward (all_reduce of a flag) "
    "and let all skip the batch."
)
_ENDS = re.compile(r"(^|\.)(exit|_exit|abort|kill)$|SystemExit$|(exit|fail|abort|raise)\w*$")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete:
        return
    trained = [e for e in code.events if not e.detached and _trains(e)]
    if code.several:
        yield from _skipped(code)
    if code.job is not None:
        yield from _hidden(code, trained)


def _trains(event: Event) -> bool:
    if event.last == "backward":
        return True
    trainer = event.receiver is not None and event.receiver.made_like("Trainer")
    return event.last == "train" and trainer


def _handlers(module: Module, node: ast.AST) -> Iterator[tuple[ast.Try, ast.ExceptHandler, set[str]]]:
    """Yield what catches exceptions of a place in a file, innermost first, and which."""
    child = node
    for outer in ancestors(module, node):
        if isinstance(outer, ast.Try) and child in outer.body:
            for handler in outer.handlers:
                named = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
                yield outer, handler, {ast.unparse(each) if each is not None else "" for each in named}
        child = outer


def _quiet(handler: ast.ExceptHandler, *, counting: bool = False) -> bool:
    """Return whether a handler neither raises nor ends the process with an error; what it calls has a harmless name.

    ``counting``: it may also count how often it ran.
    """
    for node in (each for statement in handler.body for each in ast.walk(statement)):
        if isinstance(node, ast.Raise):
            text = ast.unparse(node.exc) if node.exc is not None else ""
            if text not in ("SystemExit", "SystemExit(0)", "SystemExit()"):
                return False
        elif counting and isinstance(node, ast.AugAssign) and isinstance(node.value, ast.Constant):
            continue
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.Return):
            return False
        elif isinstance(node, ast.Call) and _ENDS.search(ast.unparse(node.func)):
            if [ast.unparse(each) for each in node.args] not in ([], ["0"]) or "kill" in ast.unparse(node.func):
                return False
            if not ast.unparse(node.func).endswith(("exit", "SystemExit")):
                return False
    return True


def _places(code: ScriptFacts, event: Event) -> Iterator[tuple[Module, ast.AST]]:
    """Yield where a call is, and where the functions around it are called."""
    yield event.module, event.node
    for function in event.stack:
        for call in code.ran(function.name, live=True):
            if call.called is not None and call.called.code is function:
                yield call.module, call.node


def _hidden(code: ScriptFacts, trained: list[Event]) -> Iterator[Finding]:
    """Report a ``try`` around the whole training, after whose handler the script comes to its end."""
    for event in trained:
        loop = event.loops[0] if event.loops else None
        for module, node in _places(code, event):
            for tried, handler, names in _handlers(module, node):
                inside = loop is not None and any(outer is loop for outer in ancestors(module, tried))
                around = [outer for outer in ancestors(module, tried) if isinstance(outer, Loop)]
                if inside or around or not names & _ALL or not _quiet(handler):
                    continue
                yield at(HIDDEN, (module, handler), f"`except {ast.unparse(handler.type) if handler.type else ''}`")
                return


def _skipped(code: ScriptFacts) -> Iterator[Finding]:
    """Report a batch that one process skips after an exception, while the others reduce its gradients."""
    backwards = [e for e in code.ran("backward", live=True) if e.loops and collective(e)]
    forwards = [e for e in code.events if e.model is not None and not (e.detached or _graphless(e))]
    for backward in backwards:
        before = [e for e in forwards if e.loops[-1:] == backward.loops[-1:] and e.order < backward.order]
        for event in (backward, *before):
            for module, node in _places(code, event):
                for tried, handler, names in _handlers(module, node):
                    if all(map(_OF_EACH.search, names)) or not _of_a_batch(code, backward, module, tried):
                        continue
                    late = event is backward and (_quiet(handler, counting=True) or _returns(module, handler))
                    if (late or _goes_on(handler)) and not _agrees(code, module, handler):
                        caught = f"`except {ast.unparse(handler.type)}`" if handler.type else "`except`"
                        what = f"{caught} skips the batch in the process that failed, and the others wait in"
                        yield at(OWN_DECISION, (module, handler), f"{what} {collective(backward)}", remedy=_REMEDY)
                        return


def _graphless(event: Event) -> bool:
    return any(NO_GRAPH.search(name) for name in event.contexts)


def _of_a_batch(code: ScriptFacts, backward: Event, module: Module, tried: ast.Try) -> bool:
    """Return whether a ``try`` is run for each batch, not once for all of them or for each of several attempts."""
    loop = enclosing_loop(module, tried)
    if loop is not None:
        return loop in backward.loops and (loop is backward.loops[-1] or code.loader(loop) is not None)
    function = enclosing_function(module, tried)
    inner = [each.node for each in backward.stack]
    inner = inner[inner.index(function) :] if function in inner else []
    return bool(inner) and not any(node is backward.loops[-1] for each in inner for node in ast.walk(each))


def _returns(module: Module, handler: ast.ExceptHandler) -> bool:
    """Return whether a handler ends a function that is called for each batch."""
    return isinstance(handler.body[-1], ast.Return) and enclosing_loop(module, handler) is None


def _goes_on(handler: ast.ExceptHandler) -> bool:
    """Return whether a handler goes on with the next batch: at its end, or where the exception is a certain one."""
    branches = [each for each in handler.body if isinstance(each, ast.If)]
    if any(_SEVERAL.search(ast.unparse(each.test)) for each in branches):
        return False  # `if world_size > 1: raise`
    ends = [handler.body[-1], *(end for each in branches for end in (each.body[-1], *each.orelse[-1:]))]
    return any(isinstance(each, ast.Continue) for each in ends)


def _agrees(code: ScriptFacts, module: Module, handler: ast.ExceptHandler) -> bool:
    """Return whether a handler, or a function that it calls, tells the other processes."""
    inside = {node for statement in handler.body for node in ast.walk(statement)}
    calls = [event for event in code.events if event.node in inside and event.module is module]
    called = {event.called.code for event in calls if event.called is not None}
    return any(
        event.role == "collective" and (event in calls or any(each in called for each in event.stack))
        for event in code.events
    )
