"""The gate of ``push`` and ``promote``: no image with vulnerabilities of a level leaves."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from trainwright.build.store import BuildRecord
from trainwright.core.errors import ProofFailed
from trainwright.core.say import Say
from trainwright.scan.documents import ScanDocument
from trainwright.scan.inventory import Inventory
from trainwright.scan.kept import keep, without_paths
from trainwright.scan.scan import scan
from trainwright.scan.severity import read_gate
from trainwright.scan.subject import of_record, settings_of
from trainwright.site.site import Site

_SHOWN = 10


class ScanGate:
    """A level that no vulnerability of an image may reach.

    Args:
        level: of the command line; by default the site's.
        database: of the command line; by default the site's.
        allow: the file of allowances; by default the site's.
        site: the settings of this machine.
        say: progress callback.

    Raises:
        RequestError: there is no such level, no database is named, or the file of allowances is invalid.
    """

    def __init__(
        self, level: str | None, database: str | None, allow: str | None, site: Site, *, say: Say = lambda _: None
    ) -> None:
        self.level = read_gate(level, "--scan-fail-on") or site.scan_fail_on
        if self.level is not None:
            self._root, self._allowances = settings_of(database, allow, site, say=say)

    def check(self, inventory: Inventory) -> ScanDocument | None:
        """Scan what is in an image; ``None`` if there is no gate.

        Raises:
            ProofFailed: a vulnerability counts.
            RequestError: the database lacks an ecosystem, or is broken.
        SourceError: the database's address does not answer.
        """
        if self.level is None:
            return None
        today = datetime.now(UTC).date()
        found = scan(inventory, self._root, allowances=self._allowances, fail_on=self.level, today=today)
        keep(found)
        counting = [row for row in found.vulnerabilities if row.counts]
        if counting:
            lines = [f"  {r.level}: {r.package} {r.version}, {r.id}, {r.fixed or 'no fix'}" for r in counting[:_SHOWN]]
            more = [f"  and {len(counting) - _SHOWN} more"] if len(counting) > _SHOWN else []
            head = f"{inventory.subject}: {len(counting)} known vulnerabilities of level {self.level} or worse"
            raise ProofFailed(
                "\n".join([f"{head}; nothing was sent", *lines, *more]),
                remedy="./invoke lock --upgrade NAME takes a fix; --allow FILE accepts one for a time (docs/scan.md)",
                vulnerabilities=[row.as_json() for row in counting],
            )
        return found

    @property
    def of_push(self) -> Callable[[BuildRecord, str], dict[str, Any] | None]:
        """Checks an image by its build record and name; the document to attach to it, without paths of this machine."""

        def check(record: BuildRecord, name: str) -> dict[str, Any] | None:
            found = self.check(of_record(record, name))
            return None if found is None else without_paths(found).as_json()

        return check
