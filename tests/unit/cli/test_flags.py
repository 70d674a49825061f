"""Flags from records: names, kinds, defaults, help; what the verb gets; what it shows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from invoke.context import Context
from invoke.exceptions import Exit, ParseError
from invoke.parser.parser import Parser

from trainwright.cli.flags import JsonFlag, Verb, emit, verb
from trainwright.cli.tasks import VerbTask, arguments, collection
from trainwright.core.errors import RequestError
from trainwright.core.records import Document, Field, Words


class Few(JsonFlag):
    """A flag of every kind."""

    place: str = Field(description="where")
    source_dir: str | None = Field(default=None, description="a folder")
    with_: str | None = Field(default=None, alias="with", description="more")
    many: tuple[str, ...] = Field(default=("a",), alias="one_of", description="may be repeated")
    count: int = Field(default=3, description="how many")
    stall: float = Field(default=1.5, description="seconds")


class Shown(Document):
    """A document."""

    schema: str
    path: str


def given(*words: str) -> list[Few]:
    """What a verb gets of a command line that invoke parses."""
    got: list[Few] = []

    def few(flags: Few) -> None:
        """Do little."""
        got.append(flags)

    task = verb(few)
    (parsed,) = Parser(contexts=collection(task).to_contexts()).parse_argv(["few", *words])
    VerbTask(task)(Context(), **parsed.as_kwargs)
    return got


def test_a_field_is_a_flag():
    found = {argument.names: argument for argument in arguments(Few)}
    assert set(found) == {("place",), ("source-dir",), ("with",), ("one-of",), ("count",), ("stall",), ("json",)}
    kinds = {names[0]: argument.kind for names, argument in found.items()}
    text = {"place": str, "source-dir": str, "with": str}
    assert kinds == {**text, "one-of": list, "count": int, "stall": float, "json": bool}
    assert {names[0]: argument.help for names, argument in found.items()}["source-dir"] == "a folder"
    assert [argument.names[0] for argument in arguments(Few) if argument.positional] == ["place"]
    assert arguments(Few)[0].positional


def test_the_verb_gets_the_filled_record():
    (flags,) = given("here", "--source-dir=src", "--with=x", "--one-of", "b", "--one-of", "c", "--count", "7", "--json")
    assert flags == Few(place="here", source_dir="src", with_="x", many=("b", "c"), count=7, stall=1.5, json_=True)


def test_what_is_not_given_has_its_default():
    assert given("here") == [Few(place="here", many=("a",))]


def test_a_positional_flag_is_needed():
    with pytest.raises(ParseError, match="place"):
        given()


def test_a_type_that_no_flag_has_is_refused():
    class Odd(Words):
        table: dict[str, str] = Field(default={}, description="a table")

    with pytest.raises(TypeError, match="dict"):
        arguments(Odd)


def test_a_flag_that_the_record_does_not_know_is_a_request_error(capsys):
    def few(flags: Few) -> None:
        """Do little."""

    with pytest.raises(Exit) as ended:
        VerbTask(verb(few))(Context(), place="here", palce="there")
    assert ended.value.code == RequestError.exit_code
    assert "Did you mean place?" in capsys.readouterr().err


def test_a_verb_is_called_by_its_functions_name():
    def list_(flags: JsonFlag) -> None:
        """Show."""

    assert verb(list_).name == "list"
    assert isinstance(verb(list_), Verb)
    assert verb(list_).__doc__ == "Show."


@pytest.mark.parametrize("as_json", [True, False])
def test_a_document_is_shown_once(capsys, as_json: bool):
    document = Shown(schema="trainwright/shown/1", path="a")
    emit(document, lambda each: f"path {each.path}", as_json=as_json)
    out = capsys.readouterr().out
    want: Any = {"schema": "trainwright/shown/1", "path": "a"}
    assert (json.loads(out) == want) if as_json else (out == "path a\n")


def test_a_name_that_is_not_utf8_can_be_shown(capsys):
    emit(Shown(schema="s", path="m\udcff/é"), lambda each: each.path, as_json=True)
    assert json.loads(capsys.readouterr().out)["path"] == "m\\udcff/é"
