"""The files of a saved image: layers in order, with what they hide; both forms of ``docker save``."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from dataclasses import replace
from typing import Any

import pytest

from tests.support.report_records import full_record
from trainwright.core.errors import EngineError, RequestError
from trainwright.report import files
from trainwright.report.compare import compare
from trainwright.report.contents import Contents, of_record


def tar(entries: dict[str, Any]) -> bytes:
    """An archive; a value is a file's content, a link's target (a list of one), or nothing for a folder."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as made:
        for name, value in entries.items():
            info = tarfile.TarInfo(name)
            if value is None:
                info.type = tarfile.DIRTYPE
            elif isinstance(value, list):
                info.type, info.linkname = tarfile.SYMTYPE, value[0]
            else:
                info.size = len(value)
            made.addfile(info, io.BytesIO(value) if isinstance(value, bytes) else None)
    return held.getvalue()


LAYERS = [
    {"etc": None, "etc/a": b"1", "etc/b": b"22", "opt/x/deep": b"333", "opt/x/more": b"1", "old": b"9"},
    {"etc/a": b"changed", ".wh.old": b"", "link": ["etc/a"]},
    {"opt/x/.wh..wh..opq": b"", "opt/x/new": b"1"},
]


def saved(*, oci: bool, packed: bool = False) -> bytes:
    """The same image as Docker 20.10 saves it, and as newer ones do."""
    blobs = [tar(layer) for layer in LAYERS]
    if packed:
        blobs = [gzip.compress(blob) for blob in blobs]
    names = [f"blobs/sha256/{n}" if oci else f"{n}/layer.tar" for n in range(len(blobs))]
    whole: dict[str, Any] = dict(zip(names, blobs, strict=True))
    config = "blobs/sha256/c" if oci else "c.json"
    whole[config] = b'{"architecture": "amd64"}'
    if not oci:
        whole["3/layer.tar"] = ["../0/layer.tar"]
        names[0] = "3/layer.tar"
    whole["manifest.json"] = json.dumps([{"Config": config, "Layers": names}]).encode()
    return tar(whole)


@pytest.mark.parametrize(("oci", "packed"), [(False, False), (True, False), (True, True)])
def test_what_a_container_would_see(oci, packed):
    found = files.files_of(io.BytesIO(saved(oci=oci, packed=packed)))
    assert sorted(found) == ["/etc/a", "/etc/b", "/link", "/opt/x/new"]
    assert found["/etc/a"].startswith("7 B ")
    assert found["/link"] == "link to etc/a"


def test_the_same_size_with_other_content_is_another_file():
    one, two = (
        files.files_of(
            io.BytesIO(tar({"0/layer.tar": tar({"a": text}), "manifest.json": b'[{"Layers": ["0/layer.tar"]}]'}))
        )
        for text in (b"x", b"y")
    )
    assert one["/a"] != two["/a"]


def client(tmp_path, text: str) -> str:
    path = tmp_path / "docker"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def engine(tmp_path, monkeypatch, own_places):
    """An engine whose client prints a saved image."""

    class Client:
        path = ""

    class Engine:
        client = Client()
        cli_env: dict[str, str] = {}

    (tmp_path / "image.tar").write_bytes(saved(oci=False))
    monkeypatch.setattr(files, "connect", lambda **_: Engine)
    Engine.client.path = client(tmp_path, f'[ "$1" = save ] && cat {tmp_path}/image.tar')
    return Engine


def test_files_are_a_part_of_both_images(engine):
    images = [of_record(full_record(), name) for name in ("before", "after")]
    both = files.with_files(*images, say=lambda _: None)
    assert compare(*both).changes == ()
    assert compare(*both).compared["files"] == 4
    less = replace(both[0], parts={**both[0].parts, "files": {}})
    assert {change.name for change in compare(less, both[1]).changes} == set(both[1].parts["files"])


@pytest.mark.parametrize("says", ["echo 'no such image' >&2; exit 1", "head -c 3000 IMAGE"])
def test_an_image_that_the_engine_does_not_give(engine, tmp_path, says):
    engine.client.path = client(tmp_path, says.replace("IMAGE", str(tmp_path / "image.tar")))
    image = of_record(full_record(), "gone")
    with pytest.raises(EngineError, match="does not give the image gone"):
        files.with_files(image, image, say=lambda _: None)


def test_only_images_have_files():
    with pytest.raises(RequestError, match="--files"):
        files.with_files(Contents("a", {}), of_record(full_record(), "b"), say=lambda _: None)
