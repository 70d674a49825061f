"""The last net: a fault that no verb foresees ends in one line, an exit code and a file for the report."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import sys
from pathlib import Path

import pytest
from invoke.context import Context
from invoke.exceptions import Exit

from tests.support.tries import Try
from trainwright.__main__ import run
from trainwright.cli import flags as flagging
from trainwright.cli import program
from trainwright.cli.flags import JsonFlag
from trainwright.cli.tasks import VerbTask
from trainwright.core import errors

ROOT = Path(__file__).resolve().parents[3]


class Unforeseen(Exception):
    """What no verb expects."""


def _failing(monkeypatch: pytest.MonkeyPatch, fault: BaseException) -> None:
    """Let ``list`` fail."""
    from trainwright.catalog import listing

    def fail(*_: object, **__: object) -> None:
        raise fault

    monkeypatch.setattr(listing, "lines", fail)


def test_a_fault_of_ours_is_one_line_and_a_file(attempt, monkeypatch, tmp_path):
    _failing(monkeypatch, Unforeseen("https://bob:S3CRET@host/ went wrong\nand more"))
    tried = attempt(Try("list --json", 70, "Unforeseen"))
    document = json.loads(tried.out)
    assert (document["error"], document["exit_code"]) == ("internal", 70)
    (report,) = (tmp_path / "state").glob("crash-*.log")
    assert document["report"] == str(report)
    assert str(report) in tried.err
    text = report.read_text()
    assert all(word in text for word in ("Traceback", "Unforeseen", "'list', '--json'", sys.version.split()[0]))
    assert "S3CRET" not in text + tried.err + tried.out
    assert stat.S_IMODE(report.stat().st_mode) == 0o600


def test_where_the_state_folder_cannot_be_written_the_report_goes_elsewhere(attempt, monkeypatch, tmp_path):
    _failing(monkeypatch, Unforeseen())
    attempt(Try("list", 70, "scratch/crash-", env={"TRAINWRIGHT_STATE": "/proc/trainwright"}))
    assert list((tmp_path / "scratch").glob("crash-*.log"))


def test_the_traceback_is_shown_to_who_asks(monkeypatch, capsys, tmp_path):
    _failing(monkeypatch, Unforeseen())
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("TRAINWRIGHT_DEBUG", "1")
    assert run(["list"]) == 70
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("fault", [MemoryError(), RecursionError(), ValueError("\x1b[31m"), ConnectionResetError()])
def test_every_exception_is_caught(fault, attempt, monkeypatch):
    _failing(monkeypatch, fault)
    attempt(Try("list", 70, type(fault).__name__))


@pytest.mark.parametrize("fault", [KeyboardInterrupt()])
def test_an_interrupted_verb(fault, attempt, monkeypatch):
    _failing(monkeypatch, fault)
    attempt(Try("list", 130, "interrupted"))


@pytest.mark.parametrize(
    ("number", "path", "code", "says"),
    [
        (errno.ENOSPC, "/x/record.json", 5, "disk is full"),
        (errno.EDQUOT, "/x/record.json", 5, "disk is full"),
        (errno.ENOSPC, None, 5, "disk is full"),
        (errno.EACCES, "{state}/record.json", 2, "TRAINWRIGHT_STATE"),
        (errno.EROFS, "{cache}/x", 2, "TRAINWRIGHT_CACHE"),
        (errno.EACCES, "/x/train.py", 2, "ls -ld /x/train.py"),
        (errno.EROFS, "/x/train.py", 2, "/x/train.py"),
        (errno.ENAMETOOLONG, "/x/aaa", 2, "255"),
        (errno.EISDIR, "/x", 2, "/x"),
        (errno.ENOTDIR, "/x/y", 2, "is a file"),
        (errno.EEXIST, "/etc/passwd", 2, "Name a folder"),
        (errno.ENOENT, "/x", 2, "/x"),
        (errno.EMFILE, None, 2, "ulimit"),
        (errno.EIO, None, 2, "dmesg"),
        (errno.ECONNREFUSED, None, 70, "ConnectionRefusedError"),
    ],
)
def test_the_remedy_belongs_to_the_fault(number, path, code, says, attempt, monkeypatch, tmp_path):
    where = path and path.replace("{state}", str(tmp_path / "state")).replace("{cache}", str(tmp_path / "cache"))
    _failing(monkeypatch, OSError(number, os.strerror(number), where))
    tried = attempt(Try("list", code, says))
    named = "TRAINWRIGHT_" in tried.err
    assert named == ("TRAINWRIGHT_" in says)
    assert "half-made" not in tried.err


def test_plain_invoke_ends_with_the_code_of_the_fault(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path / "state"))

    def breaks(flags: JsonFlag) -> None:
        raise Unforeseen

    with pytest.raises(Exit) as ended:
        VerbTask(flagging.verb(breaks))(Context(), json=True)
    assert ended.value.code == 70
    assert json.loads(capsys.readouterr().out)["error"] == "internal"


def test_the_page_of_exit_codes_names_every_one():
    page = (ROOT / "docs" / "exit-codes.md").read_text()
    told = dict(re.findall(r"^\| (\d+) \| `(\w+)` \|", page, re.MULTILINE))
    kinds = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.Failure)]
    assert told == {str(each.exit_code): each.kind for each in kinds if each is not errors.Failure}
    assert f"| {program.INTERRUPTED} |" in page
