"""Calls in a script: recorded with what is known of them, and followed into the script's own functions and classes."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from trainwright.script import argparse_values, configurations, episodes, library, methods, unequal
from trainwright.script.abstract_state import AbstractState
from trainwright.script.conditions import asks_for_result
from trainwright.script.events import OF_RANK, Event, Replacement
from trainwright.script.known import MODEL, said
from trainwright.script.tensors import TENSORS
from trainwright.script.values import ENDS, FLOWS, NONE, Code, Marks, Scope, Value, join, merge, of_several, unknown

WRAPPED: Marks = frozenset({"accelerate", "deepspeed", "step-output"})
# Names of helpers that agree on a value with the other processes.
_JOINS = re.compile(r"reduce|gather|sync|broadcast|agree|all_|average_across|share", re.I)
# Functions of other packages that join the processes, and set in the options which one this is: timm's and Meta's.
_PLACES = re.compile(r"(init|setup|set_up)\w*_(dist|ddp)|dist\w*_(init|setup)", re.I)
_OTHERS = re.compile(
    r"^(?!torch|horovod|tensorflow|smdistributed|deepspeed|accelerate|xgboost)\w+(\.\w+)*\.distributed\.\w+$"
)
_PLACE = frozenset({"device", "gpu", "rank", "local_rank", "world_size", "distributed"})
# Classes of libraries from which a script derives its own that does the same.
_LIKE = re.compile(r"^(transformers|trl)\..*Trainer$|DistributedDataParallel$|FullyShardedDataParallel$|\.DataLoader$")
# What gets a function, and does not call it.
_KEEPS = (
    *("map", "functools.partial", "functools.wraps", "functools.update_wrapper", "isinstance", "setattr"),
    "signal.signal",  # which calls it only in the process that gets the signal
)
# Afterwards only the destination has the result (PyTorch's documentation of torch.distributed).
_TO_ONE = ("torch.distributed.reduce", "torch.distributed.gather")
# What a value is no longer when the processes have joined theirs.
_NOT_JOINED = frozenset({"own", "uneven", "of-root", "measured", "graphless", "played", "clock"})
# Whose functions return the time of the process's own clock, or one made of it; ?: methods of what is not known.
_SAME_CLOCK = ("time", "datetime", "timeit", "torch", "tensorflow", "numpy", "math", "script", "?")


def joined_elsewhere(events: Sequence[Event]) -> bool:
    """Return whether a function of a file that was not read joins the processes: ``utils.init_distributed_mode()``."""
    unread = (e for e in events if e.called is None and not e.name.startswith("?"))
    return any(_PLACES.search(e.last) or _OTHERS.search(e.name) for e in unread)


class Calls(AbstractState):
    """Calls and assignments; :class:`evaluate.Evaluator` adds expressions."""

    def value(self, node: ast.expr, scope: Scope) -> Value:
        """Return what is known of an expression's value."""
        raise NotImplementedError

    def call(
        self, node: ast.Call, called: Value, base: Value | None, args: list[Value], keywords: dict[str, Value]
    ) -> Value:
        """Record a call, and return what is known of its result."""
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        bound = called.attrs.get(library.BOUND) if called.attrs is not None and not called.instance else None
        if bound is not None:
            args, keywords = [*(bound.items or ()), *args], {**(bound.attrs or {}), **keywords}
        if called.name:
            name = called.name
        elif called.code is not None and not called.instance:
            name = f"script.{called.code.name}"
        elif base is not None and base.made:
            name = f"{min(base.made)}.{method}"
        else:
            name = f"?.{method}" if method else f"?{getattr(node.func, 'id', '')}"
        event = Event(
            name,
            node,
            self.module,
            args,
            keywords,
            base,
            self.guards,
            self.loops,
            self.stack,
            self.contexts,
            self.detached,
            len(self.events),
        )
        event.called = None if called.name else called
        event.over = self.iterated.get(self.loops[-1]) if self.loops else None
        self.events.append(event)
        event.result = self._result(event, called, method)
        unequal.returned(event)
        if "." in name and name.partition(".")[0] not in _SAME_CLOCK:
            event.result.tags -= {"clock"} | (
                set() if episodes.plays(event) else {"played"}
            )  # a helper of another package may agree with the other processes
        if ended := called.tags & ENDS:
            event.result = event.result.with_tags(*(f"as:{tag[5:]}" for tag in ended))
        if called.code is None and _PLACES.search(event.last):
            for value in args:
                value.attrs = value.attrs and {key: v for key, v in value.attrs.items() if key not in _PLACE}
        if event.role == "collective" or _JOINS.search(event.last):
            # All processes have the same afterwards, in place or as the result.
            at_root = event.name in _TO_ONE
            for value in (*args, *keywords.values(), event.result):
                value.tags = value.tags - _NOT_JOINED | ({"of-root"} if at_root else NONE)
                in_place = event.last in ("broadcast_object_list", "broadcast")
                returned = value is event.result and "broadcast" in event.last.lower()  # a helper of the script's
                value.tags |= {"agreed"} if in_place or returned else set()
        return event.result

    def _result(self, event: Event, called: Value, method: str) -> Value:
        code, args, keywords = called.code, event.args, event.keywords
        if code is not None and not called.instance and isinstance(code.node, ast.ClassDef):
            return self._instance(event, code)
        if code is not None and not called.instance and isinstance(code.node, ast.FunctionDef | ast.AsyncFunctionDef):
            result = self.call_code(code, args, keywords, called.of)
            if called.of is not None and of_several(called.of):
                result = join(result, Value())
            flows = frozenset().union(*(arg.tags & FLOWS for arg in args))
            if result.tags & {"zero:rank", "nonzero:rank"} or not (flows or code.runs):
                return result
            guess = said(code.name) if not result.tags and result.constants is None else ()
            return result.with_tags(*guess) if guess else result
        function = event.receiver.code if method == "apply" and event.receiver is not None else None
        if function is not None and any(origin.endswith("autograd.Function") for origin in function.origins()):
            forward = function.method("forward")  # its first argument is the context
            return self.call_code(forward, [Value(), *args], keywords, None) if forward is not None else Value()
        if "model" in called.tags:
            event.model = called
            forward = code.method("forward") if called.instance and code is not None else None
            if forward is not None and any("out" in arg.tags for arg in args):
                self.call_code(forward, args, keywords, called)  # such as a loss, of what another model gives
            return Value(tags=library.output_tags(called, event))
        if called.instance and code is not None:
            inner = code.method("__call__")
            return self.call_code(inner, args, keywords, called) if inner is not None else Value()
        if called.attrs is not None and "(returned)" in called.attrs:
            return called.attrs["(returned)"]
        if method == "__init__" and event.receiver is not None and event.receiver.made_by("super") and self.building:
            self._inherit(event, self.building[-1])
        result = library.function(self, event) if called.name else methods.method(self, event, method, called)
        self._callbacks(event)
        return result

    def _callbacks(self, event: Event) -> None:
        """Run functions of the script that a library gets: ``mp.spawn(main)``, ``strategy.run(step)``."""
        if event.name in ("fire.Fire", "jsonargparse.CLI", "tyro.cli"):
            self._command_line(event)
            return
        spawns = event.last in ("spawn", "start_processes", "launch", "_spawn")
        for value in [*event.args, *event.keywords.values()]:
            if value.code is not None and not value.instance and isinstance(value.code.node, ast.FunctionDef):
                if event.name in _KEEPS and not spawns:
                    continue
                given = event.arg("args", 1)
                rest = list(given.items) if given is not None and given.items is not None else []
                first = [unknown("local_rank", *([] if (self.launch.hosts or 1) > 1 else ["rank"]))] if spawns else []
                self.call_code(value.code, [*first, *rest], {}, value.of)
            elif isinstance(value.attrs, dict) and "function" in value.attrs and value.attrs["function"].code:
                self.call_code(value.attrs["function"].code, [], {}, None)

    def _command_line(self, event: Event) -> None:
        """Run the function that a library calls with the arguments of the command line."""
        function = event.args[0].code if event.args else None
        if function is not None and isinstance(function.node, ast.FunctionDef):
            given = self.launch.hyperparameters
            self.call_code(function, [], {name: argparse_values.passed(value) for name, value in given.items()}, None)

    def _instance(self, event: Event, code: Code) -> Value:
        origins = frozenset(code.origins())
        tags = {"model"} if any(_is_module(name) for name in origins) else set()
        tags |= {"dataset"} if any("Dataset" in name for name in origins) else set()
        # What gets a share, such as one of the files, is one.
        given = (*event.args, *event.keywords.values())
        tags |= {"sharded"} if any("sharded" in value.tags for value in given) else set()
        tags |= {"unequal"} if "dataset" in tags and any("unequal" in value.tags for value in given) else set()
        value = Value(made=origins | {f"script.{code.name}"}, attrs={}, code=code, instance=True)
        value.tags = frozenset(tags)
        code.made = value
        init = code.method("__init__")
        if init is None and configurations.by_fields(code):
            value.attrs = configurations.made(self, event, code)
            post = code.method("__post_init__")
            if post is not None:
                self.call_code(post, [], {}, value)
        if init is not None:
            self.building.append(value)
            self.call_code(init, event.args, event.keywords, value)
            self.building.pop()
        else:
            self._inherit(event, value)
        return value

    def _inherit(self, event: Event, value: Value) -> None:
        """Note that a library's class is made, where the script's class derived from it leaves that to it."""
        name = next((made for made in sorted(value.made) if _LIKE.search(made) and not made.startswith("script.")), "")
        if not name:
            return
        made = event.again(name, event.args, event.keywords, len(self.events))
        self.events.append(made)
        result = library.function(self, made)
        value.tags |= result.tags
        value.of = value.of or result.of
        made.result = value

    def _misuse(self, node: ast.expr, value: Value, kind: str) -> None:
        """Note that a variable's text is used as a number or a list."""
        name = next((tag[4:] for tag in value.tags if tag.startswith("env:")), "")
        parsed = kind == "json" and value.tags & {"hosts", "parsed"}  # one of the two, and the script may know which
        asked = any("isinstance" in ast.unparse(guard.node) for guard in self.guards)
        if name and kind in value.tags and not (self.detached or parsed or asked):
            self.misused.append((self.module, node, name))

    def _missing(self, node: ast.Name, found: Value, scope: Scope) -> None:
        """Note a name that was set under a condition on the rank, and is read by all processes."""
        there: Scope | None = scope
        while there is not None and node.id not in there.names:
            there = there.outer
        value, guard = self.unset.get((id(there), node.id), (None, None))
        everywhere = not any(each.kind in (*OF_RANK, "world", "error") or each.off for each in self.guards)
        if guard is not None and value is found and everywhere and not self.detached:
            self.missing.append((self.module, node, guard))

    def _asked(self, node: ast.expr, value: Value) -> None:
        """Note a function that is compared or asked whether it is true, where its result is meant."""
        if isinstance(node, ast.Name | ast.Attribute) and asks_for_result(node, value):
            self.uncalled.append((self.module, node))

    # ---- assignment --------------------------------------------------------------------------------------------------

    def assign(self, target: ast.expr, value: Value, scope: Scope) -> None:
        """Give a value to a name, attribute, element or tuple of these."""
        match target:
            case ast.Name():
                if (id(scope), target.id) in self.shared:
                    outer = scope.outer
                    while outer is not None and outer.outer is not None and target.id not in outer.names:
                        outer = outer.outer
                    scope = outer or scope
                self._replaces(target, value, scope.names.get(target.id))
                plain = not value.tags and value.constants is None and not value.made and value.code is None
                if plain and value.items is None and not value.name and (guess := said(target.id)):
                    value = value.with_tags(*guess)
                scope.names[target.id] = value
                self.unset.pop((id(scope), target.id), None)
            case ast.Attribute():
                base = self.value(target.value, scope)
                if base.attrs is None:
                    base.attrs = {}
                if any(guard.kind == "own" for guard in self.guards) and value.code is None:
                    value = value.with_tags("own")
                if "clock" in value.tags or any(guard.kind == "clock" for guard in self.guards):
                    self.clocked.append((self.module, target))
                    value = value.with_tags("clock") if value.constants is not None else value  # `self.stop = True`
                if value.sure and target.attr in self.module.counted:
                    value = value.with_tags()
                    value.sure = False
                self._layer(target, value, base)
                self._replaces(target, value, base.attrs.get(target.attr))
                if target.attr == "grad" and base.code is None:
                    value = Value(tags=(value.tags & FLOWS) | {"grad"}, of=base)  # backward sets it again
                there = base.attrs.get(target.attr)
                if self.guards:
                    self.set_there.append((base.attrs, target.attr, there))
                base.attrs[target.attr] = value if there is None or not self.depth else join(there, value)
                configurations.assigned(self, base, target.attr, value, target)
            case ast.Subscript():
                base = self.value(target.value, scope)
                key = self.value(target.slice, scope).single()
                self._layer(target, value, base)
                if base.made and base.made <= TENSORS:
                    base.tags |= value.tags & FLOWS
                elif base.name == "os.environ" and isinstance(key, str):
                    self.launch.kept.pop(key, None)
                    self.launch.environment.setdefault(key, str(value.single()) if value.single() is not ... else "")
                else:
                    self.put(base, key if isinstance(key, str) else "**", value)
            case ast.Tuple() | ast.List():
                self._unpack(target.elts, value, scope)
            case ast.Starred():
                self.assign(target.value, value, scope)

    def _layer(self, target: ast.Attribute | ast.Subscript, value: Value, base: Value) -> None:
        """Note a layer that is put into a model or a part of one: ``net.fc = …``, ``net.classifier[-1] = …``."""
        whole: Value | None = base
        while isinstance(target, ast.Subscript) and whole is not None and "model" not in whole.tags:
            whole = whole.of
        layer = any(re.match(r"torch\.nn\.(?!parallel|Data)", made) for made in value.made)
        if layer and whole is not None and "model" in whole.tags and not self.detached:
            self.replacements.append(Replacement(self.module, target, value, whole, self.guards, len(self.events)))

    def _replaces(self, target: ast.Name | ast.Attribute, value: Value, there: Value | None) -> None:
        """Note an optimizer that takes the place of another."""
        both = there is not None and there is not value and "optimizer" in there.tags & value.tags
        if both and there is not None and not self.detached:
            self.replacements.append(Replacement(self.module, target, value, there, self.guards, len(self.events)))

    def _unpack(self, targets: Sequence[ast.expr], value: Value, scope: Scope) -> None:
        items = value.items
        star = next((place for place, each in enumerate(targets) if isinstance(each, ast.Starred)), None)
        if items is not None and star is not None and len(items) >= len(targets):  # `engine, *_ = initialize(…)`
            end = len(items) - (len(targets) - star - 1)
            items = (*items[:star], Value(items=items[star:end]), *items[end:])
        if items is not None and len(items) == len(targets):
            for target, item in zip(targets, items, strict=True):
                self.assign(target, item, scope)
            return
        # Of a list that a loop fills, one pass was followed.
        element = merge(items) if items else (value.attrs or {}).get("element")
        tags = value.tags & (FLOWS | WRAPPED) if items is None else NONE
        if "params" in value.tags:  # of named_parameters()
            element = element or Value(tags=tags | {"params"}, of=value.of)
        for target in targets:
            starred = isinstance(target, ast.Starred)
            inner = target.value if isinstance(target, ast.Starred) else target
            self.assign(inner, Value(tags=tags) if starred or element is None else element, scope)


def _is_module(name: str) -> bool:
    return bool(MODEL.search(name)) or name.rpartition(".")[2] in ("Module", "PreTrainedModel", "LightningModule")


def loaded(target: ast.expr) -> ast.expr:
    """Return the target of ``x += 1`` as an expression."""
    if isinstance(target, ast.Name):
        return ast.copy_location(ast.Name(target.id, ast.Load()), target)
    if isinstance(target, ast.Attribute):
        return ast.copy_location(ast.Attribute(target.value, target.attr, ast.Load()), target)
    return target
