"""What is known of an image line: proven, as a twin, no longer, or never."""

from __future__ import annotations

from typing import Literal

from trainwright.core.records import Document, Field

Proven = Literal["proven", "twin", "failed", "stale", "never"]


class Standing(Document):
    """What is known of a line or a plan: when it was proven, or a twin of it; whether that is of an earlier plan."""

    state: Proven
    date: str = Field(default="", description="of the proof: YYYY-MM-DD")
    step: str = Field(default="", description="where it failed: sources, lock, build, smoke or rehearsal")

    @property
    def text(self) -> str:
        """In a word or two, for a table."""
        step = f"({self.step})" if self.step else ""
        return " ".join(filter(None, ("" if self.state == "proven" else self.state, self.date, step)))


NEVER = Standing(state="never")
