"""The strict, frozen base of every record that flows, and the one way to read a data file into one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from trainwright.errors import RequestError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Record(BaseModel):
    """A frozen record: unknown keys are errors, values are not coerced from other types."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, hide_input_in_errors=False)


R = TypeVar("R", bound=Record)


def read_yaml(path: Path) -> Any:
    """The content of a YAML file.

    Raises:
        RequestError: the file is missing or no YAML; the message names the line.
    """
    try:
        return yaml.load(path.read_text(), Loader=_Loader)  # noqa: S506 - a safe loader
    except FileNotFoundError:
        raise RequestError(f"{path}: no such file") from None
    except (yaml.YAMLError, UnicodeDecodeError) as broken:
        raise RequestError(f"{path}: not readable as YAML: {' '.join(str(broken).split())}") from None


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
    if error["type"] == "string_type" and isinstance(error["input"], int | float):
        return f"{path}: {error['input']!r} is a number there; versions are text, so write it in quotes"
    return f"{path}: {error['msg']}"


def _keys_at(kind: type[Record], loc: tuple[Any, ...]) -> list[str]:
    """The keys that are valid at ``loc``; nothing where the model there is not a plain record."""
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
