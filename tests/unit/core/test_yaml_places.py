"""The lines of a YAML file that errors and findings name, and its values as they were typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.core.yaml_places import yaml_line, yaml_place, yaml_texts

YAML = """\
# a comment
name: a
rows:
  - {b: 1}
  - c: 2
    d: {e: 3}
"""


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        *((("name",), 2), (("rows",), 3), (("rows", 0), 4), (("rows", 1, "c"), 5), (("rows", 1, "d", "e"), 6)),
        *(((), None), (("nothing",), None), (("rows", 1, "nothing"), 5), (("name", "nothing"), 2)),
    ],
)
def test_a_value_of_yaml_has_the_line_of_its_key(tmp_path: Path, keys: tuple[object, ...], line: int | None) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(YAML)
    assert yaml_line(path, keys) == line
    assert yaml_place(path, keys) == (str(path) if line is None else f"{path}:{line}")


@pytest.mark.parametrize(
    ("key", "texts"), [("a", {"b": "010", "c": "1.10", "d": "x"}), ("b", {}), ("c", {}), ("nothing", {})]
)
def test_values_of_yaml_are_text_as_they_were_typed(tmp_path: Path, key: str, texts: dict[str, str]) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("a: {b: 010, c: 1.10, d: 'x', e: [1]}\nb: [1]\nc: 1\n")
    assert yaml_texts(path, key) == texts
