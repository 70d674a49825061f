"""The script's own functions and classes: what a call of one does, with the arguments of that call."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from trainwright.preflight.evaluate import Evaluator
from trainwright.preflight.events import Guard, JobStart
from trainwright.preflight.known import said
from trainwright.preflight.syntax import Function, qualified
from trainwright.preflight.values import Code, Scope, Value, chosen, constant, unknown

MOST_RUNS = 4
DEEPEST_CALL = 14


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

    def block(self, statements: Sequence[ast.stmt], scope: Scope) -> bool:
        """Run statements; return whether they never reach their end."""
        raise NotImplementedError

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
        self.defined.append(code)
        function = Value(code=code)
        for value in reversed(own):
            function = self._decorated(value, function)
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
        if key in self.results:
            return self.results[key]
        if code.runs >= MOST_RUNS and not _tells(node):
            return self.results.get((code,), Value())
        code.runs += 1
        scope = Scope(code.scope)
        self._bind(node, scope, args, keywords, bound)
        before = (self.module, self.guards, self.contexts, self.stack, self.depth, self.outside)
        self.module, self.stack, self.depth, self.outside = code.module, (*self.stack, code), 0, len(self.loops)
        if any("zero:rank" in said(d.rpartition(".")[2]) or "rank_zero" in d for d in code.decorators):
            self.guards = (*self.guards, Guard("one", node.decorator_list[0], True))
        self.contexts = (*self.contexts, *(f"@{name}" for name in code.decorators))
        self.returned.append([])
        self.running.append(code)
        start = len(self.events)
        ended = self.block(node.body, scope)
        self.running.pop()
        values = self.returned.pop()
        self.module, self.guards, self.contexts, self.stack, self.depth, self.outside = before
        if values and not ended:
            values.append(constant(None))
        result = chosen(values, self.made_since(start)) if values else constant(None)
        if any(name.endswith(".step") and "modelparallel" in name for name in code.decorators):
            result = Value(tags=frozenset({"step-output", "out", "wrapped-out"}))
        self.results[key] = self.results[(code,)] = result
        return result

    def _bind(
        self, node: Function, scope: Scope, args: list[Value], keywords: dict[str, Value], bound: Value | None
    ) -> None:
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
        if node.args.vararg is not None:
            rest = given[len(names) :]
            scope.names[node.args.vararg.arg] = Value(items=tuple(rest)) if rest else Value()
        if node.args.kwarg is not None:
            extra = {k: v for k, v in keywords.items() if k not in names}
            scope.names[node.args.kwarg.arg] = Value(attrs=extra)


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
