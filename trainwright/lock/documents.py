"""What ``lock`` and ``mirror pull`` show."""

from __future__ import annotations

from typing import Literal

from trainwright.core.records import Document

Kind = Literal["lock", "base", "archive", "package", "python", "tool", "insecure host"]
Change = Literal["new", "changed", "removed", "missing", "gone", "differs", "newer", "unknown"]


class LockRow(Document):
    """One entry of a lock that is new, or differs. ``locked`` and ``now`` are versions, checksums or digests."""

    kind: Kind
    name: str
    locked: str | None
    now: str | None
    state: Change

    @property
    def is_fault(self) -> bool:
        """Whether it makes a build from the lock impossible."""
        return self.state in ("missing", "gone", "differs")


class LockDocument(Document):
    """``lock --json``: what changed in the lock, or with ``--check`` how it differs from what its sources have today.

    ``faults`` counts the rows that make a build from the lock impossible: missing, gone or different.
    """

    schema: Literal["trainwright/locked/1"]
    plan: str
    path: str
    rows: tuple[LockRow, ...]
    faults: int


class ExportDocument(Document):
    """``lock --export --json``: the file that was written, from which lock, with how many Python packages."""

    schema: Literal["trainwright/lock-export/1"]
    plan: str
    lock: str
    path: str
    packages: int


class MirrorDocument(Document):
    """``mirror pull --json``. ``kinds``: the number of files of each kind."""

    schema: Literal["trainwright/mirror/1"]
    plan: str
    folder: str
    site: str
    files: int
    bytes: int
    kinds: dict[str, int]
