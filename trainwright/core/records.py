"""The strict, frozen base class of all records, and the errors for data that does not fit one."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeVar, dataclass_transform

import msgspec
from msgspec.structs import fields, force_setattr

from trainwright.core.checked import Misfit, check
from trainwright.core.errors import RequestError


class Described(NamedTuple):
    """What a field is, for the schema and for the help of a flag; :func:`Field` says more."""

    default: Any
    alias: str | None
    description: str
    heading: str
    metavar: str
    values: str | tuple[str, ...]


def Field(
    *,
    default: Any = msgspec.NODEFAULT,
    alias: str | None = None,
    description: str = "",
    heading: str = "",
    metavar: str = "",
    values: str | tuple[str, ...] = (),
) -> Any:
    """A field of a record.

    Args:
        default: its value where the data has none; without one, the field is required.
        alias: its key in the data, if Python keeps that word for itself.
        description: for the schema, and the help of a flag.
        heading: of the flag's group in the help (default: the one of its class).
        metavar: what stands for the flag's value in the help: ``FILE``.
        values: what help and completion offer: the values themselves, or the name of a list of
            :mod:`trainwright.cli.values`.
    """
    return Described(default, alias, description, heading, metavar, values)


class _Kind(msgspec.StructMeta):
    """The class of the classes of records: their fields have descriptions, and are given by name."""

    descriptions: dict[str, str]
    described: dict[str, Described]
    namespace_: dict[str, Any]
    renamed_: dict[str, str]

    def __new__(mcls, name: str, bases: tuple[Any, ...], space: dict[str, Any], **config: Any) -> _Kind:
        *others, base = bases
        own = space.get("heading", "")
        if own:
            headed = {key: each for key, each in space.items() if isinstance(each, Described) and not each.heading}
            space |= {key: each._replace(heading=own) for key, each in headed.items()}
        for each in others:  # Python takes the slots of one class only, so the others' fields and methods are repeated
            theirs = {k: a for k, a in each.namespace_["__annotations__"].items() if not str(a).startswith("ClassVar")}
            fields_of_both = theirs | space.get("__annotations__", {})
            space = each.namespace_ | space | {"__annotations__": fields_of_both}
        told = {key: each for key, each in space.items() if isinstance(each, Described)}
        known = {key: msgspec.field(default=each.default, name=each.alias) for key, each in told.items()}
        made = super().__new__(mcls, name, (base,), space | known, kw_only=True, **config)
        made.namespace_ = space
        pairs = zip(made.__struct_fields__, made.__struct_encode_fields__, strict=True)
        made.renamed_ = {field: key for field, key in pairs if field != key}
        made.described = getattr(base, "described", {}) | told
        made.descriptions = {key: each.description for key, each in made.described.items()}
        return made

    if not TYPE_CHECKING:

        def __call__(cls, /, **given):
            """A record that is made in Python is checked as data from a file is."""
            keys = cls.renamed_
            return read_record(cls, {keys.get(key, key): value for key, value in given.items()} if keys else given)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(Field,))
class Record(msgspec.Struct, metaclass=_Kind, frozen=True, forbid_unknown_fields=True):
    """A frozen record: unknown keys are errors, values are not coerced from other types."""

    def as_json(self) -> dict[str, Any]:
        """The record as a document of JSON, under the keys that users see."""
        document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self, enc_hook=os.fspath))
        return document

    def unusual(self) -> dict[str, Any]:
        """As :meth:`as_json`, without what has its default, here and in the records that are its values."""
        whole = self.as_json()
        for field in fields(self):
            value = getattr(self, field.name)
            if value == (field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()):
                del whole[field.encode_name]
            elif isinstance(value, Record):
                whole[field.encode_name] = value.unusual()
        return whole

    def replace(self, **changes: Any) -> Self:
        """The record with other values of fields, which are not checked."""
        made = copy(self)
        for name, value in changes.items():
            force_setattr(made, name, value)
        return made


class Document(Record):
    """What a verb shows, or a part of it. A name of a file that is not UTF-8 is quoted in backslash form."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if (quoted := _quoted(value)) is not value:
                force_setattr(self, name, quoted)


def _quoted(data: Any) -> Any:
    """Plain data without halves of surrogate pairs, which UTF-8 does not take."""
    if isinstance(data, str):
        return data if data.isascii() else data.encode(errors="backslashreplace").decode()
    if type(data) is dict:
        return {_quoted(key): _quoted(value) for key, value in data.items()}
    return type(data)(map(_quoted, data)) if type(data) in (list, tuple) else data


class Words(Record):
    """What a command line says, as it was typed: each field is a flag (:mod:`trainwright.cli.flags`)."""

    bare: ClassVar[str] = ""  # the field that takes words without a flag
    rest: ClassVar[str] = ""  # the field that takes every word after --
    heading: ClassVar[str] = ""  # of the group in the help of the flags that this class defines
    examples: ClassVar[tuple[str, ...]] = ()  # command lines for the help, without the program's name


class MisfitError(ValueError):
    """Data that does not fit a record, and everything that is wrong with it."""

    def __init__(self, kind: type, found: list[Misfit]) -> None:
        from trainwright.core.misfits import in_words

        *first, last = map(in_words, found)
        self.found, self.words = found, "; ".join([*(words.removesuffix(".") for words in first), last])
        super().__init__(f"{kind.__name__}: {self.words}")


def _misfits(kind: type, data: object) -> list[Misfit]:
    from trainwright.core.misfits import misfits

    return misfits(kind, data)


R = TypeVar("R", bound=Record)


def read_record(kind: type[R], data: object) -> R:
    """``data`` as a record of ``kind``.

    Raises:
        MisfitError: a key is unknown or missing, or has a value of the wrong type.
    """
    try:
        return msgspec.convert(data, kind, dec_hook=check)
    except (msgspec.ValidationError, UnicodeEncodeError) as wrong:
        raise MisfitError(kind, _misfits(kind, data) or [Misfit((), str(wrong))]) from None


def parse_record(
    kind: type[R], data: object, where: str, *, place: Callable[[Sequence[object]], str] | None = None
) -> R:
    """``data`` as a record of ``kind``.

    Args:
        kind: the record's class.
        data: a mapping, as read from a file or given by a caller.
        where: what to name in an error: a file, or "the request".
        place: names the place of a value more closely, by the keys that lead to it; asked for an error alone.

    Raises:
        RequestError: a key is unknown (with the nearest valid one), missing, or has a value of the wrong type.
    """
    try:
        return read_record(kind, data)
    except MisfitError as wrong:
        named = where if place is None else place(wrong.found[0].loc)
        raise RequestError(f"{named}: {wrong.words}", remedy=f"Correct {where} and run the command again.") from None
