"""How bad a vulnerability is, from what its record says: CVSS vectors, or the word of a database or a distribution."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

from trainwright.core.errors import RequestError, did_you_mean
from trainwright.scan.cvss import base_score
from trainwright.scan.osv import Affected, OsvRecord, OsvSeverity

SeverityLevel = Literal["critical", "high", "medium", "low", "unknown"]
LEVELS: tuple[SeverityLevel, ...] = get_args(SeverityLevel)  # the worst first
GATES = LEVELS[:-1]
# GitHub's advisories say MODERATE; Debian's urgencies and Ubuntu's priorities are words of their own.
_WORDS: Mapping[str, SeverityLevel] = {
    **{"critical": "critical", "high": "high", "medium": "medium", "moderate": "medium", "low": "low"},
    **{"negligible": "low", "unimportant": "low", "end-of-life": "unknown", "not yet assigned": "unknown"},
}


def level_of(record: OsvRecord, entries: Sequence[Affected]) -> SeverityLevel:
    """The level of a vulnerability for one package.

    A distribution that calls it unimportant has looked at its own package, so that word wins over every score.
    Otherwise the worst of the vectors counts, and only without one the words.

    Args:
        record: of the vulnerability.
        entries: those of its entries that are about the package.
    """
    words = list(_words(record, entries))
    if words and set(words) <= {"unimportant", "negligible"}:
        return "low"
    stated = [*(each for entry in entries for each in entry.severity), *record.severity]
    levels = [level for each in stated if (level := _of_vector(each)) != "unknown"]
    return worst(levels or [_WORDS.get(word, "unknown") for word in words])


def worst(levels: Sequence[SeverityLevel]) -> SeverityLevel:
    """The worst of some levels; unknown is the least, and what none is."""
    return min(levels, key=LEVELS.index, default="unknown")


def reaches(level: SeverityLevel, gate: SeverityLevel | None) -> bool:
    """Whether a level is as bad as a gate; without a gate, every level is."""
    return gate is None or LEVELS.index(level) <= LEVELS.index(gate)


def read_gate(word: str | None, where: str) -> SeverityLevel | None:
    """A level that a flag or a key names.

    Raises:
        RequestError: there is no such level.
    """
    found: SeverityLevel | None = next((each for each in GATES if each == word), None)
    if word is not None and found is None:
        raise RequestError(f"{where} {word}: no such level. {did_you_mean(word, GATES)}", remedy=", ".join(GATES))
    return found


def _of_vector(stated: OsvSeverity) -> SeverityLevel:
    """The level of a score: CVSS v3.1 section 5 and v4.0 section 6, "Qualitative Severity Rating Scale"."""
    if stated.type == "Ubuntu":
        return _WORDS.get(stated.score.lower(), "unknown")
    score = base_score(stated.score)
    if score is None:
        return "unknown"
    return "critical" if score >= 9 else "high" if score >= 7 else "medium" if score >= 4 else "low"


def _words(record: OsvRecord, entries: Sequence[Affected]) -> Iterator[str]:
    """Words for the severity: of GitHub's database, of an ecosystem, Debian's urgency."""
    specific: list[Mapping[str, Any] | None] = [record.database_specific]
    for entry in entries:
        specific += [entry.ecosystem_specific, entry.database_specific]
    for each in specific:
        for key in ("severity", "urgency"):
            if isinstance(word := (each or {}).get(key), str):
                yield word.lower()
