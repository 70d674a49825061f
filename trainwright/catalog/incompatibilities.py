"""What does not go together beyond single lines: ``templates/rules.yaml`` as typed data, and held against an image.

``packaging`` is imported only where a rule has a range to compare.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import StringConstraints, model_validator

from trainwright.catalog.image_line import Evidence
from trainwright.core.records import Record

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

# A version range in pip's words, such as ">=2.1, <3". Checked by its form here; read only where a rule needs it.
_RANGE = r"(==|!=|<=|>=|<|>|~=) ?\d+(\.\d+)*(\.\*)?"
Range = Annotated[str, StringConstraints(pattern=rf"^{_RANGE}( ?, ?{_RANGE})*$")]


class Match(Record):
    """A component of an image: there at all, and where named of this provider and in this range of versions."""

    version: Range | None = None
    provider: str | None = None


class When(Record):
    """The conditions of a rule; all that are named must hold. ``cuda`` is a range or ``cpu``; ``os`` holds patterns;
    ``packages`` are Python packages that the line or a component pins."""

    framework: str | None = None
    version: Range | None = None
    cuda: Range | Literal["cpu"] | None = None
    python: Range | None = None
    os: tuple[str, ...] = ()
    components: dict[str, Match] = {}
    packages: dict[str, Range] = {}

    @model_validator(mode="after")
    def _not_empty(self) -> When:
        if not self.model_fields_set:
            raise ValueError("a rule without conditions would hold for every image")
        return self


class Incompatibility(Record):
    """An incompatibility that holds beyond single lines: what it refuses, or what it has a user know, and why."""

    name: str
    when: When
    refuse: str | None = None
    notice: str | None = None
    why: str
    evidence: Evidence

    @model_validator(mode="after")
    def _one_effect(self) -> Incompatibility:
        if (self.refuse is None) == (self.notice is None):
            raise ValueError("a rule has either refuse or notice")
        return self


class RuleBook(Record):
    """``templates/rules.yaml``. ``foreseen`` are frameworks and components that rules name and that have no line or
    folder yet; any other unknown name in a rule is an error."""

    foreseen: tuple[str, ...] = ()
    rules: tuple[Incompatibility, ...] = ()


@dataclass(frozen=True)
class Fact:
    """One thing that is true of an image, and the words of the request that make it so (none: the line does).

    ``words`` make its version what it is, and without them it would be ``otherwise``; ``added`` make it be there.
    """

    value: str | None
    words: frozenset[str] = frozenset()
    otherwise: str | None = None
    added: frozenset[str] = frozenset()
    provider: str | None = None


@dataclass(frozen=True)
class Composition:
    """What an image would be made of; an unknown version is ``None`` and fits no range."""

    framework: Fact
    version: Fact
    cuda: Fact
    python: Fact
    os: Fact
    components: Mapping[str, Fact] = field(default_factory=dict)
    packages: Mapping[str, Fact] = field(default_factory=dict)


def broken(rules: tuple[Incompatibility, ...], facts: Composition) -> Iterator[tuple[Incompatibility, frozenset[str]]]:
    """The refusing rules that the facts break, each with the words of the request that play a part in it."""
    for rule in rules:
        words = applies(rule.when, facts) if rule.refuse else None
        if words is not None:
            yield rule, words


def notices(rules: tuple[Incompatibility, ...], facts: Composition) -> list[str]:
    """What the rules have a user of the image know."""
    return [rule.notice for rule in rules if rule.notice and applies(rule.when, facts) is not None]


def applies(when: When, facts: Composition) -> frozenset[str] | None:
    """The words of the request without which the conditions would not hold; ``None`` where they do not hold anyway."""
    needed: set[str] = set()
    if when.framework is not None and when.framework != facts.framework.value:
        return None
    if when.os and not any(fnmatchcase(facts.os.value or "", pattern) for pattern in when.os):
        return None
    # Names before ranges: most rules are decided without reading a single version.
    for name, match in when.components.items():
        there = facts.components.get(name)
        if there is None or (match.provider is not None and match.provider != there.provider):
            return None
        needed |= there.added
    ranges = [(when.version, facts.version), (when.cuda, facts.cuda), (when.python, facts.python)]
    ranges += [(match.version, facts.components[name]) for name, match in when.components.items()]
    ranges += [(wanted, facts.packages.get(name, Fact(None))) for name, wanted in when.packages.items()]
    for wanted, fact in ranges:
        if wanted is None:
            continue
        if not within(fact.value, wanted):
            return None
        needed |= fact.added
        if not within(fact.otherwise, wanted):
            needed |= fact.words
    return frozenset(needed)


def within(version: str | None, wanted: str) -> bool:
    """Whether a version lies in a range; ``cpu`` lies in no range but the word itself."""
    if version is None or not version[:1].isdigit() or not wanted.lstrip("=!<>~ ")[:1].isdigit():
        return version == wanted
    return bool(_range(wanted).contains(version, prereleases=True))


@lru_cache
def _range(text: str) -> SpecifierSet:
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(text)
