"""``scan``: the known vulnerabilities of the packages of an image or an image line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from trainwright.core.findings import FOUND
from trainwright.scan.allow import Allowance
from trainwright.scan.database import Database, UsedDatabase
from trainwright.scan.documents import Accepted, ScanDocument, Vulnerability
from trainwright.scan.ecosystems import Order, order_of
from trainwright.scan.inventory import Inventory, Package
from trainwright.scan.osv import Affected, OsvRecord, about, affects, fixes
from trainwright.scan.remote_database import RemoteDatabase
from trainwright.scan.severity import LEVELS, SeverityLevel, level_of, reaches, worst

_SUMMARY = 160  # characters; where a record has none, the beginning of its details


@dataclass(frozen=True)
class _Hit:
    """A record, and its entries that are about the package at hand."""

    record: OsvRecord
    entries: tuple[Affected, ...]

    @property
    def names(self) -> frozenset[str]:
        """What the record is about, under all names.

        A distribution's record about a single vulnerability of upstream is the same row of a list, though ``upstream``
        is not an alias: ``DEBIAN-CVE-1`` is what Debian says of ``CVE-1``.
        """
        same = self.record.upstream if len(self.upstream) == 1 else ()
        return frozenset({self.record.id, *self.record.aliases, *same})

    @property
    def upstream(self) -> frozenset[str]:
        """The vulnerabilities of upstream: Debian's advisories list ``CVE-1`` and ``DEBIAN-CVE-1``, which are one."""
        named = self.record.upstream
        return frozenset(each for each in named if not any(each.endswith(f"-{other}") for other in named))


def scan(
    inventory: Inventory,
    root: Path | RemoteDatabase,
    *,
    allowances: Sequence[Allowance] = (),
    fail_on: SeverityLevel | None = None,
    today: date,
) -> ScanDocument:
    """The known vulnerabilities of what is in an inventory.

    Args:
        inventory: the packages.
        root: the database: a folder with a zip or a folder per ecosystem, or an address with OSV's files.
        allowances: vulnerabilities that are accepted.
        fail_on: the least level that counts; by default, all count.
        today: the day on which allowances hold.

    Raises:
        RequestError: the database lacks an ecosystem, or a file of it is broken.
        SourceError: the address does not answer.
    """
    rows: list[Vulnerability] = []
    databases: list[UsedDatabase] = []
    for ecosystem in sorted({package.ecosystem for package in inventory.packages}):
        order = order_of(ecosystem)
        own = [package for package in inventory.packages if package.ecosystem == ecosystem]
        folder = root if isinstance(root, Path) else root.folder(order.ecosystem)
        records, used = Database(folder, order).about({order.name(package.name) for package in own})
        databases.append(used)
        for package in own:
            rows += _rows(package, order, records[order.name(package.name)])
    return judge(inventory, rows, databases, allowances=allowances, fail_on=fail_on, today=today)


def judge(
    inventory: Inventory,
    rows: Sequence[Vulnerability],
    databases: Sequence[UsedDatabase],
    *,
    allowances: Sequence[Allowance],
    fail_on: SeverityLevel | None,
    today: date,
) -> ScanDocument:
    """The document of vulnerabilities: which of them count.

    Args:
        inventory: what was looked at.
        rows: the vulnerabilities, in any order.
        databases: where they are from.
        allowances: as in :func:`scan`, like what follows.
        fail_on: the least level that counts.
        today: the day on which allowances hold.
    """
    entries_used: set[Allowance] = set()
    judged = [_judged(row, allowances, fail_on, today, entries_used) for row in rows]
    judged.sort(key=lambda row: (LEVELS.index(row.level), row.package, row.id))
    counting = [row for row in judged if row.counts]
    return ScanDocument(
        schema="trainwright/scan/1",
        subject=inventory.subject,
        plan=inventory.plan,
        image=inventory.image,
        databases=tuple(databases),
        packages=len(inventory.packages),
        vulnerabilities=tuple(judged),
        fixable=sum(row.fixed is not None for row in counting),
        fail_on=fail_on,
        unused=tuple(_accepted(each) for each in allowances if each not in entries_used),
        unscanned=inventory.unscanned,
        notes=inventory.notes,
        exit_code=FOUND if counting else 0,
    )


def _rows(package: Package, order: Order, records: Iterable[OsvRecord]) -> list[Vulnerability]:
    """The vulnerabilities of a package: one for all records under the same names."""
    hits = []
    for record in records:
        entries = tuple(about(record, order, order.name(package.name)))
        if affects(entries, order, package.version):
            hits.append(_Hit(record, entries))
    groups = _grouped(hits)
    return [_row(package, order, group) for group in groups]


def _grouped(hits: Sequence[_Hit]) -> list[list[_Hit]]:
    """Records by vulnerability: aliases are symmetric and transitive.

    An advisory about several vulnerabilities, all of which have records of their own here, says nothing new.
    """
    groups: list[tuple[frozenset[str], list[_Hit]]] = []
    for hit in hits:
        names, members = hit.names, [hit]
        apart = []
        for known, others in groups:
            if known & names:
                names, members = names | known, [*others, *members]
            else:
                apart.append((known, others))
        groups = [*apart, (names, members)]
    single = frozenset[str]().union(*(hit.names for hit in hits if len(hit.upstream) < 2))
    return [
        members for _, members in groups if not all(len(hit.upstream) > 1 and hit.upstream <= single for hit in members)
    ]


def _row(package: Package, order: Order, hits: Sequence[_Hit]) -> Vulnerability:
    names = sorted(set().union(*(hit.names for hit in hits)))
    cves = [name for name in names if name.startswith("CVE-")]
    name = cves[0] if len(cves) == 1 else min(hit.record.id for hit in hits)
    told = next((hit.record.summary for hit in hits if hit.record.summary), "") or hits[0].record.details
    return Vulnerability(
        id=name,
        aliases=tuple(each for each in names if each != name),
        level=worst([level_of(hit.record, hit.entries) for hit in hits]),
        ecosystem=package.ecosystem,
        package=package.name,
        version=package.version,
        installed=package.parts,
        fixed=_fixed(package, order, hits),
        summary=first_line(told),
        state="counts",
    )


def _fixed(package: Package, order: Order, hits: Sequence[_Hit]) -> str | None:
    """The oldest version above this one in which a record has a fix, and which none of the records calls affected."""
    offered = {fix for hit in hits for fix in fixes(hit.entries, order)}
    here = order.key(package.version)
    newer = sorted(
        (key, fix) for fix in offered if (key := order.key(fix)) is not None and (here is None or key > here)
    )
    return next((fix for _, fix in newer if not any(affects(hit.entries, order, fix) for hit in hits)), None)


def _judged(
    row: Vulnerability,
    allowances: Sequence[Allowance],
    fail_on: SeverityLevel | None,
    today: date,
    used: set[Allowance],
) -> Vulnerability:
    """The row with what follows from allowances and the level that counts."""
    covering = [each for each in allowances if each.covers({row.id, *row.aliases}, row.package)]
    used |= set(covering)
    # Of two entries, the one that holds longest.
    entry = max(covering, key=lambda each: each.expires, default=None)
    if entry is not None and entry.holds(today):
        return row.replace(state="allowed", accepted=_accepted(entry))
    if not reaches(row.level, fail_on):
        return row.replace(state="below")
    return row if entry is None else row.replace(state="expired", accepted=_accepted(entry))


def _accepted(entry: Allowance) -> Accepted:
    return Accepted(**entry.as_json())


def first_line(text: str) -> str:
    """The beginning of a text, on one line."""
    plain = " ".join(re.sub(r"^#+ .*$", "", text, flags=re.MULTILINE).split())
    return plain if len(plain) <= _SUMMARY else plain[: _SUMMARY - 1].rstrip() + "…"
