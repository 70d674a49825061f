"""Records of vulnerabilities in OSV's format, and whether a version of a package is affected.

The rules are those of https://ossf.github.io/osv-schema/ (fields ``affected``, ``aliases``, ``withdrawn``; section
"Evaluation").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from trainwright.core.records import Record
from trainwright.scan.ecosystems import Order


class OsvEvent(Record, forbid_unknown_fields=False):
    """A change on the line of versions; one of the four is there."""

    introduced: str | None = None
    fixed: str | None = None
    last_affected: str | None = None
    limit: str | None = None


class OsvRange(Record, forbid_unknown_fields=False):
    """Affected versions between events. Those of the type ``GIT`` are about commits."""

    type: str
    events: tuple[OsvEvent, ...]


class OsvPackage(Record, forbid_unknown_fields=False):
    """A package, by its name in an ecosystem: ``PyPI``, ``Debian:12``."""

    ecosystem: str
    name: str


class OsvSeverity(Record, forbid_unknown_fields=False):
    """A vector of CVSS, or the word of a distribution."""

    type: str
    score: str


class Affected(Record, forbid_unknown_fields=False):
    """The affected versions of one package."""

    package: OsvPackage | None = None
    ranges: tuple[OsvRange, ...] = ()
    versions: tuple[str, ...] = ()
    severity: tuple[OsvSeverity, ...] = ()
    ecosystem_specific: dict[str, Any] | None = None
    database_specific: dict[str, Any] | None = None


class OsvRecord(Record, forbid_unknown_fields=False):
    """The part of a record that decides what it is about, and how bad that is."""

    id: str
    modified: str
    withdrawn: str | None = None
    aliases: tuple[str, ...] = ()
    upstream: tuple[str, ...] = ()
    summary: str = ""
    details: str = ""
    severity: tuple[OsvSeverity, ...] = ()
    affected: tuple[Affected, ...] = ()
    database_specific: dict[str, Any] | None = None


def about(record: OsvRecord, order: Order, name: str) -> list[Affected]:
    """The entries of a record that are about a package; none of a record that was withdrawn.

    Args:
        record: of a vulnerability.
        order: the ecosystem of the package.
        name: of the package, in the ecosystem's form.
    """
    if record.withdrawn is not None:
        return []
    return [
        each
        for each in record.affected
        if each.package is not None and order.has(each.package.ecosystem) and order.name(each.package.name) == name
    ]


def affects(entries: Sequence[Affected], order: Order, version: str) -> bool:
    """Whether a version is affected, by entries about its package: it is listed, or in a range."""
    return any(_listed(each, order, version) or _in_ranges(each, order, version) for each in entries)


def fixes(entries: Sequence[Affected], order: Order) -> Iterator[str]:
    """The versions in which entries say that a vulnerability is fixed."""
    for each in entries:
        for span in _ranges(each):
            yield from (event.fixed for event in span.events if event.fixed is not None and order.key(event.fixed))


def _listed(entry: Affected, order: Order, version: str) -> bool:
    if version in entry.versions:
        return True
    key = order.key(version)
    return key is not None and any(order.key(each) == key for each in entry.versions)


def _ranges(entry: Affected) -> Iterator[OsvRange]:
    return (each for each in entry.ranges if each.type == "ECOSYSTEM")


def _in_ranges(entry: Affected, order: Order, version: str) -> bool:
    """``IncludedInRanges`` of the specification.

    A version that cannot be ordered is in no range. So is every version if an event's cannot be: then the list of
    versions decides alone.
    """
    key = order.key(version)
    return key is not None and any(_in_range(span, order, key) for span in _ranges(entry))


def _in_range(span: OsvRange, order: Order, key: Any) -> bool:
    limits = [event.limit for event in span.events if event.limit is not None]
    if limits and not any("*" in each or ((end := order.key(each)) is not None and key < end) for each in limits):
        return False
    here = (1, key)
    events: list[tuple[tuple[Any, ...], OsvEvent]] = []
    for event in span.events:
        named = event.introduced or event.fixed or event.last_affected
        if named is None:
            continue
        # The specification: an introduced "0" sorts before any other version.
        at = (0,) if event.introduced == "0" else (1, order.key(named))
        if at == (1, None):
            return False
        events.append((at, event))
    inside = False
    for at, event in sorted(events, key=lambda row: row[0]):
        if event.introduced is not None:
            inside = inside or here >= at
        elif (event.fixed is not None and here >= at) or (event.last_affected is not None and here > at):
            inside = False
    return inside
