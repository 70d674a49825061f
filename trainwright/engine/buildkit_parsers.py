"""The two formats of BuildKit's progress, read into the same events.

* ``--progress=rawjson`` (buildx >= 0.13): JSON objects, pretty-printed over several lines or one per line, with plain
  text between and after them (``ERROR: failed to solve: ...``).
* ``--progress=plain``: every engine; the only format of Docker 20.10's own client.

The samples in ``tests/unit/engine/buildkit`` were captured from real engines. Nothing raises: what a parser does not
understand is kept as text.
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

from trainwright.core.masking import mask

JSON_LIMIT = 8_000_000  # characters after which an unfinished JSON object counts as text
_DATA = re.compile(r'(?<="data": ")[A-Za-z0-9+/=]+|(?<="data":")[A-Za-z0-9+/=]+')


class StepEvent(NamedTuple):
    """What one line says about one step; ``None`` where it says nothing. Times in Unix seconds."""

    key: str
    name: str | None = None
    started: float | None = None
    completed: float | None = None
    seconds: float | None = None
    cached: bool | None = None
    error: str | None = None
    status: str | None = None
    output: str | None = None


class LooseText(NamedTuple):
    """A line that belongs to no step."""

    text: str


class RawJsonParser:
    """Reads ``--progress=rawjson``: JSON objects mixed with text lines."""

    def __init__(self) -> None:
        self._buffer = ""
        self._decoder = json.JSONDecoder()

    def line(self, text: str) -> Iterator[StepEvent | LooseText]:
        """The events of one line (no line end); none while a JSON object is incomplete."""
        if not self._buffer and not text.lstrip().startswith("{"):
            if text.strip():
                yield LooseText(text)
            return
        self._buffer += text + "\n"
        full = len(self._buffer) > JSON_LIMIT
        if full or "}" in text:  # an object is complete behind a brace only
            yield from self._drain(final=full)

    def close(self) -> Iterator[StepEvent | LooseText]:
        """What is left when the stream ends, as text where it is no complete JSON."""
        yield from self._drain(final=True)

    def _drain(self, *, final: bool) -> Iterator[StepEvent | LooseText]:
        while self._buffer:
            start = self._buffer.lstrip()
            if start.startswith("{"):
                try:
                    document, end = self._decoder.raw_decode(start)
                except (ValueError, RecursionError) as wrong:
                    position = wrong.pos if isinstance(wrong, json.JSONDecodeError) else 0
                    if not final and position >= len(start.rstrip()):
                        return  # cut off, not wrong: more lines will come
                else:
                    self._buffer = start[end:].lstrip()
                    yield from _read_status(document)
                    continue
            first, _, self._buffer = start.partition("\n")
            if first.strip():
                yield LooseText(first)


def _read_status(document: Any) -> Iterator[StepEvent | LooseText]:
    """The events of one BuildKit ``SolveStatus``."""
    if not isinstance(document, dict):
        return
    for row in _rows(document, "vertexes"):
        if key := _text(row.get("digest")):
            yield StepEvent(
                key,
                name=_text(row.get("name")),
                started=_unix(row.get("started")),
                completed=_unix(row.get("completed")),
                cached=True if row.get("cached") is True else None,
                error=_text(row.get("error")),
            )
    for row in _rows(document, "statuses"):
        if key := _text(row.get("vertex")):
            yield StepEvent(key, status=_text(row.get("id")) or _text(row.get("name")))
    for row in _rows(document, "logs"):
        if (key := _text(row.get("vertex"))) and (data := _text(row.get("data"))):
            yield StepEvent(key, output=_plain(data))
    for row in _rows(document, "warnings"):
        if short := _text(row.get("short")):
            yield LooseText("WARNING: " + _plain(short))


def _plain(data: str) -> str:
    """The text behind base64; the data itself where it is none."""
    try:
        return base64.b64decode(data, validate=True).decode(errors="replace")
    except ValueError:
        return data


def _rows(document: dict[str, Any], name: str) -> Iterator[dict[str, Any]]:
    rows = document.get(name)
    if isinstance(rows, list):
        yield from (row for row in rows if isinstance(row, dict))


def masked_line(line: str) -> str:
    """A line of the engine's output without secrets, those in the base64 of ``rawjson`` included."""
    return mask(_DATA.sub(lambda data: base64.b64encode(mask(_plain(data[0])).encode()).decode(), line))


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _unix(value: Any) -> float | None:
    """Unix seconds of an RFC 3339 time (BuildKit gives nanoseconds)."""
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


class PlainParser:
    """Reads ``--progress=plain``: ``#5 [metis 2/3] RUN make``, ``#5 0.088 text``, ``#5 DONE 0.1s``, ``#5 CACHED``, ...

    Args:
        clock: Unix time; plain lines carry none, so a step starts and ends when its lines come.
    """

    _LINE = re.compile(r"#(\d{1,9}) (.*)", re.DOTALL)
    _OUTPUT = re.compile(r"\d{1,9}\.\d{1,9}(?: (.*))?", re.DOTALL)
    _DONE = re.compile(r"DONE (\d{1,9}(?:\.\d{1,9})?)s")
    # The last output of a step may have no line end; then BuildKit's own word follows on the same line.
    _GLUED = re.compile(
        r"(?P<before>.*)#(?P<key>\d{1,9}) (?P<word>DONE \d{1,9}(?:\.\d{1,9})?s|CACHED|ERROR: .*)", re.DOTALL
    )

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._names: dict[str, str] = {}

    def line(self, text: str) -> Iterator[StepEvent | LooseText]:
        """The events of one line (no line end)."""
        match = self._LINE.fullmatch(text)
        if match is None:
            if text.strip():
                yield LooseText(text)
            return
        key, rest = match.groups()
        if key not in self._names:
            self._names[key] = rest
            yield StepEvent(key, name=rest, started=self._clock())
            return
        output = self._OUTPUT.fullmatch(rest)
        if output is not None:
            said = output.group(1) or ""
            glued = self._GLUED.fullmatch(said)
            if glued is None or glued["key"] != key:
                yield StepEvent(key, output=said + "\n")
                return
            yield StepEvent(key, output=glued["before"] + "\n")
            rest = glued["word"]
        yield from self._word(key, rest)

    def _word(self, key: str, rest: str) -> Iterator[StepEvent | LooseText]:
        if done := self._DONE.fullmatch(rest):
            yield StepEvent(key, completed=self._clock(), seconds=float(done.group(1)))
        elif rest == "CACHED":
            yield StepEvent(key, completed=self._clock(), seconds=0.0, cached=True)
        elif rest == "CANCELED" or rest.startswith("ERROR: "):
            yield StepEvent(key, completed=self._clock(), error=rest.removeprefix("ERROR: "))
        elif rest != "..." and not rest.startswith("sha256:") and rest != self._names[key]:
            yield StepEvent(key, status=rest)


Parser = RawJsonParser | PlainParser
