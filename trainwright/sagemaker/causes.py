"""The known causes of failed jobs: the catalogue in ``causes.yaml``, read and checked."""

from __future__ import annotations

import re
import signal
import string
from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta
from msgspec.structs import replace

from trainwright.core.data_files import read_yaml
from trainwright.core.errors import RequestError
from trainwright.core.fields import form
from trainwright.core.records import Field, Record, parse_record

PATH = Path(__file__).with_name("causes.yaml")
CauseId = Annotated[str, form(r"^[a-z0-9-]+$")]


class KnownCause(Record):
    """A known cause: its patterns, a description, the fix, and the source."""

    id: CauseId
    rank: Annotated[int, Meta(ge=1, le=3)] = Field(description="3 the cause, 2 likely, 1 a consequence")
    patterns: tuple[str, ...] = ()
    signal: Annotated[int, Meta(ge=1, le=15)] | None = Field(
        default=None, description="a process that it ended shows the cause, as launchers report it"
    )
    at_least: Annotated[int, Meta(ge=1)] = Field(
        default=1, description="lines that must show it; a retry or two is normal"
    )
    at_the_end: bool = Field(default=False, description="only if it is the last line of the log")
    needs: str | None = Field(default=None, description="a cause that must be found near it, in the same log")
    ranks_part: bool = Field(default=False, description="only if Horovod's report lists tensors that ranks disagree on")
    over: tuple[str, ...] = Field(default=(), description="causes that this one replaces where both are found")
    near: Annotated[int, Meta(ge=0)] = Field(
        default=0, description="how many lines the replaced or needed one may be away; 0: the same line"
    )
    cause: str
    remedy: str
    source: str

    @property
    def certainty(self) -> Literal["cause", "likely", "consequence"]:
        """The rank in words."""
        words: tuple[Literal["cause", "likely", "consequence"], ...] = ("consequence", "likely", "cause")
        return words[self.rank - 1]


def reports_of(number: int) -> tuple[str, ...]:
    """How launchers report a process that a signal ended, as patterns.

    The shell and containers add 128 to its number; Python, torchrun, Horovod and DeepSpeed negate it; mpirun, torchrun,
    ``multiprocessing`` and ``subprocess`` give its name, bash the line of the script and the name in words. What they
    say of signals that they send is not a report.
    """
    name = signal.Signals(number).name
    codes = rf"(?:{128 + number}|-{number})"
    return (
        rf"(?i)\bexit(?:s|ed)?(?: with)?(?: return| status)?[ _]?(?:code|status)\s*[:=]?\s*['\"]?{codes}\b",
        rf"(?i)\bsignal {number} \(",
        rf"Signal: [\w ]+ \({number}\)",
        rf"terminated with signal {name}\b",
        rf"died with <Signals\.{name}\b",
        rf": line \d+: +\d+ {signal.strsignal(number)}(?: {{2}}| \(core dumped|$)",
    )


class KnownRehearsalCause(Record, dict=True):
    """A cause in a rehearsed job; the pattern is searched in the whole output of a host, line ends included."""

    id: CauseId
    pattern: str
    cause: str
    remedy: str
    source: str

    @cached_property
    def search(self) -> re.Pattern[str]:
        """The pattern, compiled."""
        return re.compile(self.pattern, re.MULTILINE)


class CauseBook(Record):
    """``causes.yaml``: the catalogue of messages of failed jobs."""

    causes: tuple[KnownCause, ...]
    rehearsal: tuple[KnownRehearsalCause, ...] = ()


@cache
def load_book(path: Path = PATH) -> CauseBook:
    """Return the known causes.

    Raises:
        RequestError: the file is invalid, or a pattern is not a regular expression.
    """
    book = parse_record(CauseBook, read_yaml(path), path.name)
    for cause in book.causes:
        if not cause.patterns and cause.signal is None:
            raise RequestError(f"{path.name}: {cause.id}: it has neither patterns nor a signal")
    book = replace(book, causes=tuple(_with_reports(cause) for cause in book.causes))
    patterns = [(cause.id, pattern) for cause in book.causes for pattern in cause.patterns]
    for name, pattern in [*patterns, *((cause.id, cause.pattern) for cause in book.rehearsal)]:
        try:
            re.compile(pattern)
        except re.error as wrong:
            raise RequestError(f"{path.name}: {name}: {pattern}: {wrong}") from None
    return book


def _with_reports(cause: KnownCause) -> KnownCause:
    if cause.signal is None:
        return cause
    return replace(cause, patterns=(*cause.patterns, *reports_of(cause.signal)))


def load_causes(path: Path = PATH) -> tuple[KnownCause, ...]:
    """Return the causes that are found in single lines of a log; raises as :func:`load_book`."""
    return load_book(path).causes


def filled(text: str, groups: Mapping[str, str]) -> str:
    """Replace ``{name}`` with what a pattern matched; if nothing, the text stays readable.

    Only a plain name in braces is replaced: a remedy may contain a dict or a shell's braces.
    """
    names = {name for _, name, _, _ in string.Formatter().parse(_only_names(text)) if name}
    for name in names:
        text = text.replace(f" ({{{name}}})", f" ({groups[name]})" if name in groups else "")
        text = text.replace(f"(symbol {{{name}}})", f"(symbol {groups[name]})" if name in groups else "")
        text = text.replace(f"{{{name}}}", groups.get(name, "it"))
    return text.replace("  ", " ").replace(" ;", ";").replace(" ,", ",")


def _only_names(text: str) -> str:
    return "".join(f"{{{name}}}" for name in re.findall(r"\{([a-z_]+)\}", text))
