"""Exceptions that a script hides: from SageMaker, or from the other processes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.collectives import collective
from trainwright.preflight.events import Event
from trainwright.preflight.lockstep import OWN_DECISION
from trainwright.preflight.reader import Module
from trainwright.preflight.script_facts import ScriptFacts
from trainwright.preflight.syntax import Loop, ancestors, at

HIDDEN = Rule(
    code="TW473",
    severity="warning",
    title="an exception of the training is only printed, so the job ends as Completed",
    source="SageMaker's container contract, how training ends: exit code 0 is success, and any other is a failure",
    remedy="raise after the message, or sys.exit(1).",
)
RULES = (HIDDEN,)
_ALL = {"", "Exception", "BaseException", "RuntimeError"}
_ENDS = re.compile(r"(^|\.)(exit|_exit|abort|kill)$|SystemExit$|(exit|fail|abort|raise)\w*$")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete:
        return
    trained = [e for e in code.events if not e.detached and _trains(e)]
    yield from _skipped(code, [e for e in trained if e.loops and e.last == "backward"])
    if code.job is not None:
        yield from _hidden(code, trained)


def _trains(event: Event) -> bool:
    if event.last == "backward":
        return True
    trainer = event.receiver is not None and event.receiver.made_like("Trainer")
    return event.last == "train" and trainer


def _handlers(module: Module, node: ast.AST) -> Iterator[tuple[ast.Try, ast.ExceptHandler]]:
    """Yield what catches any exception of a place in a file, innermost first, if it does nothing but print it."""
    child = node
    for outer in ancestors(module, node):
        if isinstance(outer, ast.Try) and child in outer.body:
            for handler in outer.handlers:
                named = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
                names = {ast.unparse(each) if each is not None else "" for each in named}
                if names & _ALL:
                    yield outer, handler
        child = outer


def _quiet(handler: ast.ExceptHandler) -> bool:
    """Return whether a handler neither raises nor ends the process with an error; what it calls has a harmless name."""
    for node in (each for statement in handler.body for each in ast.walk(statement)):
        if isinstance(node, ast.Raise):
            text = ast.unparse(node.exc) if node.exc is not None else ""
            if text not in ("SystemExit", "SystemExit(0)", "SystemExit()"):
                return False
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.Return):
            return False
        elif isinstance(node, ast.Call) and _ENDS.search(ast.unparse(node.func)):
            if [ast.unparse(each) for each in node.args] not in ([], ["0"]) or "kill" in ast.unparse(node.func):
                return False
            if not ast.unparse(node.func).endswith(("exit", "SystemExit")):
                return False
    return True


def _hidden(code: ScriptFacts, trained: list[Event]) -> Iterator[Finding]:
    """Report a ``try`` around the whole training, after whose handler the script comes to its end."""
    for event in trained:
        places = [(event.module, event.node)]
        loop = event.loops[0] if event.loops else None
        for function in event.stack:
            calls = [
                e for e in code.ran(function.name, live=True) if e.called is not None and e.called.code is function
            ]
            places += [(call.module, call.node) for call in calls]
        for module, node in places:
            for tried, handler in _handlers(module, node):
                inside = loop is not None and any(outer is loop for outer in ancestors(module, tried))
                around = [outer for outer in ancestors(module, tried) if isinstance(outer, Loop)]
                if inside or around or not _quiet(handler):
                    continue
                yield at(HIDDEN, (module, handler), f"`except {ast.unparse(handler.type) if handler.type else ''}`")
                return


def _skipped(code: ScriptFacts, backwards: list[Event]) -> Iterator[Finding]:
    """Report a batch that one process skips after an exception, while the others reduce its gradients."""
    if not code.several:
        return
    for event in backwards:
        if not collective(event):
            continue
        for tried, handler in _handlers(event.module, event.node):
            inside = any(outer is event.loops[-1] for outer in ancestors(event.module, tried))
            if inside and _quiet(handler):
                what = (
                    f"`except` skips the batch in the process that failed, and the others wait in {collective(event)}"
                )
                yield at(OWN_DECISION, (event.module, handler), what)
                return
