"""A verb is a function over one typed record; its flags are the record's fields, so each option is defined once.

    class PlanFlags(JsonFlag):
        framework: str | None = Field(default=None, description="name of a framework")

    @verb
    def plan(flags: PlanFlags) -> None: ...

A field is a flag: its description is the help, its default the default, its annotation the kind (``bool`` is a switch,
``tuple`` a flag that may be repeated). A field without a default is positional. An alias names a flag whose name is
reserved by Python (``with_``, ``json_``). The field that a record calls ``bare`` takes words without a flag, the one
that it calls ``rest`` every word after ``--``. A field also has what help and completion say of it; see
:func:`trainwright.core.records.Field`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from types import NoneType
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, cast, get_args, get_origin, get_type_hints

from trainwright.cli.output import answer, print_json
from trainwright.core.paths import ARTIFACTS
from trainwright.core.records import Field, Record, Words, parse_record

W = TypeVar("W", bound=Words)
D = TypeVar("D", bound=Record)


class JsonFlag(Words):
    """The flag of every verb that has a document to show."""

    heading: ClassVar[str] = "Output"

    json_: bool = Field(default=False, alias="json", description="print one JSON document on standard output")


class CatalogFlag(Words):
    """The flag of every verb that reads the catalog."""

    heading: ClassVar[str] = "Where it comes from"

    catalog: str | None = Field(
        default=None,
        description="a folder of your own with images/ and templates/components/, on top of the shipped ones",
        metavar="DIR",
    )


class SiteFlag(Words):
    """The flag of every verb that fetches something."""

    heading: ClassVar[str] = "Where it comes from"

    site: str | None = Field(
        default=None,
        description="this machine's settings, a TOML file (default: trainwright.toml, if it exists)",
        metavar="FILE",
    )


class ArtifactsFlag(Words):
    """The flag of verbs whose inputs may be archives."""

    heading: ClassVar[str] = "Where it comes from"

    artifacts: str | None = Field(
        default=None,
        description="a folder or the address of a mirror that has the archives, instead of the site's artifact_mirror",
        metavar="PLACE",
    )


class Verb(Generic[W]):
    """A function over a record, under the name that is typed; :mod:`trainwright.cli.tasks` makes invoke's task of it.

    Args:
        function: does the work; its only parameter is annotated with the record.
    """

    def __init__(self, function: Callable[[W], None]) -> None:
        self.function = function
        self.name = function.__name__.rstrip("_").replace("_", "-")
        self.__doc__ = function.__doc__

    @property
    def record(self) -> type[W]:
        """The record, whose fields are the flags."""
        (found,) = (kind for name, kind in get_type_hints(self.function).items() if name != "return")
        return cast("type[W]", found)

    def run(self, said: Mapping[str, Any]) -> None:
        """Do the work.

        Args:
            said: the values of flags, under the keys of the record.

        Raises:
            Failure: the work failed, or the flags do not fit the record.
        """
        # A killed job must undo what it began, like an interrupted one.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        record = parse_record(self.record, dict(said), "the command line")
        if place := getattr(record, "artifacts", None):
            os.environ[ARTIFACTS] = place
        self.function(record)


def verb(function: Callable[[W], None]) -> Verb[W]:
    """The function as a verb; see :class:`Verb`."""
    return Verb(function)


class Family(NamedTuple):
    """Verbs under a heading; those of the first family are shown in full on the front page."""

    heading: str
    names: tuple[str, ...]


class Shelf(NamedTuple):
    """The verbs of a program: by family, and each by its name."""

    families: Sequence[Family]
    find: Callable[[str], Verb[Any] | None]

    @property
    def names(self) -> list[str]:
        """All of them, in the order of the families."""
        return [name for family in self.families for name in family.names]


def kind_of(annotation: Any) -> type:
    """What a flag takes: ``bool``, ``int``, ``float``, ``str``, or ``list`` where it may be repeated.

    Raises:
        TypeError: a field has a type that no flag has.
    """
    options = [each for each in get_args(annotation) if each is not NoneType]
    if get_origin(annotation) is tuple:
        return list
    if len(options) == 1:
        return kind_of(options[0])
    if annotation in (bool, int, float, str):
        return annotation  # type: ignore[no-any-return]
    raise TypeError(f"{annotation}: no flag has a value of this type")


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
