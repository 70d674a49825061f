"""What stands in for AWS, held to botocore's models of the services, also where botocore itself is content.

Its own validation looks at types and required members alone, and its parsers drop what the model does not have.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from typing import Any

import botocore.parsers
import botocore.session
import botocore.stub
from botocore.model import Shape

# A timestamp or a blob is text or a number on the wire, and an object once it was parsed.
_TYPES: dict[str, type | tuple[type, ...]] = {
    "structure": dict,
    "map": dict,
    "list": list,
    "string": str,
    "boolean": bool,
    **dict.fromkeys(("integer", "long"), int),
    **dict.fromkeys(("float", "double"), (int, float)),
    "timestamp": (int, float, str, datetime),
}
# What MiniStack, which is not ours, has wrong, and nothing of ours reads: a build has its project's artifacts.
_MINISTACK = (".build.artifacts.", ".Stacks[0].Description: 0 is not in 1..1024")


class WrongAnswer(AssertionError):
    """An answer, or a request, that the service would not give or take."""


@cache
def shape_of(service: str, operation: str, side: str = "output") -> Shape | None:
    """The model of an operation's answer, or of its ``input``."""
    model = botocore.session.Session().get_service_model(service).operation_model(operation)
    return model.output_shape if side == "output" else model.input_shape


def misfits(value: Any, shape: Shape | None, path: str = "") -> Iterator[str]:
    """Where a document does not keep to a shape: members, types, choices, patterns and ranges.

    How many entries a list or a map has is left alone: the model has that of requests. The AWS CLI's reference shows
    ``"buildsNotFound": []``, whose shape begins at 1, and ListImages gives 1000 at a time, whose shape ends at 100.
    """
    if shape is None:
        yield from [f"{path or 'it'}: the model has nothing here"] if value else []
        return
    kind = shape.type_name
    types = _TYPES.get(kind)
    if (types and not isinstance(value, types)) or (isinstance(value, bool) and kind != "boolean"):
        yield f"{path}: {value!r} is not a {kind}"
        return
    if kind == "structure" and not getattr(shape, "is_document_type", False):
        names = {member.serialization.get("name", name): member for name, member in shape.members.items()}
        names |= shape.members
        yield from (f"{path}.{name} is missing" for name in shape.required_members if value.get(name) is None)
        yield from (f"{path}.{name}: the model has no such member" for name in sorted(value.keys() - names.keys()))
        for name, inner in value.items():
            if name in names and inner is not None:
                yield from misfits(inner, names[name], f"{path}.{name}")
    elif kind == "list":
        for number, inner in enumerate(value):
            yield from misfits(inner, shape.member, f"{path}[{number}]")
    elif kind == "map":
        for name, inner in value.items():
            yield from misfits(name, shape.key, f"{path}, key {name}")
            yield from misfits(inner, shape.value, f"{path}.{name}")
    elif kind == "string":
        yield from _text(value, shape, path)
    elif kind in ("integer", "long", "float", "double"):
        yield from _range(value, shape, path)


def _text(value: str, shape: Shape, path: str) -> Iterator[str]:
    rules = shape.metadata
    yield from _range(len(value), shape, path)
    if rules.get("enum") and value not in rules["enum"]:
        yield f"{path}: {value!r} is not one of {', '.join(rules['enum'])}"
    pattern = rules.get("pattern", "")
    # Java's classes of characters, which Python does not have, are left out.
    if pattern and "\\p{" not in pattern and not re.fullmatch(pattern, value):
        yield f"{path}: {value!r} does not match {pattern}"


def _range(number: float, shape: Shape, path: str) -> Iterator[str]:
    least, most = shape.metadata.get("min", number), shape.metadata.get("max", number)
    if not least <= number <= most:
        yield f"{path}: {number} is not in {least}..{most}"


def hold(document: Any, shape: Shape | None) -> None:
    """Hold a document to a shape.

    Raises:
        WrongAnswer: it does not keep to it.
    """
    if found := [each for each in misfits(document, shape) if not each.startswith(_MINISTACK)]:
        raise WrongAnswer(f"{shape.name if shape else 'no answer'}: {'; '.join(found)}")


@cache
def watch_clients() -> None:
    """Hold every good answer that a client in this process gets to the model, and every one that a stub is told."""
    parse = botocore.parsers.ResponseParser.parse
    told = botocore.stub.Stubber._validate_operation_response

    def held(parser: Any, response: dict[str, Any], shape: Shape | None) -> Any:
        parsed = parse(parser, response, shape)
        if response["status_code"] < 300:
            if isinstance(parser, botocore.parsers.JSONParser):  # what came, before the parser drops some of it
                hold(json.loads(response["body"] or b"{}"), shape)
            elif isinstance(parsed, dict):
                hold({name: each for name, each in parsed.items() if name != "ResponseMetadata"}, shape)
        return parsed

    def held_stub(stub: Any, operation: str, answer: dict[str, Any]) -> None:
        told(stub, operation, answer)
        hold(
            {name: each for name, each in answer.items() if name != "ResponseMetadata"},
            shape_of(stub.client.meta.service_model.service_name, operation),
        )

    botocore.parsers.ResponseParser.parse = held
    botocore.stub.Stubber._validate_operation_response = held_stub
