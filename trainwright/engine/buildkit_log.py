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
_OF_CACHES = ("importing cache manifest", "exporting cache")
_CANCELED = ("context canceled", "CANCELED", "Canceled")

Format = Literal["auto", "rawjson", "plain"]


def _clean(line: str) -> str:
    return mask(_CONTROL.sub("", _ESCAPE.sub("", line)))[:LINE_LENGTH]


@dataclass
class Vertex:
    """One step of the build graph.

    ``stage``, ``step`` and ``total`` come from the name (``[metis 2/3] RUN make``); steps without a number
    (``[internal] load build context``, ``exporting to image``) have none. ``component`` is whose step it is, where
    somebody told. Times in Unix seconds, ``seconds`` is the time it took. ``log`` holds the last lines of its
    output, free of escape sequences.
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
    _open: bool = field(default=False, repr=False)  # the last line of the log has no end yet

    @property
    def canceled(self) -> bool:
        """Whether it ended only because another step failed."""
        return self.error is not None and any(word in self.error for word in _CANCELED)

    @property
    def state(self) -> Literal["waiting", "running", "done", "cached", "failed", "canceled"]:
        """Where it stands."""
        if self.error is not None:
            return "canceled" if self.canceled else "failed"
        if self.completed is not None:
            return "cached" if self.cached else "done"
        return "waiting" if self.started is None else "running"

    @property
    def last_line(self) -> str:
        """What it said last: a line of output, else its status."""
        return next((line for line in reversed(self.log) if line.strip()), self.status)

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
                # A progress bar redraws its line behind a carriage return: what counts is what it shows last.
                self.log.append(_clean(whole.rstrip("\r").rsplit("\r", 1)[-1]))
                self._open = not ended


class FailedStep(NamedTuple):
    """The step a build died of; ``exit_code`` is ``None`` where no command ran; ``log`` are its last lines."""

    id: str
    name: str
    stage: str | None
    step: int | None
    exit_code: int | None
    error: str
    log: tuple[str, ...]


class Counts(NamedTuple):
    """How many numbered steps there are so far, and how they stand."""

    total: int
    done: int
    cached: int
    failed: int


class BuildProgress:
    """A build as far as its output was read.

    Args:
        format: ``rawjson``, ``plain``, or ``auto`` (told from the first line that is one or the other).
        owner: the component that a step belongs to, where it is known.
        clock: Unix time.

    Attributes:
        vertices: the steps by id, in the order in which the engine named them.
        text: the last lines that belong to no step.
        changes: rises by one with every change of a step's state, for views that only look then.
    """

    def __init__(
        self,
        format: Format = "auto",
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
        """Take in one line of the engine's output, with or without its end."""
        self.write(line if line.endswith("\n") else line + "\n")

    def write(self, chunk: str) -> None:
        """Take in a piece of the stream, cut anywhere."""
        *lines, self._partial = (self._partial + chunk).split("\n")
        for line in lines:
            self._line(line.removesuffix("\r"))

    def close(self) -> None:
        """Take in what is left when the stream has ended."""
        if self._partial:
            self.write("\n")
        if isinstance(self._parser, RawJsonParser):
            self._apply(self._parser.close())

    def _line(self, line: str) -> None:
        if self._parser is None and (told := re.match(r"\s*\{|#\d+ ", line)):
            self._parser = self._parsers["plain" if told[0].startswith("#") else "rawjson"]
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
            vertex.started, vertex.completed = change.started, None  # maybe the engine took it up again
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
        """How the numbered steps stand."""
        have = [vertex.state for vertex in self.steps].count
        return Counts(len(self.steps), have("done") + have("cached"), have("cached"), have("failed"))

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds per finished step, by its name."""
        return {vertex.name: vertex.seconds for vertex in self.vertices.values() if vertex.seconds is not None}

    @property
    def failed(self) -> FailedStep | None:
        """The step that failed first; ``None`` where none did (see :attr:`problem` for failures outside of steps)."""
        # What goes wrong with a cache ends no build.
        all_broken = (v for v in self.vertices.values() if v.state == "failed" and not v.name.startswith(_OF_CACHES))
        broken = min(all_broken, key=lambda vertex: vertex.completed or math.inf, default=None)
        if broken is None or broken.error is None:
            return None
        # The message of a command over several lines goes on in the text behind it.
        code = _EXIT.search(broken.error) or next(filter(None, map(_EXIT.search, reversed(self.text))), None)
        exit_code = int(code[1]) if code else None
        return FailedStep(broken.id, broken.name, broken.stage, broken.step, exit_code, broken.error, tuple(broken.log))

    @property
    def cache_troubles(self) -> list[str]:
        """What went wrong with registry caches, but for those that are not there yet."""
        broken = [v for v in self.vertices.values() if v.state == "failed" and v.name.startswith(_OF_CACHES)]
        return [f"{v.name}: {v.error}" for v in broken if not (v.error or "").endswith("not found")]

    @property
    def problem(self) -> str:
        """The engine's last word on a build that failed ("failed to solve: ..."); empty where there is none."""
        words = ("ERROR:", "error:", "failed to solve", "executor failed", "failed to ")
        said = next((line for line in reversed(self.text) if line.startswith(words)), "")
        return said.removeprefix("ERROR: ")
