"""Mappings of a script, such as the keyword arguments of a DataLoader that are collected first."""

from __future__ import annotations

from trainwright.preflight.abstract_state import AbstractState
from trainwright.preflight.events import Event
from trainwright.preflight.values import FLOWS, MOST_ITEMS, Value, constant, merge


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
    if name == "update":
        unknown: dict[str, Value] = {"**": Value()}
        for given in (*(unknown if arg.attrs is None else arg.attrs for arg in event.args), event.keywords):
            for each, value in given.items():
                if each != "**" or value.attrs is None:
                    state.put(base, each, value)
        return Value()
    if name == "copy" and base.code is None:
        return Value(base.name, base.made, base.tags, attrs=dict(base.attrs), of=base.of)
    if name in ("get", "pop") and event.args:
        found = base.attrs.get(key) if isinstance(key, str) else None
        if name == "pop" and found is not None:
            base.attrs = {other: value for other, value in base.attrs.items() if other != key}
        return found or (event.args[1] if len(event.args) > 1 else Value())
    return _parts(base, name) if name in ("values", "items", "keys") else None


def _parts(base: Value, name: str) -> Value:
    """Return what is known of the keys, values or pairs of a mapping; of few, which they are."""
    attrs = base.attrs or {}
    few = 0 < len(attrs) <= MOST_ITEMS and not attrs.keys() & {"element", "**"}
    if name == "items" and few and base.code is None:
        return Value(items=tuple(Value(items=(constant(key), value)) for key, value in attrs.items()))
    inner = merge(attrs.values())
    element = Value(items=(Value(), inner)) if name == "items" else inner
    return Value(attrs={"element": element}) if name != "keys" else Value()


def trained(given: Value) -> Value | None:
    """Return the model whose parameters an optimizer gets, perhaps in groups: ``[{"params": …}, …]``."""
    inner = (given.attrs or {}).get("params") or (given.attrs or {}).get("element")
    groups = given.items or ((inner,) if inner is not None else ())
    return given.of or next((model for each in groups if (model := trained(each)) is not None), None)
