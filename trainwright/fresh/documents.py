"""The document of ``fresh``."""

from __future__ import annotations

from typing import Literal

from trainwright.core.records import Document, Field

StaleCause = Literal["never", "plan", "base", "lock", "package", "upgrade", "vulnerability", "age", "job"]


class Stale(Document):
    """A reason to build a line again."""

    cause: StaleCause
    says: str
    renews: bool = Field(
        default=True, description="another build takes what is newer; otherwise it needs another plan or lock"
    )


class FreshRow(Document):
    """An image line, and the newest image of it."""

    name: str = Field(description="as build --images takes it")
    plan: str = Field(description="id of the plan that the line has today")
    image: str | None = Field(description="id of the image, or its address in the registry; null if it was never built")
    built_at: str | None
    reasons: tuple[Stale, ...] = Field(description="none: it is fresh")


class FreshDocument(Document):
    """``fresh --json``."""

    schema: Literal["trainwright/fresh/1"]
    lines: tuple[FreshRow, ...]
    stale: int
    next: str = Field(description="the command that builds what a build renews; empty if there is nothing")
    notes: tuple[str, ...] = Field(description="what was not looked at, or could not be")
    exit_code: Literal[0, 1] = Field(description="1: some are stale")

    @property
    def names(self) -> tuple[str, ...]:
        """The lines that another build renews."""
        return tuple(row.name for row in self.lines if any(reason.renews for reason in row.reasons))
