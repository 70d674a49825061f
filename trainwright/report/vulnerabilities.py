"""What pages say of a scan."""

from __future__ import annotations

from trainwright.scan.documents import ScanDocument, Vulnerability


def scanned(scan: ScanDocument) -> str:
    """How many vulnerabilities count, in how many packages, and how old the records are."""
    counting = sum(row.counts for row in scan.vulnerabilities)
    least = f" of level {scan.fail_on} or worse" if scan.fail_on else ""
    fixable = f" ({scan.fixable} with a fixed version)" if counting else ""
    newest = ", ".join(f"{each.ecosystem} of {each.date[:10]}" for each in scan.databases if each.date)
    records = f"; records: {newest}" if newest else ""
    counted = f"{counting or 'No'} known {'vulnerability' if counting == 1 else 'vulnerabilities'}{least}"
    return f"{counted}{fixable}, in {scan.packages} packages{records}."


def said(row: Vulnerability) -> str:
    """What becomes of a vulnerability: who accepted it and why, or its summary."""
    if row.accepted is None:
        return "below the level that counts" if row.state == "below" else row.summary
    until = "until" if row.state == "allowed" else "but only until"
    return f"accepted by {row.accepted.owner} {until} {row.accepted.expires}: {row.accepted.reason}"
