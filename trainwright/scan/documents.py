"""The document of ``scan``."""

from __future__ import annotations

from typing import Literal

from trainwright.core.findings import FOUND
from trainwright.core.records import Document, Field
from trainwright.scan.database import UsedDatabase
from trainwright.scan.severity import SeverityLevel


class Accepted(Document):
    """What an entry of the file of ``--allow`` says of a vulnerability."""

    id: str
    package: str | None
    reason: str
    owner: str
    expires: str


class Vulnerability(Document):
    """A vulnerability of a package, under all of its names."""

    id: str = Field(description="its CVE id if it has a single one, otherwise that of a record")
    aliases: tuple[str, ...]
    level: SeverityLevel
    ecosystem: str
    package: str = Field(description="of a distribution, the source package")
    version: str
    installed: tuple[str, ...] = Field(description="the installed packages that are made from it")
    fixed: str | None = Field(
        description="the first version that no record calls affected; null if no version fixes it"
    )
    summary: str
    state: Literal["counts", "below", "allowed", "expired"] = Field(
        description="below: less than --fail-on; expired: it was allowed, and counts again"
    )
    accepted: Accepted | None = None

    @property
    def counts(self) -> bool:
        """Whether it fails a scan."""
        return self.state in ("counts", "expired")


class ScanDocument(Document):
    """``scan --json``."""

    schema: Literal["trainwright/scan/1"]
    subject: str
    plan: str = Field(description="id of the plan; empty if it is not known")
    image: str = Field(description="digest or id of the image; empty for what is not built")
    databases: tuple[UsedDatabase, ...]
    packages: int = Field(description="how many were looked up")
    vulnerabilities: tuple[Vulnerability, ...] = Field(description="the worst first")
    fixable: int = Field(description="how many of those that count have a fixed version")
    fail_on: SeverityLevel | None = Field(
        description="the least level that counts; null: every one, unknown ones included"
    )
    unused: tuple[Accepted, ...] = Field(description="entries of the file of --allow that match nothing")
    unscanned: tuple[str, ...] = Field(description="what is in no package database, such as compiled components")
    notes: tuple[str, ...]
    exit_code: Literal[0, 1] = Field(description="1: some count")

    @property
    def failed(self) -> bool:
        """Whether some count."""
        return self.exit_code == FOUND
