"""The script's own functions and classes: what a call of one does, with the arguments of that call."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass

from trainwright.script.evaluate import Evaluator
from trainwright.script.events import OF_RANK, Guard, JobStart
from trainwright.script.known import LIGHTNING, said
from trainwright.script.reader import Module
from trainwright.script.syntax import Function, qualified
from trainwright.script.values import FLOWS, NONE, Code, Marks, Scope, Value, chosen, constant, merge, unknown

MOST_RUNS = 4
MOST_ENTERED = 12
DEEPEST_CALL = 14


@dataclass(eq=False, slots=True)
class Body:
    """The block of a ``with`` that waits for a generator of the script to yield, and what runs around it.

    Attributes:
        items: what else the ``with`` enters.
        target: the name that it gives what was yielded.
        block: its statements.
        scope: the names that it sees.
        guards: the conditions around it.
        ended: whether what follows is not reached; None until it has run.
    """

    items: list[ast.withitem]
    target: ast.expr | None
    block: Sequence[ast.stmt]
    scope: Scope
    module: Module
    stack: tuple[Code, ...]
    depth: int
    outside: int
    contexts: tuple[str, ...]
    functions: int
    guards: tuple[Guard, ...] = ()
    ended: bool | None = None


class Functions(Evaluator):
    """Runs functions and classes of the script; :class:`flow.Interpreter` adds statements.

    Args:
        launch: how the job starts the script.
    """

    def __init__(self, launch: JobStart) -> None:
        super().__init__(launch)
        self.returned: list[list[Value]] = []
        self.running: list[Code] = []
        self.results: dict[tuple[object, ...], Value] = {}
        self.defined: list[Code] = []
        # Of each function that runs: what it has yielded, and the block that waits for it.
        self.yielded: list[list[Value]] = []
        self.taken: list[Body | None] = []
        self.waiting: list[Body] = []

    def block(self, statements: Sequence[ast.stmt], scope: Scope) -> bool:
        """Run statements; return whether they never reach their end."""
        raise NotImplementedError

    # ---- with blocks and generators ----------------------------------------------------------------------------------

    def with_block(self, items: list[ast.withitem], block: Sequence[ast.stmt], scope: Scope) -> bool:
        """Run a ``with`` block; return whether what follows is not reached.

        ``__enter__`` and ``__exit__`` of a class of the script run around it. The block of a context manager that is
        a generator of the script runs where that one yields.
        """
        if not items:
            return self.block(block, scope)
        item = items[0]
        body = Body(
            items[1:], item.optional_vars, block, scope, self.module, self.stack, self.depth, self.outside, (), 0
        )
        body.contexts, body.functions, body.guards = self.contexts, len(self.taken), self.guards
        self.waiting.append(body)
        value = self.value(item.context_expr, scope)
        if body in self.waiting:
            self.waiting.remove(body)
        if body.ended is not None:
            return body.ended
        code = value.code if value.instance else None
        enter, leave = (code.method(name) if code is not None else None for name in ("__enter__", "__exit__"))
        entered = self.call_code(enter, [], {}, value) if enter is not None else value
        before = self.contexts
        self.contexts = (*before, self._context(item.context_expr, value))
        ended = self._run_body(body, entered)
        self.contexts = before
        if leave is not None:
            self.call_code(leave, [Value(), Value(), Value()], {}, value)
        return ended

    def _context(self, written: ast.expr, value: Value) -> str:
        called = value.name or next(iter(sorted(value.made)), "")
        if isinstance(written, ast.IfExp):
            called = ""  # one of two
        elif not called and not isinstance(written, ast.Call):  # context = model.no_sync()
            written = next((event.node for event in reversed(self.events) if event.result is value), written)
        return called or ast.unparse(written)[:60]

    def _run_body(self, body: Body, entered: Value) -> bool:
        if body.target is not None:
            self.assign(body.target, entered, body.scope)
        return self.with_block(body.items, body.block, body.scope)

    def yields(self, node: ast.Yield | ast.YieldFrom, scope: Scope) -> Value:
        """Note what a generator yields; in a context manager, run the block that waits for it."""
        value = self.value(node.value, scope) if node.value is not None else constant(None)
        if not self.yielded:
            return Value()
        within = value.items if isinstance(node, ast.YieldFrom) else (value,)
        found = within if within is not None else (self.each(value),)
        if any(guard.kind in ("one", "host") for guard in self.guards):
            for each in found:
                each.tags |= {"only-one"}
        self.yielded[-1] += found
        body = self.taken[-1]
        if body is not None:
            before = (self.module, self.stack, self.depth, self.outside, self.contexts, self.guards)
            # If the other processes reach another yield, all of them run the block, but with different values.
            same = (guard in body.guards or not _yields_beside(self.running[-1], guard, node) for guard in self.guards)
            self.guards = tuple(guard for guard, kept in zip(self.guards, same, strict=True) if kept)
            if len(self.guards) < len(before[-1]) and value.attrs is None and value.code is None:
                value = value.with_tags("uneven")
            kept = (self.taken, self.yielded, self.returned)
            self.module, self.stack, self.depth, self.outside = body.module, body.stack, body.depth, body.outside
            self.contexts = (*body.contexts, *self.contexts[-1:])
            self.taken, self.yielded, self.returned = (each[: body.functions] for each in kept)  # type: ignore[assignment]
            body.ended = self._run_body(body, value)
            self.module, self.stack, self.depth, self.outside, self.contexts, self.guards = before
            self.taken, self.yielded, self.returned = kept
        return Value()

    def _generated(self, node: Function, found: list[Value]) -> Value:
        """Return what is known of the values that a generator yields."""
        loops = [each for each in ast.walk(node) if isinstance(each, ast.For) and each in self.iterated]
        element = merge(found)
        of = next((self.iterated[loop] for loop in loops if _yields_in(loop)), None)
        items = None if loops or any(isinstance(each, ast.While) for each in ast.walk(node)) else tuple(found)
        return Value(tags=element.tags & FLOWS, items=items, attrs={"element": element}, of=of)

    # ---- functions ---------------------------------------------------------------------------------------------------

    def _define(self, node: Function, scope: Scope) -> Value:
        names = []
        own = []
        for decorator in node.decorator_list:
            value = self.value(decorator, scope)
            called = value.name or next(iter(sorted(value.made)), "") or (value.code.name if value.code else "")
            names.append(called or ast.unparse(decorator)[:60])
            if value.code is not None and isinstance(value.code.node, Function):
                names += _used_in(value.code)
                own.append(value)
        for default in (*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)):
            self.value(default, scope)
        code = Code(self.module, node, scope, tuple(names))
        plain = {value.code.name for value in own if value.code is not None and not _keeps(value)}
        code.registered = not all(name in plain or _WRAPS.search(name) for name in names)
        self.defined.append(code)
        function = Value(code=code)
        for value in reversed(own):
            function = self._decorated(value, function)
            if function.code is not None and function.code is not code:
                function.code.alias = node.name
        return function

    def _decorated(self, decorator: Value, function: Value) -> Value:
        """Return what a decorator of the script makes of a function, if that is another one: with a condition in it."""
        assert decorator.code is not None
        decorator.code.runs = 0  # each function gets a wrapper of its own
        made = self.call_code(decorator.code, [function], {}, decorator.of)
        return made if made.code is not None and isinstance(made.code.node, Function) else function

    def _class(self, node: ast.ClassDef, scope: Scope) -> Value:
        bases = tuple(self.value(base, scope) for base in node.bases)
        inner = Scope(scope)
        decorators = tuple(ast.unparse(d)[:60] for d in node.decorator_list)
        code = Code(self.module, node, scope, decorators, bases)
        value = Value(code=code)
        self.block(node.body, inner)
        for name, member in inner.names.items():
            if member.code is not None and isinstance(member.code.node, Function) and not member.instance:
                if member.code.node in node.body:  # not what a decorator made of it
                    member.code.scope = scope
                code.methods[name] = member.code
                member.code.owner = code
            else:
                code.fields[name] = member
        return value

    def call_code(self, code: Code, args: list[Value], keywords: dict[str, Value], bound: Value | None) -> Value:
        """Run a function of the script; return what it returns."""
        node = code.node
        if code in self.running and len(args) == 1 and "model" in args[0].tags:
            return args[0]  # `def unwrap(model)` calls itself for what is in the wrapper
        if not isinstance(node, Function) or code in self.running or len(self.running) >= DEEPEST_CALL:
            return Value()
        key: tuple[object, ...] = (
            code,
            self.detached,
            *((guard.kind, guard.side and guard.kind == "own") for guard in self.guards),
            len(self.loops),
            *self.contexts[-3:],
        )
        key += (bound, *(_shape(arg) for arg in args), *((k, _shape(v)) for k, v in sorted(keywords.items())))
        like = key
        # Which of several things a helper is to read: `rows("train")`.
        key += tuple(text for arg in (*args, *keywords.values()) if isinstance(text := arg.single(), str))
        body = self.waiting.pop() if self.waiting and _enters(code) else None
        if key in self.results and body is None:
            return self.results[key]
        if code.runs >= (MOST_RUNS if body is None else MOST_ENTERED) and not _tells(node):
            return self.results.get(like, self.results.get((code,), Value()))
        code.runs += 1
        scope = Scope(code.scope)
        self._bind(code, scope, args, keywords, bound)
        before = (self.module, self.guards, self.contexts, self.stack, self.depth, self.outside)
        self.module, self.stack, self.depth, self.outside = code.module, (*self.stack, code), 0, len(self.loops)
        if any("zero:rank" in said(d.rpartition(".")[2]) or "rank_zero" in d for d in code.decorators):
            self.guards = (*self.guards, Guard("one", node.decorator_list[0], True))
        self.contexts = (*self.contexts, *(f"@{name}" for name in code.decorators))
        self.returned.append([])
        self.yielded.append([])
        self.taken.append(body)
        self.running.append(code)
        self.selves.append(bound)
        start = len(self.events)
        ended = self.block(node.body, scope)
        self.running.pop()
        self.selves.pop()
        values, yielded = self.returned.pop(), self.yielded.pop()
        self.taken.pop()
        self.module, self.guards, self.contexts, self.stack, self.depth, self.outside = before
        if values and not ended:
            values.append(constant(None))
        result = chosen(values, self.made_since(start)) if values else constant(None)
        if yielded and body is None:
            result = self._generated(node, yielded)
        if any(name.endswith(".step") and "modelparallel" in name for name in code.decorators):
            result = Value(tags=frozenset({"step-output", "out", "wrapped-out"}))
        self.results[key] = self.results[like] = self.results[(code,)] = result
        return result

    def _bind(
        self,
        code: Code,
        scope: Scope,
        args: list[Value],
        keywords: dict[str, Value],
        bound: Value | None,
    ) -> None:
        node, owner = code.node, code.owner
        assert isinstance(node, Function)
        names = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
        given = ([bound] if bound is not None and not _static(node) else []) + args
        defaults = dict(zip(names[len(names) - len(node.args.defaults) :], node.args.defaults, strict=True))
        defaults |= {a.arg: d for a, d in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if d}
        for name, value in zip(names, given, strict=False):
            scope.names[name] = value
        for name in [*names[len(given) :], *(a.arg for a in node.args.kwonlyargs)]:
            if name in keywords:
                scope.names[name] = keywords[name]
            elif name in defaults and not self.detached:
                value = self.value(defaults[name], scope.outer or scope)
                scope.names[name] = value if value.sure is False else value.with_tags()
                # None is no setting, but something that this call does not have: `def data(size, hvd=None)`.
                scope.names[name].sure = bool(value.sure) and value.single() is None
            else:
                scope.names[name] = unknown(*said(name))
                scope.names[name].made = _given_by_library(owner, name)
        if node.args.vararg is not None:
            rest = given[len(names) :]
            scope.names[node.args.vararg.arg] = Value(items=tuple(rest)) if rest else Value()
        if node.args.kwarg is not None:
            extra = {k: v for k, v in keywords.items() if k not in names}
            scope.names[node.args.kwarg.arg] = Value(attrs=extra)


# Decorators that only change how a function runs.
_WRAPS = re.compile(
    r"^(functools|contextlib|torch|typing|tensorflow\.function|tf\.function)\b|(static|class)method$|property$|rank_zero"
)


def _keeps(decorator: Value) -> bool:
    """Return whether a decorator of the script may put the function into a table, from which it is called."""
    assert decorator.code is not None
    nodes = list(ast.walk(decorator.code.node))
    stored = any(isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store) for n in nodes)
    return stored or any(
        isinstance(n, ast.Attribute) and n.attr in ("append", "add", "register", "setdefault", "update") for n in nodes
    )


def _enters(code: Code) -> bool:
    """Return whether a function is a generator that a ``with`` enters."""
    return any(name.endswith("contextmanager") for name in code.decorators)


def _yields_beside(code: Code, guard: Guard, here: ast.expr) -> bool:
    """Return whether a generator has another yield for the processes on the other side of a condition on the rank."""
    if guard.kind not in OF_RANK:
        return False
    chosen = [n for n in ast.walk(code.node) if isinstance(n, ast.If) and n.test is guard.node]
    side = [part for each in chosen for part in (each.body if guard.side else each.orelse)]
    within = {here, *(inner for part in side for inner in ast.walk(part))}
    return any(isinstance(n, ast.Yield | ast.YieldFrom) and n not in within for n in ast.walk(code.node))


def _yields_in(loop: ast.For) -> bool:
    return any(isinstance(each, ast.Yield) for each in ast.walk(loop))


def _given_by_library(owner: Code | None, name: str) -> Marks:
    """Return what a library gives a method that it calls: its trainer, to a hook of Lightning."""
    origins = [origin for origin in owner.origins() if name == "trainer"] if owner is not None else []
    lightning = any(origin.startswith(LIGHTNING) for origin in origins)
    return frozenset({"lightning.Trainer"}) if lightning else NONE


def _used_in(decorator: Code) -> list[str]:
    """Return what a decorator of the script wraps a function in: ``torch.no_grad`` of ``torch.no_grad()(function)``."""
    found = (qualified(decorator.module, each) for each in ast.walk(decorator.node) if isinstance(each, ast.Attribute))
    return sorted({name for name in found if name.startswith("torch.")})[:8]


def _static(node: Function) -> bool:
    return any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in node.decorator_list)


def _tells(node: Function) -> bool:
    """Return whether a function is so small that it is run for each of its calls: ``is_main_process()``."""
    return len(node.body) <= 3 and (node.end_lineno or 0) - node.lineno <= 8


def _shape(value: Value) -> object:
    """What of an argument makes a function worth running again."""
    if value.code is not None or value.attrs is not None or value.items is not None:
        return value
    told = value.tags or value.made or isinstance(value.single(), bool)  # a flag: `rows(train=True)`
    return (value.name, value.made, value.tags, value.constants if told else None)
