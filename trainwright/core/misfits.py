"""What is wrong with data that does not fit a record: all of it, each with its place. msgspec stops at the first."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from typing import Any

import msgspec
from msgspec import inspect

from trainwright.core.checked import Misfit, check
from trainwright.core.errors import did_you_mean
from trainwright.core.fields import FORMS

# What a value must be, and the types that are it.
_KINDS: dict[type, tuple[str, tuple[type, ...]]] = {
    inspect.StrType: ("text", (str,)),
    inspect.IntType: ("a whole number", (int,)),
    inspect.FloatType: ("a number", (int, float)),
    inspect.BoolType: ("true or false", (bool,)),
    inspect.NoneType: ("empty", (type(None),)),
    inspect.VarTupleType: ("a list", (list, tuple)),
    inspect.ListType: ("a list", (list, tuple)),
    inspect.DictType: ("a mapping", (Mapping,)),
    inspect.StructType: ("a mapping", (Mapping,)),
}
_LIMITS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "ge": ("at least {}", lambda value, limit: value >= limit),
    "gt": ("more than {}", lambda value, limit: value > limit),
    "le": ("at most {}", lambda value, limit: value <= limit),
    "pattern": ("of the form {}", lambda value, limit: re.search(limit, value) is not None),
    "min_length": ("of {} entries at least", lambda value, limit: len(value) >= limit),
    "max_length": ("of {} entries at most", lambda value, limit: len(value) <= limit),
}


def in_words(each: Misfit) -> str:
    """A misfit as part of a message."""
    path = ".".join(map(str, each.loc)) or "document"
    if each.says == "unknown key":
        return f"unknown key {path!r}. {did_you_mean(str(each.loc[-1]), each.valid)}".rstrip()
    if each.read:
        return f"{path}: {each.read} there; versions and days are text, so write it in quotes"
    return f"key {path!r} is missing" if each.says == "is missing" else f"{path}: {each.says}"


def misfits(kind: type, data: object) -> list[Misfit]:
    """Everything that is wrong with data for a record of ``kind``, in the order of its fields; unknown keys follow."""
    return list(_walk(inspect.type_info(kind), data, ()))


def _walk(kind: Any, data: Any, loc: tuple[Any, ...]) -> Iterator[Misfit]:
    if isinstance(kind, inspect.UnionType):
        yield from _union(kind, data, loc)
        return
    if isinstance(kind, inspect.StructType) and isinstance(data, kind.cls):
        return
    if found := _KINDS.get(type(kind)):
        what, types = found
        if not isinstance(data, types) or (isinstance(data, bool) and bool not in types):
            read = ""
            if what == "text" and isinstance(data, int | float | date) and not isinstance(data, bool):
                read = f"{data!s} is a {'date' if isinstance(data, date) else 'number'}"
            yield Misfit(loc, _must(what, data), read=read)
            return
    faults = list(_parts(kind, data, loc))
    if not faults and (says := _wrong_value(kind, data)):
        faults = [Misfit(loc, says)]
    yield from faults


def _union(kind: inspect.UnionType, data: Any, loc: tuple[Any, ...]) -> Iterator[Misfit]:
    """Of several types, the words of the one that the data is meant for; if of none, the first one's: the usual one."""
    if data is None and kind.includes_none:
        return
    found = [list(_walk(each, data, loc)) for each in kind.types if not isinstance(each, inspect.NoneType)]
    if all(found):
        yield from next((each for each in found if each[0].loc != loc), found[0])


def _parts(kind: Any, data: Any, loc: tuple[Any, ...]) -> Iterator[Misfit]:
    """What is wrong inside a value."""
    match kind:
        case inspect.StructType():
            known = {field.encode_name: field for field in kind.fields}
            for key, field in known.items():
                if key in data:
                    yield from _walk(field.type, data[key], (*loc, key))
                elif field.required:
                    yield Misfit((*loc, key), "is missing")
            if kind.forbid_unknown_fields:
                yield from (Misfit((*loc, key), "unknown key", tuple(known)) for key in data if key not in known)
        case inspect.DictType():
            for key, value in data.items():
                yield from _walk(kind.key_type, key, (*loc, key, "[key]"))
                yield from _walk(kind.value_type, value, (*loc, key))
        case inspect.VarTupleType() | inspect.ListType():
            for place, value in enumerate(data):
                yield from _walk(kind.item_type, value, (*loc, place))
        case inspect.CustomType() if hasattr(kind.cls, "kind"):
            yield from _walk(inspect.type_info(kind.cls.kind), data, loc)


def _wrong_value(kind: Any, data: Any) -> str:
    """What is wrong with a value whose type and parts are right; empty if nothing is."""
    try:
        match kind:
            case inspect.StructType():
                msgspec.convert(data, kind.cls, dec_hook=check)  # its own rules
            case inspect.CustomType():
                check(kind.cls, data)
            case inspect.DateType() | inspect.DateTimeType():
                msgspec.convert(data, date if isinstance(kind, inspect.DateType) else datetime)
            case inspect.LiteralType() if not any(data == each and type(data) is type(each) for each in kind.values):
                *rest, last = map(repr, kind.values)
                return _must(f"{', '.join(rest)} or {last}" if rest else last, data)
    except TypeError:
        return _must("text", data)
    except ValueError as wrong:
        if isinstance(kind, inspect.DateType | inspect.DateTimeType):
            return _must("a date, such as 2026-11-21", data)
        # msgspec hands on what a check says; what it says itself is of a record of a subclass, which it refuses.
        return str(wrong.__cause__ or "") if isinstance(wrong, msgspec.ValidationError) else str(wrong)
    return next(_beyond(kind, data), "")


def _beyond(kind: Any, data: Any) -> Iterator[str]:
    """The limits that a number or a length exceeds."""
    for name, (what, holds) in _LIMITS.items():
        limit = getattr(kind, name, None)
        if limit is not None and not holds(data, limit):
            told = FORMS.get(limit) if name == "pattern" else None
            limit = limit.replace(r"\Z", "$") if name == "pattern" else limit
            yield "is empty" if name == "min_length" and not data else _must(told or what.format(limit), data)


def _must(what: str, data: Any) -> str:
    empty = data is None or data in ("", [], (), {})
    return f"is empty; it must be {what}" if empty else f"must be {what}"
