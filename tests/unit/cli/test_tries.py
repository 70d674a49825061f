"""The table of tries itself: it fails where it should."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import tries as hostile
from tests.support.tries import Link, Try
from trainwright.cli import program


@pytest.mark.parametrize(
    "row",
    [
        Try("list --framework pytorch", 0, "2.6.0"),
        Try("list --json", 0, "trainwright/list/1"),
        Try("plan --framework pytorhc", 2, "pytorch"),
        Try("plan --framework pytorch --cuda cu999 --json", 3, "conflict"),
        Try("build --framework pytorch --cuda cpu --json", 4, "engine"),
        Try("diagnose -", 0, "CUDA", stdin="RuntimeError: CUDA out of memory. Tried to allocate 2 GiB\n"),
        Try("diagnose log", 0, "unknown", files={"log": Link("{sentinel}/README.md")}),
    ],
    ids=str,
)
def test_what_is_right_passes(row, attempt):
    attempt(row)


def _prints(text: str) -> Callable[[list[str]], int]:
    def run(words: list[str], *_: object, **__: object) -> int:
        print(text, file=sys.stderr)
        return 2

    return run


def _acts(act: Callable[[Path], object]) -> Callable[[list[str]], int]:
    def run(words: list[str], *_: object, **__: object) -> int:
        act(Path.cwd().parent)
        return 2

    return run


def _in_state(parent: Path) -> None:
    (parent / "state").mkdir()
    (parent / "state" / "crash-1.log").touch()


def _by_descriptor(parent: Path) -> None:
    folder = os.open(parent / "home", os.O_RDONLY)
    try:
        os.mkdir("new", dir_fd=folder)
        os.rmdir("new", dir_fd=folder)
    finally:
        os.close(folder)


PLANTED = {
    "a traceback": (_prints("Traceback (most recent call last):"), "Traceback"),
    "a terminal escape": (_prints("\x1b[31mred"), "x1b"),
    "an 8-bit escape": (_prints("\x9b31mred"), "x9b"),
    "a text that is turned around": (_prints("\u202egpj.exe"), "u202e"),
    "an endless message": (_prints("a" * 30_000), "30001 characters"),
    "another exit code": (lambda *_, **__: 1, "exit code 1"),
    "a deletion": (_acts(lambda parent: shutil.rmtree(parent / "sentinel" / ".git")), "sentinel"),
    "a change": (_acts(lambda parent: (parent / "sentinel" / "README.md").write_text("x")), "sentinel"),
    "a new file": (_acts(lambda parent: (parent / "sentinel" / ".gitignore").write_text("*")), "gitignore"),
    "a file in the home folder": (_acts(lambda parent: (parent / "home" / ".docker").mkdir()), "home"),
    "a file beside the folders": (_acts(lambda parent: (parent / "astray").touch()), "written outside"),
    "a moved folder": (_acts(lambda parent: (parent / "home").rename(parent / "moved")), "exit code"),
    "a folder that comes and goes": (_acts(_by_descriptor), "written outside"),
    "a report without a fault": (_acts(_in_state), "exit code 2"),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_what_is_wrong_fails(planted, attempt, monkeypatch):
    run, said = PLANTED[planted]
    monkeypatch.setattr(program, "run", run)
    with pytest.raises((AssertionError, FileNotFoundError)) as failed:
        attempt(Try("list", 2))
    assert said in str(failed.value)


def test_a_missing_word_fails(attempt):
    with pytest.raises(AssertionError, match="'tensorflow' is missing"):
        attempt(Try("plan --framework pytorhc", 2, "tensorflow"))


def test_a_failure_that_is_no_document_fails(attempt, monkeypatch):
    monkeypatch.setattr(program, "run", _prints("error: no document"))
    with pytest.raises(ValueError, match="Expecting value"):
        attempt(Try("list --json", 2))


def test_too_much_time_fails(tmp_path, monkeypatch, capfd):
    def busy(*_: object, **__: object) -> int:
        end = time.process_time() + 0.05
        while time.process_time() < end:
            pass
        return 0

    monkeypatch.setattr(program, "run", busy)
    with pytest.raises(AssertionError, match="processor time"):
        hostile.attempt(Try("list", 0), tmp_path, monkeypatch, capfd, limit=0.04)
