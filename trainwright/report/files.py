"""The files of images in the engine, read from what ``docker save`` streams: nothing is unpacked, no container runs."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import IO

from trainwright.core.errors import EngineError, RequestError
from trainwright.core.layout import size
from trainwright.core.runner import piped
from trainwright.core.say import Say
from trainwright.engine.engine import connect
from trainwright.report.contents import Contents

_CHUNK = 1 << 20
_GONE, _OPAQUE = ".wh.", ".wh..wh..opq"  # OCI's image specification, layer.md: whiteouts


def with_files(before: Contents, after: Contents, *, say: Say) -> tuple[Contents, Contents]:
    """Two images with their files as a part.

    Raises:
        RequestError: one of them is not an image that was built here.
        EngineError: the engine does not give an image.
    """
    images = [each.image_id for each in (before, after)]
    if not all(images):
        raise RequestError(
            "--files compares two images, and one of these is not an image", remedy="./invoke list --built"
        )
    engine = connect(say=say)
    found = []
    for each in (before, after):
        say(f"reading every file of {each.name}")
        try:
            with piped([engine.client.path, "save", each.image_id], env=engine.cli_env) as stream:
                files = files_of(stream)
        except (tarfile.TarError, KeyError, ValueError):
            raise EngineError(
                f"the engine does not give the image {each.name}",
                remedy=f"Does it have it? docker save {each.image_id[7:19]}",
            ) from None
        found.append(replace(each, parts={**each.parts, "files": files}))
    return found[0], found[1]


def files_of(stream: IO[bytes]) -> dict[str, str]:
    """Path to size and digest of each file of a saved image, as a container would see them.

    Args:
        stream: what ``docker save`` writes for one image; it is read once, from the beginning to the end.

    Raises:
        KeyError: it has no list of layers.
        tarfile.TarError: it is broken.
    """
    layers: dict[str, dict[str, str]] = {}
    links: dict[str, str] = {}
    manifest: list[str] = []
    with tarfile.open(fileobj=stream, mode="r|") as saved:
        for member in saved:
            if member.issym():  # of 20.10, for a layer that is there twice
                links[member.name] = member.linkname.removeprefix("../")
            elif member.isfile() and (content := saved.extractfile(member)) is not None:
                if member.name == "manifest.json":
                    manifest = json.load(content)[0]["Layers"]
                elif member.name.endswith(".tar") or member.name.startswith("blobs/"):
                    layers[member.name] = _layer(content)
    if not manifest:
        raise KeyError("manifest.json")
    files: dict[str, str] = {}
    for name in manifest:
        _put(files, layers[links.get(name, name)])
    return files


def _layer(content: IO[bytes]) -> dict[str, str]:
    """The entries of a layer; none for a blob that is not an archive, such as the configuration."""
    try:
        with tarfile.open(fileobj=content, mode="r|*") as layer:
            return dict(_entries(layer))
    except tarfile.ReadError:
        return {}


def _entries(layer: tarfile.TarFile) -> Iterator[tuple[str, str]]:
    for entry in layer:
        path = "/" + entry.name.removeprefix("./").strip("/")
        if entry.issym() or entry.islnk():
            yield path, f"link to {entry.linkname}"
        elif not entry.isfile():
            yield path, ""
        else:
            digest, content = hashlib.sha256(), layer.extractfile(entry)
            while content is not None and (piece := content.read(_CHUNK)):
                digest.update(piece)
            yield path, f"{size(entry.size)} {digest.hexdigest()[:12]}"


def _put(files: dict[str, str], layer: Mapping[str, str]) -> None:
    """What a layer adds to the files below it, and what it hides of them."""
    for path in layer:
        folder, _, name = path.rpartition("/")
        if name.startswith(_GONE):
            hidden = folder if name == _OPAQUE else f"{folder}/{name.removeprefix(_GONE)}"
            for gone in [each for each in files if each == hidden or each.startswith(f"{hidden}/")]:
                del files[gone]
    files |= {path: value for path, value in layer.items() if value and f"/{_GONE}" not in path}
