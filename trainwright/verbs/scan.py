"""``scan``: the known vulnerabilities of an image or an image line."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from trainwright.cli.flags import CatalogFlag, JsonFlag, SiteFlag, emit, verb
from trainwright.cli.output import Ended, say
from trainwright.core.errors import RequestError
from trainwright.core.layout import table
from trainwright.core.paths import use_catalog
from trainwright.core.records import Field, Words

if TYPE_CHECKING:
    from trainwright.scan.documents import ScanDocument, Vulnerability


class ScanWords(Words):
    """What a scan looks at, and what it accepts."""

    heading: ClassVar[str] = "The scan"

    database: str | None = Field(
        default=None,
        description="the vulnerability database: a folder with OSV's <ecosystem>/all.zip, or the address of one "
        "(default: the site's)",
        metavar="DIR",
    )
    allow: str | None = Field(
        default=None, description="vulnerabilities that are accepted for a time, a YAML file", metavar="FILE"
    )


class ScanGateWords(Words):
    """The level with which no image leaves."""

    heading: ClassVar[str] = "The scan"

    scan_fail_on: str | None = Field(
        default=None,
        description="refuse an image with a vulnerability of this level or a worse one (default: the site's)",
        values=("critical", "high", "medium", "low"),
    )


class ScanFlags(ScanWords, CatalogFlag, SiteFlag, JsonFlag):
    """The flags of ``scan``."""

    bare: ClassVar[str] = "subject"
    heading: ClassVar[str] = "What counts"
    examples: ClassVar[tuple[str, ...]] = (
        "scan",
        "scan pytorch/cu126 --fail-on high --database /srv/osv",
        "scan 123456789012.dkr.ecr.us-west-2.amazonaws.com/team/training@sha256:… --json",
    )

    subject: str = Field(
        default="",
        description="tag or id of an image built here, the address of an image in Amazon ECR by digest, an image line "
        "(pytorch/cu126), a request (pytorch:cu126), or the file of a bill of materials",
        metavar="IMAGE",
        values="built",
    )
    fail_on: str | None = Field(
        default=None,
        description="only this level and worse ones fail (default: every vulnerability)",
        values=("critical", "high", "medium", "low"),
    )
    ecr: bool = Field(default=False, description="take the findings of ECR's own scan of the image, and no database")
    junit: str | None = Field(default=None, description="write a JUnit report", heading="Output", metavar="FILE")


@verb
def scan(flags: ScanFlags) -> None:
    """Show the known vulnerabilities of an image or an image line.

    The bill of materials is matched with a database on this machine, in OSV's format; --ecr takes what ECR's own scan
    found. The exit code is 1 if some count. The last scan of an image that was built here is in its report.
    """
    from trainwright.core.junit import check_junit
    from trainwright.scan.ecr_findings import scan_by_ecr
    from trainwright.scan.kept import keep
    from trainwright.scan.scan import scan as look
    from trainwright.scan.severity import read_gate
    from trainwright.scan.subject import allowed, find, settings_of
    from trainwright.site.site import load_site
    from trainwright.verbs.request import image_in_hand

    use_catalog(flags.catalog)
    gate = read_gate(flags.fail_on, "--fail-on")
    if flags.junit:
        check_junit(Path(flags.junit))
    site = load_site(Path(flags.site) if flags.site else None)
    today = datetime.now(UTC).date()
    if flags.ecr:
        if flags.database:
            raise RequestError("--ecr takes no --database", remedy="Leave out one of them.")
        accepted = allowed(flags.allow, site)
        document = scan_by_ecr(flags.subject, site, allowances=accepted, fail_on=gate, today=today)
    else:
        root, accepted = settings_of(flags.database, flags.allow, site, say=say)
        inventory = find(flags.subject or image_in_hand(), site, say=say)
        document = look(inventory, root, allowances=accepted, fail_on=gate, today=today)
    if flags.junit:
        from trainwright.scan.junit import write

        write(Path(flags.junit), document)
    keep(document)
    emit(document, scan_text, as_json=flags.json_)
    if document.failed:
        raise Ended(document.exit_code)


def scan_text(document: ScanDocument) -> str:
    """A line per vulnerability, the worst first; those that are accepted after them, and what was looked at."""
    lines = []
    open_rows = [row for row in document.vulnerabilities if row.state != "allowed"]
    if open_rows:
        head = ("level", "package", "version", "id", "fixed in", "summary")
        lines += [table([head, *map(_cells, open_rows)]), ""]
    for row in document.vulnerabilities:
        if row.accepted is not None:
            until = f"allowed until {row.accepted.expires}" if row.state == "allowed" else "the allowance expired on "
            until += row.accepted.expires if row.state != "allowed" else ""
            lines.append(f"{row.id} in {row.package}: {until} ({row.accepted.owner}: {row.accepted.reason})")
    lines += [f"--allow: {each.id} of {each.owner} matches nothing; remove it" for each in document.unused]
    lines += [f"note: {note}" for note in document.notes]
    if document.unscanned:
        lines.append(f"not in any package database, so not scanned: {', '.join(document.unscanned)}")
    lines += [
        f"database {each.ecosystem}: {each.records} records, the newest of {each.date[:10] or '-'}"
        for each in document.databases
    ]
    return "\n".join([*lines, _tally(document)])


def _cells(row: Vulnerability) -> tuple[str, ...]:
    return (row.level, row.package, row.version, row.id, row.fixed or "-", row.summary)


def _tally(document: ScanDocument) -> str:
    """How many count, by level."""
    counting = [row for row in document.vulnerabilities if row.counts]
    levels = {row.level: sum(other.level == row.level for other in counting) for row in counting}
    told = (
        f" ({', '.join(f'{count} {level}' for level, count in levels.items())}; {document.fixable} fixable)"
        if levels
        else ""
    )
    noun = "vulnerability counts" if len(counting) == 1 else "vulnerabilities count"
    below = sum(row.state == "below" for row in document.vulnerabilities)
    less = f", {below} below {document.fail_on}" if below else ""
    return f"{document.subject}: {len(counting)} {noun}{told}{less}, in {document.packages} packages"
