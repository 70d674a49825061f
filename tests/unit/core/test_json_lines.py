"""JSON of files that are kept: the same value, in few lines that are not too long."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trainwright.core.layout import WIDTH, json_lines

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=60),
    lambda inside: st.lists(inside, max_size=6) | st.dictionaries(st.text(max_size=20), inside, max_size=6),
    max_leaves=30,
)


@pytest.mark.hypothesis
@example({"b": ["é" * 40, "\n" * 40, {}], "a": {"x": [1] * 60}})
@given(VALUES)
def test_the_value_is_kept_and_its_keys_are_in_order(value):
    read = json.loads(json_lines(value), object_pairs_hook=lambda pairs: (sorted(pairs) == pairs, dict(pairs)))
    assert json.loads(json_lines(value)) == value
    assert "(False" not in repr(read)


def test_parts_share_a_line_as_long_as_they_fit():
    names = [f"test_{number:02}" for number in range(40)]
    lines = json_lines({"tests": names, "a": 1, "b": 2}).splitlines()
    assert lines[:3] == ["{", ' "a": 1, "b": 2,', ' "tests": [']
    full = lines[3:-3]  # one more name would not fit into these
    assert full and all(len(line) <= WIDTH < len(f'{line} "test_00",') for line in full)
    assert json_lines({"a": [1, 2]}) == '{"a": [1, 2]}'


def test_what_takes_several_lines_shares_none():
    lines = json_lines({"b": 1, "x": {"said": ["a" * 70, "b" * 70]}, "y": 1}).splitlines()
    assert lines[:3] == ["{", ' "b": 1,', ' "x": {']
    assert lines[-3:] == [" },", ' "y": 1', "}"]
