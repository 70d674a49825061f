"""``diagnose``: find the cause of a failed job in its log.

The known causes are data in ``causes.yaml``. Without a known cause the result is "unknown", with the relevant lines.
"""

from __future__ import annotations

import re
import string
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from trainwright.core.data_files import read_yaml
from trainwright.core.errors import RequestError
from trainwright.core.fields import Pattern
from trainwright.core.records import Checked, Field, Record, parse_record

PATH = Path(__file__).with_name("causes.yaml")
SCHEMA: Literal["trainwright/diagnosis/1"] = "trainwright/diagnosis/1"
MOST_EVIDENCE, MOST_MATTERS, LONGEST_LINE = 3, 20, 4000
_TAIL = 5
# Colours, and the prefixes of mpirun, the toolkit, CloudWatch and docker compose.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07|[\x00-\x08\x0b-\x1f\x7f]")
_PREFIX = re.compile(
    r"^(?:\s*\[\d+,(?:mpirank:)?\d+(?:,algo-\d+)?\]\s*<std(?:out|err)>:?|\s*\[\d+,\d+\]<std(?:out|err)>:"
    r"|\s*\[?rank\d+\]?:|\s*(?:algo-\d+(?:-\w+)?|\w{8,12}-algo-\d+-\w+)\s*\|"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?[\s|]+)\s*"
)
_MATTERS = re.compile(
    r"\b(?:error|fatal|exception|failed|failure|killed|abort(?:ed|ing)?|panic|denied|refused|timed? ?out|cannot|"
    r"could not|unable to|segmentation fault|no such file|not found)\b|^\w+(?:\.\w+)*(?:Error|Exception|Warning):",
    re.I,
)


CauseId = Checked[str, Pattern(r"^[a-z0-9-]+$")]


class KnownCause(Record):
    """A known cause: its patterns, a description, the fix, and the source."""

    id: CauseId
    rank: Annotated[int, Meta(ge=1, le=3)] = Field(description="3 the cause, 2 likely, 1 a consequence")
    patterns: Annotated[tuple[str, ...], Meta(min_length=1)]
    at_least: Annotated[int, Meta(ge=1)] = Field(
        default=1, description="lines that must show it; a retry or two is normal"
    )
    at_the_end: bool = Field(default=False, description="only if it is the last line of the log")
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

    causes: tuple[KnownCause, ...]
    rehearsal: tuple[KnownRehearsalCause, ...] = ()


class LogLine(Record):
    """A line of the log, without colours."""

    line: Annotated[int, Meta(ge=1)]
    text: str


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
    causes: tuple[Diagnosed, ...]
    matters: tuple[LogLine, ...]


@dataclass
class _Seen:
    count: int = 0
    last: int = 0
    evidence: list[LogLine] = field(default_factory=list)
    groups: dict[str, str] = field(default_factory=dict)


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


def clean(line: str) -> str:
    """Return a line without colours and control characters."""
    return _ESCAPES.sub("", line.rstrip("\r\n").rsplit("\r", 1)[-1])[:LONGEST_LINE]


def bare(line: str) -> str:
    """Return a cleaned line without the prefixes of launchers and CloudWatch."""
    for _ in range(3):
        shorter = _PREFIX.sub("", line, count=1)
        if shorter == line:
            break
        line = shorter
    return line


def diagnose(lines: Iterable[str], log: str = "-", causes: Sequence[KnownCause] | None = None) -> DiagnosisDocument:
    """Find the known causes in a log, likeliest first.

    Args:
        lines: the log.
        log: its name, for the document.
        causes: the known causes; by default the shipped ones.

    Causes come before likely causes, and these before consequences; among equals the earliest in the log comes first,
    as later ones are often its effects.
    """
    book = [(cause, [re.compile(p) for p in cause.patterns]) for cause in (causes or load_causes())]
    seen: dict[str, _Seen] = {}
    matters: list[LogLine] = []
    tail: list[LogLine] = []
    total = 0
    for total, raw in enumerate(lines, 1):
        text = clean(raw)
        if not text.strip():
            continue
        message = bare(text)
        for cause, patterns in book:
            match = next((m for p in patterns if (m := p.search(message))), None)
            if match is None:
                continue
            matched = seen.setdefault(cause.id, _Seen())
            matched.count += 1
            matched.last = total
            matched.groups |= {k: v.strip() for k, v in match.groupdict().items() if v}
            if len(matched.evidence) < MOST_EVIDENCE:
                matched.evidence.append(LogLine(line=total, text=text))
        here = LogLine(line=total, text=text)
        if _MATTERS.search(message) and len(matters) < 500:
            matters.append(here)
        tail = [*tail[-(_TAIL - 1) :], here]
    end = tail[-1].line if tail else 0
    shown = [c for c, _ in book if c.id in seen and seen[c.id].count >= c.at_least]
    found = [_diagnosed(c, seen[c.id]) for c in shown if not c.at_the_end or seen[c.id].last >= end]
    ranks = {cause.id: cause.rank for cause, _ in book}
    found.sort(key=lambda d: (-ranks[d.id], d.evidence[0].line))
    # A specific cause replaces the general one of the loader for the same line.
    special = {e.line for d in found if d.id != "library" for e in d.evidence}
    found = [d for d in found if d.id != "library" or not {e.line for e in d.evidence} <= special]
    unknown = not any(d.certainty != "consequence" for d in found)
    return DiagnosisDocument(
        schema=SCHEMA,
        log=log,
        lines=total,
        unknown=unknown,
        causes=tuple(found),
        matters=_chosen(matters, tail) if unknown else (),
    )


def _diagnosed(cause: KnownCause, seen: _Seen) -> Diagnosed:
    return Diagnosed(
        id=cause.id,
        certainty=cause.certainty,
        cause=filled(cause.cause, seen.groups),
        remedy=filled(cause.remedy, seen.groups),
        source=cause.source,
        count=seen.count,
        evidence=tuple(seen.evidence),
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


def _chosen(matters: Sequence[LogLine], tail: Sequence[LogLine]) -> tuple[LogLine, ...]:
    """Return the lines to look at: the first and last that mention an error, and the end of the log."""
    half = MOST_MATTERS // 2
    kept = [*matters[:half], *matters[half:][-(MOST_MATTERS - half - len(tail)) :], *tail]
    return tuple(sorted({each.line: each for each in kept}.values(), key=lambda each: each.line))


def diagnose_file(log: str) -> DiagnosisDocument:
    """Diagnose a file, or standard input for ``-``.

    Raises:
        RequestError: the file is missing or empty.
    """
    if log == "-":
        found = diagnose((raw.decode("utf-8", "replace") for raw in sys.stdin.buffer), log)
    else:
        path = Path(log)
        if not path.is_file():
            raise RequestError(f"{log}: no such file", remedy="./invoke diagnose LOG, or - for standard input")
        with path.open(encoding="utf-8", errors="replace") as lines:
            found = diagnose(lines, log)
    if not found.lines:
        raise RequestError(f"{log}: the log is empty", remedy="CloudWatch keeps one log stream per host.")
    return found


def diagnosis_text(found: DiagnosisDocument) -> str:
    """Return the diagnosis as text."""
    lines: list[str] = []
    for number, each in enumerate(found.causes, 1):
        lines.append(f"{number}. {each.cause} [{each.certainty}, {each.id}]")
        lines += [f"   {e.line}: {e.text[:200]}" for e in each.evidence]
        if each.count > len(each.evidence):
            lines.append(f"   … and {each.count - len(each.evidence)} more lines")
        lines.append(f"   fix: {each.remedy}")
        lines.append(f"   why: {each.source}")
    if found.unknown:
        lines.append("unknown: no known cause found in this log. Relevant lines:")
        lines += [f"   {e.line}: {e.text[:200]}" for e in found.matters]
    return "\n".join(lines)
