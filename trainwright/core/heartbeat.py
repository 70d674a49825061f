"""Says how far a long step is while it runs, so that nobody takes silence for a hang."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from trainwright.core.layout import duration, size
from trainwright.core.say import Say

# Seconds until the first line, and between lines: soon at first, rarer in a long log.
PAUSES = (5.0, 10.0, 20.0, 30.0)


@contextmanager
def heartbeat(say: Say, text: Callable[[float], str], *, pauses: tuple[float, ...] | None = None) -> Iterator[None]:
    """Say every now and then how far a step is, while this holds; a step that ends soon says nothing.

    Args:
        say: takes the lines, from a thread of its own.
        text: the line, from the seconds since the beginning.
        pauses: seconds before each line (default: PAUSES); the last one is repeated.
    """
    began, ended = time.monotonic(), threading.Event()
    waits = pauses or PAUSES

    def beat() -> None:
        count = 0
        while not ended.wait(waits[min(count, len(waits) - 1)]):
            say(text(time.monotonic() - began))
            count += 1

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def waiting(what: str) -> Callable[[float], str]:
    """The line of a step that tells nothing of itself but its seconds: ``pulling x: 1m05s so far``."""
    return lambda seconds: f"{what}: {duration(seconds, tenths=False)} so far"


class Transfer:
    """How far several files are; each method may be called from any thread.

    Args:
        files: how many there are.
        total: bytes of all of them, if known.
    """

    def __init__(self, files: int, total: int | None) -> None:
        self._files, self._total = files, total
        self._lock = threading.Lock()
        self._positions: dict[Hashable, int] = {}
        self._moved = self._done = 0

    def at(self, key: Hashable, position: int, moved: int = 0) -> None:
        """A file is complete up to a position; ``moved`` of its bytes have just come."""
        with self._lock:
            self._positions[key] = position
            self._moved += moved

    def finish(self) -> None:
        """One file is complete."""
        with self._lock:
            self._done += 1

    def text(self, seconds: float) -> str:
        """``1.20 GB of 3.10 GB, 3 of 12 files, 45s so far, about 1m11s left``."""
        with self._lock:
            got, moved, done = sum(self._positions.values()), self._moved, self._done
        parts = [size(got) if self._total is None else f"{size(got)} of {size(self._total)}"]
        parts += [f"{done} of {self._files} files", f"{duration(seconds, tenths=False)} so far"]
        if self._total is not None and moved:
            left = max(0, self._total - got) * seconds / moved
            parts.append(f"about {duration(left, tenths=False)} left")
        return ", ".join(parts)
