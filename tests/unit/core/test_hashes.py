"""Remembered checksums: taken anew where the file is another one, whatever its size and time of change say."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from trainwright.core import hashes
from trainwright.core.hashes import KnownHashes


@pytest.fixture
def file(tmp_path: Path, own_places: None) -> Path:
    path = tmp_path / "big.whl"
    path.write_bytes(b"old")
    return path


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_a_checksum_is_taken_once(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert KnownHashes().sha256(file) == sha256(b"old")

    def again(*_: object) -> None:
        raise AssertionError("the file was read again")

    monkeypatch.setattr(hashes.hashlib, "file_digest", again)
    assert KnownHashes().sha256(file) == sha256(b"old")


@pytest.mark.parametrize("how", ["in place", "replaced"])
def test_a_file_whose_time_was_set_back_is_read_again(file: Path, how: str) -> None:
    KnownHashes().sha256(file)
    before = file.stat()
    if how == "replaced":
        new = file.with_name("new")
        new.write_bytes(b"new")
        new.replace(file)
    else:
        file.write_bytes(b"new")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = file.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert KnownHashes().sha256(file) == sha256(b"new")


@pytest.mark.parametrize("row", [[3, 1, "x"], "x", None, 7, [], ["x"], {}])
def test_what_an_earlier_version_or_a_fault_left_is_no_answer(file: Path, tmp_path: Path, row: object) -> None:
    KnownHashes()
    (tmp_path / "cache/wheelhouse.json").write_text(json.dumps({str(file): row}))
    assert KnownHashes().sha256(file) == sha256(b"old")


def test_a_broken_memory_is_no_memory(file: Path, tmp_path: Path) -> None:
    KnownHashes()
    for text in ("[" * 100_000, "[]", "7", '{"a": ', "\x00"):
        (tmp_path / "cache/wheelhouse.json").write_text(text)
        assert KnownHashes().sha256(file) == sha256(b"old")
