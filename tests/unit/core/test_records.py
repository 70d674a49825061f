"""Data files: whatever is in them, there is a value or one error that names the file and, where known, the line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trainwright.core.data_files import MAX_BYTES, parse_json, parse_toml, parse_yaml, read_json, read_state, read_yaml
from trainwright.core.errors import RequestError

DEEP = 200_000
BOMB = "a: &a [1]\n" + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in pairwise("abcdefghij"))
MERGES = "a: &a {x: 1, y: 2}\n" + "".join(
    f"{b}: &{b} {{<<: [{', '.join([f'*{a}'] * 9)}], {b}: 1}}\n" for a, b in pairwise("abcdefghi")
)
YAML = {
    "flow lists": "[" * DEEP,
    "flow mappings": "{a: " * DEEP,
    "block lists": "- " * DEEP,
    "block keys": "? " * DEEP,
    "block lists behind a byte order mark": "a: 1\n\ufeff" + "- " * DEEP,
    "block lists behind an odd line break": "a:\u2028" + "- " * DEEP,
    "indents": "\n".join(" " * depth + "a:" for depth in range(300)),
    "brackets that strings close": "[" + "']', [" * DEEP,
    "month": "as_of: 2022-13-45",
    "int": "a: !!int abc",
    "float": "a: !!float abc",
    "bool": "a: !!bool abc",
    "timestamp": "a: !!timestamp abc",
    "digits": "a: " + "9" * 5000,
    "python": "!!python/object/apply:os.system [true]",
    "itself": "a: &a [*a]",
    "merged itself": "a: &a {<<: *a}",
    "unknown alias": "a: *b",
    "bomb": BOMB,
    "key": "a: 1\nb: 2\na: 3",
    "key below": "a:\n  b: 1\n  'b': 2",
    "flow key": "{a: 1, a: 2}",
    "list as a key": "{[a]: 1}",
    "two documents": "a: 1\n---\nb: 2",
    "NUL": "a: \x00",
    "open": "a: [1, 2",
    "merge of a number": "<<: 1",
    "surrogate": "a: \ud800",
}
JSON = {
    "lists": "[" * DEEP,
    "objects": '{"a":' * DEEP,
    "levels": "[" * 150 + "]" * 150,
    "digits": "9" * 5000,
    "key": '{"a": 1,\n "a": 2}',
    "key below": '[{"a": "\\"{"},\n {"b": [{"c": 1,\n\n "c": 2}]}]',
    "half a pair": '"\\ud800"',
    "cut": '{"a": ',
    "empty": "",
}
TOML = {
    "lists": "a = " + "[" * DEEP,
    "levels": "a = " + "[" * 150 + "]" * 150,
    "dots": "a" + ".a" * DEEP + " = 1",
    "digits": "\na = " + "9" * 5000,
    "date": "a = 2022-13-45",
    "twice": "a = 1\na = 2",
    "cut": "a = ",
}
PARSERS: dict[str, Callable[[str, str], Any]] = {"YAML": parse_yaml, "JSON": parse_json, "TOML": parse_toml}
BROKEN = [
    (form, name, text) for form, rows in zip(PARSERS, (YAML, JSON, TOML), strict=True) for name, text in rows.items()
]


@pytest.mark.parametrize(("form", "text"), [(f, t) for f, _, t in BROKEN], ids=[f"{f}-{n}" for f, n, _ in BROKEN])
def test_what_is_broken_is_one_error(form: str, text: str) -> None:
    with pytest.raises(RequestError) as refused:
        PARSERS[form](text, "some.file")
    assert refused.value.message.startswith("some.file")
    assert len(refused.value.message) < 2000


@pytest.mark.parametrize(
    ("form", "text", "line", "word"),
    [
        ("YAML", YAML["key"], 3, "'a'"),
        ("YAML", YAML["key below"], 3, "'b'"),
        ("YAML", "x: 1\nas_of: 2022-13-45", 2, "2022-13-45"),
        ("YAML", "x: 1\ny: !!int abc", 2, "abc"),
        ("JSON", JSON["key"], 2, "'a'"),
        ("JSON", JSON["key below"], 4, "'c'"),
        ("TOML", TOML["digits"], 2, "digits"),
    ],
)
def test_the_line_and_the_word_are_named(form: str, text: str, line: int, word: str) -> None:
    with pytest.raises(RequestError) as refused:
        PARSERS[form](text, "some.file")
    assert refused.value.message.startswith(f"some.file:{line}: ")
    assert word in refused.value.message


def test_merges_of_merges_do_not_explode() -> None:
    made = parse_yaml(MERGES, "some.file")
    assert made["i"] == {"x": 1, "y": 2} | dict.fromkeys("bcdefghi", 1)


@pytest.mark.parametrize(
    "text",
    [
        "a: &x {b: 1, c: 2}\nd: {<<: *x, b: 3}",
        "a: &x {b: 1}\nc: &y {<<: *x, b: 2}\nd: {<<: [*y, *x], e: 3}",
        "a: [1, 2.5, yes, null, 2022-10-05, 'x']",
        "a: |\n  two\n  lines\nb: >\n  one\n  line\n",
        "",
        "just text",
        "a: &n 1\nb: *n",
    ],
)
def test_values_are_those_of_pyyaml(text: str) -> None:
    assert parse_yaml(text, "some.file") == yaml.safe_load(text)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(values)
def test_json_comes_back(value: object) -> None:
    assert parse_json(json.dumps(value), "some.file") == json.loads(json.dumps(value))
    assert parse_json(json.dumps(value, ensure_ascii=False, indent=1), "some.file") == value


@given(st.text() | st.text(alphabet="[]{}:,-&*!?|>'\"#%@` \nab01<.="))
def test_any_text_is_a_value_or_an_error(text: str) -> None:
    for parse in PARSERS.values():
        try:
            parse(text, "some.file")
        except RequestError as refused:
            assert refused.message.startswith("some.file")


def test_a_device_is_not_read() -> None:
    with pytest.raises(RequestError, match="not a regular file"):
        read_json(Path("/dev/zero"))


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RequestError, match="not a regular file"):
        read_yaml(tmp_path / "pipe")


def test_a_file_is_not_read_without_end(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(RequestError, match="too large"):
        read_json(tmp_path / "large")


@pytest.mark.parametrize(
    ("name", "word"), [("no", "no such file"), (".", "directory"), ("a" * 300, "name too long"), ("a\0b", "file name")]
)
def test_a_path_that_is_none_is_named(tmp_path: Path, name: str, word: str) -> None:
    with pytest.raises(RequestError, match=rf"(?i){word}"):
        read_json(tmp_path / name)


def test_what_is_not_utf8_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes("a: 1\nb: größe\n".encode("latin-1"))
    with pytest.raises(RequestError, match=r"latin\.yaml:2: is not UTF-8"):
        read_yaml(tmp_path / "latin.yaml")


def test_broken_state_is_missing_state(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_bytes(b"\xff{")
    assert read_state(tmp_path / "state.json") is None
    assert read_state(tmp_path / "no.json") is None
    (tmp_path / "state.json").write_text("[1]")
    assert read_state(tmp_path / "state.json") == [1]
