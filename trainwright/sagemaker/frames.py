"""Exceptions as tracebacks show them: their frames, the exceptions that belong to them, and the line that names one."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Literal

from msgspec import Meta

from trainwright.core.records import Field, Record

MOST_MESSAGE = 400
_FRAME_OF_LINES = re.compile(r'File "(?P<path>[^"\n]+)", line (?P<line>\d+)(?:,? in (?P<function>.+?))?[ \t]*$', re.M)
ERROR = re.compile(r"^(?P<type>[A-Za-z_]\w*(?:\.\w+)*)(?:\(\w+\))?(?::(?: (?P<message>.*))?|)$")
# Python prints the module of every exception but its own and those of the script itself.
_ERROR_NAME = re.compile(
    r"(?:^|\.)_?[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Iteration|Warning|Timeout|Group)$|^Exception$"
    r"|\.(?:_?[A-Z]\w*|error|timeout|gaierror|herror)$"
)
# A library's file, a part of Python, a script that an installer wrote into bin/.
_INSTALLED = re.compile(r"(?i)/(?:site|dist)-packages/|/lib(?:64)?/python\d|^<|/bin/[\w.-]+$|/python\d+\.zip/")
_STANDARD_ON_WINDOWS = re.compile(r"(?i)/(?:anaconda3|miniconda3|python\d*|envs/[^/]+)/lib/[^/]+")
# Where the stack of a script, and that of a child of multiprocessing and of torch.multiprocessing, begins.
_FIRST = re.compile(
    r" (?:<module>|<modul|_run_module_as_main)|multiprocessing/(?:process\.py _bootstrap|spawn\.py _wrap)$"
)


class Frame(Record):
    """A frame of a traceback."""

    path: str
    line: int
    function: str | None = None

    @property
    def own(self) -> bool:
        """Whether it is of the user's code: neither installed, nor a part of Python or compiled code."""
        path = self.path.replace("\\", "/")
        return not (_INSTALLED.search(path) or _STANDARD_ON_WINDOWS.search(path) or path.endswith((".pyx", ".pxi")))


class Earlier(Record):
    """An exception that belongs to another one."""

    type: str
    message: str
    how: Annotated[
        Literal["cause", "context", "member"],
        Meta(description="raised from it; raised while it was handled; part of the group"),
    ]
    frame: Frame | None = Field(default=None, description="as of the exception itself")


@dataclass
class Read:
    """An exception as its traceback shows it."""

    line: int
    rank: int | None
    form: Literal["traceback", "terminate", "fatal", "kernel", "quoted", "line"] = "traceback"
    type: str = ""
    message: str = ""
    frames: list[Frame] = field(default_factory=list)
    earlier: list[Earlier] = field(default_factory=list)
    ended: bool = False  # a launcher reports that it ended the process

    @property
    def from_the_start(self) -> bool:
        """Whether the traceback begins where a program does: nothing in between has handled the exception."""
        if self.ended or self.form in ("terminate", "fatal", "kernel"):
            return True
        first = self.frames[0] if self.frames else None
        return first is not None and bool(_FIRST.search(f"{first.path} {first.function}".replace("\\", "/")))

    @property
    def frame(self) -> Frame | None:
        """The last frame of the user's code."""
        return next((each for each in reversed(self.frames) if each.own), None)


@lru_cache(maxsize=256)
def frames_of(lines: bytes) -> tuple[Frame, ...]:
    """The frames in the lines behind a header."""
    return tuple(frame_of(found) for found in _FRAME_OF_LINES.finditer(lines.decode("utf-8", "replace")))


def frame_of(found: re.Match[str]) -> Frame:
    """The frame of a match with ``path``, ``line`` and ``function``."""
    return Frame(path=found["path"], line=int(found["line"]), function=found["function"])


def named_error(line: str) -> re.Match[str] | None:
    """What a line says of an exception, if all of it is an exception's report."""
    found = ERROR.match(line.strip())
    return found if found and _ERROR_NAME.search(found["type"]) else None
