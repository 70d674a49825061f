"""Authorization tokens of the emulated ECR: as long as real ones, and they expire."""

from __future__ import annotations

import base64
import json
import secrets
import threading
import time
from enum import Enum

HALF_A_DAY = 12 * 3600.0  # seconds: what ECR gives a token


class Standing(Enum):
    """What a password is worth."""

    VALID = "valid"
    EXPIRED = "expired"
    UNKNOWN = "unknown"


class Tokens:
    """The passwords that were given out, and when each of them ends."""

    def __init__(self) -> None:
        self._ends: dict[str, float] = {}
        self._lock = threading.Lock()

    def issue(self, seconds: float) -> tuple[str, float]:
        """A new password for the user ``AWS``, and the time (seconds since 1970) at which it expires."""
        end = time.time() + seconds
        content = {"payload": secrets.token_urlsafe(900), "version": "2", "type": "DATA_KEY", "expiration": int(end)}
        password = base64.b64encode(json.dumps(content).encode()).decode()
        with self._lock:
            self._ends[password] = end
        return password, end

    def standing(self, password: str) -> Standing:
        """What a password is worth now."""
        with self._lock:
            end = self._ends.get(password)
        if end is None:
            return Standing.UNKNOWN
        return Standing.VALID if time.time() < end else Standing.EXPIRED

    def expire(self, password: str) -> None:
        """End a password at once."""
        with self._lock:
            if password in self._ends:
                self._ends[password] = 0.0
