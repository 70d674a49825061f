"""Shows a running build on standard error: a live table on a terminal, a line per step elsewhere, or JSON lines."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TextIO

from trainwright.core.layout import duration, size
from trainwright.core.text import coloured
from trainwright.engine.buildkit_log import BuildProgress, Vertex

if TYPE_CHECKING:
    from rich.table import Table

Mode = Literal["auto", "live", "plain", "json", "none"]
INTERVAL = 0.1  # seconds between two updates of the live table
HOLD = 0.3  # seconds by which the start of a silent step is delayed
WIDTH = 60  # characters of a step that are shown
_SYMBOLS = {"running": "…", "done": "✓", "cached": "✓", "failed": "✗", "canceled": "-", "waiting": " "}
_STYLES = {"running": "cyan", "done": "green", "cached": "green", "failed": "bold red"}


class View(Protocol):
    """Shows a build."""

    def update(self, progress: BuildProgress) -> None:
        """Show the current state; called after each line."""

    def close(self) -> None:
        """Show the result and restore the terminal."""


def make_view(mode: Mode = "auto", stream: TextIO | None = None) -> View:
    """A view of a build. Nothing is ever written to standard output.

    Args:
        mode: ``live``: a table that is redrawn (``plain`` if the terminal has no Unicode); ``plain``: a line when a
            step starts and one when it ends; ``json``: one JSON object per event and line; ``none``: nothing;
            ``auto``: live on a terminal, else plain.
        stream: the output (default: standard error). If it breaks, the build continues silently.
    """
    out = stream if stream is not None else sys.stderr
    if mode == "auto":
        mode = "live" if out.isatty() and os.environ.get("TERM", "dumb") != "dumb" else "plain"
    if mode == "live" and (out.encoding or "utf-8").lower().startswith("utf"):
        return LiveView(out)
    if mode == "none":
        return SilentView()
    return JsonView(out) if mode == "json" else PlainView(out)


def short(text: str, width: int = WIDTH) -> str:
    """One line of at most ``width`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1].rstrip() + "…"


def label(vertex: Vertex) -> str:
    """``[metis 2/3] RUN make``, shortened; with the component if its name differs from the stage's."""
    if vertex.step is None:
        return short(vertex.name)
    component = vertex.component if vertex.component != vertex.stage else None
    place = " ".join(filter(None, [vertex.stage, f"{vertex.step}/{vertex.total}", component]))
    return f"[{place}] {short(readable(vertex.text))}"


# What a step needs before it can do what it is for: mounts, and the folder that they are under.
_PREPARATION = re.compile(r"--mount=\S+\s+|(?<!\S)/mnt/")


def readable(text: str) -> str:
    """An instruction without its preparation: ``RUN uv pip install ...``."""
    return _PREPARATION.sub("", " ".join(text.split()))


class SilentView:
    """Shows nothing."""

    def update(self, progress: BuildProgress) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class _Lines:
    """Reports each change of a step's state once; subclasses choose the form."""

    def __init__(self, stream: TextIO) -> None:
        self._stream: TextIO | None = stream
        self._states: dict[str, str] = {}
        self._changes = -1
        self._started = time.monotonic()
        self._progress: BuildProgress | None = None
        self._lock = threading.RLock()
        self._held: dict[str, float] = {}  # steps that have just started, and when
        self._timer: threading.Timer | None = None

    def update(self, progress: BuildProgress) -> None:
        """Report what changed since the last call; cheap if nothing did."""
        with self._lock:
            self._progress = progress
            if progress.changes == self._changes and not self._held:
                return
            self._changes = progress.changes
            for vertex in list(progress.vertices.values()):
                before, state = self._states.get(vertex.id), vertex.state
                if state not in {before, "waiting"} and vertex.name and not self._hold(vertex, state):
                    self._states[vertex.id] = state
                    self.tell(vertex, state)

    def _hold(self, vertex: Vertex, state: str) -> bool:
        """Whether to delay a start: plain progress names a step before it says that it is cached."""
        now = time.monotonic()
        if state != "running" or vertex.last_line or now - self._held.setdefault(vertex.id, now) >= HOLD:
            self._held.pop(vertex.id, None)
            return False
        if self._timer is None:  # a silent step causes no further call
            self._timer = threading.Timer(HOLD * 1.5, self._ring)
            self._timer.daemon = True
            self._timer.start()
        return True

    def _ring(self) -> None:
        with self._lock:
            self._timer = None
            if self._progress is not None:
                self.update(self._progress)

    def close(self) -> None:
        """Report the rest and a summary; a second call does nothing."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            if self._progress is not None:
                self._changes = -1
                self.update(self._progress)
                self.sum_up(self._progress, time.monotonic() - self._started)
                self._progress = None

    def tell(self, vertex: Vertex, state: str) -> None:
        raise NotImplementedError

    def sum_up(self, progress: BuildProgress, seconds: float) -> None:
        raise NotImplementedError

    def write(self, line: str) -> None:
        if self._stream is None:
            return
        line = coloured(line)
        try:
            try:
                self._stream.write(line + "\n")
            except UnicodeEncodeError:
                self._stream.write(line.replace("…", "...").encode("ascii", "replace").decode() + "\n")
            self._stream.flush()
        except (OSError, ValueError):  # closed, or nobody reads it any more
            self._stream = None


class PlainView(_Lines):
    """A line when a step starts and one when it ends; cached steps are folded into a count."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._cached = 0

    def tell(self, vertex: Vertex, state: str) -> None:
        """Write the line of one change."""
        if vertex.step is None and state != "failed":
            return  # [internal] steps and the export are noise here
        if state == "cached":
            self._cached += 1
            return
        if state == "running":
            self._fold()
            self.write(label(vertex))
        elif state == "done" and (vertex.seconds or 0) < 0.05 and vertex.text.startswith("FROM "):
            return
        else:
            self._fold()
            word = {"done": "ok", "failed": "FAILED", "canceled": "canceled"}[state]
            self.write(f"{label(vertex)} {word} {duration(vertex.seconds)}".rstrip())

    def sum_up(self, progress: BuildProgress, seconds: float) -> None:
        """Write the counts."""
        self._fold()
        self.write(_summary(progress, seconds))

    def _fold(self) -> None:
        if self._cached:
            self.write(f"{self._cached} step{'s' if self._cached > 1 else ''} from the cache")
            self._cached = 0


def _summary(progress: BuildProgress, seconds: float) -> str:
    counts = progress.counts
    if not counts.total and not progress.problem:
        return f"no step had to run, {duration(seconds)}"
    parts = [f"{counts.done} of {counts.total} steps", f"{counts.cached} from the cache"]
    if counts.failed:
        parts.append(f"{counts.failed} failed")
    return f"{', '.join(parts)}, {duration(seconds)}"


class JsonView(_Lines):
    """One JSON object per event: ``started``, ``done``, ``cached``, ``failed``, ``canceled``, finally ``summary``."""

    def tell(self, vertex: Vertex, state: str) -> None:
        """Write one event."""
        row: dict[str, Any] = {
            "event": "started" if state == "running" else state,
            "id": vertex.id,
            "name": vertex.name,
            "stage": vertex.stage,
            "step": vertex.step,
            "total": vertex.total,
        }
        if state != "running":
            row["seconds"] = vertex.seconds
        if vertex.error is not None:
            row |= {"error": vertex.error, "log": list(vertex.log)}
        self.write(json.dumps(row))

    def sum_up(self, progress: BuildProgress, seconds: float) -> None:
        """Write the counts."""
        self.write(json.dumps({"event": "summary", **progress.counts._asdict(), "seconds": round(seconds, 3)}))


class DisplayRow(NamedTuple):
    """One line of the live table: a stage, its state and its output. ``since`` is in Unix seconds."""

    stage: str
    state: str
    step: str
    what: str
    since: float | None
    seconds: float
    last_line: str


def rows(progress: BuildProgress) -> Iterator[DisplayRow]:
    """A row per stage, in order; steps outside stages only while they run, or if they fail."""
    stages: dict[str, list[Vertex]] = {}
    for vertex in progress.vertices.values():
        name = vertex.name if vertex.step is None else vertex.stage or "image"
        if vertex.step is not None or vertex.state in {"running", "failed"}:
            stages.setdefault(name, []).append(vertex)
    # Instructions without a layer, such as ENV, are counted but are no steps: the last step of a stage may be 14/15.
    built = any(vertex.name.startswith("exporting to ") for vertex in progress.vertices.values())
    for name, steps in stages.items():
        by_state = {state: [step for step in steps if step.state == state] for state in _SYMBOLS}
        state = next((one for one in ("failed", "running", "canceled") if by_state[one]), "")
        over = [step for step in steps if step.completed is not None]
        current = by_state[state][-1] if state else max(steps, key=lambda step: step.step or 0)
        # Steps appear one by one, and a FROM that stages share belongs to one of them: so compare the number.
        finished = (built or current.step == current.total) and not by_state["waiting"]
        known = state or ("waiting" if not finished else "done" if by_state["done"] else "cached")
        count = f"{current.step}/{current.total}" if current.step is not None else ""
        whose = f"{current.component}: " if current.component not in (None, current.stage) else ""
        what, last = (short(whose + readable(current.text)), current.last_line) if state else ("", "")
        if state == "running" and (fetched := current.download) is not None:
            what = f"{size(fetched.bytes)} of {size(fetched.total_bytes)}, "
            what += f"{fetched.wheels} of {fetched.total_wheels} wheels"
        if not state and by_state["cached"]:
            what = f"{len(by_state['cached'])} from the cache"
        since = current.started if state == "running" else None
        yield DisplayRow(
            short(name, 30), known, count, what, since, sum(step.seconds or 0.0 for step in over), short(last, 100)
        )


class LiveView:
    """A table that is redrawn in place: a line per stage, and below a running one its last line of output."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=stream)
        self._rows: tuple[DisplayRow, ...] = ()
        self._looked = 0.0
        self._started = time.monotonic()
        self._progress: BuildProgress | None = None
        # Rows are immutable, so the thread that redraws may read them while the build goes on.
        self._live: Live | None = Live(
            console=self._console, get_renderable=self._table, refresh_per_second=4, redirect_stdout=False
        )
        self._live.start()

    def update(self, progress: BuildProgress) -> None:
        """Take the current state, at most every 0.1 s."""
        self._progress = progress
        now = time.monotonic()
        if now - self._looked >= INTERVAL:
            self._looked = now
            self._rows = tuple(rows(progress))

    def close(self) -> None:
        """Draw the last state, stop redrawing, print a summary; a second call does nothing."""
        if self._live is None:
            return
        live, self._live = self._live, None
        if self._progress is not None:
            self._rows = tuple(rows(self._progress))
        try:
            live.stop()
            if self._progress is not None:
                seconds = time.monotonic() - self._started
                self._console.print(_summary(self._progress, seconds), markup=False, highlight=False)
        except (OSError, ValueError):  # the terminal is gone
            return

    def _table(self) -> Table:
        return table_of(self._rows, time.time())


def table_of(rows: Iterable[DisplayRow], now: float) -> Table:
    """The live table.

    Args:
        rows: of :func:`rows`.
        now: in Unix seconds; what runs has taken the time until then.
    """
    from rich.table import Table
    from rich.text import Text

    def cut(text: str, style: str = "") -> Text:
        return Text(text, style, no_wrap=True, overflow="ellipsis")

    table = Table(box=None, show_header=False, pad_edge=False)
    for name in ("mark", "stage", "step", "time"):
        table.add_column(name, no_wrap=True, justify="right" if name == "time" else "left")
    # Rich takes room from columns that may wrap, so the others keep theirs; nothing in this one does.
    table.add_column("what", no_wrap=False)
    for row in rows:
        style = _STYLES.get(row.state, "")
        seconds = max(0.0, now - row.since) if row.since is not None else row.seconds
        mark = Text(_SYMBOLS[row.state], style)
        table.add_row(mark, Text(row.stage), row.step, duration(seconds), cut(row.what))
        if row.state == "running" and row.last_line:
            table.add_row("", "", "", "", cut(row.last_line, "dim"))
    return table
