"""The rules of ``templates/rules.yaml`` as typed data, and version ranges as data files write them."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import StringConstraints, model_validator

from trainwright.lines import Evidence
from trainwright.records import Record

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


class Rule(Record):
    """An incompatibility that holds beyond single lines: what it refuses, or what it has a user know, and why."""

    name: str
    when: When
    refuse: str | None = None
    notice: str | None = None
    why: str
    evidence: Evidence

    @model_validator(mode="after")
    def _one_effect(self) -> Rule:
        if (self.refuse is None) == (self.notice is None):
            raise ValueError("a rule has either refuse or notice")
        return self


class RuleBook(Record):
    """``templates/rules.yaml``. ``foreseen`` are frameworks and components that rules name and that have no line or
    folder yet; any other unknown name in a rule is an error."""

    foreseen: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()


def within(version: str | None, wanted: str) -> bool:
    """Whether a version lies in a range; ``cpu`` lies in no range but the word itself."""
    if version is None or not version[:1].isdigit() or not wanted.lstrip("=!<>~ ")[:1].isdigit():
        return version == wanted
    return bool(_range(wanted).contains(version, prereleases=True))


@lru_cache
def _range(text: str) -> SpecifierSet:
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(text)
