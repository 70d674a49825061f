"""The keys of DeepSpeed's client state: those that a script saves and those that it reads."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule, Severity
from trainwright.script.events import Event
from trainwright.script.reader import Module
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import Function, ancestors, at, conditions, enclosing_function

OTHER_KEY = Rule(
    code="TW586",
    severity="error",
    title="a key is read from a DeepSpeed checkpoint that was never saved in it",
    source="DeepSpeed, runtime/engine.py, load_checkpoint: it returns the path and the client_state that "
    "save_checkpoint got; deepspeedai/DeepSpeed #636",
    remedy='client_state={"epoch": epoch} and client_state["epoch"]: use the same key in both places.',
)
RULES = (OTHER_KEY,)
# What the engine itself puts beside the client state.
_OF_ENGINE = frozenset(
    [
        *("module", "buffer_names", "optimizer", "param_shapes", "frozen_param_shapes", "shared_params"),
        *("frozen_param_fragments", "lr_scheduler", "data_sampler", "random_ltd", "sparse_tensor_module_names"),
        *("csr_tensor_module_names", "skipped_steps", "global_steps", "global_samples", "dp_world_size"),
        *("mp_world_size", "ds_config", "ds_version", "iteration"),
    ]
)

_CHANGES = ("update", "setdefault")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if not code.mentions("load_checkpoint") or code.incomplete or code.imports("deepspeed") is None:
        return
    saved = _saved(code)
    for event in code.ran("load_checkpoint", live=True) if saved else ():
        if not _of_engine(event):
            continue
        for module, read, key, whole in _reads(code, event.module, event.node, 1):
            if key in saved | _OF_ENGINE or _stored(module, key) or _expected(module, read, key):
                continue
            severity: Severity | None = None if whole else "warning"
            end = "a restart from a checkpoint " + ("raises KeyError" if whole else "gets the default")
            what = f"`{ast.unparse(read)[:60]}`: save_checkpoint keeps {', '.join(map(repr, sorted(saved)))}; {end}"
            yield at(OTHER_KEY, (module, read), what, severity=severity)
            return


def _of_engine(event: Event) -> bool:
    return event.receiver is not None and "deepspeed" in event.receiver.tags


def _saved(code: ScriptFacts) -> frozenset[str]:
    """Return the keys of all client states that the script saves; none if they are not all known."""
    found: frozenset[str] = frozenset()
    for event in code.ran("save_checkpoint"):
        state = event.arg("client_state", 2)
        if state is None and not event.opened and _of_engine(event):
            continue
        keys = state.attrs.keys() if state is not None and state.attrs is not None else ()
        if not keys or state is None or state.code is not None or {"**", "element"} & set(keys):
            return frozenset()
        found |= frozenset(keys)
    return found


_Read = tuple[Module, ast.AST, str, bool]


def _reads(code: ScriptFacts, module: Module, call: ast.AST, place: int | None, depth: int = 2) -> Iterator[_Read]:
    """Yield where keys are read of a call's result, or of this place in it: the node, the key, and if it has to be.

    A function of the script may return it to another one.
    """
    node, around = call, module.parents.get(call)
    if isinstance(around, ast.Subscript) and around.value is node and isinstance(around.slice, ast.Constant):
        if around.slice.value != place:
            return
        node, around, place = around, module.parents.get(around), None
    function = enclosing_function(module, call)
    if isinstance(around, ast.Return) and function is not None and depth:
        yield from _returned(code, module, function, place, depth)
        return
    targets = list(around.targets) if isinstance(around, ast.Assign) and around.value is node else []
    if len(targets) != 1:
        return
    target = targets[0]
    if place is not None:
        parts = target.elts if isinstance(target, ast.Tuple | ast.List) else []
        if len(parts) <= place or any(isinstance(part, ast.Starred) for part in parts):
            return
        target = parts[place]
    yield from _of_name(code, module, target, function, depth)


def _returned(code: ScriptFacts, module: Module, function: Function, place: int | None, depth: int) -> Iterator[_Read]:
    """Yield where keys are read of what a function of the script returns."""
    for event in code.events:
        called = event.called.code if event.called is not None else None
        if called is not None and called.node is function and called.module is module:
            yield from _reads(code, event.module, event.node, place, depth - 1)


def _of_name(
    code: ScriptFacts, module: Module, target: ast.expr, function: Function | None, depth: int
) -> Iterator[_Read]:
    """Yield where keys are read of a name in its function, or of an attribute in its file."""
    text = ast.unparse(target)
    local = isinstance(target, ast.Name)
    if not local and not isinstance(target, ast.Attribute):
        return
    same = [n for n in module.nodes if isinstance(n, ast.Name | ast.Attribute) and ast.unparse(n) == text]
    if local:
        same = [n for n in same if enclosing_function(module, n) is function]
    changes = (n for n in same if isinstance(over := module.parents.get(n), ast.Attribute) and over.attr in _CHANGES)
    if sum(isinstance(n.ctx, ast.Store) for n in same) > 1 or any(changes):
        return
    for node in same:
        around = module.parents.get(node)
        if isinstance(around, ast.Subscript) and around.value is node and isinstance(around.ctx, ast.Load):
            if isinstance(around.slice, ast.Constant) and isinstance(around.slice.value, str):
                yield module, around, around.slice.value, True
        elif isinstance(around, ast.Attribute) and around.attr == "get":
            call = module.parents.get(around)
            first = call.args[0] if isinstance(call, ast.Call) and call.args else None
            if call is not None and isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield module, call, first.value, False
        elif function is not None and local and depth:
            listed = isinstance(around, ast.Tuple)
            place = around.elts.index(node) if isinstance(around, ast.Tuple) else None
            if isinstance(module.parents.get(around) if listed and around is not None else around, ast.Return):
                yield from _returned(code, module, function, place, depth)


def _stored(module: Module, key: str) -> bool:
    """Return whether the file puts something under this key itself: ``client["epoch"] = 0``."""
    stores = (n for n in module.nodes if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store))
    return any(isinstance(n.slice, ast.Constant) and n.slice.value == key for n in stores)


def _expected(module: Module, read: ast.AST, key: str) -> bool:
    """Return whether a condition asks for the key before, or an exception is caught."""
    asked = any(repr(key) in ast.unparse(test) for test, _ in conditions(module, read))
    return asked or any(isinstance(outer, ast.Try) for outer in ancestors(module, read))
