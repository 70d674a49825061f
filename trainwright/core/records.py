"""The strict, frozen base class of all records, and the errors for data that does not fit one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from trainwright.core.errors import RequestError, did_you_mean
from trainwright.core.lean import import_pydantic

import_pydantic()  # before the first record


class Record(BaseModel):
    """A frozen record: unknown keys are errors, values are not coerced from other types.

    Its validator is made at its first use, as a verb uses few of the records that it imports.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, hide_input_in_errors=False, defer_build=True
    )

    def as_json(self) -> dict[str, Any]:
        """The record as a document of JSON, under the keys that users see."""
        return self.model_dump(mode="json", by_alias=True)


class Document(Record):
    """What a verb shows, or a part of it. A name of a file that is not UTF-8 is quoted in backslash form."""

    @model_validator(mode="before")
    @classmethod
    def _is_unicode(cls, data: Any) -> Any:
        return _quoted(data)


def _quoted(data: Any) -> Any:
    """Plain data without halves of surrogate pairs, which neither pydantic nor UTF-8 takes."""
    if isinstance(data, str):
        return data if data.isascii() else data.encode(errors="backslashreplace").decode()
    if isinstance(data, dict):
        return {_quoted(key): _quoted(value) for key, value in data.items()}
    return type(data)(map(_quoted, data)) if type(data) in (list, tuple) else data


class Words(Record):
    """What a command line says, as it was typed: each field is a flag (:mod:`trainwright.cli.flags`)."""

    bare: ClassVar[str] = ""  # the field that takes words without a flag, any number of them


R = TypeVar("R", bound=Record)


def parse_record(kind: type[R], data: object, where: str) -> R:
    """``data`` as a record of ``kind``.

    Args:
        kind: the record's class.
        data: a mapping, as read from a file or given by a caller.
        where: what to name in an error: a file, or "the request".

    Raises:
        RequestError: a key is unknown (with the nearest valid one), missing, or has a value of the wrong type.
    """
    try:
        return kind.model_validate(data)
    except ValidationError as wrong:
        lines = [_explain(kind, dict(error)) for error in wrong.errors()]
        raise RequestError(
            f"{where}: " + "; ".join(lines), remedy=f"Correct {where} and run the command again."
        ) from None


def _explain(kind: type[Record], error: Mapping[str, Any]) -> str:
    path = ".".join(str(part) for part in error["loc"]) or "document"
    if error["type"] == "extra_forbidden":
        hint = did_you_mean(str(error["loc"][-1]), _keys_at(kind, error["loc"][:-1]))
        return f"unknown key {path!r}. {hint}".rstrip()
    if error["type"] == "missing":
        return f"key {path!r} is missing"
    if error["type"] == "string_type" and isinstance(error["input"], int | float | date):
        read = f"{error['input']!s} is a {'date' if isinstance(error['input'], date) else 'number'}"
        return f"{path}: {read} there; versions and days are text, so write it in quotes"
    return f"{path}: {wrong_value(error)}"


_EXPECTED = {
    "string": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "dict": "a mapping",
    "model": "a mapping",
    "tuple": "a list",
    "list": "a list",
    "literal": "{expected}",
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}",
    "string_pattern": "of the form {pattern}",
}


def wrong_value(error: Mapping[str, Any]) -> str:
    """What is wrong with the value of a key, in our words.

    Args:
        error: one of pydantic's, of a key that is known and there.
    """
    kind = str(error["type"])
    for ending in ("_type", "_parsing", "_error", "_mismatch", "_from_float"):
        kind = kind.removesuffix(ending)
    given = error.get("input", ...)
    empty = given is None or given in ("", [], (), {})
    if kind not in _EXPECTED:
        # A validator of ours says what is wrong; pydantic's words about an empty value say nothing to a user.
        own = str(error["msg"]).startswith("Value error, ")
        return "is empty" if empty and not own else str(error["msg"]).removeprefix("Value error, ")
    must = f"must be {_EXPECTED[kind].format(**error.get('ctx', {}))}"
    return f"is empty; it {must}" if empty else must


def _keys_at(kind: type[Record], loc: tuple[Any, ...]) -> list[str]:
    """The keys that are valid at ``loc``; empty if the model there is not a plain record."""
    from typing import get_args

    current: Any = kind
    for part in loc:
        if not (isinstance(current, type) and issubclass(current, BaseModel)):
            return []
        field = current.model_fields.get(str(part))
        if field is None:
            # An entry of a mapping or list: its keys are free, its values are records of one class.
            continue
        candidates = [field.annotation, *get_args(field.annotation)]
        records = [c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)]
        if not records:
            return []
        current = records[0]
    return [field.alias or name for name, field in current.model_fields.items()]
