"""Shows a run on standard error: a live table of what is built now, a line per change elsewhere, or JSON lines."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TextIO

from trainwright.core.layout import duration, size
from trainwright.core.say import Say
from trainwright.core.text import coloured, printable
from trainwright.engine.build_display import DisplayRow, Mode, short, table_of
from trainwright.fleet.run_folder import UnitProgress

if TYPE_CHECKING:
    from rich.table import Table

_TAIL = 8192  # bytes of a log that are looked at for its last lines


class RunView(Protocol):
    """Shows a run."""

    def started(self, unit: UnitProgress) -> None:
        """A unit is built from now on."""

    def ended(self, unit: UnitProgress) -> None:
        """A unit is built, or has failed."""

    def lost(self, unit: UnitProgress) -> None:
        """The builder of a unit does not answer, and another one takes the unit."""

    def tick(self, running: Sequence[UnitProgress]) -> None:
        """What is built now; called several times a second."""

    def close(self) -> None:
        """Restore the terminal."""


def make_view(mode: Mode, say: Say, lines: int, stream: TextIO | None = None) -> RunView:
    """A view of a run. Nothing is ever written to standard output.

    Args:
        mode: as of :func:`trainwright.engine.build_display.make_view`.
        say: progress callback; shows the lines of ``plain``.
        lines: how many image lines are to be built.
        stream: the output of the other kinds (default: standard error).
    """
    out = stream if stream is not None else sys.stderr
    if mode == "auto":
        mode = "live" if out.isatty() and os.environ.get("TERM", "dumb") != "dumb" else "plain"
    if mode == "live" and (out.encoding or "utf-8").lower().startswith("utf"):
        return LiveRun(out, lines)
    if mode == "none":
        return SilentRun()
    return JsonRun(out) if mode == "json" else PlainRun(say, lines)


def last_lines(log: Path, count: int) -> list[str]:
    """The last lines of a log that say something; none if it cannot be read."""
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()][-count:]


def told(unit: UnitProgress) -> str:
    """What became of a unit, in one line."""
    if unit.error is not None:
        why = next(iter(unit.error.message.splitlines()), "")
        return f"{unit.name}: failed after {duration(unit.seconds)}, exit code {unit.error.exit_code}: {why}"
    what = ", ".join(unit.stages) if unit.kind == "stages" else size(unit.size_bytes)
    return f"{unit.name}: built in {duration(unit.seconds)}, {what}"


def told_of_builder(unit: UnitProgress) -> str:
    """That the builder of a unit is lost, in one line."""
    why = next(iter(unit.error.message.splitlines()), "") if unit.error is not None else ""
    return f"{unit.name}: another builder takes it, as {unit.builder} gets nothing more: {why}"


class _Counting:
    """Counts the image lines that have ended."""

    def __init__(self, lines: int) -> None:
        self._lines = lines
        self._built = 0
        self._failed = 0

    def _count(self, unit: UnitProgress) -> None:
        if unit.kind == "line":
            self._built += unit.state == "built"
            self._failed += unit.state == "failed"

    def _so_far(self) -> str:
        return f"{self._built} of {self._lines} built" + (f", {self._failed} failed" if self._failed else "")


class SilentRun:
    """Shows nothing."""

    def started(self, unit: UnitProgress) -> None:
        """Nothing."""

    def ended(self, unit: UnitProgress) -> None:
        """Nothing."""

    def lost(self, unit: UnitProgress) -> None:
        """Nothing."""

    def tick(self, running: Sequence[UnitProgress]) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class PlainRun(_Counting):
    """A line when a unit starts and one when it ends."""

    def __init__(self, say: Say, lines: int) -> None:
        super().__init__(lines)
        self._say = say

    def started(self, unit: UnitProgress) -> None:
        """Say what is built, and where if there is a choice."""
        where = f" at {unit.builder}" if unit.builder else ""
        self._say(f"{unit.name}: builds{where}" + (f": {', '.join(unit.stages)}" if unit.stages else ""))

    def lost(self, unit: UnitProgress) -> None:
        """Say so."""
        self._say(told_of_builder(unit))

    def ended(self, unit: UnitProgress) -> None:
        """Say what became of it, and how many there are so far."""
        self._count(unit)
        self._say(f"{told(unit)}   ({self._so_far()})")
        if unit.state == "failed":
            self._say(f"its log is {unit.log}")

    def tick(self, running: Sequence[UnitProgress]) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class JsonRun:
    """One JSON object per change: ``started``, ``built``, ``failed``."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def started(self, unit: UnitProgress) -> None:
        """Write one event."""
        self._write({"event": "started", "kind": unit.kind, "name": unit.name, "builder": unit.builder})

    def lost(self, unit: UnitProgress) -> None:
        """Write one event."""
        self._write({"event": "lost", "builder": unit.builder, "name": unit.name})

    def ended(self, unit: UnitProgress) -> None:
        """Write one event."""
        row: dict[str, object] = {"event": unit.state, "kind": unit.kind, "name": unit.name, "seconds": unit.seconds}
        if unit.error is not None:
            row["error"] = unit.error.as_json()
        self._write(row)

    def tick(self, running: Sequence[UnitProgress]) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""

    def _write(self, row: dict[str, object]) -> None:
        with suppress(OSError, ValueError):  # nobody reads it any more
            self._stream.write(json.dumps(row) + "\n")
            self._stream.flush()


class LiveRun(_Counting):
    """A table that is redrawn in place: a row per unit that is built now, and its last line; what ends stays above."""

    def __init__(self, stream: TextIO, lines: int) -> None:
        from rich.console import Console
        from rich.live import Live

        super().__init__(lines)
        self._console = Console(file=stream)
        self._rows: tuple[DisplayRow, ...] = ()
        self._began = time.time()
        self._live: Live | None = Live(
            console=self._console, get_renderable=self._table, refresh_per_second=4, redirect_stdout=False
        )
        self._live.start()

    def started(self, unit: UnitProgress) -> None:
        """The next look shows it."""

    def ended(self, unit: UnitProgress) -> None:
        """Write a line that stays."""
        from rich.text import Text

        self._count(unit)
        style = "bold red" if unit.state == "failed" else "green"
        mark = "✗" if unit.state == "failed" else "✓"
        with suppress(OSError, ValueError):  # the terminal is gone
            # As a text of its own: a style of print() would be that of the table below as well.
            self._console.print(Text(f"{mark} {printable(told(unit))}", style))

    def lost(self, unit: UnitProgress) -> None:
        """Write a line that stays."""
        from rich.text import Text

        with suppress(OSError, ValueError):  # the terminal is gone
            self._console.print(Text(printable(told_of_builder(unit)), "yellow"))

    def tick(self, running: Sequence[UnitProgress]) -> None:
        """Take what is built now."""
        # A tuple that is replaced, so the thread that redraws may read it meanwhile.
        self._rows = tuple(map(_row, running))

    def close(self) -> None:
        """Remove the table, say how many there are; a second call does nothing."""
        if self._live is None:
            return
        live, self._live = self._live, None
        self._rows = ()
        with suppress(OSError, ValueError):  # the terminal is gone
            live.stop()

    def _table(self) -> Table:
        whole = DisplayRow(self._so_far(), "waiting", "", "", self._began, 0.0, "")
        return table_of((*self._rows, whole), time.time())


def _row(unit: UnitProgress) -> DisplayRow:
    since = datetime.fromisoformat(unit.started_at).timestamp() if unit.started_at else None
    last = "".join(last_lines(Path(unit.log), 1))
    return DisplayRow(unit.name, "running", "", ", ".join(unit.stages), since, 0.0, short(coloured(last), 100))
