"""Mappings of a script, such as the keyword arguments of a DataLoader that are collected first."""

from __future__ import annotations

import ast

from trainwright.script.abstract_state import AbstractState
from trainwright.script.events import Event
from trainwright.script.values import FLOWS, MOST_ITEMS, Value, constant, join, merge


def made(event: Event) -> Value:
    """``dict(mapping, name=value)``: another mapping with the same values."""
    first = event.args[0] if event.args else None
    pairs = [each.items for each in first.items or ()] if first is not None else []
    if pairs and all(pair is not None and len(pair) == 2 and isinstance(pair[0].single(), str) for pair in pairs):
        return Value(made=frozenset({"dict"}), attrs={str(pair[0].single()): pair[1] for pair in pairs if pair})
    if first is not None and first.attrs is None:
        return Value(made=frozenset({"dict"}))
    known = dict(first.attrs or {}) if first is not None else {}
    attrs = known | {name: value for name, value in event.keywords.items() if name != "**"}
    if "**" in event.keywords:
        attrs |= event.keywords["**"].attrs or {"**": Value()}
    flows = frozenset[str]().union(*(value.tags & FLOWS for value in attrs.values()))
    return Value(made=frozenset({"dict"}), tags=flows, attrs=attrs)


def of_object(event: Event) -> Value:
    """``dataclasses.asdict(settings)``: a mapping of the fields of an object."""
    attrs = event.args[0].attrs if event.args else None
    return Value(made=frozenset({"dict"}), attrs=dict(attrs) if attrs is not None else None)


def filled(state: AbstractState, event: Event) -> Value:
    """``defaultdict(Meter)``: a mapping whose values are objects of the script's own class."""
    made = Value(made=frozenset({event.name}))
    if event.args and event.args[0].code is not None:
        made.attrs = {"element": state.call(event.node, event.args[0], None, [], {})}
    return made


def method(state: AbstractState, event: Event, base: Value, name: str) -> Value | None:
    """Return the result of a method of a mapping whose values are known; None for any other method."""
    if base.attrs is None:
        return None
    key = event.args[0].single() if event.args else None
    if name == "update" or name.startswith("merge_with"):  # of OmegaConf: a mapping, a list of texts, the command line
        for given in (*event.args, Value(attrs=event.keywords) if event.args or event.keywords else Value()):
            _updated(state, base, given)
        return Value()
    if name == "copy" and base.code is None:
        return Value(base.name, base.made, base.tags, attrs=dict(base.attrs), of=base.of)
    if name in ("get", "pop") and event.args:
        found = base.attrs.get(key) if isinstance(key, str) else None
        if name == "pop" and found is not None:
            base.attrs = {other: value for other, value in base.attrs.items() if other != key}
        return found or (event.args[1] if len(event.args) > 1 else Value())
    return _parts(base, name) if name in ("values", "items", "keys") else None


def _updated(state: AbstractState, base: Value, given: Value) -> None:
    """Put the values of a mapping into another; its unknown keys may replace anything."""
    attrs = {"**": Value()} if given.attrs is None or "element" in given.attrs else given.attrs
    for key, value in attrs.items():
        before = (base.attrs or {}).get(key) if "sometimes" in value.tags else None
        if key != "**" or value.attrs is None:
            state.put(base, key, value if before is None else join(before, value))
        if key == "**" and value.attrs is None:
            base.attrs = {other: _replaced(each) for other, each in (base.attrs or {}).items()}


def _replaced(value: Value) -> Value:
    """Return a value that another one may have replaced."""
    if value.constants is None:
        return value
    other = value.with_tags("flag")
    other.sure = False
    return other


def _parts(base: Value, name: str) -> Value:
    """Return what is known of the keys, values or pairs of a mapping; of few, which they are."""
    attrs = base.attrs or {}
    few = 0 < len(attrs) <= MOST_ITEMS and not attrs.keys() & {"element", "**"}
    if name == "items" and few and base.code is None:
        return Value(items=tuple(Value(items=(constant(key), value)) for key, value in attrs.items()), of=base)
    inner = merge(attrs.values())
    element = Value(items=(Value(), inner)) if name == "items" else inner
    return Value(attrs={"element": element}, of=base) if name != "keys" else Value()


def filtered(node: ast.DictComp, base: Value | None) -> Value | None:
    """``{k: v for k, v in mapping.items() if v is not None}``: the rest of a mapping; None if it is anything else."""
    first, *others = node.generators
    pair = isinstance(first.target, ast.Tuple) and [ast.unparse(each) for each in first.target.elts]
    written = ast.unparse(first.iter)
    if base is None or base.attrs is None or others or not written.endswith(".items()"):
        return None
    if pair != [ast.unparse(node.key), ast.unparse(node.value)]:
        return None
    attrs = dict(base.attrs)
    for test in first.ifs:
        left = ast.unparse(test.left) if isinstance(test, ast.Compare) and len(test.ops) == 1 else ""
        if left == pair[0] and isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.NotEq | ast.NotIn):
            out = {n.value for n in ast.walk(test.comparators[0]) if isinstance(n, ast.Constant)}
            attrs = {key: value for key, value in attrs.items() if key not in out}
        elif ast.unparse(test) == f"{pair[1]} is not None":
            attrs = {k: v if v.constants and not v.may_be(None) else v.with_tags("sometimes") for k, v in attrs.items()}
        else:
            attrs = {key: value.with_tags("sometimes") for key, value in attrs.items()}
    return Value(attrs=attrs)


def trained(given: Value) -> Value | None:
    """Return the model whose parameters an optimizer gets, perhaps in groups: ``[{"params": …}, …]``."""
    inner = (given.attrs or {}).get("params") or (given.attrs or {}).get("element")
    groups = given.items or ((inner,) if inner is not None else ())
    return given.of or next((model for each in groups if (model := trained(each)) is not None), None)
