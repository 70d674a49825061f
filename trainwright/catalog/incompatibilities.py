"""Incompatibilities beyond single lines: ``templates/rules.yaml`` as typed data, and which rules apply to an image.

``packaging`` is imported only for versions that are more than numbers.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Struct
from msgspec.structs import replace

from trainwright.catalog.image_line import BASE, Evidence
from trainwright.core.fields import form
from trainwright.core.records import Record

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

# A version range in pip's syntax, such as ">=2.1, <3". Only its form is checked here.
_RANGE = r"(==|!=|<=|>=|<|>|~=) ?[0-9]+(\.[0-9]+)*(\.\*)?"
Range = Annotated[str, form(rf"^{_RANGE}( ?, ?{_RANGE})*$")]
CudaRange = Annotated[str, form(rf"^(cpu|{_RANGE}( ?, ?{_RANGE})*)$")]


class Match(Record):
    """A component that the image must have; if given, from one of these providers and in this range of versions."""

    version: Range | None = None
    provider: str | tuple[str, ...] | None = None

    def by(self, provider: str | None) -> bool:
        """Whether a provider is one of those that are meant."""
        named = (self.provider,) if isinstance(self.provider, str) else self.provider
        return named is None or provider in named


class When(Record):
    """The conditions of a rule; all that are given must hold. ``cuda`` is a range or ``cpu``; ``os`` is a list of
    patterns; ``packages`` are Python packages that the line or a component pins."""

    framework: str | None = None
    version: Range | None = None
    cuda: CudaRange | None = None
    python: Range | None = None
    os: tuple[str, ...] = ()
    components: dict[str, Match] = {}
    packages: dict[str, Range] = {}

    def __post_init__(self) -> None:
        if not any(getattr(self, name) for name in self.__struct_fields__):
            raise ValueError("a rule without conditions would apply to every image")


class Incompatibility(Record):
    """An incompatibility beyond single lines: what it refuses, or the notice it gives, and why."""

    name: str
    when: When
    refuse: str | None = None
    notice: str | None = None
    why: str
    evidence: Evidence

    def __post_init__(self) -> None:
        if (self.refuse is None) == (self.notice is None):
            raise ValueError("a rule has either refuse or notice")


class Wheels(Record):
    """The CUDA that a framework's wheels from a provider are compiled for, in a range of its versions."""

    framework: str
    provider: str
    version: Range
    cuda: CudaRange
    evidence: Evidence


class RuleBook(Record):
    """``templates/rules.yaml``. ``foreseen`` lists frameworks and components in rules that have no line or folder
    yet; any other unknown name in a rule is an error."""

    foreseen: tuple[str, ...] = ()
    wheels: tuple[Wheels, ...] = ()
    rules: tuple[Incompatibility, ...] = ()

    def wheels_of(self, framework: str, provider: str, version: str) -> Wheels | None:
        """What is known of a framework's wheels in a version."""
        own = (each for each in self.wheels if (each.framework, each.provider) == (framework, provider))
        return next((each for each in own if within(version, each.version)), None)


class Fact(Struct, frozen=True):
    """A fact about an image, and the words of the request that cause it (none if the line does).

    ``words`` decide its version, which is ``otherwise`` without them; ``added`` are the words that add it.
    """

    value: str | None
    words: frozenset[str] = frozenset()
    otherwise: str | None = None
    added: frozenset[str] = frozenset()
    provider: str | None = None


class Composition(Struct, frozen=True):
    """What an image would consist of; an unknown version is ``None`` and is in no range."""

    framework: Fact
    version: Fact
    cuda: Fact
    python: Fact
    os: Fact
    components: Mapping[str, Fact] = {}
    packages: Mapping[str, Fact] = {}


def broken(rules: tuple[Incompatibility, ...], facts: Composition) -> Iterator[tuple[Incompatibility, frozenset[str]]]:
    """The refusing rules that the facts violate, each with the words of the request that contribute to it."""
    for rule in rules:
        words = applies(rule.when, facts) if rule.refuse else None
        if words is not None:
            yield rule, words


def notices(rules: tuple[Incompatibility, ...], facts: Composition) -> list[str]:
    """The notices of the rules for a user of the image."""
    return [rule.notice for rule in rules if rule.notice and applies(rule.when, facts) is not None]


def known_bad(rules: tuple[Incompatibility, ...]) -> tuple[Incompatibility, ...]:
    """The rules with a notice about certain versions of components, whatever else an image consists of."""
    return tuple(r for r in rules if r.notice and any(match.version for match in r.when.components.values()))


def beside(facts: Composition, held: Mapping[str, str]) -> Composition:
    """The facts with what a base image holds (component → version, empty if unknown), unless they say more of it."""
    own = {name: Fact(version or None, provider=BASE) for name, version in held.items()}
    return replace(facts, components=own | dict(facts.components))


def applies(when: When, facts: Composition) -> frozenset[str] | None:
    """The words of the request that make the conditions hold; ``None`` if they do not hold."""
    needed: set[str] = set()
    if when.framework is not None and when.framework != facts.framework.value:
        return None
    if when.os and not any(fnmatchcase(facts.os.value or "", pattern) for pattern in when.os):
        return None
    # Names before ranges: most rules are decided without parsing a version.
    for name, match in when.components.items():
        there = facts.components.get(name)
        if there is None or not match.by(there.provider):
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


@lru_cache(maxsize=4096)
def within(version: str | None, wanted: str) -> bool:
    """Whether a version is in a range; ``cpu`` matches only itself."""
    if version is None or not version[:1].isdigit() or not wanted.lstrip("=!<>~ ")[:1].isdigit():
        return version == wanted
    public, plus, local = version.partition("+")  # no range speaks of a local part, such as +cpu
    if not version.isascii() or not all(p.isdigit() for p in public.split(".")) or bool(plus) != local.isalnum():
        return bool(_range(wanted).contains(version, prereleases=True))
    release = _numbers(public)
    return all(_holds(release, sign, _numbers(bound), bool(star)) for sign, bound, star in _CLAUSE.findall(wanted))


_CLAUSE = re.compile(r"(==|!=|<=|>=|<|>|~=) ?([0-9]+(?:\.[0-9]+)*)(\.\*)?")
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    **{"==": operator.eq, "!=": operator.ne, "<=": operator.le, ">=": operator.ge},
    **{"<": operator.lt, ">": operator.gt, "~=": operator.ge},
}


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


def _holds(release: tuple[int, ...], sign: str, bound: tuple[int, ...], star: bool) -> bool:
    """Whether a release meets a bound of a range, as ``packaging`` has it, which takes longer to load than a plan."""
    length = max(len(release), len(bound))
    has, limit = (each + (0,) * (length - len(each)) for each in (release, bound))
    if star:
        return (has[: len(bound)] == bound) == (sign == "==")
    return _ORDERS[sign](has, limit) and (sign != "~=" or has[: len(bound) - 1] == bound[:-1])


@lru_cache
def _range(text: str) -> SpecifierSet:
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(text)
