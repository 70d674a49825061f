"""A verb is a function over one typed record; its flags are the record's fields, so each option is defined once.

    class PlanFlags(JsonFlag):
        framework: str | None = Field(default=None, description="name of a framework")

    @verb
    def plan(flags: PlanFlags) -> None: ...

A field is a flag: its description is the help, its default the default, its annotation the kind (``bool`` is a switch,
``tuple`` a flag that may be repeated). A field without a default is positional. An alias names a flag whose name is
reserved by Python or pydantic (``with_``, ``json_``). The field that a record calls ``bare`` takes words without a
flag.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from functools import wraps
from types import NoneType
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

from invoke.context import Context
from invoke.exceptions import Exit
from invoke.parser.argument import Argument
from invoke.tasks import Task
from pydantic import Field
from pydantic.fields import FieldInfo

from trainwright.cli.parser import BareWords
from trainwright.cli.program import answer, guarded, print_json
from trainwright.core.records import Record, Words, parse_record

W = TypeVar("W", bound=Words)
D = TypeVar("D", bound=Record)


class JsonFlag(Words):
    """The flag of every verb that has a document to show."""

    json_: bool = Field(default=False, alias="json", description="print one JSON document on standard output")


class CatalogFlag(Words):
    """The flag of every verb that reads the catalog."""

    catalog: str | None = Field(
        default=None,
        description="a folder of your own with images/ and templates/components/, on top of the shipped ones",
    )


class SiteFlag(Words):
    """The flag of every verb that fetches something."""

    site: str | None = Field(
        default=None,
        description="this machine's settings, a TOML file (default: trainwright.toml, if it exists)",
    )


def arguments(record: type[Words]) -> list[Argument]:
    """The flags of a record, as invoke's parser takes them; positional ones first, each group in the record's order.

    Raises:
        TypeError: a field has a type that no flag has.
    """
    made = [_argument(name, field, bare=name == record.bare) for name, field in record.model_fields.items()]
    return sorted(made, key=lambda argument: not argument.positional)


def _argument(name: str, field: FieldInfo, *, bare: bool) -> Argument:
    word = field.alias or name
    kind = _kind(field.annotation)
    default = None if field.is_required() else field.get_default()
    make = BareWords if bare else Argument
    return make(
        names=(word.replace("_", "-"),),
        attr_name=word if "_" in word else None,  # an alias of a name to itself has no end
        kind=kind,
        default=[] if kind is list else default,
        help=field.description,
        positional=field.is_required(),
    )


def _kind(annotation: Any) -> type:
    """What invoke's parser makes of a flag's value; the record does the rest."""
    options = [each for each in get_args(annotation) if each is not NoneType]
    if get_origin(annotation) is tuple:
        return list
    if len(options) == 1:
        return _kind(options[0])
    if annotation in (bool, int, float, str):
        return annotation  # type: ignore[no-any-return]
    raise TypeError(f"{annotation}: no flag has a value of this type")


class Verb(Task[Callable[..., None]], Generic[W]):
    """An invoke task over a record. Its failures end the program with their exit code; see
    :mod:`trainwright.core.errors`.

    Args:
        function: does the work; its only parameter is annotated with the record.
    """

    def __init__(self, function: Callable[[W], None]) -> None:
        self.record: type[W]
        (self.record,) = (kind for name, kind in get_type_hints(function).items() if name != "return")

        def body(c: Context, /, **given: Any) -> None:  # noqa: ARG001 - invoke hands every task its context
            # A killed job must undo what it began, like an interrupted one.
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            # Of what is not given, invoke says None or []; the record has the default.
            said = {word: value for word, value in given.items() if value not in (None, [])}
            if code := guarded(
                lambda: function(parse_record(self.record, said, "the command line")),
                as_json=bool(given.get("json")),
                words=sys.argv[1:],
            ):
                raise Exit(code=code)

        wraps(function)(body)
        super().__init__(body, name=function.__name__.rstrip("_"), positional=())

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:  # noqa: ARG002 - invoke's
        """The flags of the record."""
        return arguments(self.record)


def verb(function: Callable[[W], None]) -> Verb[W]:
    """The function as a verb; see :class:`Verb`."""
    return Verb(function)


def emit(document: D, text: Callable[[D], str], *, as_json: bool) -> None:
    """Show what a verb made on standard output.

    Args:
        document: what was made.
        text: the document for people.
        as_json: show the document itself.
    """
    if as_json:
        print_json(document.as_json())
    else:
        answer(text(document))
