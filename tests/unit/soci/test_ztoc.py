"""Ztocs are those of upstream's program, byte for byte (tests/unit/soci/layers/README.md says how these were made)."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import struct
import subprocess
import sys
import tarfile
import zlib
from pathlib import Path
from typing import Any

import pytest

from trainwright.core.errors import EngineError, RequestError
from trainwright.soci.checkpoints import checkpoints_of
from trainwright.soci.contents import contents_of
from trainwright.soci.ztoc import make_ztoc

LAYERS = Path(__file__).parent / "layers"
UPSTREAM: dict[str, dict[str, Any]] = json.loads((LAYERS / "upstream.json").read_text())
TOOL = "AWS SOCI CLI v0.2"


@pytest.mark.parametrize("name", UPSTREAM)
def test_the_bytes_are_those_of_upstream(name):
    made = make_ztoc(LAYERS / f"{name}.tar.gz", span=UPSTREAM[name]["span"], tool=TOOL)
    assert len(made) == UPSTREAM[name]["size"]
    assert f"sha256:{hashlib.sha256(made).hexdigest()}" == UPSTREAM[name]["digest"]


@pytest.mark.parametrize("name", UPSTREAM)
def test_files_are_where_upstream_finds_them(name):
    known = UPSTREAM[name]
    found = contents_of(LAYERS / f"{name}.tar.gz")
    assert found.end == known["UncompressedArchiveSize"]
    assert len(found.entries) == len(known["FileMetadata"])
    for entry, said in zip(found.entries, known["FileMetadata"], strict=True):
        # Go's JSON has a replacement character for what is no UTF-8.
        named = entry.name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        assert (named, entry.kind, entry.target) == (said["Name"], said["Type"], said["Linkname"])
        assert (entry.offset, entry.size) == (said["UncompressedOffset"], said["UncompressedSize"])
        assert (entry.mode, entry.modified) == (said["Mode"], said["ModTime"])
        assert (entry.user, entry.group) == ((said["UID"], said["Uname"]), (said["GID"], said["Gname"]))
        assert entry.device == (said["Devmajor"], said["Devminor"])
        if "\ufffd" not in json.dumps(said, ensure_ascii=False):
            assert entry.extra == said["PAXHeaders"]


@pytest.mark.parametrize("name", UPSTREAM)
def test_places_and_spans_are_those_of_upstream(name):
    known, path = UPSTREAM[name], LAYERS / f"{name}.tar.gz"
    found = checkpoints_of(path, known["span"])
    assert len(found.places) == known["MaxSpanID"] + 1 > 3
    assert found.digests(path) == known["SpanDigests"]
    blob = found.blob()
    assert (len(blob), hashlib.sha256(blob).hexdigest()) == tuple(known["checkpoints"].values())
    assert (found.compressed, found.uncompressed) == (
        known["CompressedArchiveSize"],
        len(gzip.decompress(path.read_bytes())),
    )


def test_decompression_begins_at_each_place_of_a_file_of_several_members(tmp_path):
    """As estargz and pigz write them. Upstream has fewer places there, and reads from all of these."""
    content = b"".join(struct.pack("<I", number * 2654435761 % 2**32) for number in range(80_000))
    path = tmp_path / "layer"
    path.write_bytes(
        gzip.compress(content[:90_001]) + gzip.compress(content[90_001:200_000]) + gzip.compress(content[200_000:])
    )
    found = checkpoints_of(path, 40_000)
    whole = [place for place in found.places if not place.bits]  # zlib for Python cannot begin within a byte
    assert len(found.places) > 6
    assert len(whole) >= 3
    for place in whole:
        begun = zlib.decompressobj(-zlib.MAX_WBITS, zdict=place.window if place.offset else b"")
        out = begun.decompress(path.read_bytes()[place.start :], 5000)
        assert out == content[place.offset : place.offset + len(out)]
        assert out


def test_what_is_no_whole_layer_is_refused(tmp_path):
    good = (LAYERS / "pax.tar.gz").read_bytes()
    broken = {
        "cut": good[: len(good) // 2],
        "changed": good[:-6] + bytes([good[-6] ^ 1]) + good[-5:],
        "plain": gzip.decompress(good),
        "no-tar": gzip.compress(os.urandom(50_000)),
        "nothing": b"",
    }
    for name, content in broken.items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(RequestError, match=name):
            make_ztoc(path)


def test_what_soci_has_no_word_for_is_refused(tmp_path):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        entry = tarfile.TarInfo("odd")
        entry.type = b"Z"
        archive.addfile(entry)
    path = tmp_path / "layer"
    path.write_bytes(gzip.compress(out.getvalue()))
    with pytest.raises(RequestError, match="odd"):
        contents_of(path)


def test_a_layer_without_files_has_a_ztoc(tmp_path):
    path = tmp_path / "layer"
    path.write_bytes(gzip.compress(bytes(10_240)))
    assert contents_of(path).entries == ()
    assert len(checkpoints_of(path).places) == 1
    assert make_ztoc(path)


def test_without_the_packages_the_remedy_names_them(monkeypatch):
    monkeypatch.setitem(sys.modules, "indexed_gzip", None)
    with pytest.raises(EngineError) as refused:
        make_ztoc(LAYERS / "pax.tar.gz")
    assert "trainwright[soci]" in refused.value.remedy


def test_who_pushes_without_soci_loads_none_of_its_packages():
    code = "import sys, trainwright.push.push; print({'indexed_gzip', 'flatbuffers', 'tarfile'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "indexed_gzip" not in done.stdout
    assert "flatbuffers" not in done.stdout
