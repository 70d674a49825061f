"""Verbs as invoke's tasks: for help, completion and plain ``invoke``, and for every line that is not plain."""

# ruff: noqa: E402 - invoke is loaded without what nothing uses of it, before any of its modules is imported whole

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

from trainwright.core.lean import import_invoke

import_invoke()

from invoke.collection import Collection
from invoke.context import Context
from invoke.exceptions import Exit
from invoke.parser.argument import Argument
from invoke.tasks import Task
from msgspec.structs import FieldInfo, fields

from trainwright.cli.flags import Verb, kind_of
from trainwright.cli.parser import BareWords, RestWords
from trainwright.cli.program import guarded
from trainwright.core.records import Words

_fields = cache(fields)  # msgspec finds them anew each time, and a mistyped line asks for those of every verb


def arguments(record: type[Words]) -> list[Argument]:
    """The flags of a record, as invoke's parser takes them; positional ones first, each group in the record's order.

    Raises:
        TypeError: a field has a type that no flag has.
    """
    made = [_argument(record, field) for field in _fields(record)]
    return sorted(made, key=lambda argument: not argument.positional)


def _argument(record: type[Words], field: FieldInfo) -> Argument:
    word = field.encode_name
    kind = kind_of(field.type)
    default = None if field.required else field.default
    make = {record.bare: BareWords, record.rest: RestWords}.get(field.name, Argument)
    return make(
        names=(word.replace("_", "-"),),
        attr_name=word if "_" in word else None,  # an alias of a name to itself has no end
        kind=kind,
        default=[] if kind is list else default,
        help=record.descriptions[field.name],
        positional=field.required,
    )


class VerbTask(Task[Callable[..., None]]):
    """The task of a verb. Its failures end the program with their exit code; see :mod:`trainwright.core.errors`."""

    def __init__(self, verb: Verb[Any]) -> None:
        self.record: type[Words] = verb.record

        def body(c: Context, /, **given: Any) -> None:  # noqa: ARG001 - invoke hands every task its context
            # Of what is not given, invoke says None or []; the record has the default.
            said = {word: value for word, value in given.items() if value not in (None, [])}
            if code := guarded(lambda: verb.run(said), as_json=bool(given.get("json")), words=sys.argv[1:]):
                raise Exit(code=code)

        wraps(verb.function)(body)
        super().__init__(body, name=verb.name, positional=())

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:  # noqa: ARG002 - invoke's
        """The flags of the record."""
        return arguments(self.record)


def collection(*verbs: Verb[Any]) -> Collection:
    """Verbs as invoke takes them."""
    return Collection(*map(VerbTask, verbs))
