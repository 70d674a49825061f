"""What is seen of a rehearsal while it runs."""

from __future__ import annotations

import io

import pytest

from trainwright.rehearse.log_view import RehearsalView, doing


def test_the_view_prefixes_every_line_and_survives_a_broken_pipe() -> None:
    out = io.StringIO()
    view = RehearsalView(("algo-1", "algo-10"), out)
    view.line("algo-1", "first")
    view.state("algo-10", "started")
    view.close()
    assert out.getvalue() == "algo-1  | first\nalgo-10 | · started\n"

    class Broken(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    RehearsalView(("algo-1",), Broken()).line("algo-1", "lost")


def test_a_terminal_has_a_live_line_and_coloured_prefixes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    out = Terminal()
    view = RehearsalView(("algo-1", "algo-2"), out)
    view.state("algo-1", "started")
    view.line("algo-2", "INFO     Invoking user script")
    view.line("algo-2", "loss 0.1")
    view.close()
    view.close()
    text = out.getvalue()
    assert "\x1b[35malgo-2 | \x1b[0mloss 0.1" in text
    assert "running the script" in text
    assert "\x1b[36m  algo-1 \x1b[0mstarted" in text


def test_what_a_host_does_is_told_from_its_log() -> None:
    assert doing("INFO     Waiting for MPI workers to establish their SSH connections").startswith("waiting")
    assert doing("loss 0.1") == ""
