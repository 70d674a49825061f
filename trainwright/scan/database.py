"""A vulnerability database on this machine: for each ecosystem a zip or a folder of records, as OSV publishes them.

OSV exports ``<ecosystem>/all.zip``, with a JSON file per record. A mirror keeps that layout; ``<ecosystem>.zip`` and a
folder of the unpacked files are read as well. Nothing is fetched here.
"""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainwright.core.data_files import MAX_BYTES, parse_json, read_bytes
from trainwright.core.errors import RequestError, did_you_mean
from trainwright.core.records import Document, Field, parse_record
from trainwright.scan.ecosystems import Order
from trainwright.scan.osv import OsvRecord

EXPORT = "https://osv-vulnerabilities.storage.googleapis.com"
_NAME = re.compile(rb'"name"\s*:\s*"([^"\\]*)"')
_MODIFIED = re.compile(rb'"modified"\s*:\s*"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})')


class UsedDatabase(Document):
    """The records of one ecosystem that a scan looked at."""

    ecosystem: str
    path: str
    digest: str = Field(description="sha256 of the zip, or of the names and checksums of a folder's files")
    date: str = Field(description="when the newest record was changed, UTC; empty if there is no record")
    records: int


class Database:
    """The records about some packages of one ecosystem.

    Args:
        root: the folder with the ecosystems.
        order: the ecosystem.

    Raises:
        RequestError: the folder does not have the ecosystem.
    """

    def __init__(self, root: Path, order: Order) -> None:
        self._order = order
        self._path = _find(root, order.ecosystem)

    def about(self, names: set[str]) -> tuple[dict[str, list[OsvRecord]], UsedDatabase]:
        """The records about packages, by package, and what they were taken from.

        Args:
            names: of packages, in the ecosystem's form.

        Raises:
            RequestError: a file is broken or too large, or is not a record.
        """
        found: dict[str, list[OsvRecord]] = {name: [] for name in names}
        count, newest = 0, b""
        digest = hashlib.sha256()
        for where, text in _texts(self._path):
            count += 1
            newest = max([newest, *_MODIFIED.findall(text)])
            if self._path.is_dir():
                digest.update(f"{where}\0{hashlib.sha256(text).hexdigest()}\n".encode())
            # Nearly all records are about other packages; reading them takes most of the time.
            if not any(self._order.name(name.decode(errors="replace")) in names for name in _NAME.findall(text)):
                continue
            record = _record(text, where)
            named = {self._order.name(each.package.name) for each in record.affected if each.package is not None}
            for name in named & names:
                found[name].append(record)
        if not self._path.is_dir():
            with self._path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256")
        used = UsedDatabase(
            ecosystem=self._order.ecosystem,
            path=str(self._path),
            digest=f"sha256:{digest.hexdigest()}",
            date=f"{newest.decode()}Z" if newest else "",
            records=count,
        )
        return found, used


def _find(root: Path, ecosystem: str) -> Path:
    """The zip or folder of an ecosystem; of a distribution's release, or of all its releases."""
    folder = root / ecosystem
    remedy = f"mkdir -p '{folder}' && curl -fL -o '{folder}/all.zip' '{EXPORT}/{ecosystem}/all.zip'   # or copy it here"
    if not root.is_dir():
        raise RequestError(f"vulnerability database {root}: no such folder", remedy=remedy)
    for name in dict.fromkeys([ecosystem, ecosystem.partition(":")[0]]):
        for path in (root / name / "all.zip", root / f"{name}.zip", root / name):
            if path.is_file() or (path.is_dir() and any(path.glob("*.json"))):
                return path
    known = [path.name.removesuffix(".zip") for path in root.iterdir() if path.is_dir() or path.suffix == ".zip"]
    raise RequestError(
        f"vulnerability database {root}: nothing about {ecosystem}. {did_you_mean(ecosystem, known)}".strip(),
        remedy=remedy,
    )


def _texts(path: Path) -> Iterator[tuple[str, bytes]]:
    """The files of a database, each with its name."""
    if path.is_dir():
        for each in sorted(path.glob("*.json")):
            yield each.name, read_bytes(each)
        return
    try:
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                if not entry.filename.endswith(".json"):
                    continue
                where = f"{path}: {entry.filename}"
                with archive.open(entry) as file:
                    text = file.read(MAX_BYTES + 1)
                if len(text) > MAX_BYTES:
                    raise RequestError(f"{where}: is too large: more than {MAX_BYTES:,} bytes")
                yield where, text
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, RuntimeError) as broken:
        raise RequestError(
            f"{path}: cannot be read: {broken}", remedy="Copy it again; a download was cut off."
        ) from None


def _record(text: bytes, where: str) -> OsvRecord:
    try:
        data: Any = parse_json(text.decode(), where)
    except UnicodeDecodeError as wrong:
        raise RequestError(f"{where}: is not UTF-8: {wrong.reason}") from None
    return parse_record(OsvRecord, data, where)
