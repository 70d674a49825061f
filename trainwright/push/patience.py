"""How often and how long a registry that is busy or out of reach is asked again.

Full jitter: each pause is drawn between zero and a limit that doubles, so that the jobs of a batch, which meet the same
refusal at the same time, do not come back at the same time.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

TRIES = 10  # of one request
FIRST_PAUSE = 1.0  # seconds: the limit of the first pause, doubled each time
LONGEST_PAUSE = 60.0
BUDGET = 240.0  # seconds of all pauses of one request


class Patience:
    """The pauses between the tries of one request.

    Args:
        tries: of the request, with the first one (default: ``TRIES``).
        draw: a number between two others (default: at random).
    """

    def __init__(self, tries: int | None = None, draw: Callable[[float, float], float] | None = None) -> None:
        self.tries = tries or TRIES
        self.failed = 0
        self._left = BUDGET
        self._draw = draw or random.uniform

    def pause(self, asked: float = 0.0) -> float | None:
        """Seconds until the next try; ``None`` if it is time to give up.

        Args:
            asked: seconds that the server wants (``Retry-After``); never shorter than that.
        """
        self.failed += 1
        if self.failed >= self.tries:
            return None
        limit = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (self.failed - 1))
        pause = asked + self._draw(0.0, limit)
        if pause > self._left:
            return None
        self._left -= pause
        return pause


def retry_after(text: str | None) -> float:
    """The seconds of a ``Retry-After`` header (RFC 9110: seconds, or a date); 0 if it has none or an invalid one."""
    if text is None:
        return 0.0
    if text.strip().isascii() and text.strip().isdigit():
        return float(text.strip()[:9])
    try:
        when = parsedate_to_datetime(text)
    except (TypeError, ValueError, IndexError):
        return 0.0
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return max(0.0, (when - datetime.now(UTC)).total_seconds())
