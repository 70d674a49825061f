"""The sha256 of large files, cached between runs."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from trainwright.core.data_files import read_state
from trainwright.core.owned import write_atomically
from trainwright.core.paths import cache_dir


class KnownHashes:
    """A cache of sha256 by path, size, times and inode.

    Size and modification time are easily preserved (``touch -r``, ``cp -p``); inode and change time are set only by the
    kernel.
    """

    def __init__(self) -> None:
        self._file = cache_dir() / "wheelhouse.json"
        rows = read_state(self._file)
        self._rows: dict[str, list[Any]] = rows if isinstance(rows, dict) else {}

    def sha256(self, path: Path) -> str:
        """The sha256 of a file, in hexadecimal."""
        with path.open("rb") as file:
            row = _identity(file.fileno())
            known = self._rows.get(str(path))
            if isinstance(known, list) and known[:-1] == row:
                return str(known[-1])
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            unchanged = _identity(file.fileno()) == row
        if unchanged:  # otherwise it was being written, and the digest may match neither content
            self._rows[str(path)] = [*row, digest]
            write_atomically(self._file, json.dumps(self._rows, indent=0))
        return digest


def _identity(descriptor: int) -> list[int]:
    stat = os.fstat(descriptor)
    return [stat.st_size, stat.st_mtime_ns, stat.st_dev, stat.st_ino, stat.st_ctime_ns]
