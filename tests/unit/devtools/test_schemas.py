"""The JSON schema of a record says what the record takes, in the words of draft 2020-12."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest

from devtools.schemas import schema_of
from trainwright.core.fields import Name, Statement
from trainwright.core.records import Field, Record


class Twig(Record):
    """A part."""

    place: Path | None = None
    said: Statement


class Tree(Record):
    """A whole."""

    twigs: dict[Name, Twig] = Field(alias="from", description="by name")


SCHEMA = schema_of(Tree)


def test_what_people_and_editors_read_is_in_it() -> None:
    assert SCHEMA["description"] == "A whole."
    assert SCHEMA["properties"]["from"]["description"] == "by name"
    assert SCHEMA["properties"]["from"]["propertyNames"]["pattern"].endswith("$")
    assert SCHEMA["$defs"]["Twig"]["description"] == "A part."


@pytest.mark.parametrize(
    ("data", "valid"),
    [
        ({"from": {"a": {"said": "x", "place": "/a"}}}, True),
        ({"from": {"a": {"said": ""}}}, False),
        ({"from": {"A": {"said": "x"}}}, False),
        ({"from": {"a": {"said": "x", "place": 3}}}, False),
        ({"from": {"a": {"said": "x", "more": 3}}}, False),
        ({"twigs": {}}, False),
    ],
)
def test_it_takes_what_the_record_takes(data: dict[str, Any], valid: bool) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert jsonschema.Draft202012Validator(SCHEMA).is_valid(data) is valid
