"""Files that are read once while they stay as they are, and the lines that errors name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainwright.core.data_files import read_text, toml_line, while_unchanged
from trainwright.core.errors import RequestError


def test_a_file_is_read_again_only_when_it_has_changed(tmp_path: Path) -> None:
    asked: list[Path] = []

    @while_unchanged
    def read(path: Path) -> str:
        asked.append(path)
        return read_text(path)

    path, other = tmp_path / "a", tmp_path / "b"
    path.write_text("one")
    assert (read(path), read(path), len(asked)) == ("one", "one", 1)
    path.write_text("three")
    assert (read(path), len(asked)) == ("three", 2)
    before = path.stat()
    path.write_text("seven")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert (read(path), len(asked)) == ("seven", 3), "of the same size"
    other.write_text("eight")
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    other.replace(path)
    assert (read(path), len(asked)) == ("eight", 4), "of the same size and time"
    path.unlink()
    with pytest.raises(RequestError):
        read(path)


TOML = """\
size = 1
[ "image" ]
 size = 2
[image.set]
size = 3
[[image]]
size = 4
"""


def test_a_key_of_toml_has_the_line_in_its_table() -> None:
    assert toml_line(TOML, "image", "size") == 3
    assert toml_line(TOML, "image", "other") is None
    assert toml_line(TOML, "aws", "size") is None
