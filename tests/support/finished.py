"""The program, or a verb, after its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.support.documents import validated


@dataclass(frozen=True)
class Finished:
    """A finished run: its exit code, standard output and standard error."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one document on standard output, which keeps to its schema."""
        return validated(self.out)
