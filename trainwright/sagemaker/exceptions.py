"""The first exception that a process of a job did not handle, as the job's logs show it.

For logs without a known cause: what the log says itself, and nothing beyond.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from trainwright.core.records import Field, Record
from trainwright.sagemaker.frames import MOST_MESSAGE, Earlier, Frame, Read, frames_of, named_error
from trainwright.sagemaker.log_lines import clean, indented, rank_of, time_of
from trainwright.sagemaker.tracebacks import LINE_BY_LINE, PLAIN, STOPS, TRIGGERS, TracebackReader

_MOST_LINES = 400_000  # read of one log; a log whose every step prints a traceback repeats itself
# Exceptions with which launchers and SDKs report that another process failed.
_REPORTS = re.compile(
    r"(?:^|\.)(?:ChildFailedError|AlgorithmError|SignalException|ExecuteUserScriptError|UnexpectedStatusException|KeyboardInterrupt"
    r"|ProcessExitedException)$"
)
_LAUNCHED = re.compile(r"^Command '.*' (?:returned non-zero exit status|died with)")
_ASSERTED = "device-side assert"


class Raised(Record):
    """An exception of a process of the job."""

    type: str
    message: str
    unhandled: bool = Field(description="whether the log shows that it ended the process")
    rank: int | None = Field(default=None, description="if the log says which process it was")
    host: str | None = None
    line: Annotated[int, Meta(ge=1)] = Field(description="where the log begins to show it")
    log: str | None = Field(default=None, description="which log, if there are several")
    frame: Frame | None = Field(default=None, description="the last one in the user's code")
    raised_in: Frame | None = Field(default=None, description="the last one of all, where that is another one")
    count: Annotated[int, Meta(ge=1)] = Field(description="how often the logs show the same type at the same frame")
    earlier: tuple[Earlier, ...] = Field(
        default=(), description="the exceptions from which it was raised, oldest first, or those of the group"
    )


class Collector:
    """Collects the exceptions of one log.

    Args:
        log: its number.
        host: whose log it is, if known.
    """

    def __init__(self, log: int, host: str | None) -> None:
        self.log, self.host = log, host
        self.times: dict[int, str | None] = {}
        self._reader = TracebackReader()
        self._alone: Read | None = None
        self._left = _MOST_LINES
        # Prefix, lines of frames and type of those that were read, and how often they came again.
        self._again: dict[tuple[bytes, bytes, bytes], int] = {}

    def take(self, before: int, block: bytes) -> None:
        """Read a block of whole lines.

        Args:
            before: how many lines came before it.
            block: the lines.
        """
        stops = sorted(at for stop in STOPS for at in _places(block, stop))
        if not stops and not self._reader.busy:
            return
        at, number = 0, before
        while at < len(block) and self._left > 0:
            if self._reader.settled:
                following = bisect_left(stops, at)
                start = max(at, _back(block, stops[following])) if following < len(stops) else len(block)
                skipped = block.count(b"\n", at, start)
                self._reader.skip(skipped)
                at, number = start, number + skipped
                if start == len(block):
                    return
                if (known := self._came_again(block, at, stops)) is not None:
                    at, number = known.end(), number + known[0].count(b"\n")
                    continue
            end = block.find(b"\n", at) + 1 or len(block)
            number += 1
            rank = self._line(number, block[at:end])
            if (found := PLAIN.match(block, at)) and self._reader.feed_indented(found["lines"], rank):
                number += found["lines"].count(b"\n")
                end = found.end("lines")
            at = end

    def _came_again(self, block: bytes, at: int, stops: Sequence[int]) -> re.Match[bytes] | None:
        """Count a traceback that was read before; None for one that is to be read, or to which something may belong."""
        found = PLAIN.match(block, at)
        if found is None or found["type"] is None or (found["message"] or b"").startswith(b": Caught "):
            return None
        if any(each in found[0] for each in LINE_BY_LINE):
            return None
        following = bisect_left(stops, found.end())
        if following == len(stops) or following - bisect_left(stops, at) != 1:
            return None
        begins = stops[following]
        if not block.startswith(TRIGGERS[0], begins) or block.endswith((b"Original ", b"Remote "), at, begins):
            return None
        key = (found["prefix"], found["lines"], found["type"])
        if key not in self._again:
            self._again[key] = 0
            return None
        self._again[key] += 1
        self._reader.end(rank_of(found["prefix"].decode("utf-8", "replace")))
        return found

    def repeats(self) -> Iterator[tuple[Read, int]]:
        """The exceptions that came again, and how often, beside those of :meth:`exceptions`."""
        for (_, lines, kind), count in self._again.items():
            yield Read(0, None, type=kind.decode("ascii"), frames=list(frames_of(lines))), count

    def _line(self, number: int, raw: bytes) -> int | None:
        self._left -= 1
        text = clean(raw.decode("utf-8", "replace"))
        found = len(self._reader.found)
        busy = self._reader.busy
        rank = rank_of(text)
        self._reader.feed(number, indented(text), rank)
        if not busy or len(self._reader.found) > found or any(trigger in raw for trigger in TRIGGERS):
            self.times[number] = time_of(text)
        return rank

    def alone(self, line: int, message: str, text: str) -> None:
        """Take a line that is an exception's report, as it may be without its traceback.

        Args:
            line: its number.
            message: without prefixes.
            text: with them.
        """
        if self._alone is None and (found := named_error(message)):
            said = (found["message"] or "").strip()[:MOST_MESSAGE]
            read = Read(line, rank_of(text), "line", found["type"], said)
            if not _of_launcher(read):
                self._alone = read
                self.times[line] = time_of(text)

    def exceptions(self) -> list[Read]:
        """The exceptions of the log, at its end."""
        self._reader.close()
        found = [each for each in self._reader.found if not _of_launcher(each)]
        return found or ([self._alone] if self._alone else [])


def first_raised(collected: Sequence[Collector], names: Sequence[str]) -> Raised | None:
    """The first exception that ended a process; without any, the first one that the logs show.

    Args:
        collected: from each log.
        names: of the logs, if there are several.
    """
    found = [(each, read) for each in collected for read in each.exceptions()]
    if not found:
        return None

    lines = {id(each): sorted(each.times) for each in collected}

    def time(of: Collector, read: Read) -> str | None:
        last = bisect_right(lines[id(of)], read.line)
        return of.times[lines[id(of)][last - 1]] if last else None

    # As in a diagnosis: in one log the order of lines decides if an exception lacks a time.
    best = min(_class(read) for _, read in found)
    use_times = bool(names) or all(time(of, read) for of, read in found if _class(read) == best)

    def when(of: Collector, read: Read) -> tuple[int, str, int, int]:
        return _class(read), (time(of, read) or "~") if use_times else "", of.log, read.line

    collector, first = min(found, key=lambda each: when(*each))
    alike = Counter((read.type, read.frame) for _, read in found if _class(read) == _class(first))
    for read, again in (each for one in collected for each in one.repeats() if _class(each[0]) == _class(first)):
        alike[read.type, read.frame] += again
    made = _with_next(first, [read for each, read in found if each is collector and read.rank == first.rank])
    last = made.raised_in
    return replace(
        made,
        host=collector.host,
        log=names[collector.log] if names else None,
        count=max(1, alike[(first.type, first.frame)]),
        raised_in=None if last == made.frame else last,
    )


def _with_next(first: Read, others: Sequence[Read]) -> Raised:
    """The record of an exception, with what the same process says of it next."""
    after = next((each for each in others if each.line > first.line), None)
    read, earlier = first, list(first.earlier)
    if after is not None and first.form == "kernel" and _ASSERTED in after.message:
        read, earlier = after, [Earlier(type=first.type, message=first.message, how="cause"), *after.earlier]
    frames = read.frames
    if after is not None and first.form == "terminate" and after.form == "fatal":
        frames = after.frames
    whole = Read(read.line, read.rank, read.form, read.type, read.message, frames)
    return Raised(
        type=read.type,
        message=read.message,
        unhandled=read.from_the_start,
        rank=read.rank,
        line=first.line,
        frame=whole.frame,
        raised_in=frames[-1] if frames else None,
        count=1,
        earlier=tuple(earlier),
    )


def _class(read: Read) -> int:
    if read.form in ("quoted", "line"):
        return 2
    return 0 if read.from_the_start else 1


def _of_launcher(read: Read) -> bool:
    """Whether an exception only reports that another process failed."""
    return bool(_REPORTS.search(read.type)) or (read.frame is None and bool(_LAUNCHED.match(read.message)))


def _places(block: bytes, trigger: bytes) -> Iterator[int]:
    at = block.find(trigger)
    while at >= 0:
        yield at
        at = block.find(trigger, at + len(trigger))


def _back(block: bytes, place: int) -> int:
    """The beginning of a summary of torchrun that a traceback is a part of; that of its line otherwise."""
    at = block.rfind(b"local_rank: ", max(0, place - 400), place)
    return block.rfind(b"\n", 0, at if at >= 0 else place) + 1


def raised_line(raised: Raised) -> str:
    """The exception in one line, with its frame in the user's code."""
    at = raised.frame or raised.raised_in
    who = f" (rank {raised.rank})" if raised.rank is not None else ""
    return f"{_said(raised)}{who}" + (f", in {_where(at)}" if at else "")


def raised_text(raised: Raised) -> Iterable[str]:
    """The exception as lines for people."""
    who = f"rank {raised.rank}" if raised.rank is not None else ""
    who += f" on {raised.host}" if raised.host else ""
    what = "ended a process" if raised.unhandled else "in the log; it does not show whether the exception was handled"
    yield f"first exception ({who.strip()}): {what}" if who else f"first exception: {what}"
    yield f"   {_place(raised)}: {_said(raised)}"
    if raised.frame:
        yield f"   in your code: {_where(raised.frame)}"
    if raised.raised_in:
        yield f"   raised in: {_where(raised.raised_in)}"
    words = {"cause": "raised from", "context": "raised while handling", "member": "part of the group"}
    for each in raised.earlier:
        at = f", in {_where(each.frame)}" if each.frame else ""
        yield f"   {words[each.how]}: {_said(each)}{at}"
    if raised.count > 1:
        yield f"   shown {raised.count} times"


def _place(raised: Raised) -> str:
    return str(raised.line) if raised.log is None else f"{raised.log}:{raised.line}"


def _said(what: Raised | Earlier) -> str:
    return f"{what.type}: {what.message}" if what.message else what.type


def _where(frame: Frame) -> str:
    return f"{frame.path}:{frame.line}" + (f" in {frame.function}" if frame.function else "")
