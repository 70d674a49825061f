"""The expressions of a script, evaluated with what is known; what library calls return is in ``library``."""

from __future__ import annotations

import ast
from collections.abc import Callable

from trainwright.script import arithmetic, mappings
from trainwright.script.calls import Calls
from trainwright.script.conditions import TESTS, as_test, compare, is_function, kind_of, negated, sides
from trainwright.script.environment_names import asks, environment
from trainwright.script.events import Guard
from trainwright.script.known import BUILTINS, said
from trainwright.script.library import tf_config
from trainwright.script.paths import joined_path, path_join
from trainwright.script.unequal import dealt, shared, shares
from trainwright.script.values import (
    FLOWS,
    IDENTITY,
    MOST_ITEMS,
    NONE,
    Marks,
    Scope,
    Value,
    chosen,
    constant,
    for_one,
    merge,
    unknown,
)


class Evaluator(Calls):
    """Evaluates expressions; :class:`flow.Interpreter` adds statements and the script's functions."""

    # ---- decisions ---------------------------------------------------------------------------------------------------

    def decided(self, test: Value) -> bool | None:
        """Return what a condition is in every process of this job, if the job or a constant decides it."""
        single = test.single()
        if test.sure and single is not ...:
            return bool(single)
        zero, other = ("zero:rank", "nonzero:rank") if self.launch.processes == 1 else ("", "")
        local = ("zero:local", "nonzero:local") if self.launch.per_host == 1 else ("", "")
        host = ("zero:host", "nonzero:host") if self.launch.hosts == 1 else ("", "")
        for yes, no in ((zero, other), local, host):
            if yes and "and" not in test.tags:
                if yes in test.tags:
                    return True
                if no in test.tags:
                    return False
        return None

    # ---- expressions -------------------------------------------------------------------------------------------------

    def value(self, node: ast.expr, scope: Scope) -> Value:
        """Return what is known of an expression's value."""
        self.fuel -= 1
        handler = _HANDLERS.get(type(node))
        if handler is not None:
            return handler(self, node, scope)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.value(child, scope)
        return Value()

    def _name(self, node: ast.Name, scope: Scope) -> Value:
        found = scope.get(node.id)
        if found is not None:
            if self.unset:
                self._missing(node, found, scope)
            return found
        builtin = node.id in BUILTINS
        return Value(name=node.id) if builtin else Value(tags=frozenset(said(node.id)))

    def _constant(self, node: ast.Constant, scope: Scope) -> Value:
        return constant(node.value)

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Value:
        return self.attribute(self.value(node.value, scope), node.attr, node)

    def _subscript(self, node: ast.Subscript, scope: Scope) -> Value:
        base = self.value(node.value, scope)
        index = self.value(node.slice, scope)
        if not isinstance(node.slice, ast.Slice):  # `[1:-1]` takes the brackets off
            self._misuse(node, base, "json")
        if base.name == "os.environ":
            if not (self.guards or self.detached):
                self.reached.add(node)
            asked = self.tried or any(guard.off or guard.kind == "flag" or asks(guard.node) for guard in self.guards)
            if isinstance(key := index.single(), str) and index.sure and not asked:
                self.needed.append((self.module, node, key))
            return self._environ(index)
        if "agreed" in base.tags and base.items is not None:
            return unknown("agreed")  # what the first process put into the list, in all of them
        if base.items is not None:
            which = index.single()
            if isinstance(which, int) and not isinstance(which, bool) and -len(base.items) <= which < len(base.items):
                return base.items[which]
            return merge(base.items)
        if base.attrs is not None and isinstance(key := index.single(), str) and key in base.attrs:
            return base.attrs[key]
        if base.attrs is not None and set(base.attrs) == {"element"} and not isinstance(node.slice, ast.Slice):
            return base.attrs["element"]
        if "tf-config" in base.tags:
            return tf_config(index)
        if "hosts" in base.tags:
            return unknown("first-host" if index.single() == 0 else "some-host")
        split = {"sharded"} if index.tags & (IDENTITY | {"world", "sharded"}) else set()
        split |= shares(base, index.tags)
        split |= {"of-local"} if "local_rank" in index.tags else {"of-rank"} if "rank" in index.tags else set()
        key = index.single()
        named = said(key) if isinstance(key, str) else ()
        if isinstance(key, str) and "environ-copy" in base.tags:
            return self._environ(index)
        kept = base.tags & (FLOWS | {"dataset", "cuda"}) - ({"unequal"} if isinstance(node.slice, ast.Slice) else NONE)
        return Value(tags=kept | split | set(named), of=base)

    def _slice(self, node: ast.Slice, scope: Scope) -> Value:
        """Return whether a slice is every n-th item, or only so many that each process gets the same number."""
        lower, upper, step = (self.value(each, scope) if each else None for each in (node.lower, node.upper, node.step))
        # rows[first : first + n], rows[rank::world]
        own = {"sharded"} if lower is not None and lower.tags & IDENTITY else set()
        if upper is not None:
            return unknown(*own, *(("trimmed",) if upper.tags & {"world", "per-replica", "part"} else ()))
        return unknown(*own, *shared(lower, step))

    def _environ(self, name: Value) -> Value:
        key = name.single()
        return environment(self.launch, key, None) if isinstance(key, str) else Value()

    def _call(self, node: ast.Call, scope: Scope) -> Value:
        base: Value | None = None
        if isinstance(node.func, ast.Attribute):
            base = self.value(node.func.value, scope)
            called = self.attribute(base, node.func.attr, node.func)
        else:
            called = self.value(node.func, scope)
        args: list[Value] = []
        for each in node.args:
            value = self.value(each.value if isinstance(each, ast.Starred) else each, scope)
            if isinstance(each, ast.Starred) and value.items is not None:
                args += value.items
            else:
                args.append(value)
        keywords: dict[str, Value] = {}
        for keyword in node.keywords:
            value = self.value(keyword.value, scope)
            if keyword.arg is None and value.attrs is not None:
                keywords |= {k: v for k, v in value.attrs.items() if k not in keywords}
            keywords[keyword.arg or "**"] = value
        return self.call(node, called, base, args, keywords)

    # ---- operators ---------------------------------------------------------------------------------------------------

    def _not(self, node: ast.UnaryOp, scope: Scope) -> Value:
        value = self.value(node.operand, scope)
        if isinstance(node.op, ast.Not):
            self._asked(node.operand, value)
            return constant(False) if is_function(value) else negated(as_test(value))
        single = value.single()
        if isinstance(node.op, ast.USub) and isinstance(single, int | float):
            return constant(-single, sure=value.sure)
        return Value(tags=value.tags & (FLOWS | IDENTITY), sources=_computed(value))

    def _bool(self, node: ast.BoolOp, scope: Scope) -> Value:
        before = self.guards
        found: list[Value] = []
        for each in node.values:
            value = as_test(self.value(each, scope))
            found.append(value)
            self._asked(each, value)
            side = isinstance(node.op, ast.And)
            self.guards = (*self.guards, Guard(kind_of(value.tags, side), each, side))
        self.guards = before
        decided = [self.decided(value) for value in found]
        if isinstance(node.op, ast.And):
            if False in decided:
                return constant(False)
            rest = [value for value, known in zip(found, decided, strict=True) if known is None]
            tags = frozenset[str]().union(*(value.tags & TESTS for value in rest))
            tags |= {"chosen"} if len(rest) > 1 else set()
            never = any(value.single() in (None, False, "") and "flag" in value.tags for value in rest)
            constants = (False,) if never else rest[0].constants if len(rest) == 1 else None
            tags |= {"and"} if len(rest) > 1 and tags else set()
            return Value(tags=tags, constants=constants) if rest else constant(True)
        if True in decided:
            before_it = decided[: decided.index(True)]
            return found[len(before_it)] if all(known is False for known in before_it) else constant(True)
        rest = [value for value, known in zip(found, decided, strict=True) if known is None]
        # `not distributed or rank == 0`: one process either way.
        ranks = [value for value in rest if value.tags & {"zero:rank", "zero:local"}]
        if ranks:
            return ranks[0].with_tags("chosen") if len(rest) > 1 else ranks[0]
        if len(rest) > 1:
            return merge(rest).with_tags("chosen")
        return rest[0] if rest else (found[-1] if found else constant(False))

    def _compare(self, node: ast.Compare, scope: Scope) -> Value:
        left = self.value(node.left, scope)
        rights = [self.value(each, scope) for each in node.comparators]
        if len(rights) != 1:
            return unknown()
        if isinstance(rights[0].single(), int | float):
            self._misuse(node, left, "number")
            self._asked(node.left, left)
        return compare(left, node.ops[0], rights[0])

    def _ifexp(self, node: ast.IfExp, scope: Scope) -> Value:
        test = as_test(self.value(node.test, scope))
        self._asked(node.test, test)
        decided = self.decided(test)
        if decided is not None:
            return self.value(node.body if decided else node.orelse, scope)
        before, start = self.guards, len(self.events)
        one, other = sides(test, node.test)
        self.guards = (*before, one)
        yes = self.value(node.body, scope)
        self.guards = (*before, other)
        no = self.value(node.orelse, scope)
        self.guards = before
        joined = chosen((yes, no), self.made_since(start))
        if test.tags & {"zero:rank", "nonzero:rank", "zero:local", "nonzero:local"} and yes is not no:
            joined = joined.with_tags("uneven")
            for_one(*((yes, no) if one.kind in ("one", "host") else (no, yes)))
        if "zero:rank" in test.tags and no.single() in (None, False):
            return joined.with_tags("only-one")
        if test.tags & {"zero:rank", "nonzero:rank", "by-rank"} and yes is not no:
            return joined.with_tags("random")  # another value in other processes
        return joined

    def _binary(self, node: ast.BinOp, scope: Scope) -> Value:
        left, right = self.value(node.left, scope), self.value(node.right, scope)
        if isinstance(node.op, ast.Sub | ast.Mult | ast.Div | ast.FloorDiv | ast.Pow):
            for value, by in ((left, right), (right, left)):
                if isinstance(by.single(), int | float) or ("number" not in by.tags and by.constants is None):
                    self._misuse(node, value, "number")
        counted = right.of.tags if "length" in right.tags and right.of is not None else NONE
        if isinstance(node.op, ast.Div) and "own" in left.tags and {"dataset"} == counted & {"dataset", "sharded"}:
            self.fractions.append((self.module, node))
        one, other = left.single(), right.single()
        # What is made of a rank by its default is none of the other processes: `args.rank % torch.cuda.device_count()`.
        both = one is not ... and other is not ... and not (left.tags | right.tags) & IDENTITY
        if both and isinstance(one, int | float | str) and isinstance(other, int | float | str):
            try:
                result = arithmetic.OPERATIONS[type(node.op)](one, other)
                if len(str(result)) < 2000:
                    tags = arithmetic.without_quotient(left.tags | (right.tags - {"flag"}))
                    tags |= self._quotient(node, left, right)
                    if isinstance(node.op, ast.Div | ast.FloorDiv):
                        tags |= arithmetic.quotient(left, right)
                    return Value(tags=tags, constants=(result,), sure=left.sure and right.sure)
            except (KeyError, ArithmeticError, TypeError, ValueError):
                pass
        if isinstance(node.op, ast.Add) and left.items is not None and right.items is not None:
            return Value(tags=(left.tags | right.tags) & FLOWS, items=(*left.items, *right.items))
        if isinstance(node.op, ast.Mod) and isinstance(one, str) and one.startswith("%"):
            return joined_path([*(right.items or (right,)), left])  # "%s/model" % folder, "%s_rank%d" % (folder, rank)
        if isinstance(node.op, ast.Add | ast.Div | ast.Mod) and arithmetic.texts(left, right):
            return path_join([left, right]) if isinstance(node.op, ast.Div) else joined_path([left, right])
        facts = arithmetic.facts(node.op, left, right, counted, self.contexts)
        return Value(tags=facts, sources=_computed(left, right))

    def _quotient(self, node: ast.BinOp, left: Value, right: Value) -> Marks:
        """Note a division by the number of one host's GPUs; return the fact that says which it was."""
        divides = isinstance(node.op, ast.Div | ast.FloorDiv) and "gpus" in right.tags - left.tags
        if not divides or "world" in left.tags | right.tags or right.single() != self.launch.gpus:
            return NONE
        self.quotients.append((self.module, node))
        return frozenset({f"{arithmetic.QUOTIENT}{len(self.quotients) - 1}"})

    def _joined(self, node: ast.JoinedStr, scope: Scope) -> Value:
        parts = [self.value(v.value if isinstance(v, ast.FormattedValue) else v, scope) for v in node.values]
        return joined_path(parts) if parts else constant("")

    # ---- displays ----------------------------------------------------------------------------------------------------

    def _sequence(self, node: ast.Tuple | ast.List | ast.Set, scope: Scope) -> Value:
        items: list[Value] = []
        for each in node.elts:
            value = self.value(each.value if isinstance(each, ast.Starred) else each, scope)
            items += value.items if isinstance(each, ast.Starred) and value.items is not None else (value,)
        flows = frozenset[str]().union(*(item.tags & FLOWS for item in items))
        return Value(tags=flows, items=tuple(items))

    def _dict(self, node: ast.Dict, scope: Scope) -> Value:
        attrs: dict[str, Value] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            found = self.value(value, scope)
            name = self.value(key, scope).single() if key is not None else None
            if isinstance(name, str):
                attrs[name] = found
            elif key is None and found.attrs is not None:
                attrs |= found.attrs
            else:
                attrs["**"] = Value()  # a key that is not known
        flows = frozenset[str]().union(*(v.tags & FLOWS for v in attrs.values()))
        return Value(tags=flows, attrs=attrs)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, scope: Scope) -> Value:
        first = node.generators[0]
        iterated = self.value(first.iter, scope)
        self._misuse(first.iter, iterated, "json")
        few = iterated.items is not None and 0 < len(iterated.items) <= MOST_ITEMS and len(node.generators) == 1
        if few and not first.ifs and "element" not in iterated.tags:
            made = [self._element(node, scope, item) for item in iterated.items or ()]
        else:
            made = [self._element(node, scope, self.each(iterated))]
            few = False
        if isinstance(node, ast.DictComp) and (left := mappings.filtered(node, iterated.of)) is not None:
            return left
        element = merge(value for _, value in made)
        tags = element.tags & (FLOWS | IDENTITY) | dealt(iterated, first.ifs)
        if isinstance(node, ast.DictComp):
            keys = [str(key.single()) for key, _ in made]
            if few and "Ellipsis" not in keys:
                return Value(tags=tags, made=element.made, attrs=dict(zip(keys, (v for _, v in made), strict=True)))
        elif few:
            return Value(tags=tags, made=element.made, items=tuple(value for _, value in made))
        return Value(tags=tags, made=element.made, attrs={"element": element})

    def _element(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, scope: Scope, item: Value
    ) -> tuple[Value, Value]:
        """Return a key (of a dict) and a value that a comprehension makes of an item."""
        inner = Scope(scope)
        for each in node.generators:
            if each is not node.generators[0]:
                item = self.each(self.value(each.iter, inner))
            self.assign(each.target, item, inner)
            for test in each.ifs:
                self.value(test, inner)
        if isinstance(node, ast.DictComp):
            return self.value(node.key, inner), self.value(node.value, inner)
        return Value(), self.value(node.elt, inner)

    def _lambda(self, node: ast.Lambda, scope: Scope) -> Value:
        inner = Scope(scope)
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            inner.names[argument.arg] = unknown(*said(argument.arg))
        returned = self.value(node.body, inner)
        called = [
            each.func.id
            for each in ast.walk(node.body)
            if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)
        ]
        if not inner.names.keys().isdisjoint(called):
            returned = returned.without_tags("out")  # of which model, the caller knows
        return Value(tags=returned.tags & {"zero:rank"}, attrs={"(returned)": returned})

    def _named(self, node: ast.NamedExpr, scope: Scope) -> Value:
        value = self.value(node.value, scope)
        self.assign(node.target, value, scope)
        return value

    def yields(self, node: ast.Yield | ast.YieldFrom, scope: Scope) -> Value:
        """Note what a generator yields."""
        raise NotImplementedError

    def _generator(self, node: ast.Yield | ast.YieldFrom, scope: Scope) -> Value:
        return self.yields(node, scope)

    def _inner(self, node: ast.Await | ast.Starred | ast.FormattedValue, scope: Scope) -> Value:
        return self.value(node.value, scope)


def _computed(*values: Value) -> tuple[Value, ...]:
    """Return those of the values that have a graph for backward, or are parameters."""
    return tuple(value for value in values if value.tags & {"out", "params"})


_HANDLERS: dict[type[ast.expr], Callable[..., Value]] = {
    ast.Name: Evaluator._name,
    ast.Constant: Evaluator._constant,
    ast.Attribute: Evaluator._attribute,
    ast.Subscript: Evaluator._subscript,
    ast.Slice: Evaluator._slice,
    ast.Call: Evaluator._call,
    ast.UnaryOp: Evaluator._not,
    ast.BoolOp: Evaluator._bool,
    ast.Compare: Evaluator._compare,
    ast.IfExp: Evaluator._ifexp,
    ast.BinOp: Evaluator._binary,
    ast.JoinedStr: Evaluator._joined,
    ast.Tuple: Evaluator._sequence,
    ast.List: Evaluator._sequence,
    ast.Set: Evaluator._sequence,
    ast.Dict: Evaluator._dict,
    ast.ListComp: Evaluator._comprehension,
    ast.SetComp: Evaluator._comprehension,
    ast.GeneratorExp: Evaluator._comprehension,
    ast.DictComp: Evaluator._comprehension,
    ast.Lambda: Evaluator._lambda,
    ast.NamedExpr: Evaluator._named,
    ast.Yield: Evaluator._generator,
    ast.YieldFrom: Evaluator._generator,
    ast.Await: Evaluator._inner,
    ast.Starred: Evaluator._inner,
    ast.FormattedValue: Evaluator._inner,
}
