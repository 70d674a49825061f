"""A ztoc: the contents of a layer, and where its decompression can begin, as a FlatBuffer.

Sources: ``ztoc/fbs/ztoc.fbs`` of awslabs/soci-snapshotter at commit 77fb426 has the tables; ``ztoc/ztoc_marshaler.go``
the order in which they are written. It decides the bytes, so equal layers get equal ztocs, whoever makes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainwright.soci.checkpoints import Checkpoints, checkpoints_of
from trainwright.soci.contents import Entry, LayerContents, contents_of
from trainwright.soci.manifests import SPAN, TOOL

VERSION = "0.9"  # Version09 of ztoc.go


def make_ztoc(path: Path, *, span: int = SPAN, tool: str = TOOL) -> bytes:
    """The ztoc of a layer.

    Args:
        path: the layer, as the registry has it: a tar archive that gzip has compressed.
        span: bytes between two places at which decompression can begin.
        tool: what it says that made it.

    Raises:
        RequestError: the layer cannot be read.
        EngineError: the packages for that are not installed.
    """
    places = checkpoints_of(path, span)
    return _written(contents_of(path), places, places.digests(path), tool)


def _written(contents: LayerContents, places: Checkpoints, digests: Sequence[str], tool: str) -> bytes:
    from flatbuffers import Builder

    out = Builder(1 << 20)
    version, made_by = out.CreateString(VERSION), out.CreateString(tool)
    # The last first: a FlatBuffer grows towards its beginning.
    files = [_file(out, entry) for entry in reversed(contents.entries)]
    metadata = _vector(out, files[::-1])
    out.StartObject(1)
    out.PrependUOffsetTRelativeSlot(0, metadata, 0)
    toc = out.EndObject()
    blob = out.CreateByteVector(places.blob())
    spans = _vector(out, [out.CreateString(each) for each in digests])
    # The first field, the algorithm, has gzip as its default, which is not stored.
    out.StartObject(4)
    out.PrependInt32Slot(1, len(places.places) - 1, 0)
    out.PrependUOffsetTRelativeSlot(2, spans, 0)
    out.PrependUOffsetTRelativeSlot(3, blob, 0)
    info = out.EndObject()
    out.StartObject(6)
    out.PrependUOffsetTRelativeSlot(0, version, 0)
    out.PrependUOffsetTRelativeSlot(1, made_by, 0)
    out.PrependUOffsetTRelativeSlot(4, toc, 0)
    out.PrependInt64Slot(2, places.compressed, 0)
    out.PrependInt64Slot(3, contents.end, 0)
    out.PrependUOffsetTRelativeSlot(5, info, 0)
    out.Finish(out.EndObject())
    return bytes(out.Output())


def _file(out: Any, entry: Entry) -> int:
    """One ``FileMetadata``; returns where it is."""
    texts = (entry.name, entry.kind, entry.target, entry.user[1], entry.group[1], entry.modified)
    name, kind, target, user, group, modified = [out.CreateString(_bytes(text)) for text in texts]
    extra = _vector(out, [_record(out, key, entry.extra[key]) for key in sorted(entry.extra, key=_bytes)])
    out.StartObject(14)
    out.PrependUOffsetTRelativeSlot(0, name, 0)
    out.PrependUOffsetTRelativeSlot(1, kind, 0)
    out.PrependInt64Slot(2, entry.offset, 0)
    out.PrependInt64Slot(3, entry.size, 0)
    out.PrependUOffsetTRelativeSlot(4, target, 0)
    out.PrependInt64Slot(5, entry.mode, 0)
    out.PrependUint32Slot(6, entry.user[0], 0)
    out.PrependUint32Slot(7, entry.group[0], 0)
    out.PrependUOffsetTRelativeSlot(8, user, 0)
    out.PrependUOffsetTRelativeSlot(9, group, 0)
    out.PrependUOffsetTRelativeSlot(10, modified, 0)
    out.PrependInt64Slot(11, entry.device[0], 0)
    out.PrependInt64Slot(12, entry.device[1], 0)
    out.PrependUOffsetTRelativeSlot(13, extra, 0)
    return int(out.EndObject())


def _record(out: Any, key: str, value: str) -> int:
    """A record of a PAX header, which upstream calls ``Xattr``."""
    name, content = out.CreateString(_bytes(key)), out.CreateString(_bytes(value))
    out.StartObject(2)
    out.PrependUOffsetTRelativeSlot(0, name, 0)
    out.PrependUOffsetTRelativeSlot(1, content, 0)
    return int(out.EndObject())


def _vector(out: Any, offsets: Sequence[int]) -> int:
    out.StartVector(4, len(offsets), 4)
    for each in reversed(offsets):
        out.PrependUOffsetTRelative(each)
    return int(out.EndVector())


def _bytes(text: str) -> bytes:
    """What was in the archive, also where it is no UTF-8."""
    return text.encode("utf-8", "surrogateescape")
