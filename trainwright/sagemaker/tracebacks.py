"""Reads tracebacks out of logs: frames, exceptions, chains and groups, in the forms in which jobs print them.

Python's own form (also indented, after the prefixes of launchers, of several ranks in turn, and without indentation),
rich's boxes, faulthandler's report of a signal, C++'s ``terminate called after throwing``, and a failed assertion of a
CUDA kernel.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from trainwright.sagemaker.frames import ERROR, MOST_MESSAGE, Earlier, Read, frame_of, frames_of, named_error

_OPEN_LINES = 400  # of one traceback
_MESSAGE_LINES = 120
_MOST_MIXED = 64
_CUT_OFF = "the log breaks off before the exception"
_MOST_WHAT = 5  # lines between "terminate called" and what()
TRIGGERS = (
    b"Traceback (most recent call last)",
    b"terminate called after throwing",
    b"Fatal Python error: ",
    b"] Assertion `",
    b"ErrorMessage ",
)
_HEADER = re.compile(r"(?P<kind>Exception Group |Original |Remote )?Traceback \(most recent call last\)(?P<rest>.*)")
_LINKS: dict[str, Literal["cause", "context"]] = {
    "The above exception was the direct cause of the following exception:": "cause",
    "During handling of the above exception, another exception occurred:": "context",
}
# What a line has that begins a traceback, or adds to one whose message is known.
STOPS = (*TRIGGERS, *(each.encode() for each in _LINKS), b"-- Process ")
# Colours, carriage returns and the line ends of JSON, which are taken away or split line by line.
LINE_BY_LINE = (b"\x1b", b"\r", b"\\n")
# A header and the indented lines behind it that have its prefix, then the exception, if it has that prefix, too.
PLAIN = re.compile(
    rb"(?P<prefix>[^\n]{0,80}?)Traceback \(most recent call last\):\n(?P<lines>(?:(?P=prefix)  [^\n]*\n)+)"
    rb"(?:(?P=prefix)(?P<type>[A-Za-z_][\w.]*)(?P<message>:[^\n]*)?\n)?"
)
_FRAME = re.compile(r'File "(?P<path>[^"]+)", line (?P<line>\d+)(?:,? in (?P<function>.+?))?\s*$')
_FRAME_IN_LINE = re.compile(r'File "(?P<path>[^"]+)", line (?P<line>\d+), in (?P<function><?\w+>?)')
_RICH_FRAME = re.compile(r"^(?P<path>[^\s:][^:]*\.py):(?P<line>\d+) in (?P<function>\S+)")
_RICH_EDGE = re.compile(r"^[│|┃]\s?(?P<text>.*?)\s*[│|┃]?$")
_GROUP_EDGE = re.compile(r"^\s*(?:[|+][ -]?)*(?P<text>.*)$")
_MEMBER = re.compile(r"^\s*(?:\| *)*\+-[+-]*-{4,} (?:\d+|\.\.\.) -{4,}$")
_LAST_MEMBER = re.compile(r"^\s*(?:\| *)*\+-{20,}$")
_ONE_LINE_ERROR = re.compile(
    r"(?:^|[\s:\"])(?P<type>(?:\w+\.)*_?[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Iteration|Timeout)): (?P<message>.*)"
)
_THROWN = re.compile(r"terminate called after throwing an instance of '(?P<type>[^']+)'")
_FATAL = re.compile(r"(?P<type>Fatal Python error): (?P<message>.+)$")
_KERNEL = re.compile(r"(?P<path>[\w./\\:-]+):(?P<line>\d+):.*\bblock: \[.*\] Assertion `(?P<message>[^`]+)` failed")
_TENSORFLOW_NODE = re.compile(r"^\s*\[\[\{?\{?(?:node |Node: )")
_WORKER = re.compile(r"^Caught \w+ in (?:DataLoader worker process|replica|pin memory thread)")


@dataclass
class _Open:
    """A traceback that is being read."""

    read: Read
    state: Literal["frames", "message", "rich", "fatal", "what", "quoted"] = "frames"
    lines: int = 0
    indent: int | None = None  # of the frames
    group: bool = False
    inner: bool = False  # a part of the group before it
    member: bool = False  # the line that announces a part of this group was the last
    current: bool = False  # faulthandler: whether these are the frames of the thread that failed
    link: Literal["cause", "context"] | None = None
    text: list[str] = field(default_factory=list)

    def done(self) -> Read:
        """What was read, with its whole message."""
        read = self.read
        if self.state == "message":
            read.message = _message(read, self.text)
        if self.state == "quoted":
            for line in self.text:
                read.frames += [frame_of(found) for found in _FRAME_IN_LINE.finditer(line)]
                if found := next(reversed([*_ONE_LINE_ERROR.finditer(line)]), None):
                    read.type, read.message = found["type"], found["message"].strip()[:MOST_MESSAGE]
        return read


class TracebackReader:
    """Reads the tracebacks of one log, line by line; each rank's lines have their own state."""

    def __init__(self) -> None:
        self.found: list[Read] = []
        self._open: dict[int | None, list[_Open]] = {}
        self._reported = (0, 0)

    @property
    def busy(self) -> bool:
        """Whether a traceback is open."""
        return bool(self._open)

    def feed(self, number: int, text: str, rank: int | None) -> None:
        """Take a line.

        Args:
            number: of the line.
            text: without prefixes; the indentation is kept.
            rank: that wrote it, if the line says so.
        """
        if report := re.match(r"\s+rank\s+: (\d+) \(local_rank", text):  # torchrun's summary
            self._reported = number, int(report[1])
        if "\\n" in text and any(each.decode() in text for each in TRIGGERS):  # line ends of JSON
            for part in text.replace('\\"', '"').split("\\n"):
                self.feed(number, part, rank)
        elif not self._starts(number, text, rank) and rank in self._open:
            self._goes_on(text, rank)

    def feed_indented(self, lines: bytes, rank: int | None) -> bool:
        """Take the indented lines behind a header that was the last line: many logs repeat the same ones.

        Returns:
            whether they were taken; they are to be fed one by one if not.
        """
        here = self._open[rank][-1] if rank in self._open else None
        count = lines.count(b"\n")
        if here is None or here.state != "frames" or here.group or here.inner or here.lines or count > _OPEN_LINES:
            return False
        if any(each in lines for each in (*TRIGGERS, *LINE_BY_LINE)):
            return False
        here.lines, here.indent = count, 2
        here.read.frames += frames_of(lines)
        return True

    @property
    def settled(self) -> bool:
        """Whether all that is open has its message, so that only a line with one of :data:`STOPS` adds to it."""
        return all(
            each.state == "message"
            and not each.link
            and not each.group
            and not each.inner
            and each.read.message[-1:] not in ("", ":")
            for waiting in self._open.values()
            for each in waiting
        )

    def skip(self, count: int) -> None:
        """Leave out lines, when :attr:`settled`, that have none of :data:`STOPS`."""
        for rank, waiting in list(self._open.items()):
            waiting[-1].lines += count
            if waiting[-1].lines >= _MESSAGE_LINES:
                self.end(rank)

    def close(self) -> None:
        """End what is open, at the end of the log."""
        for rank in list(self._open):
            self.end(rank)

    # ---- beginnings ----

    def _starts(self, number: int, text: str, rank: int | None) -> bool:
        quoted = text.find('ErrorMessage "')
        if found := _HEADER.search(text):
            if _FRAME_IN_LINE.search(found["rest"]):  # a failure's reason, in one line
                self._in_line(number, found["rest"], rank)
            else:
                self._header(number, text, rank, found)
        elif found := _THROWN.search(text):
            self._begin(rank, _Open(Read(number, rank, "terminate", found["type"]), "what"))
        elif found := _FATAL.search(text):
            read = Read(number, rank, "fatal", found["type"], found["message"].strip())
            self._begin(rank, _Open(read, "fatal"))
        elif "] Assertion `" in text:
            seen = any(each.form == "kernel" and each.rank == rank for each in self.found)
            if not seen and (found := _KERNEL.search(text)):
                where = re.split(r"[/\\]", found["path"])[-1]
                message = f"`{found['message']}` failed ({where}:{found['line']})"
                self.found.append(Read(number, rank, "kernel", "CUDA assertion", message))
        elif quoted >= 0:
            here = _Open(Read(number, rank, "quoted"), "quoted")
            self._begin(rank, here)
            self._goes_on(text[quoted + len('ErrorMessage "') :], rank)
        else:
            return False
        return True

    def _begin(self, rank: int | None, new: _Open) -> None:
        self.end(rank)
        self._open[rank] = [new]

    def _in_line(self, number: int, text: str, rank: int | None) -> None:
        """Read a traceback of one line; its exception may be in the next."""
        here = _Open(Read(number, rank, "quoted"), "quoted", text=[text])
        self._begin(rank, here)
        if here.done().type:
            self.end(rank)
        else:
            here.state, here.indent, here.read.type, here.read.message = "frames", 0, "Traceback", _CUT_OFF

    def _header(self, number: int, text: str, rank: int | None, found: re.Match[str]) -> None:
        at, reported = self._reported
        read = Read(number, reported if rank is None and number - at <= 6 and at else rank)
        read.ended = rank is None and number - at <= 6 and at > 0
        boxed = "─" in text or "━" in text
        new = _Open(read, "rich" if boxed else "frames", group=found["kind"] == "Exception Group ")
        waiting = self._open.get(rank, [])
        before = waiting[-1] if waiting else None
        group = next((each for each in waiting if each.group and each.state == "message"), None)
        if group is not None and group.member:
            self._fold(waiting)
            group.member, new.inner = False, True
        elif before is not None and before.link is not None:
            earlier = _earlier(before.done(), before.link)
            read.earlier, read.line, new.inner = [*before.read.earlier, earlier], before.read.line, before.inner
            waiting.pop()
        elif before is not None and before.state == "message" and _holds(before, found["kind"]):
            read.line, read.frames, read.ended = before.read.line, before.read.frames, before.read.ended
            waiting.pop()
        elif before is None or before.state != "frames" or len(waiting) > _MOST_MIXED:
            self.end(rank)  # else the lines of several processes are mixed, and what is open stays so
        self._open.setdefault(rank, waiting if rank in self._open else []).append(new)

    @staticmethod
    def _fold(waiting: list[_Open]) -> None:
        """Make a part of a group of the traceback that was read last, if it is one."""
        if waiting and waiting[-1].inner:
            part = waiting.pop().done()
            group = next((each for each in waiting if each.group), None)
            if group is not None and part.type:
                group.read.earlier.append(_earlier(part, "member"))

    # ---- what follows ----

    def _goes_on(self, text: str, rank: int | None) -> None:
        waiting = self._open[rank]
        here = waiting[-1]
        here.lines += 1
        steps = {
            "frames": self._frame,
            "message": self._said,
            "rich": self._boxed,
            "fatal": self._thread,
            "what": self._what,
            "quoted": self._quoted,
        }
        if not steps[here.state](waiting, text) or here.lines > _OPEN_LINES:
            self.end(rank)

    def _frame(self, waiting: list[_Open], text: str) -> bool:
        here = waiting[-1]
        plain = text
        if (here.group or here.inner) and (edge := _GROUP_EDGE.match(text)):
            plain = edge["text"]
        indent = len(plain) - len(plain.lstrip())
        if found := _FRAME.search(plain):
            here.indent = indent if here.indent is None else min(indent, here.indent)
            here.read.frames.append(frame_of(found))
            return True
        if indent <= (here.indent or 0) and (found := named_error(plain)):
            here.read.type, here.read.message = found["type"], (found["message"] or "").strip()[:MOST_MESSAGE]
            here.state, here.lines = "message", 0
        return True

    def _said(self, waiting: list[_Open], text: str) -> bool:
        """A line of the message, or between it and what belongs to it."""
        here = waiting[-1]
        plain = text.strip(" \t|+")
        group = next((each for each in waiting if each.group), None)
        if group is not None and _MEMBER.match(text):
            self._fold(waiting)
            group.member = True
        elif group is not None and _LAST_MEMBER.match(text):
            self._fold(waiting)
            group.member = False
        elif group is not None and group.member and (found := ERROR.match(plain)):  # it has no traceback
            earlier = Earlier(type=found["type"], message=(found["message"] or "")[:MOST_MESSAGE], how="member")
            group.read.earlier.append(earlier)
            group.member = False
        elif plain in _LINKS:
            here.link = _LINKS[plain]
        elif len(here.text) < _MESSAGE_LINES:
            here.text.append(text.strip())
        return here.lines < _MESSAGE_LINES

    @staticmethod
    def _boxed(waiting: list[_Open], text: str) -> bool:
        here, plain = waiting[-1], text.strip()
        edge = _RICH_EDGE.match(plain)
        inside = edge["text"].strip() if edge else ""
        if edge and (found := _RICH_FRAME.match("".join(here.text) + inside)):  # a long path goes over two lines
            here.read.frames.append(frame_of(found))
            here.text = []
        elif edge:
            here.text = [*here.text, inside] if inside.startswith("/") or (here.text and inside) else []
        elif not edge and (found := named_error(plain)):
            here.read.type, here.read.message = found["type"], (found["message"] or "").strip()[:MOST_MESSAGE]
            here.state, here.lines = "message", 0
        return True

    @staticmethod
    def _thread(waiting: list[_Open], text: str) -> bool:
        here = waiting[-1]
        if "(most recent call first)" in text:
            here.current = "Current thread" in text
        elif here.current and (found := _FRAME.search(text)):
            here.read.frames.insert(0, frame_of(found))
        return not text.startswith("Extension modules:")

    @staticmethod
    def _what(waiting: list[_Open], text: str) -> bool:
        here = waiting[-1]
        if found := re.match(r"\s*what\(\):\s*(.*)", text):
            here.read.message = found[1].strip()[:MOST_MESSAGE]
            return False
        return here.lines < _MOST_WHAT

    @staticmethod
    def _quoted(waiting: list[_Open], text: str) -> bool:
        """A line of the toolkit's ErrorMessage, which holds the end of what the script wrote to standard error."""
        here = waiting[-1]
        said, command, _ = text.partition(' Command "') if not text.startswith("Command ") else ("", text, "")
        ends = bool(command) or said.rstrip().endswith('"')
        here.text.append(said.rstrip().removesuffix('"'))
        return not ends and here.lines < _MESSAGE_LINES

    # ---- ends ----

    def end(self, rank: int | None) -> None:
        """End what is open of a rank."""
        waiting = self._open.pop(rank, [])
        self._fold(waiting)
        self.found += [read for each in waiting if (read := each.done()).type]


def _earlier(read: Read, how: Literal["cause", "context", "member"]) -> Earlier:
    return Earlier(type=read.type, message=read.message, how=how, frame=read.frame)


def _holds(before: _Open, kind: str | None) -> bool:
    """Whether the traceback that follows an exception's message is a part of it: that of a worker or child."""
    said = before.read.message
    return kind in ("Original ", "Remote ") or bool(_WORKER.match(said)) or "-- Process " in " ".join(before.text)


def _message(read: Read, more: list[str]) -> str:
    """The message of an exception, whose first line may say nothing."""
    if read.type.startswith("tensorflow.") and read.message.endswith("error:"):
        # "Graph execution error:", then the stack of each node, and the message before the node's name.
        at = next((number for number, line in enumerate(more) if _TENSORFLOW_NODE.match(line)), None)
        said = next((line for line in reversed(more[:at]) if line), "") if at is not None else ""
        return f"{read.message} {said}".strip()[:MOST_MESSAGE]
    if not read.message or read.message.endswith(":"):
        said = next((line for line in more if line and line not in _LINKS), "")
        return f"{read.message} {said}".strip()[:MOST_MESSAGE]
    return read.message
