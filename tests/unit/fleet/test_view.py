"""What a user sees of a run: lines, JSON, a live table; never on standard output, never an exception."""

from __future__ import annotations

import io
import json

import pytest

from tests.support.fleet_units import When, Yard, fleet, work
from trainwright.fleet.run_folder import UnitError, UnitProgress
from trainwright.fleet.view import PlainRun, last_lines, make_view, told


class Terminal(io.StringIO):
    """A terminal that keeps all it was sent."""

    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _silent_stdout(capsys):
    yield
    assert capsys.readouterr().out == ""


def watched(yard: Yard, mode: str, stream: io.StringIO, until: str = "") -> list[str]:
    """A run whose second line fails while the first one is built, until the stream holds a text; what was said.

    The first line is built only after the view has reported the failure of the second.
    """
    said: list[str] = []
    view = make_view(mode, said.append, 2, stream)
    yard.tell("a", "hang")
    yard.tell("b", "fail 8 source")

    ended: list[str] = []

    def look() -> None:
        if "b" in ended and (not until or until in stream.getvalue()):
            yard.go()

    waiting = When(yard, look)

    class Both:
        def __getattr__(self, name):
            def tell(*words):
                getattr(view, name)(*words)
                getattr(waiting, name)(*words)
                if name == "ended":
                    ended.append(words[0].name)

            return tell

    run, _ = fleet(work("a"), work("b"), view=Both())
    run.run()
    view.close()
    view.close()
    return said


def test_lines_say_what_starts_and_ends(yard):
    said = watched(yard, "auto", io.StringIO())
    assert said[:2] == ["a: builds", "b: builds"]
    assert [line.split("   (")[1] for line in said if "   (" in line] == [
        "0 of 2 built, 1 failed)",
        "1 of 2 built, 1 failed)",
    ]
    assert said[2].startswith("b: failed after 0.") and "exit code 8: b is wrong" in said[2]
    assert said[3].startswith("its log is ") and said[3].endswith("lines/b.log")
    assert said[4].startswith("a: built in ") and ", 1.2 MB" in said[4]


def test_json_has_an_object_for_each_change(yard):
    stream = io.StringIO()
    assert watched(yard, "json", stream) == []
    rows = [json.loads(line) for line in stream.getvalue().splitlines()]
    events = [(row["event"], row["name"]) for row in rows]
    # Two threads start the lines, so either may be first.
    assert [event for event in events if event != ("started", "a")] == [
        ("started", "b"),
        ("failed", "b"),
        ("built", "a"),
    ]
    assert ("started", "a") in events[:-1]
    assert rows[events.index(("failed", "b"))]["error"]["exit_code"] == 8


def test_a_terminal_shows_what_is_built_now_with_its_last_line(yard, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    assert watched(yard, "auto", stream, until="[step of a] RUN something") == []
    text = stream.getvalue()
    assert "0 of 2 built, 1 failed" in text
    assert "✗ b: failed after" in text and "✓ a: built in" in text
    assert "\x1b[1;31m0 of 2" not in text  # its colour is its own


def test_nothing_is_shown_if_nothing_is_wanted(yard):
    stream = io.StringIO()
    assert watched(yard, "none", stream) == [] and stream.getvalue() == ""


def test_a_stream_that_breaks_does_not_end_the_run(yard):
    stream = io.StringIO()
    stream.close()
    assert watched(yard, "json", stream) == []


def test_a_terminal_without_unicode_gets_lines():
    stream = Terminal()
    stream.encoding = "ascii"
    assert isinstance(make_view("live", str, 1, stream), PlainRun)


def test_the_last_lines_of_a_log_are_read_from_its_end(tmp_path):
    log = tmp_path / "log"
    assert last_lines(log, 3) == []
    log.write_bytes(b"first\n" + b"x" * 100_000 + b"\n\xff broken\n\n  \nlast\n")
    assert last_lines(log, 2) == ["\N{REPLACEMENT CHARACTER} broken", "last"]


def test_a_reason_is_cut_to_its_first_line():
    error = UnitError(exit_code=5, error="build", message="first\nsecond")
    unit = UnitProgress(name="a", kind="line", plan="", request="", state="failed", seconds=65, error=error)
    assert told(unit) == "a: failed after 1m05s, exit code 5: first"
