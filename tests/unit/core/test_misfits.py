"""Data that does not fit a record: all that is wrong with it is named, and nothing is coerced."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from trainwright.core.checked import Checked
from trainwright.core.errors import RequestError
from trainwright.core.fields import Name, Prose, each_once
from trainwright.core.misfits import misfits
from trainwright.core.records import (
    Document,
    Field,
    MisfitError,
    Record,
    Words,
    parse_record,
    read_record,
)


class Leaf(Record):
    """A record in a record."""

    name: Name
    kind: Literal["one", "two"] = "one"

    def __post_init__(self) -> None:
        if self.name == "forbidden":
            raise ValueError("that name is taken")


class Tree(Record):
    """A record with a field of every kind."""

    leaf: Leaf
    leaves: Checked[tuple[Leaf, ...], each_once(lambda leaf: leaf.name, "leaf")] = ()
    table: dict[Name, Prose] = {}
    count: Annotated[int, Meta(ge=1, le=9)] = 1
    share: Annotated[float, Meta(gt=0)] = 0.5
    on: bool = False
    place: Path | None = None
    with_: str | None = Field(default=None, alias="with", description="more")
    some: Annotated[tuple[str, ...], Meta(min_length=1)] = ("a",)


GOOD: dict[str, Any] = {"leaf": {"name": "a"}}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"leaf": 3}, "leaf: must be a mapping"),
        ({"leaf": None}, "leaf: is empty; it must be a mapping"),
        ({"leaf": {"name": "A B"}}, "leaf.name: must be a name of lower-case letters, digits, - and _"),
        (
            {"leaf": {"name": 3.1}},
            "leaf.name: 3.1 is a number there; versions and days are text, so",
        ),
        ({"leaf": {"nmae": "a", "name": "a"}}, "unknown key 'leaf.nmae'. Did you mean name?"),
        ({"leaf": {"name": "a\n"}}, "leaf.name: must be a name of lower-case letters, digits, - and _"),
        ({"leaf": {"name": ""}}, "leaf.name: is empty; it must be a name of lower-case letters"),
        ({"leaf": {"name": "forbidden"}}, "leaf: that name is taken"),
        ({"leaf": {"name": "a", "kind": "three"}}, "leaf.kind: must be 'one' or 'two'"),
        ({"leaves": [{"name": "a"}, {"name": "a"}]}, "leaves: duplicate leaf a"),
        ({"leaves": {"name": "a"}}, "leaves: must be a list"),
        ({"leaves": [{"name": "a"}, {}]}, "key 'leaves.1.name' is missing"),
        ({"table": {"A": "x"}}, "table.A.[key]: must be a name of lower-case letters"),
        ({"table": {"a": "x\x1b"}}, "table.a: "),
        ({"table": []}, "table: is empty; it must be a mapping"),
        ({"count": "1"}, "count: must be a whole number"),
        ({"count": 1.5}, "count: must be a whole number"),
        ({"count": True}, "count: must be a whole number"),
        ({"count": 0}, "count: must be at least 1"),
        ({"count": 10}, "count: must be at most 9"),
        ({"share": 0}, "share: must be more than 0"),
        ({"on": "yes"}, "on: must be true or false"),
        ({"place": 3}, "place: must be text"),
        ({"with_": "a"}, "unknown key 'with_'. Did you mean with?"),
        ({"some": []}, "some: is empty"),
        ({"\ud800": 1}, "unknown key"),
        ({3: 1}, "unknown key '3'"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(data: dict[Any, Any], says: str) -> None:
    with pytest.raises(RequestError) as refused:
        parse_record(Tree, GOOD | data, "tree.yaml")
    assert refused.value.message.startswith(f"tree.yaml: {says}")
    assert refused.value.message.count(";") <= says.count(";")


def test_everything_that_is_wrong_is_named() -> None:
    data = {"leaf": {"name": "A", "kind": "three"}, "count": 0, "colour": "red"}
    with pytest.raises(RequestError) as refused:
        parse_record(Tree, data, "tree.yaml")
    assert [part.split(":")[0] for part in refused.value.message.removeprefix("tree.yaml: ").split("; ")] == [
        "leaf.name",
        "leaf.kind",
        "count",
        "unknown key 'colour'. Did you mean count?",
    ]


def test_several_unknown_keys_are_one_sentence() -> None:
    with pytest.raises(RequestError) as refused:
        parse_record(Tree, {"leaf": {"name": "a"}, "zzz": 1, "qqq": 2}, "tree.yaml")
    assert ".;" not in refused.value.message
    assert "unknown key 'zzz'" in refused.value.message and "; unknown key 'qqq'" in refused.value.message


def test_a_record_made_in_python_is_checked_as_well() -> None:
    with pytest.raises(MisfitError, match="count: must be at least 1"):
        Tree(leaf=Leaf(name="a"), count=0)
    assert Tree(leaf=Leaf(name="a"), with_="b").with_ == "b"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.dates(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["leaf", "leaves", "name", "table", "with", "x"]), inner, max_size=3)
        ),
    )
)
def test_any_data_fits_or_is_explained(data: object) -> None:
    """What msgspec refuses has a fault that is named, and the other way round."""
    found = misfits(Tree, data)
    try:
        read_record(Tree, data)
    except MisfitError as wrong:
        assert found == wrong.found
    else:
        assert not found


def test_what_is_usual_is_left_out() -> None:
    tree = Tree(leaf=Leaf(name="a"), place=Path("/x"), some=("b",))
    assert tree.unusual() == {"leaf": {"name": "a"}, "place": "/x", "some": ["b"]}
    assert read_record(Tree, tree.as_json()) == tree


class Shown(Document):
    """A document with names of files."""

    names: tuple[str, ...]
    table: dict[str, Any]


def test_a_name_of_a_file_that_is_not_utf8_is_quoted() -> None:
    shown = Shown(names=("m\udcff", "é"), table={"a": ["\udcff"]})
    assert msgspec.json.decode(msgspec.json.encode(shown)) == {"names": ["m\\udcff", "é"], "table": {"a": ["\\udcff"]}}


class Red(Words):
    """Some words."""

    red: str = Field(default="", description="the red one")

    @property
    def loud(self) -> str:
        """What is red, loudly."""
        return self.red.upper()


class Blue(Words):
    """Other words."""

    blue: bool = Field(default=False, alias="azure", description="the blue one")


class Both(Red, Blue):
    """The words of both."""

    own: int = Field(default=1, description="its own")


def test_words_are_put_together() -> None:
    both = read_record(Both, {"red": "a", "azure": True, "own": 2})
    assert (both.red, both.blue, both.own, both.loud) == ("a", True, 2, "A")
    assert Both.descriptions == {"red": "the red one", "blue": "the blue one", "own": "its own"}
