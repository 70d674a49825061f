"""The type of progress callbacks."""

from __future__ import annotations

from collections.abc import Callable

# Takes one line about a long step, for a person; commands print it to standard error.
Say = Callable[[str], None]
