"""``diagnose``: find the cause of a failed job in its logs.

The known causes are in :mod:`trainwright.sagemaker.causes`. Without one the result is "unknown", with the lines to
look at.
"""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from trainwright.core.errors import RequestError
from trainwright.core.records import Field, Record
from trainwright.sagemaker.causes import KnownCause, filled, load_book
from trainwright.sagemaker.exceptions import Collector, Raised, first_raised
from trainwright.sagemaker.first_failure import may_report, reported_first
from trainwright.sagemaker.frames import named_error
from trainwright.sagemaker.log_lines import Log, bare, blocks, clean, host_of, log_files, rank_of, time_of
from trainwright.sagemaker.log_search import Finder, Hit, Search
from trainwright.sagemaker.stalls import ranks_part

SCHEMA: Literal["trainwright/diagnosis/1"] = "trainwright/diagnosis/1"
MOST_EVIDENCE, MOST_MATTERS = 3, 20
_TAIL = 5
# Lines to look at, by their shapes; and words one of which is in each of them.
_MATTERS = re.compile(
    rb"\b(?:error|fatal|exception|failed|failure|killed|abort(?:ed|ing)?|panic|denied|refused|timed? ?out|cannot|"
    rb"could not|unable to|segmentation fault|no such file|not found)\b|(?:error|exception|warning):|process name: \[\["
)
_MATTER_WORDS = (
    *("error", "fatal", "exception", "fail", "killed", "abort", "panic", "denied", "refused", "time", "cannot"),
    *("could not", "unable to", "segmentation fault", "no such file", "not found", "warning:", "process name: [["),
)


class LogLine(Record):
    """A line of the log, without colours."""

    line: Annotated[int, Meta(ge=1)]
    text: str
    log: str | None = Field(default=None, description="which log, if there are several")


class Diagnosed(Record):
    """A cause found in the log."""

    id: str
    certainty: Literal["cause", "likely", "consequence"]
    cause: str
    remedy: str
    source: str
    count: Annotated[int, Meta(ge=1)] = Field(description="lines that show it")
    evidence: tuple[LogLine, ...]


class DiagnosisDocument(Record):
    """``diagnose --json``. ``unknown``: no cause was found; ``matters`` then has the lines to look at."""

    schema: Literal["trainwright/diagnosis/1"]
    log: str
    lines: int
    unknown: bool
    first: str | None = Field(default=None, description="the process that failed first, if the logs say so")
    causes: tuple[Diagnosed, ...]
    exception: Raised | None = Field(default=None, description="the first exception that a process did not handle")
    matters: tuple[LogLine, ...]


@dataclass(frozen=True)
class _Line:
    """A line that shows a cause: its place, and what orders lines of several logs."""

    log: int
    line: int
    text: str
    time: str | None


_Place = tuple[int, int, str]  # log, line, text


@dataclass
class _Seen:
    cause: KnownCause
    count: int = 0
    at_end: bool = False
    timed: bool = True
    lines: list[_Line] = field(default_factory=list)
    groups: dict[str, str] = field(default_factory=dict)


@dataclass
class _Reading:
    """What reading the logs gives."""

    seen: dict[str, _Seen] = field(default_factory=dict)
    early: list[_Place] = field(default_factory=list)
    late: deque[_Place] = field(default_factory=lambda: deque(maxlen=MOST_MATTERS))
    tail: list[_Place] = field(default_factory=list)
    lines: int = 0
    first: str | None = None
    raised: list[Collector] = field(default_factory=list)


def diagnose(lines: Iterable[str], log: str = "-", causes: Sequence[KnownCause] | None = None) -> DiagnosisDocument:
    """:func:`diagnose_logs` of one log, given as its lines."""
    text = "".join(f"{line}\n" if not line.endswith("\n") else line for line in lines)
    return diagnose_logs([Log(log, [text.encode("utf-8", "replace")])], log, causes)


def diagnose_logs(logs: Iterable[Log], name: str, causes: Sequence[KnownCause] | None = None) -> DiagnosisDocument:
    """Find the known causes in the logs of a job, likeliest first.

    Args:
        logs: one, or one per host.
        name: of all of them, for the document.
        causes: the known causes; by default the shipped ones.

    Causes come before likely causes, and these before consequences; among equals the earliest comes first, as later
    ones are often its effects. The times of the lines decide; if lines of one log lack them, their order does.
    """
    logs = tuple(logs)
    search = _shipped_search() if causes is None else Search(causes, _MATTERS, _MATTER_WORDS, _noted)
    reading = _Reading()
    for number, log in enumerate(logs):
        _read(reading, number, log, search)
    several = [log.name for log in logs] if len(logs) > 1 else []

    found = [s for s in reading.seen.values() if s.count >= s.cause.at_least and (s.at_end or not s.cause.at_the_end)]
    found = [each for each in found if each.cause.needs is None or _near(each, reading.seen.get(each.cause.needs))]
    found = [each for each in found if not any(_replaces(other, each) for other in found)]
    # The lines of one log are out of order where processes write to it through buffers. Times are only compared if all
    # lines have one; of several logs, lines without a time come last.
    use_times = bool(several) or all(each.timed for each in found if each.cause.certainty != "consequence")

    def when(line: _Line) -> tuple[str, int, int]:
        return ((line.time or "~") if use_times else "", line.log, line.line)

    for each in found:
        each.lines.sort(key=when)
    found.sort(key=lambda each: (-each.cause.rank, when(each.lines[0])))
    unknown = not any(each.cause.certainty != "consequence" for each in found)
    return DiagnosisDocument(
        schema=SCHEMA,
        log=name,
        lines=reading.lines,
        unknown=unknown,
        first=reading.first or _first_process(found, several),
        causes=tuple(_diagnosed(each, several) for each in found),
        exception=first_raised(reading.raised, several),
        matters=tuple(_shown(*place, several) for place in _chosen(reading)) if unknown else (),
    )


@cache
def _shipped_search() -> Search[KnownCause]:
    book = load_book()
    return Search(book.causes, _MATTERS, _MATTER_WORDS, _noted)


def _noted(message: str) -> bool:
    return named_error(message) is not None or may_report(message)


def _read(reading: _Reading, number: int, log: Log, search: Search[KnownCause]) -> None:
    finder = Finder(search)
    tail: list[tuple[int, str]] = []
    at_end: dict[str, int] = {}
    host = host_of(log.name)
    reading.raised.append(Collector(number, host))
    for block in log.blocks:
        reading.raised[-1].take(finder.lines, block)
        for hit in finder.find(block):
            _look(reading, number, hit, at_end, host)
        tail = [*tail, *finder.last_lines(block, _TAIL)][-_TAIL:]
    reading.lines += finder.lines
    reading.tail += [(number, line, text) for line, text in tail]
    for cause, line in at_end.items():
        reading.seen[cause].at_end |= bool(tail) and line >= tail[-1][0]


def _look(reading: _Reading, number: int, hit: Hit[KnownCause], at_end: dict[str, int], host: str | None) -> None:
    text = clean(hit.text.decode("utf-8", "replace"))
    if hit.kind.matters:
        (reading.early if len(reading.early) < MOST_MATTERS // 2 else reading.late).append((number, hit.line, text))
    if not hit.kind.tried and not hit.kind.noted:
        return
    message = bare(text)
    time = time_of(text)
    for cause, match in hit.matches(message):
        if cause.ranks_part and not ranks_part(message, hit.after):
            continue
        if (seen := reading.seen.get(cause.id)) is None:
            seen = reading.seen[cause.id] = _Seen(cause)
        seen.count += 1
        at_end[cause.id] = hit.line
        if match.re.groupindex:
            seen.groups |= {k: v.strip() for k, v in match.groupdict().items() if v}
        seen.timed &= time is not None
        _keep(seen.lines, number, hit.line, text, time)
    if hit.kind.noted:
        reading.raised[-1].alone(hit.line, message, text)
        if reading.first is None and may_report(message):
            reading.first = reported_first(message, hit.after, host)


def _keep(lines: list[_Line], log: int, number: int, text: str, time: str | None) -> None:
    """Keep the first lines of each log, and its earliest one by time."""
    of_log = [line for line in lines if line.log == log]
    if len(of_log) < MOST_EVIDENCE:
        lines.append(_Line(log, number, text, time))
    elif time and all(time < (line.time or "") for line in of_log):
        if len(of_log) > MOST_EVIDENCE:
            lines.remove(of_log[-1])
        lines.append(_Line(log, number, text, time))


def _first_process(found: Sequence[_Seen], several: Sequence[str]) -> str | None:
    """The process whose line shows the first cause; ``None`` if the lines do not say which it is."""
    first = next((each.lines[0] for each in found if each.cause.certainty != "consequence"), None)
    if first is None:
        return None
    rank = rank_of(first.text)
    host = host_of(several[first.log]) if several else None
    parts = [f"rank {rank}" if rank is not None else "", f"on {host}" if host else ""]
    return " ".join(part for part in parts if part) or None


def _near(one: _Seen, other: _Seen | None) -> bool:
    """Whether a line of another cause is near one of its own."""
    return other is not None and any(
        mine.log == line.log and abs(mine.line - line.line) <= one.cause.near
        for mine in one.lines
        for line in other.lines
    )


def _replaces(one: _Seen, other: _Seen) -> bool:
    """Whether a cause stands for another one, whose lines are all near its own."""
    return other.cause.id in one.cause.over and all(
        any(mine.log == line.log and abs(mine.line - line.line) <= one.cause.near for mine in one.lines)
        for line in other.lines
    )


def _shown(log: int, line: int, text: str, several: Sequence[str]) -> LogLine:
    return LogLine(line=line, text=text, log=several[log] if several else None)


def _diagnosed(seen: _Seen, several: Sequence[str]) -> Diagnosed:
    cause = seen.cause
    return Diagnosed(
        id=cause.id,
        certainty=cause.certainty,
        cause=filled(cause.cause, seen.groups),
        remedy=filled(cause.remedy, seen.groups),
        source=cause.source,
        count=seen.count,
        evidence=tuple(_shown(each.log, each.line, each.text, several) for each in seen.lines[:MOST_EVIDENCE]),
    )


def _chosen(reading: _Reading) -> list[_Place]:
    """Return the lines to look at: the first and last that mention an error, and the end of each log."""
    tail = reading.tail[-MOST_MATTERS:]
    late = list(reading.late)[-max(1, MOST_MATTERS // 2 - len(tail)) :]
    kept = {place[:2]: place for place in [*reading.early, *late, *tail]}
    return [kept[place] for place in sorted(kept)]


def diagnose_files(given: Sequence[str]) -> DiagnosisDocument:
    """Diagnose a file, several files of one job, the files of a folder, or standard input for ``-``.

    The document of several files has the name of the folder that they share.

    Raises:
        RequestError: a file is missing, all are empty, or ``-`` is one of several.
    """
    names = list(dict.fromkeys(given))
    name = names[0]
    if len(names) > 1:
        name, logs = _several(names)
    else:
        logs = [Log(name, blocks(sys.stdin.buffer, "standard input"))] if name == "-" else log_files(Path(name))
    found = diagnose_logs(logs, name)
    if not found.lines:
        raise RequestError(f"{name}: the log is empty", remedy="CloudWatch keeps one log stream per host.")
    return found


def _several(names: Sequence[str]) -> tuple[str, list[Log]]:
    """The folder that several files share, and the logs with their names below it."""
    if "-" in names:
        raise RequestError("-: standard input cannot be one of several logs", remedy="./invoke diagnose LOG LOG")
    paths = [Path(each) for each in names]
    if any(path.is_absolute() for path in paths):
        paths = [path.absolute() for path in paths]
    folder = Path(os.path.commonpath([path.parent for path in paths]))
    return str(folder), [log for path in paths for log in log_files(path, folder)]
