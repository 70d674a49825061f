"""The state of a running build, kept up to date from BuildKit's output in either of its formats."""

from __future__ import annotations

import math
import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from trainwright.core.masking import mask
from trainwright.engine.buildkit_parsers import LooseText, Parser, PlainParser, RawJsonParser, StepEvent

LOG_LINES = 20  # lines kept per step
LINE_LENGTH = 2000  # characters kept per line
TEXT_LINES = 200  # lines kept that belong to no step

_NAME = re.compile(r"\[(?:(?P<stage>[^\]]*?)\s+)?(?P<step>\d{1,6})/(?P<total>\d{1,6})\]\s*(?P<text>.*)", re.DOTALL)
_EXIT = re.compile(r"exit code: (\d{1,5})")
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
# What uv says of wheels that it fetches, without a terminal and only of those above 1 MiB (astral-sh/uv#11165):
# "Downloading numpy (16.1MiB)", then " Downloaded numpy".
_WHEEL = re.compile(
    r"Downloading (?P<name>\S+) \((?P<size>[0-9]{1,6}(?:\.[0-9])?) ?(?P<unit>[MG]iB)\)|Downloaded (?P<done>\S+)"
)
_UNITS = {"MiB": 1 << 20, "GiB": 1 << 30}
_OF_CACHES = ("importing cache manifest", "exporting cache")
_CANCELED = ("context canceled", "CANCELED", "Canceled")

LogFormat = Literal["auto", "rawjson", "plain"]


def _clean(line: str) -> str:
    return mask(_CONTROL.sub("", _ESCAPE.sub("", line)))[:LINE_LENGTH]


class FetchedWheels(NamedTuple):
    """The wheels that a step fetches: bytes and number of those that are there, and of all that it has named."""

    bytes: int
    total_bytes: int
    wheels: int
    total_wheels: int


@dataclass
class Vertex:
    """One step of the build graph.

    ``stage``, ``step`` and ``total`` come from the name (``[metis 2/3] RUN make``); steps without a number
    (``[internal] load build context``, ``exporting to image``) have none. ``component`` is set if it is known. Times
    are in Unix seconds, ``seconds`` is the duration. ``log`` has the last lines of output, without escape sequences.
    """

    id: str
    name: str = ""
    stage: str | None = None
    step: int | None = None
    total: int | None = None
    text: str = ""
    component: str | None = None
    started: float | None = None
    completed: float | None = None
    seconds: float | None = None
    cached: bool = False
    error: str | None = None
    status: str = ""
    log: deque[str] = field(default_factory=lambda: deque(maxlen=LOG_LINES))
    _wheels: dict[str, int] = field(default_factory=dict, repr=False)  # bytes of those that it fetches
    _fetched: set[str] = field(default_factory=set, repr=False)
    _open: bool = field(default=False, repr=False)  # the last line of the log has no end yet

    @property
    def canceled(self) -> bool:
        """Whether it ended only because another step failed."""
        return self.error is not None and any(word in self.error for word in _CANCELED)

    @property
    def state(self) -> Literal["waiting", "running", "done", "cached", "failed", "canceled"]:
        """The state of the step."""
        if self.error is not None:
            return "canceled" if self.canceled else "failed"
        if self.completed is not None:
            return "cached" if self.cached else "done"
        return "waiting" if self.started is None else "running"

    @property
    def last_line(self) -> str:
        """Its last line of output, else its status."""
        return next((line for line in reversed(self.log) if line.strip()), self.status)

    @property
    def download(self) -> FetchedWheels | None:
        """How far it is with fetching wheels; ``None`` if it fetches none, or has all of them."""
        there = [size for name, size in self._wheels.items() if name in self._fetched]
        if len(there) == len(self._wheels):
            return None
        return FetchedWheels(sum(there), sum(self._wheels.values()), len(there), len(self._wheels))

    def _rename(self, name: str) -> None:
        self.name = name
        self.text, self.stage, self.step, self.total = name, None, None, None
        if match := _NAME.match(name):
            self.text, self.stage = match["text"], match["stage"] or ""
            self.step, self.total = int(match["step"]), int(match["total"])

    def _print(self, output: str) -> None:
        pieces = output.split("\n")
        for number, piece in enumerate(pieces, start=1):
            ended = number < len(pieces)
            if piece or ended:
                whole = (self.log.pop() if self._open and self.log else "") + piece
                # A progress bar redraws its line after a carriage return: keep what it shows last.
                self.log.append(_clean(whole.rstrip("\r").rsplit("\r", 1)[-1]))
                self._open = not ended
                if ended and (match := _WHEEL.fullmatch(self.log[-1].strip())):
                    if match["done"]:
                        self._fetched.add(match["done"])
                    else:
                        self._wheels[match["name"]] = round(float(match["size"]) * _UNITS[match["unit"]])


class FailedStep(NamedTuple):
    """The step that failed a build; ``exit_code`` is ``None`` if no command ran; ``log`` has its last lines."""

    id: str
    name: str
    stage: str | None
    step: int | None
    exit_code: int | None
    error: str
    log: tuple[str, ...]


class Counts(NamedTuple):
    """How many numbered steps there are so far, by state."""

    total: int
    done: int
    cached: int
    failed: int


class BuildProgress:
    """The state of a build, from its output so far.

    Args:
        format: ``rawjson``, ``plain``, or ``auto`` (decided by the first line in either format).
        owner: returns the component of a step, if it is known.
        clock: Unix time.

    Attributes:
        vertices: the steps by id, in the engine's order.
        text: the last lines that belong to no step.
        changes: counts changes of a step's state, for views that redraw only then.
    """

    def __init__(
        self,
        format: LogFormat = "auto",
        *,
        owner: Callable[[Vertex], str | None] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._owner = owner
        self._parsers: dict[str, Parser] = {"rawjson": RawJsonParser(), "plain": PlainParser(clock)}
        self._parser = None if format == "auto" else self._parsers[format]
        self._partial = ""
        self.vertices: dict[str, Vertex] = {}
        self.text: deque[str] = deque(maxlen=TEXT_LINES)
        self.changes = 0

    def feed(self, line: str) -> None:
        """Read one line of the engine's output, with or without its line end."""
        self.write(line if line.endswith("\n") else line + "\n")

    def write(self, chunk: str) -> None:
        """Read a piece of the stream, cut anywhere."""
        *lines, self._partial = (self._partial + chunk).split("\n")
        for line in lines:
            self._line(line.removesuffix("\r"))

    def close(self) -> None:
        """Read the rest when the stream has ended."""
        if self._partial:
            self.write("\n")
        if isinstance(self._parser, RawJsonParser):
            self._apply(self._parser.close())

    def _line(self, line: str) -> None:
        if self._parser is None and (match := re.match(r"\s*\{|#\d+ ", line)):
            self._parser = self._parsers["plain" if match[0].startswith("#") else "rawjson"]
        if self._parser is not None:
            self._apply(self._parser.line(line))
        elif line.strip():
            self.text.append(_clean(line))

    def _apply(self, events: Iterator[StepEvent | LooseText]) -> None:
        for event in events:
            if isinstance(event, LooseText):
                self.text.append(_clean(event.text))
            else:
                self._change(event)

    def _change(self, change: StepEvent) -> None:
        vertex = self.vertices.setdefault(change.key, Vertex(change.key))
        before = vertex.state
        if change.name is not None:
            vertex._rename(change.name)
            vertex.component = self._owner(vertex)
        if change.started is not None:
            vertex.started, vertex.completed = change.started, None  # the engine may have resumed it
        for name in ("completed", "cached", "error", "status"):
            if (value := getattr(change, name)) is not None:
                setattr(vertex, name, mask(value) if isinstance(value, str) else value)
        if change.output is not None:
            vertex._print(change.output)
        if change.seconds is not None:
            vertex.seconds = change.seconds
        elif change.completed is not None and vertex.started is not None:
            vertex.seconds = 0.0 if vertex.cached else max(0.0, change.completed - vertex.started)
        if vertex.state != before:
            self.changes += 1

    @property
    def steps(self) -> list[Vertex]:
        """The numbered steps, in the engine's order."""
        return [vertex for vertex in self.vertices.values() if vertex.step is not None]

    @property
    def counts(self) -> Counts:
        """The numbered steps by state."""
        have = [vertex.state for vertex in self.steps].count
        return Counts(len(self.steps), have("done") + have("cached"), have("cached"), have("failed"))

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds per finished step, by its name."""
        return {vertex.name: vertex.seconds for vertex in self.vertices.values() if vertex.seconds is not None}

    @property
    def failed(self) -> FailedStep | None:
        """The step that failed first; ``None`` if none did (see :attr:`problem` for failures outside steps)."""
        # A failure of a cache does not fail the build.
        all_broken = (v for v in self.vertices.values() if v.state == "failed" and not v.name.startswith(_OF_CACHES))
        broken = min(all_broken, key=lambda vertex: vertex.completed or math.inf, default=None)
        if broken is None or broken.error is None:
            return None
        # The error of a multi-line command continues in the text after it.
        code = _EXIT.search(broken.error) or next(filter(None, map(_EXIT.search, reversed(self.text))), None)
        exit_code = int(code[1]) if code else None
        return FailedStep(broken.id, broken.name, broken.stage, broken.step, exit_code, broken.error, tuple(broken.log))

    @property
    def cache_troubles(self) -> list[str]:
        """Failures of registry caches, except caches that do not exist yet."""
        broken = [v for v in self.vertices.values() if v.state == "failed" and v.name.startswith(_OF_CACHES)]
        return [f"{v.name}: {v.error}" for v in broken if not (v.error or "").endswith("not found")]

    @property
    def problem(self) -> str:
        """The engine's last error message ("failed to solve: ..."), if any."""
        words = ("ERROR:", "error:", "failed to solve", "executor failed", "failed to ")
        error = next((line for line in reversed(self.text) if line.startswith(words)), "")
        return error.removeprefix("ERROR: ")
