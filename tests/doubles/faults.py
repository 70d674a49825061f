"""The faults that tests inject into the doubles, and the requests that these received."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field
from typing import Literal

Wrong = int | Literal["reset", "hang", "expire-token"]


@dataclass(frozen=True)
class Asked:
    """A request to the registry.

    ``status`` is 0 where it was not answered (cut, or never). ``received`` and ``sent`` are bytes of the bodies.
    """

    host: str
    method: str
    path: str
    status: int
    received: int
    sent: int


@dataclass
class _Armed:
    method: str
    path: re.Pattern[str]
    what: Wrong
    left: int


@dataclass
class _Refusal:
    operation: str
    code: str
    message: str
    status: int
    left: int


@dataclass
class Faults:
    """Faults that wait for their request, and the log of all requests."""

    requests: list[Asked] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)
    _registry: list[_Armed] = field(default_factory=list)
    _api: list[_Refusal] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def arm_registry(self, method: str, path: str, what: Wrong, times: int) -> None:
        """The next ``times`` requests of ``method`` ("*": any) whose path holds a match of ``path`` go wrong."""
        if not (isinstance(what, int) or what in ("reset", "hang", "expire-token")):
            raise ValueError(f"{what!r} is no status, reset, hang or expire-token")
        with self._lock:
            self._registry.append(_Armed(method.upper(), re.compile(path), what, times))

    def arm_api(self, operation: str, code: str, message: str, status: int, times: int) -> None:
        """The next ``times`` calls of ``operation`` are refused with an error of AWS's."""
        with self._lock:
            self._api.append(_Refusal(operation, code, message, status, times))

    def of_registry(self, method: str, path: str) -> Wrong | None:
        """What is to go wrong with this request, which uses the fault up."""
        with self._lock:
            for armed in self._registry:
                if armed.left > 0 and armed.method in ("*", method) and armed.path.search(path):
                    armed.left -= 1
                    return armed.what
        return None

    def of_api(self, operation: str) -> tuple[str, str, int] | None:
        """Code, message and status with which this call is to be refused, which uses the fault up."""
        with self._lock:
            for refusal in self._api:
                if refusal.left > 0 and refusal.operation == operation:
                    refusal.left -= 1
                    return refusal.code, refusal.message, refusal.status
        return None

    def disarm(self) -> None:
        """Nothing goes wrong any more, and who hangs is let go."""
        with self._lock:
            self._registry.clear()
            self._api.clear()
        self.released.set()
        self.released = threading.Event()

    def log(self, asked: Asked) -> None:
        """Keep a request to the registry."""
        with self._lock:
            self.requests.append(asked)
