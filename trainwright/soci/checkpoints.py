"""Places of a gzip stream at which decompression can begin, in SOCI's form (version 2 of its gzip zinfo).

Sources: ``ztoc/compression/gzip_zinfo.c`` and ``.h`` of awslabs/soci-snapshotter at commit 77fb426, for the form and
for where places are taken; ``zran.c`` of indexed_gzip 1.10 ("GZIDX", version 1), for what is read.
"""

from __future__ import annotations

import hashlib
import io
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainwright.core.errors import EngineError, RequestError
from trainwright.core.extras import need
from trainwright.soci.manifests import SPAN

WINDOW = 1 << 15  # bytes that deflate looks back
# What indexed_gzip exports: a mark, version and flags; sizes, spacing, window and number of points; then each point.
_HEAD, _POINT, _MARK = struct.Struct("<5sBBQQIII"), struct.Struct("<QQBB"), b"GZIDX"
# What SOCI stores: number of places and size of a span; then each place, with its window.
_BLOB, _PLACE = struct.Struct("<iq"), struct.Struct("<qqB")
_PIECE = 1 << 20


@dataclass(frozen=True)
class AccessPoint:
    """A place: ``start`` in the compressed stream (its first whole byte) and ``offset`` in what comes out of it.

    ``bits`` of the byte before belong to it, and ``window`` is what deflate may refer to.
    """

    start: int
    offset: int
    bits: int
    window: bytes


@dataclass(frozen=True)
class Checkpoints:
    """All places of one stream, and its sizes in bytes."""

    places: Sequence[AccessPoint]
    span: int
    compressed: int
    uncompressed: int

    def blob(self) -> bytes:
        """The places as a ztoc stores them."""
        parts = [_BLOB.pack(len(self.places), self.span)]
        parts += [_PLACE.pack(one.start, one.offset, one.bits) + one.window for one in self.places]
        return b"".join(parts)

    def ranges(self) -> Iterator[tuple[int, int]]:
        """First byte and end of each span in the compressed stream; two neighbours may share a byte."""
        ends = [*(one.start for one in self.places[1:]), self.compressed]
        for place, end in zip(self.places, ends, strict=True):
            yield place.start - bool(place.bits), end

    def digests(self, path: Path) -> list[str]:
        """The checksum of each span of the file."""
        found = []
        with path.open("rb") as file:
            for start, end in self.ranges():
                file.seek(start)
                made, left = hashlib.sha256(), end - start
                while left and (piece := file.read(min(left, _PIECE))):
                    made.update(piece)
                    left -= len(piece)
                found.append(f"sha256:{made.hexdigest()}")
        return found


def need_soci() -> None:
    """Refuse to begin where no ztoc can be made.

    Raises:
        EngineError: the packages for that are not installed.
    """
    need("soci", "flatbuffers", "indexed_gzip", what="--soci")


def checkpoints_of(path: Path, span: int = SPAN) -> Checkpoints:
    """Find the places of a gzip file; its checksums are compared on the way.

    Args:
        path: the file.
        span: bytes between two places, before compression; more than deflate's window.

    Raises:
        RequestError: it is not a whole gzip file.
        EngineError: the packages for that are not installed.
    """
    need_soci()
    from indexed_gzip import IndexedGzipFile, ZranError

    exported = io.BytesIO()
    try:
        # It would open the file anew for each piece otherwise.
        with IndexedGzipFile(str(path), spacing=span, window_size=WINDOW, drop_handles=False) as file:
            file.build_full_index()
            file.export_index(fileobj=exported)
    except ZranError as broken:
        raise RequestError(f"{path.name}: not a whole gzip file: {broken}") from None
    return _read(exported.getvalue(), span)


def _read(exported: bytes, span: int) -> Checkpoints:
    mark, version, _, compressed, uncompressed, _, window, count = _HEAD.unpack_from(exported)
    if (mark, version, window) != (_MARK, 1, WINDOW):
        raise EngineError(f"indexed_gzip wrote an index of version {version}, which this does not know")
    after = _HEAD.size + count * _POINT.size
    places: list[AccessPoint] = []
    for start, offset, bits, has_window in _POINT.iter_unpack(exported[_HEAD.size : after]):
        data = bytes(WINDOW)
        if has_window:
            data, after = exported[after : after + WINDOW], after + WINDOW
        # Its last point is the end of the file, at which nothing begins. One before an empty last block, as Go's gzip
        # ends with, is a place.
        if start < compressed or not places:
            places.append(AccessPoint(start, offset, bits, data))
    return Checkpoints(places, span, compressed, uncompressed)
