"""JSON schemas of records: msgspec's, with the forms and descriptions that our own fields have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from typing import Any

from msgspec.json import schema_components

from trainwright.core.records import Record


def schema_of(kind: type[Record]) -> dict[str, Any]:
    """The JSON schema of a record; the records in it are its ``$defs``."""
    parts: dict[str, Any] = {}
    _schema(kind, parts)
    for each in _kinds(Record):
        for name, text in each.descriptions.items():
            if text and each.__name__ in parts:
                key = each.__struct_encode_fields__[each.__struct_fields__.index(name)]
                parts[each.__name__]["properties"][key]["description"] = text
    # JSON's $ is the end of a text alone.
    parts = json.loads(json.dumps(parts).replace(r"\\Z", "$"))
    whole: dict[str, Any] = parts.pop(kind.__name__)
    return whole | {"$defs": parts} if parts else whole


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


def _kinds(kind: type[Record]) -> Iterator[type[Record]]:
    for each in kind.__subclasses__():
        yield each
        yield from _kinds(each)
