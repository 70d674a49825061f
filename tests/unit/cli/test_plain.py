"""Command lines that are taken without invoke: the verb gets what invoke's parser would give it."""

from __future__ import annotations

from typing import Any

import pytest
from invoke.context import Context
from invoke.parser.parser import Parser

from trainwright.cli import plain
from trainwright.cli.flags import JsonFlag, Verb, verb
from trainwright.cli.tasks import VerbTask, collection
from trainwright.core.records import Field


class Odds(JsonFlag):
    """A flag of every kind."""

    framework: str | None = Field(default=None, description="a word")
    progress: str = Field(default="auto", description="a word with a default")
    source_dir: str | None = Field(default=None, description="a word of two parts")
    with_: str | None = Field(default=None, alias="with", description="a word of Python's")
    many: tuple[str, ...] = Field(default=("a",), description="may be repeated")
    count: int = Field(default=3, description="how many")
    on: bool = Field(default=True, description="a switch that is on")


def both(words: list[str]) -> tuple[Any, Any]:
    """What the verb gets of a command line: taken as plain, and from invoke's parser."""
    got: list[Odds] = []

    def show(flags: Odds) -> None:
        """Show."""
        got.append(flags)

    shown = verb(show)
    taken = plain.take(words, {"show": shown}.get)
    assert taken is not None
    taken[0].run(taken[1])
    (parsed,) = Parser(contexts=collection(shown).to_contexts()).parse_argv(words)
    VerbTask(shown)(Context(), **parsed.as_kwargs)
    (ours, theirs) = got
    return ours, theirs


@pytest.mark.parametrize(
    "words",
    [
        "",
        "--json",
        "--framework pytorch",
        "--framework=pytorch --json --with a,b",
        "--framework=a=b --progress plain",
        "--source-dir src",
        "--many b",
        "--many b --many=c --framework show",
    ],
)
def test_a_plain_line_gives_what_invoke_gives(words: str) -> None:
    ours, theirs = both(["show", *words.split()])
    assert ours == theirs


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--help"],
        ["shw"],
        ["show", "--help"],
        ["show", "--no"],
        ["show", "--json=yes"],
        ["show", "--json", "--json"],
        ["show", "--framework"],
        ["show", "--framework", ""],
        ["show", "--framework="],
        ["show", "--framework", "--json"],
        ["show", "--framework", "-x"],
        ["show", "--framework", "a", "--framework", "b"],
        ["show", "--framework", "a\nb"],
        ["show", "--framework", "\u202e"],
        ["show", "--source_dir", "a"],
        ["show", "--count", "4"],
        ["show", "--on"],
        ["show", "word"],
        ["show", "show"],
        ["show", "-f", "a"],
        ["show", "--"],
    ],
    ids=repr,
)
def test_what_is_not_plain_is_left_to_the_parser(words: list[str]) -> None:
    def show(_flags: Odds) -> None:
        """Show."""

    known: dict[str, Verb[Any]] = {"show": verb(show)}
    assert plain.take(words, known.get) is None
