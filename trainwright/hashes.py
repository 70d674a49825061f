"""The sha256 of large files of this machine, remembered between runs."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from trainwright.owned import write_atomically
from trainwright.paths import cache_dir


class KnownHashes:
    """The sha256 of files, remembered by path, size and time of change."""

    def __init__(self) -> None:
        self._file = cache_dir() / "wheelhouse.json"
        try:
            self._rows: dict[str, list[Any]] = dict(json.loads(self._file.read_text()))
        except (OSError, ValueError, TypeError):
            self._rows = {}

    def sha256(self, path: Path) -> str:
        """The sha256 of a file, in hexadecimal."""
        stat = path.stat()
        row = [stat.st_size, stat.st_mtime_ns]
        known = self._rows.get(str(path))
        if isinstance(known, list) and known[:2] == row and len(known) == 3:
            return str(known[2])
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        self._rows[str(path)] = [*row, digest]
        write_atomically(self._file, json.dumps(self._rows, indent=0))
        return digest
