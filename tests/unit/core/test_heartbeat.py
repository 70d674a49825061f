"""Long steps say how far they are, and short ones say nothing."""

from __future__ import annotations

import hashlib
import io
import threading

import pytest

from trainwright.core import heartbeat as beating
from trainwright.core.heartbeat import Transfer, heartbeat, waiting
from trainwright.core.layout import duration
from trainwright.prove import smoke_view
from trainwright.site.site import Site
from trainwright.sources.download import Wanted, fetch_all
from trainwright.sources.locations import Store

SOON = (0.01,)


class Listener:
    """Takes lines, and lets a test wait for some."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._more = threading.Condition()

    def __call__(self, text: str) -> None:
        with self._more:
            self.lines.append(text)
            self._more.notify_all()

    def wait(self, count: int) -> None:
        with self._more:
            assert self._more.wait_for(lambda: len(self.lines) >= count, timeout=10)


def test_a_long_step_says_its_seconds_until_it_ends():
    said = Listener()
    with heartbeat(said, waiting("pulling x"), pauses=SOON):
        said.wait(3)
    there = list(said.lines)
    assert set(there) == {"pulling x: 0s so far"}
    assert said.lines == there


def test_a_short_step_says_nothing_and_a_failed_one_ends_it():
    said = Listener()
    with heartbeat(said, waiting("x"), pauses=(60.0,)):
        pass
    with pytest.raises(ValueError, match="broken"), heartbeat(said, waiting("x"), pauses=(60.0,)):
        raise ValueError("broken")
    assert said.lines == []


def test_lines_come_soon_at_first_and_rarer_later():
    """As a log of an hour should not have a line per second: 5, 15, 35, 65 s, and then every half minute."""
    assert list(beating.PAUSES) == sorted(beating.PAUSES)
    assert beating.PAUSES[0] <= 5
    assert beating.PAUSES[-1] >= 30


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (4.6, "5s"), (59.4, "59s"), (65, "1m05s"), (3599, "59m59s"), (3600, "1h00m"), (7380, "2h03m")],
)
def test_durations(seconds, text):
    assert duration(seconds, tenths=False) == text


def test_what_is_left_follows_from_what_has_come_over_the_network():
    transfer = Transfer(3, 4_000_000_000)
    transfer.at("there already", 1_000_000_000)
    transfer.finish()
    transfer.at("a", 500_000_000, 500_000_000)
    transfer.at("a", 1_000_000_000, 500_000_000)
    # 1 GB came in 20 s and 2 GB are missing: what was there already does not count for the speed.
    assert transfer.text(20) == "2.00 GB of 4.00 GB, 1 of 3 files, 20s so far, about 40s left"
    # The connection broke, and the file begins again: 2 GB in 40 s, 2.9 GB missing.
    transfer.at("a", 0)
    transfer.at("a", 100_000_000, 1_000_000_000)
    assert transfer.text(40) == "1.10 GB of 4.00 GB, 1 of 3 files, 40s so far, about 58s left"


def test_without_sizes_nothing_is_said_of_what_is_left():
    transfer = Transfer(2, None)
    transfer.at("a", 5_000_000, 5_000_000)
    assert transfer.text(10) == "5.0 MB, 0 of 2 files, 10s so far"
    assert Transfer(2, 10).text(10) == "0 B of 10 B, 0 of 2 files, 10s so far"


def test_downloads_say_bytes_files_and_what_is_left(tmp_path, monkeypatch, server):
    content = b"x" * 3_000_000
    go_on = threading.Event()
    said = Listener()

    def slow(request):
        request.send_response(200)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content[:2_000_000])
        request.wfile.flush()
        go_on.wait(20)
        request.wfile.write(content[2_000_000:])

    server.pages["/a"] = slow
    monkeypatch.setattr(beating, "PAUSES", SOON)
    sha256 = hashlib.sha256(content).hexdigest()
    wanted = [Wanted("thing", "a.tar", (f"{server.url}/a",), sha256, len(content))]

    def say(text: str) -> None:
        said(text)
        if "1.0 MB of 3.0 MB, 0 of 1 files" in text:  # the second piece is not complete
            go_on.set()

    (found,) = fetch_all(wanted, Site(), Store(tmp_path / "store"), say=say)
    assert go_on.is_set()
    assert found.size == len(content)


def test_a_smoke_run_without_a_terminal_says_how_many_tests_have_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(beating, "PAUSES", SOON)
    progress, out = tmp_path / "progress", io.StringIO()
    with smoke_view.shown(progress, out):
        _until(lambda: "· collecting the tests: 0s so far\n" in out.getvalue())
        progress.write_text("7\ntest_a\ntest_b\n")
        _until(lambda: "· 2 of 7 tests, 0s so far, the last was test_b\n" in out.getvalue())


def _until(condition) -> None:
    ready = threading.Event()
    for _ in range(500):
        if condition():
            return
        ready.wait(0.02)
    raise AssertionError("it never came true")
