"""Shows a smoke run while it lasts: how many tests have ended, and which was the last."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from trainwright.core.heartbeat import heartbeat
from trainwright.core.layout import duration
from trainwright.core.text import printable

VARIABLE = "TRAINWRIGHT_IMAGE_PROGRESS"  # names the file for the plugin
PAUSE = 0.2  # seconds between two looks


@contextmanager
def shown(progress: Path, stream: TextIO | None = None) -> Iterator[None]:
    """A bar on a terminal while this holds, of which nothing stays; elsewhere a line now and then.

    Args:
        progress: the file of :mod:`trainwright.prove.image_progress`; it need not exist yet.
        stream: the output (default: standard error).
    """
    out = stream if stream is not None else sys.stderr
    if not out.isatty() or os.environ.get("TERM", "dumb") == "dumb":

        def line(text: str) -> None:
            with suppress(OSError):  # nobody reads the stream any more
                print(f"· {text}", file=out, flush=True)

        with heartbeat(line, lambda seconds: _line(progress, seconds)):
            yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(24), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=Console(file=out), transient=True) as bar:
        task, ended = bar.add_task("collecting the tests", total=None), threading.Event()

        def look() -> None:
            while not ended.wait(PAUSE):
                total, names = read(progress)
                if total:
                    bar.update(
                        task, total=total, completed=len(names), description=printable(names[-1] if names else "")
                    )

        watcher = threading.Thread(target=look, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()


def _line(progress: Path, seconds: float) -> str:
    total, names = read(progress)
    if not total:
        return f"collecting the tests: {duration(seconds, tenths=False)} so far"
    last = f", the last was {printable(names[-1])}" if names else ""
    return f"{len(names)} of {total} tests, {duration(seconds, tenths=False)} so far{last}"


def read(progress: Path) -> tuple[int, list[str]]:
    """The number of tests (0 if it is not known yet), and the names of those that have ended."""
    try:
        total, *names = progress.read_text(errors="replace").splitlines()
    except (OSError, ValueError):
        return 0, []
    return int(total) if total.isdigit() else 0, names
