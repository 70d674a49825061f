"""How many examples hypothesis tries: enough to find what breaks often, or with ``TRAINWRIGHT_THOROUGH=1`` all."""

from __future__ import annotations

import os

THOROUGH = bool(os.environ.get("TRAINWRIGHT_THOROUGH"))
FEWEST = 25


def some(thorough: int) -> int:
    """How many examples to try now.

    Args:
        thorough: how many a thorough run tries.
    """
    return thorough if THOROUGH else max(FEWEST, thorough // 4)
