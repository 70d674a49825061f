"""The vulnerabilities of a scan as a JUnit report."""

from __future__ import annotations

from pathlib import Path

from trainwright.core.junit import Case, Outcome, write_junit
from trainwright.scan.documents import ScanDocument, Vulnerability

_OUTCOMES: dict[str, Outcome] = {"counts": "failed", "expired": "failed", "allowed": "skipped", "below": "skipped"}


def write(path: Path, document: ScanDocument) -> None:
    """Write the report: a case per vulnerability, by package; those that do not count are skipped."""
    cases = [
        Case(group=row.package, name=row.id, outcome=_OUTCOMES[row.state], text=_text(row))
        for row in document.vulnerabilities
    ]
    write_junit(path, f"scan of {document.subject}", cases or [Case("scan", "no known vulnerability", "passed")])


def _text(row: Vulnerability) -> str:
    fix = f"fixed in {row.fixed}" if row.fixed else "no fix is known"
    head = f"{row.level}: {row.package} {row.version}, {fix}"
    if row.accepted is not None:
        head += f"; {row.state}: {row.accepted.reason} ({row.accepted.owner}, until {row.accepted.expires})"
    return "\n".join([head, row.summary, *row.aliases])
