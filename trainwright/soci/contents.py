"""What is in a layer: each file with its place in the tar archive, as SOCI's table of contents lists it.

Source: ``ztoc/toc_builder.go`` of awslabs/soci-snapshotter at commit 77fb426, and the reader of Go's archive/tar.
"""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, cast

from trainwright.core.errors import RequestError

_KINDS: Mapping[bytes, str] = {
    tarfile.REGTYPE: "reg",
    tarfile.AREGTYPE: "reg",
    tarfile.LNKTYPE: "hardlink",
    tarfile.SYMTYPE: "symlink",
    tarfile.DIRTYPE: "dir",
    tarfile.CHRTYPE: "char",
    tarfile.BLKTYPE: "block",
    tarfile.FIFOTYPE: "fifo",
}
_PIECE = 1 << 20


@dataclass(frozen=True)
class Entry:
    """A file of a layer. ``offset`` is where its content begins; ``extra`` are the records of its PAX header."""

    name: str
    kind: str
    offset: int
    size: int
    target: str
    mode: int
    user: tuple[int, str]
    group: tuple[int, str]
    modified: str
    device: tuple[int, int]
    extra: Mapping[str, str]


@dataclass(frozen=True)
class LayerContents:
    """The files of a layer in the order of the archive, and where the archive ends."""

    entries: tuple[Entry, ...]
    end: int


def contents_of(path: Path) -> LayerContents:
    """Read the headers of a layer.

    Args:
        path: the layer, a tar archive that gzip has compressed.

    Raises:
        RequestError: it is not such a file, or has an entry that SOCI has no word for.
    """
    try:
        with gzip.open(path) as stream:
            counted = _Counted(cast(IO[bytes], stream))
            with tarfile.open(fileobj=counted, mode="r|", bufsize=_PIECE, encoding="utf-8") as archive:
                entries = tuple(_entries(archive, path.name))
                # Go's reader stops after two blocks of zeros, or where the stream does.
                end = archive.offset
            while counted.read(_PIECE):
                pass
    except (tarfile.TarError, OSError, EOFError, zlib.error) as broken:
        raise RequestError(f"{path.name}: not a layer that can be read: {broken}") from None
    return LayerContents(entries, min(end + 2 * tarfile.BLOCKSIZE, counted.position))


def _entries(archive: tarfile.TarFile, layer: str) -> Iterator[Entry]:
    for each in archive:
        if (kind := _KINDS.get(each.type)) is None or each.issparse():
            raise RequestError(f"{layer}: SOCI has no word for the type {each.type!r} of {each.name}")
        yield Entry(
            # Python drops the slash at the end of a directory's name, and Go keeps it.
            name=each.name + "/" * (kind == "dir" and not each.name.endswith("/")),
            kind=kind,
            offset=each.offset_data,
            size=each.size,
            target=each.linkname,
            mode=each.mode,
            user=(each.uid, each.uname),
            group=(each.gid, each.gname),
            modified=_time(each.pax_headers.get("mtime", str(int(each.mtime)))),
            device=(each.devmajor, each.devminor),
            extra=each.pax_headers,
        )
        archive.members.clear()  # type: ignore[attr-defined]  # it would keep all of them


def _time(text: str) -> str:
    """A time as Go writes it (RFC 3339, UTC), with nanoseconds if it has any; empty if the text is not a time."""
    match = re.fullmatch(r"(-?[0-9]+)(?:\.([0-9]*))?", text)
    try:
        whole = datetime.fromtimestamp(int(match[1]), UTC) if match else None
    except (ValueError, OverflowError, OSError):
        return ""
    if match is None or whole is None:
        return ""
    part = (match[2] or "")[:9].rstrip("0")
    return f"{whole:%Y-%m-%dT%H:%M:%S}" + (f".{part}" if part else "") + "Z"


class _Counted(io.RawIOBase):
    """A stream that knows how much was read of it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.position = 0

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        piece = self._stream.read(size)
        self.position += len(piece)
        return piece
