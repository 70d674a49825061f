"""JSON schemas of records: msgspec's, with the forms and descriptions that our own fields have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from typing import Any

from msgspec import inspect
from msgspec.json import schema_components

from trainwright.core.records import Record


def schema_of(kind: type[Record]) -> dict[str, Any]:
    """The JSON schema of a record; the records in it are its ``$defs``."""
    parts: dict[str, Any] = {}
    _schema(kind, parts)
    for each in _records(inspect.type_info(kind), set()):
        part = parts[each.__name__]
        about, texts = _described(each)
        part |= {"description": about} if about else {}
        for name, text in (texts | {key: text for key, text in each.descriptions.items() if text}).items():
            key = each.__struct_encode_fields__[each.__struct_fields__.index(name)]
            part["properties"][key]["description"] = text
        del part["title"]  # the key of its $defs
        if not part["required"]:
            del part["required"]
    # JSON's $ is the end of a text alone.
    parts = json.loads(json.dumps(parts).replace(r"\\Z", "$"))
    whole: dict[str, Any] = parts.pop(kind.__name__)
    return whole | {"$defs": parts} if parts else whole


def _described(kind: type[Record]) -> tuple[str, dict[str, str]]:
    """What a record is, and its fields by name: its docstring without, and in, the section ``Attributes``."""
    texts: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        about, _, section = cleandoc(each.__dict__.get("__doc__") or "").partition("\n\nAttributes:\n")
        for name, text in re.findall(r"^    (\w+): (.+(?:\n     .+)*)", section, re.MULTILINE):
            texts[name] = " ".join(text.split())
    return about, {name: text for name, text in texts.items() if name in kind.__struct_fields__}


def _schema(kind: Any, parts: dict[str, Any]) -> dict[str, Any]:
    """The schema of a kind; those of the records in it are added to ``parts``."""

    def own(custom: Any) -> dict[str, Any]:
        if custom is Path:
            return {"type": "string", "format": "path"}
        return _schema(custom.kind, parts)

    (made,), more = schema_components([kind], schema_hook=own, ref_template="#/$defs/{name}")
    for each in more.values():
        each["description"] = cleandoc(each["description"])
    parts |= more
    return made


def _records(kind: Any, seen: set[type[Record]]) -> Iterator[type[Record]]:
    """The records in a kind, itself included, each once."""
    if isinstance(kind, inspect.StructType):
        if kind.cls in seen:
            return
        record: Any = kind.cls
        seen.add(record)
        yield record
        inner: list[Any] = [field.type for field in kind.fields]
    elif isinstance(kind, inspect.CustomType):
        inner = [inspect.type_info(kind.cls.kind)] if hasattr(kind.cls, "kind") else []
    else:
        inner = [getattr(kind, name) for name in ("item_type", "key_type", "value_type", "type") if hasattr(kind, name)]
        inner += [*getattr(kind, "item_types", ()), *getattr(kind, "types", ())]
    for each in inner:
        yield from _records(each, seen)
