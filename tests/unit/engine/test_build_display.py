"""What a user sees of a build: lines, JSON, a live table; never on standard output, never an exception."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path
from typing import Literal

import pytest
from rich.console import Console

from trainwright.core.layout import duration
from trainwright.engine.build_display import LiveView, PlainView, make_view, rows, short, table_of
from trainwright.engine.buildkit_log import BuildProgress

DATA = Path(__file__).parent / "buildkit"


class Terminal(io.StringIO):
    """A terminal that cannot be resized and keeps all it was sent."""

    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True


def show(sample: str, mode: Literal["auto", "live", "plain", "json", "none"], stream: io.StringIO) -> str:
    progress, view = BuildProgress(), make_view(mode, stream)
    for line in (DATA / f"{sample}.txt").read_text().splitlines():
        progress.feed(line)
        view.update(progress)
    progress.close()
    view.close()
    view.close()
    return stream.getvalue()


@pytest.fixture(autouse=True)
def _silent_stdout(capsys: pytest.CaptureFixture[str]) -> object:
    yield
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("sample", ["plain-cold", "raw-cold"])
def test_lines_say_when_a_step_starts_and_ends(sample: str) -> None:
    lines = show(sample, "auto", io.StringIO()).splitlines()
    metis = [line for line in lines if line.startswith("[metis 2/3] RUN echo configuring")]
    assert len(metis) == 2
    assert metis[1].startswith(metis[0] + " ok 0.")
    assert all(len(line) < 100 for line in lines)
    assert "from the cache" in lines[-1] and lines[-1].split()[1:3] == ["of", "9"]
    assert not any("[internal]" in line for line in lines)


@pytest.mark.parametrize("sample", ["plain-warm", "raw-warm"])
def test_cached_steps_are_folded_into_a_count(sample: str) -> None:
    lines = show(sample, "plain", io.StringIO()).splitlines()
    assert len([line for line in lines if line.endswith("steps from the cache")]) == 1
    assert len(lines) <= 4


@pytest.mark.parametrize("sample", ["plain-fail", "raw-fail"])
def test_a_failed_step_is_said(sample: str) -> None:
    text = show(sample, "plain", io.StringIO())
    assert "[final 5/5] RUN echo about to fail" in text and " FAILED" in text
    assert ", 1 failed, " in text.splitlines()[-1]


def test_json_is_an_object_per_event() -> None:
    events = [json.loads(line) for line in show("raw-fail", "json", io.StringIO()).splitlines()]
    assert [event["event"] for event in events].count("failed") == 1
    failed = next(event for event in events if event["event"] == "failed")
    assert (failed["stage"], failed["step"], failed["log"][-1]) == ("final", 5, "line 30")
    assert events[-1]["event"] == "summary" and events[-1]["failed"] == 1


def test_none_says_nothing() -> None:
    assert show("raw-fail", "none", io.StringIO()) == ""


@pytest.mark.parametrize("sample", ["plain-cold", "raw-fail", "plain-bad"])
def test_a_terminal_gets_a_live_table(sample: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    text = show(sample, "auto", Terminal())
    assert "steps" in text.splitlines()[-1]
    assert ("✓" in text or "✗" in text) == (sample != "plain-bad")
    assert "\x1b[?25h" in text  # the cursor is given back


def test_a_dumb_terminal_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(make_view("auto", Terminal()), PlainView)
    ascii_only = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    assert isinstance(make_view("live", ascii_only), PlainView)


def test_a_running_stage_shows_its_last_line_and_folds_the_rest() -> None:
    progress = BuildProgress(clock=lambda: 50.0)
    for line in (
        "#1 [internal] load build context",
        "#1 DONE 0.1s",
        "#2 [metis 1/3] FROM base",
        "#2 CACHED",
        "#3 [metis 2/3] RUN make",
        "#3 0.1 compiling a.c",
        "#3 0.2 compiling [red]b.c[/red]",
        "#4 [rmm 1/1] FROM base",
        "#4 CACHED",
    ):
        progress.feed(line)
    metis, rmm = rows(progress)
    assert (metis.stage, metis.state, metis.step, metis.what, metis.since) == (
        "metis",
        "running",
        "2/3",
        "RUN make",
        50,
    )
    assert metis.last_line == "compiling [red]b.c[/red]"
    assert (rmm.state, rmm.step, rmm.what) == ("cached", "1/1", "1 from the cache")
    progress.feed("#3 DONE 1.0s")
    assert next((row.state, row.step, row.seconds) for row in rows(progress)) == ("waiting", "2/3", 1.0)
    progress.feed("#5 [metis 3/3] RUN make install")
    progress.feed("#5 DONE 0.5s")
    assert next((row.state, row.step, row.seconds) for row in rows(progress)) == ("done", "3/3", 1.5)
    view = make_view("live", Terminal())
    assert isinstance(view, LiveView)
    view.update(progress)
    view.close()


RECORDED = Path(__file__).resolve().parents[3] / "devtools" / "recorded" / "build.txt"


def recorded() -> BuildProgress:
    """A build of a CUDA image in which many stages run, one of them a compiler with long lines."""
    now = [0.0]
    progress = BuildProgress("plain", clock=lambda: now[0])
    for line in RECORDED.read_text().splitlines():
        moment, _, text = line.partition(" ")
        now[0] = float(moment)
        progress.feed(text)
    progress.feed(f"#28 15.0 /usr/bin/cc {'-I/src/metis/build/Linux-x86_64/libmetis ' * 9}")
    return progress


@pytest.mark.parametrize("width", [60, 80, 110, 200])
@pytest.mark.parametrize("sample", ["build", "plain-cold", "plain-fail", "raw-warm"])
def test_the_table_keeps_its_columns_whatever_a_line_holds(sample: str, width: int) -> None:
    progress = recorded() if sample == "build" else BuildProgress()
    if sample != "build":
        for line in (DATA / f"{sample}.txt").read_text().splitlines():
            progress.feed(line)
    known = list(rows(progress))
    console = Console(width=width, file=io.StringIO())
    console.print(table_of(known, now=116.0))
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    told = [line for line in lines if not line.startswith(" " * 3)]
    assert len(told) == len(known), "a row of the table is a line of the terminal"
    for line, row in zip(told, known, strict=True):
        assert line.startswith(("✓", "…", "·", "✗", "-", " ")), line
        words = line.split()
        assert row.stage in line
        assert row.step in words
        if row.seconds or row.since is not None:
            assert duration(row.seconds if row.since is None else 116.0 - row.since) in words
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("sample", ["plain-cold", "raw-cold", "plain-warm", "raw-warm"])
def test_every_stage_of_a_finished_build_has_its_tick(sample: str) -> None:
    progress = BuildProgress()
    for line in (DATA / f"{sample}.txt").read_text().splitlines():
        progress.feed(line)
    assert {row.state for row in rows(progress)} <= {"done", "cached"}


def wheels(*, until: str = "") -> BuildProgress:
    """A build that fetches wheels in several stages (an excerpt of a build of pytorch:cpu), up to a line."""
    progress = BuildProgress()
    for line in (DATA / "plain-wheels.txt").read_text().splitlines():
        progress.feed(line)
        if until and line.endswith(until):
            break
    return progress


@pytest.mark.parametrize(
    ("until", "stage", "what"),
    [
        # uv's own numbers in MiB: 2.1 + 33.7 + 4.5 + 1.4 + 15.8 = 57.5 to fetch, of which 1.4, then 8.0 are there.
        ("Downloading botocore (15.8MiB)", "sagemaker-toolkit-layer", "0 B of 60.3 MB, 0 of 5 wheels"),
        ("Downloaded pynacl", "sagemaker-toolkit-layer", "1.5 MB of 60.3 MB, 1 of 5 wheels"),
        ("Downloaded cryptography", "sagemaker-toolkit-layer", "8.4 MB of 60.3 MB, 3 of 5 wheels"),
        ("Downloaded networkx", "pytorch-layer", "4.0 MB of 27.2 MB, 2 of 4 wheels"),
    ],
)
def test_a_stage_that_fetches_wheels_says_how_far_it_is(until: str, stage: str, what: str) -> None:
    assert {row.stage: row.what for row in rows(wheels(until=until))}[stage] == what


def test_a_stage_that_has_its_wheels_shows_its_step() -> None:
    shown = {row.stage: row.what for row in rows(wheels(until="Downloaded mpi4py"))}
    assert shown["mpi4py-layer"].startswith("RUN /opt/tools/into-layer")
    assert {row.stage: row.what for row in rows(wheels())}["python-layer"] == ""


@pytest.mark.parametrize("width", [60, 80, 110, 200])
def test_the_bytes_of_wheels_fit_any_terminal(width: int) -> None:
    console = Console(width=width, file=io.StringIO())
    console.print(table_of(rows(wheels(until="Downloaded cryptography")), now=time.time()))
    (line,) = (one for one in console.file.getvalue().splitlines() if "sagemaker" in one)  # type: ignore[attr-defined]
    assert "8.4 MB of" in line


@pytest.mark.parametrize(
    "line", ["Downloading x (1e9MiB)", "Downloading x (1.2.3MiB)", "Downloading x ()", "Downloading", "Downloaded y"]
)
def test_what_only_looks_like_a_wheel_is_a_line_like_any_other(line: str) -> None:
    progress = BuildProgress()
    for text in ("#1 [a 1/2] RUN fetch", f"#1 0.1 {line}"):
        progress.feed(text)
    assert [(row.what, row.last_line) for row in rows(progress)] == [("RUN fetch", line)]


def test_a_stage_that_ends_in_steps_without_a_layer_is_done_once_the_image_is_exported() -> None:
    progress = BuildProgress(clock=lambda: 1.0)
    progress.feed("#1 [final 14/15] RUN true")
    progress.feed("#1 DONE 0.1s")
    assert [row.state for row in rows(progress)] == ["waiting"]
    progress.feed("#2 exporting to image")
    assert next(row.state for row in rows(progress)) == "done"


def test_a_silent_step_is_told_after_a_moment() -> None:
    stream = io.StringIO()
    progress, view = BuildProgress("plain"), make_view("plain", stream)
    progress.feed("#1 [a 1/2] RUN sleep 1000")
    view.update(progress)
    assert stream.getvalue() == ""
    deadline = time.monotonic() + 10
    while not stream.getvalue() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert stream.getvalue() == "[a 1/2] RUN sleep 1000\n"
    view.close()


class Broken(io.StringIO):
    def write(self, _: str) -> int:
        raise BrokenPipeError


@pytest.mark.parametrize("mode", ["plain", "json"])
def test_a_broken_stream_does_not_break_the_build(mode: Literal["plain", "json"]) -> None:
    show("raw-cold", mode, Broken())


def test_a_stream_without_unicode_gets_ascii() -> None:
    raw = io.BytesIO()
    progress, view = BuildProgress("plain"), make_view("plain", io.TextIOWrapper(raw, encoding="ascii"))
    progress.feed("#1 [a 1/1] RUN ä " + "x" * 100)
    progress.feed("#1 0.1 out")
    view.update(progress)
    assert raw.getvalue().startswith(b"[a 1/1] RUN ? xxx") and raw.getvalue().endswith(b"x...\n")


def test_shortening_and_durations() -> None:
    assert short("RUN a \\\n   b") == "RUN a \\ b"
    assert short("x" * 80, 10) == "x" * 9 + "…"
    assert [duration(value) for value in (None, 0.04, 12.34, 125.2)] == ["", "0.0s", "12.3s", "2m05s"]


def test_a_build_of_which_every_step_is_known_says_so() -> None:
    """A builder that has the whole image reports none of its steps."""
    stream = io.StringIO()
    progress, view = BuildProgress(), make_view("plain", stream)
    view.update(progress)
    progress.close()
    view.close()
    assert stream.getvalue().startswith("no step had to run, ")
