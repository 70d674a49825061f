"""The rules of ``templates/rules.yaml``, held against what an image would be made of.

``packaging`` is imported only where a rule has a range to compare.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from trainwright.rulebook import Rule, When, within

if TYPE_CHECKING:
    pass


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
class Facts:
    """What an image would be made of; an unknown version is ``None`` and fits no range."""

    framework: Fact
    version: Fact
    cuda: Fact
    python: Fact
    os: Fact
    components: Mapping[str, Fact] = field(default_factory=dict)
    packages: Mapping[str, Fact] = field(default_factory=dict)


def broken(rules: tuple[Rule, ...], facts: Facts) -> Iterator[tuple[Rule, frozenset[str]]]:
    """The refusing rules that the facts break, each with the words of the request that play a part in it."""
    for rule in rules:
        words = applies(rule.when, facts) if rule.refuse else None
        if words is not None:
            yield rule, words


def notices(rules: tuple[Rule, ...], facts: Facts) -> list[str]:
    """What the rules have a user of the image know."""
    return [rule.notice for rule in rules if rule.notice and applies(rule.when, facts) is not None]


def applies(when: When, facts: Facts) -> frozenset[str] | None:
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
