"""`build` and `init` without an image: a person at a terminal is asked, a script gets the error."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.in_process import call
from tests.support.terminal import on_a_terminal
from trainwright.catalog.catalog import load_catalog
from trainwright.verbs import ask


@pytest.fixture(autouse=True)
def _no_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path / "state"))


@pytest.fixture
def somebody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The standard input of these tests is typed by a person."""
    monkeypatch.setattr(ask, "somebody_answers", lambda: True)


@pytest.mark.usefixtures("somebody")
def test_enter_takes_the_first_and_a_wrong_answer_is_asked_again(tmp_path: Path) -> None:
    done = call("init", cwd=tmp_path, stdin=b"\ncu125\ncu124\n")
    assert "cu125: not among them" in done.stderr
    assert "./invoke init pytorch:cu124" in done.stderr
    written = (tmp_path / "trainwright.toml").read_text()
    assert 'framework = "pytorch"' in written and 'cuda = "cu124"' in written


@pytest.mark.usefixtures("somebody")
def test_only_what_is_missing_is_asked_for(tmp_path: Path) -> None:
    done = call("init", "--cuda", "cpu", cwd=tmp_path, stdin=b"tensorflow\n")
    assert "CUDA:" not in done.stderr
    written = (tmp_path / "trainwright.toml").read_text()
    assert 'framework = "tensorflow"' in written and 'cuda = "cpu"' in written


@pytest.mark.usefixtures("somebody")
def test_what_is_offered_is_still_maintained(tmp_path: Path) -> None:
    done = call("init", cwd=tmp_path, stdin=b"x\nx\nx\n")
    lines = [entry.line for entry in load_catalog().lines]
    offered = set(done.stderr.partition("framework: ")[2].partition("\n")[0].split(", "))
    assert offered == {line.framework for line in lines if line.status in ("supported", "unmaintained")}
    assert (done.returncode, "no framework was picked" in done.stderr) == (2, True)
    assert not (tmp_path / "trainwright.toml").exists()


@pytest.mark.usefixtures("somebody")
def test_a_document_asks_nobody(tmp_path: Path) -> None:
    assert "--framework is missing" in call("build", "--json", cwd=tmp_path, stdin=b"pytorch\n").stderr


def test_a_terminal_is_somebody(tmp_path: Path) -> None:
    shown = on_a_terminal(["build"], typed="\x04", cwd=tmp_path)  # end of input
    assert "framework: pytorch, " in shown
    assert "no framework was picked" in shown


def test_nobody_is_asked_where_nobody_answers(tmp_path: Path) -> None:
    done = call("init", cwd=tmp_path, stdin=b"pytorch\ncpu\n")
    assert done.returncode == 2
    assert "--framework is missing" in done.stderr
    assert list(tmp_path.iterdir()) == []
