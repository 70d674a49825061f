"""``diagnose``: find the cause of a failed job in its logs.

The known causes are data in ``causes.yaml``. Without a known cause the result is "unknown", with the relevant lines.
"""

from __future__ import annotations

import re
import string
import sys
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from trainwright.core import findings
from trainwright.core.data_files import read_yaml
from trainwright.core.errors import RequestError
from trainwright.core.fields import form
from trainwright.core.findings import Finding, FindingsDocument, Rule, Severity
from trainwright.core.records import Field, Record, parse_record
from trainwright.sagemaker.log_lines import Log, bare, blocks, clean, host_of, log_files, rank_of, time_of
from trainwright.sagemaker.log_search import Finder, Hit, Search

PATH = Path(__file__).with_name("causes.yaml")
SCHEMA: Literal["trainwright/diagnosis/1"] = "trainwright/diagnosis/1"
MOST_EVIDENCE, MOST_MATTERS = 3, 20
_TAIL = 5
# Lines to look at, by their shapes; and words one of which is in each of them, besides those of the shipped book.
_MATTERS = re.compile(
    rb"\b(?:error|fatal|exception|failed|failure|killed|abort(?:ed|ing)?|panic|denied|refused|timed? ?out|cannot|"
    rb"could not|unable to|segmentation fault|no such file|not found)\b|(?:error|exception|warning):|process name: \[\["
)
_MATTER_WORDS = "fatal", "exception", "failure", "panic", "denied", "refused", "timeout", "warning:", "no such", "[["
# What launchers say of the process that failed first: mpirun, then torchrun (torch.distributed.elastic).
_FIRST_OF_MPI = re.compile(
    r"mpirun noticed that process rank (?P<rank>\d+) with PID \d+ on node (?P<host>\S+) (?P<how>exited on signal \d+)"
    r"|Process name: \[\[\d+,\d+\],(?P<name>\d+)\]"
)
_FIRST_OF_TORCHRUN = re.compile(r"\brank\s+: (?P<rank>\d+) \(local_rank")
_HOST_OF_TORCHRUN = re.compile(r"\bhost\s+: (?P<host>\S+)")


CauseId = Annotated[str, form(r"^[a-z0-9-]+$")]


class KnownCause(Record):
    """A known cause: its patterns, a description, the fix, and the source."""

    id: CauseId
    rank: Annotated[int, Meta(ge=1, le=3)] = Field(description="3 the cause, 2 likely, 1 a consequence")
    patterns: Annotated[tuple[str, ...], Meta(min_length=1)]
    at_least: Annotated[int, Meta(ge=1)] = Field(
        default=1, description="lines that must show it; a retry or two is normal"
    )
    at_the_end: bool = Field(default=False, description="only if it is the last line of the log")
    over: tuple[str, ...] = Field(default=(), description="causes that this one replaces where both are found")
    near: Annotated[int, Meta(ge=0)] = Field(
        default=0, description="how many lines the replaced one may be away; 0: the same line"
    )
    cause: str
    remedy: str
    source: str

    @property
    def certainty(self) -> Literal["cause", "likely", "consequence"]:
        """The rank in words."""
        words: tuple[Literal["cause", "likely", "consequence"], ...] = ("consequence", "likely", "cause")
        return words[self.rank - 1]


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

    words: tuple[str, ...] = Field(default=(), description="rare ones first; a line without any shows no cause")
    causes: tuple[KnownCause, ...]
    rehearsal: tuple[KnownRehearsalCause, ...] = ()


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
    matters: tuple[LogLine, ...]


@cache
def load_book(path: Path = PATH) -> CauseBook:
    """Return the known causes.

    Raises:
        RequestError: the file is invalid, or a pattern is not a regular expression.
    """
    book = parse_record(CauseBook, read_yaml(path), path.name)
    patterns = [(cause.id, pattern) for cause in book.causes for pattern in cause.patterns]
    for name, pattern in [*patterns, *((cause.id, cause.pattern) for cause in book.rehearsal)]:
        try:
            re.compile(pattern)
        except re.error as wrong:
            raise RequestError(f"{path.name}: {name}: {pattern}: {wrong}") from None
    return book


def load_causes(path: Path = PATH) -> tuple[KnownCause, ...]:
    """Return the causes that are found in single lines of a log; raises as :func:`load_book`."""
    return load_book(path).causes


@dataclass(frozen=True)
class _Line:
    """A line that shows a cause: its place, and what orders lines of several logs."""

    log: int
    line: int
    text: str
    time: str | None


@dataclass
class _Seen:
    cause: KnownCause
    count: int = 0
    at_end: bool = False
    lines: list[_Line] = field(default_factory=list)
    groups: dict[str, str] = field(default_factory=dict)


@dataclass
class _Reading:
    """What reading the logs gives."""

    seen: dict[str, _Seen] = field(default_factory=dict)
    early: list[_Line] = field(default_factory=list)
    late: deque[_Line] = field(default_factory=lambda: deque(maxlen=MOST_MATTERS))
    tail: list[_Line] = field(default_factory=list)
    lines: int = 0
    first: str | None = None


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
    ones are often its effects. In several logs, the times of the lines decide.
    """
    logs = tuple(logs)
    search = _shipped_search() if causes is None else Search(causes, (), _MATTERS)
    reading = _Reading()
    for number, log in enumerate(logs):
        _read(reading, number, log, search)
    several = [log.name for log in logs] if len(logs) > 1 else []

    def when(line: _Line) -> tuple[str, int, int]:
        # Within one log the order of the lines is right; of several, lines without a time come last.
        return ((line.time or "~") if several else "", line.log, line.line)

    for seen in reading.seen.values():
        seen.lines.sort(key=when)
    found = [s for s in reading.seen.values() if s.count >= s.cause.at_least and (s.at_end or not s.cause.at_the_end)]
    found = [each for each in found if not any(_replaces(other, each) for other in found)]
    found.sort(key=lambda each: (-each.cause.rank, when(each.lines[0])))
    unknown = not any(each.cause.certainty != "consequence" for each in found)
    return DiagnosisDocument(
        schema=SCHEMA,
        log=name,
        lines=reading.lines,
        unknown=unknown,
        first=reading.first or _first_process(found, several),
        causes=tuple(_diagnosed(each, several) for each in found),
        matters=tuple(_shown(line, several) for line in _chosen(reading)) if unknown else (),
    )


@cache
def _shipped_search() -> Search[KnownCause]:
    book = load_book()
    return Search(book.causes, (*book.words, *_MATTER_WORDS), _MATTERS)


def _read(reading: _Reading, number: int, log: Log, search: Search[KnownCause]) -> None:
    finder = Finder(search)
    tail: list[tuple[int, str]] = []
    at_end: dict[str, int] = {}
    for block in log.blocks:
        for hit in finder.find(block):
            _look(reading, number, hit, at_end, host_of(log.name))
        tail = [*tail, *finder.last_lines(block, _TAIL)][-_TAIL:]
    reading.lines += finder.lines
    reading.tail += [_Line(number, line, text, time_of(text)) for line, text in tail]
    for cause, line in at_end.items():
        reading.seen[cause].at_end |= bool(tail) and line >= tail[-1][0]


def _look(reading: _Reading, number: int, hit: Hit[KnownCause], at_end: dict[str, int], host: str | None) -> None:
    text = clean(hit.text.decode("utf-8", "replace"))
    message = bare(text)
    here = _Line(number, hit.line, text, time_of(text))
    for cause, match in hit.matches(message):
        seen = reading.seen.setdefault(cause.id, _Seen(cause))
        seen.count += 1
        at_end[cause.id] = hit.line
        seen.groups |= {k: v.strip() for k, v in match.groupdict().items() if v}
        if sum(line.log == number for line in seen.lines) < MOST_EVIDENCE:
            seen.lines.append(here)
    if _MATTERS.search(hit.text.lower()):
        if len(reading.early) < MOST_MATTERS // 2:
            reading.early.append(here)
        else:
            reading.late.append(here)
    reading.first = reading.first or _said_first(message, hit, host)


def _said_first(message: str, hit: Hit[KnownCause], host: str | None) -> str | None:
    """The process that failed first, as its launcher reports it."""
    if "Root Cause (first observed failure)" in message:
        after = hit.after.decode("utf-8", "replace")
        if rank := _FIRST_OF_TORCHRUN.search(after):
            at = _HOST_OF_TORCHRUN.search(after)
            return f"rank {rank['rank']}" + (f" on {at['host']}" if at else "") + ", as torchrun reports"
    if found := _FIRST_OF_MPI.search(message):
        on = found["host"] or host
        how = f", which {found['how']}" if found["how"] else ""
        return f"rank {found['rank'] or found['name']}" + (f" on {on}" if on else "") + how
    return None


def _first_process(found: Sequence[_Seen], several: Sequence[str]) -> str | None:
    """The process whose line shows the first cause; ``None`` if the lines do not say which it is."""
    first = next((each.lines[0] for each in found if each.cause.certainty != "consequence"), None)
    if first is None:
        return None
    rank = rank_of(first.text)
    host = host_of(several[first.log]) if several else None
    parts = [f"rank {rank}" if rank is not None else "", f"on {host}" if host else ""]
    return " ".join(part for part in parts if part) or None


def _replaces(one: _Seen, other: _Seen) -> bool:
    """Whether a cause stands for another one, whose lines are all near its own."""
    return other.cause.id in one.cause.over and all(
        any(mine.log == line.log and abs(mine.line - line.line) <= one.cause.near for mine in one.lines)
        for line in other.lines
    )


def _shown(line: _Line, several: Sequence[str]) -> LogLine:
    return LogLine(line=line.line, text=line.text, log=several[line.log] if several else None)


def _diagnosed(seen: _Seen, several: Sequence[str]) -> Diagnosed:
    cause = seen.cause
    return Diagnosed(
        id=cause.id,
        certainty=cause.certainty,
        cause=filled(cause.cause, seen.groups),
        remedy=filled(cause.remedy, seen.groups),
        source=cause.source,
        count=seen.count,
        evidence=tuple(_shown(line, several) for line in seen.lines[:MOST_EVIDENCE]),
    )


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


def _chosen(reading: _Reading) -> list[_Line]:
    """Return the lines to look at: the first and last that mention an error, and the end of each log."""
    tail = reading.tail[-MOST_MATTERS:]
    late = list(reading.late)[-max(1, MOST_MATTERS // 2 - len(tail)) :]
    kept = {(line.log, line.line): line for line in [*reading.early, *late, *tail]}
    return [kept[place] for place in sorted(kept)]


def diagnose_file(log: str) -> DiagnosisDocument:
    """Diagnose a file, the files of a folder, or standard input for ``-``.

    Raises:
        RequestError: the file is missing or empty.
    """
    name = log
    logs = [Log(log, blocks(sys.stdin.buffer, "standard input"))] if log == "-" else log_files(Path(log))
    found = diagnose_logs(logs, name)
    if not found.lines:
        raise RequestError(f"{log}: the log is empty", remedy="CloudWatch keeps one log stream per host.")
    return found


_SEVERITIES: dict[str, Severity] = {"cause": "error", "likely": "warning", "consequence": "note"}


def rules() -> dict[str, Rule]:
    """Return the known causes as rules, by id: one record for scripts, job files and logs."""
    return findings.table(
        Rule(
            code=cause.id,
            severity=_SEVERITIES[cause.certainty],
            title=filled(cause.cause, {}),
            source=cause.source,
            remedy=filled(cause.remedy, {}),
        )
        for cause in load_causes()
    )


def as_findings(found: DiagnosisDocument) -> FindingsDocument:
    """Return the causes as findings in the log, for the formats of other programs."""
    made = [
        Finding(
            code=each.id,
            severity=_SEVERITIES[each.certainty],
            path=_file(found, each.evidence[0]),
            line=each.evidence[0].line,
            message=each.cause,
            source=each.source,
            remedy=each.remedy,
        )
        for each in found.causes
    ]
    return findings.document(found.log, list(dict.fromkeys(each.path for each in made)), {}, made)


def _file(found: DiagnosisDocument, line: LogLine) -> str:
    """The file of a line: the log, or one of a folder's."""
    return found.log if line.log is None else f"{found.log}/{line.log}"


def diagnosis_text(found: DiagnosisDocument) -> str:
    """Return the diagnosis as text."""
    lines: list[str] = []
    for number, each in enumerate(found.causes, 1):
        lines.append(f"{number}. {each.cause} [{each.certainty}, {each.id}]")
        lines += [f"   {_place(e)}: {e.text[:200]}" for e in each.evidence]
        if each.count > len(each.evidence):
            lines.append(f"   … and {each.count - len(each.evidence)} more lines")
        lines.append(f"   fix: {each.remedy}")
        lines.append(f"   why: {each.source}")
    if found.first:
        lines.append(f"failed first: {found.first}")
    if found.unknown:
        lines.append("unknown: no known cause found in this log. Relevant lines:")
        lines += [f"   {_place(e)}: {e.text[:200]}" for e in found.matters]
    return "\n".join(lines)


def _place(line: LogLine) -> str:
    return str(line.line) if line.log is None else f"{line.log}:{line.line}"
