"""Programs that serve a test: started with their output in a file, and ended with it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def running(argv: Sequence[str], log: Path, *, grace: float = 10, **more: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program that writes to ``log``; it is ended on exit, and killed after ``grace`` seconds.

    ``more`` goes to :class:`subprocess.Popen`.
    """
    with log.open("wb") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=out, **more)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(grace)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
