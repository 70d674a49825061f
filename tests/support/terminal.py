"""The program on a terminal of a known width: a pseudo-terminal, so that it finds what it would find on a real one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def on_a_terminal(words: Sequence[str], width: int = 80, typed: str = "", cwd: Path = ROOT, **environment: str) -> str:
    """What a command line shows on a terminal, standard output and error together.

    Args:
        words: the command line.
        width: of the terminal, in columns.
        typed: what the user has typed when the program starts.
        cwd: the working folder.
        environment: variables to set; those that decide about colour and width are unset otherwise.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "CI", "TERM")}
    os.write(ours, typed.encode())
    program = subprocess.Popen(
        [sys.executable, str(ROOT / "tasks.py"), *words],
        cwd=cwd,
        env={**kept, "TERM": "xterm", **environment},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    read = bytearray()

    def drain() -> None:
        with contextlib.suppress(OSError):  # the other end is closed
            while chunk := os.read(ours, 65536):
                read.extend(chunk)

    reader = threading.Thread(target=drain)
    reader.start()
    program.wait(timeout=60)
    reader.join()
    os.close(ours)
    return read.decode().replace("\r\n", "\n")
