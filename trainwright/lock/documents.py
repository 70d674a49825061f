"""What ``lock --json`` and ``mirror pull --json`` print."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trainwright.core.records import Document


class LockRow(Document):
    """One entry of a lock that is new, or differs. ``locked`` and ``now`` are versions, checksums or digests."""

    kind: Literal["lock", "base", "archive", "package", "python", "tool", "insecure host"]
    name: str
    locked: str | None
    now: str | None
    state: Literal["new", "changed", "removed", "missing", "gone", "differs", "newer", "unknown"]


class LockDocument(Document):
    """``lock --json``: what changed in the lock, or with ``--check`` how it differs from what there is.

    ``faults`` counts what keeps the lock from being built from: what is missing, gone or different.
    """

    schema_: Literal["trainwright/locked/1"] = Field(alias="schema")
    plan: str
    path: str
    rows: tuple[LockRow, ...]
    faults: int


class MirrorDocument(Document):
    """``mirror pull --json``. ``kinds``: how many files of the lock there are of each kind."""

    schema_: Literal["trainwright/mirror/1"] = Field(alias="schema")
    plan: str
    folder: str
    site: str
    files: int
    bytes: int
    kinds: dict[str, int]
