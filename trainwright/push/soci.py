"""Gives an image in a registry a SOCI index, with which a job starts before all layers have arrived.

The image stays as it is, under its immutable tag. Beside it come the ztocs of its layers, the SOCI index, the image's
manifest with one annotation more, and an OCI index of these two under a tag of its own; the last is put there last.
Layers are read from the registry, because their digests there are what a ztoc is about.

Sources: AWS's developer guide of SageMaker AI, "Speed up processing job startup with SOCI-indexed images", says that
training jobs use such images in the same way; :mod:`trainwright.soci` names those of the formats.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from trainwright.core.errors import RegistryRefused, RequestError
from trainwright.core.heartbeat import Transfer, heartbeat
from trainwright.core.layout import size
from trainwright.core.paths import cache_dir
from trainwright.core.say import Say
from trainwright.push.documents import SociRow
from trainwright.push.ecr import Ecr, ImageManifest
from trainwright.push.refusals import clash
from trainwright.push.registry import Registry
from trainwright.push.tags import soci_tag
from trainwright.soci.manifests import (
    EMPTY,
    SMALLEST,
    SPAN,
    Written,
    digest_of,
    enabled,
    large_layers,
    same_content,
    unfit_layers,
)
from trainwright.soci.ztoc import VERSION, make_ztoc

_AT_ONCE = 2  # layers: each needs a processor, and disk for the layer


@dataclass(frozen=True)
class Indexed:
    """An image with its SOCI index.

    ``index`` is what tags point to, ``image`` the one in it, ``tag`` that of the index. ``layers`` have a ztoc, all of
    these have ``ztoc_bytes``; ``made`` in this run, which took ``seconds``.
    """

    index: ImageManifest
    image: ImageManifest
    tag: str
    layers: int
    ztoc_bytes: int
    made: bool
    seconds: float

    def row(self, pushed: ImageManifest) -> SociRow:
        """What a document says of it.

        Args:
            pushed: the image as it was pushed.
        """
        return SociRow(
            index=self.index.digest,
            image=self.image.digest,
            pushed_image=pushed.digest,
            layers=self.layers,
            ztoc_bytes=self.ztoc_bytes,
            made=self.made,
            seconds=round(self.seconds, 1),
        )


def standing_index(ecr: Ecr, registry: Registry, image: ImageManifest, tag: str) -> Indexed | None:
    """The SOCI index that an image has in its repository, if it has one.

    Args:
        ecr: the repository.
        registry: the same, over HTTP.
        image: as it was pushed.
        tag: its immutable one.

    Raises:
        RegistryRefused: the tag of the index belongs to something else, or a call failed.
    """
    named = soci_tag(tag)
    index = ecr.manifest(tag=named)
    if index is None:
        return None
    inner = registry.single(index)
    if inner.digest == index.digest or not same_content(json.loads(inner.text), json.loads(image.text)):
        raise clash(ecr.place, named, index.digest)
    layers = [
        layer
        for each in json.loads(index.text)["manifests"]
        if each.get("artifactType") and (found := ecr.manifest(digest=each["digest"])) is not None
        for layer in json.loads(found.text).get("layers") or ()
    ]
    return Indexed(index, inner, named, len(layers), sum(int(one["size"]) for one in layers), False, 0.0)


def with_index(
    ecr: Ecr, registry: Registry, image: ImageManifest, tag: str, *, make: bool = True, say: Say, note: Say
) -> Indexed | None:
    """The SOCI index of an image, made unless it has one.

    Args:
        ecr: the repository.
        registry: the same, over HTTP.
        image: as it was pushed.
        tag: its immutable one.
        make: one, or only look for it.
        say: progress callback.
        note: takes that all layers of the image are too small for an index.

    Raises:
        RequestError: a layer is not compressed with gzip, or it is not a single image.
        RegistryRefused: the registry refused, or the tag of the index belongs to something else.
        EngineError: the packages for that are not installed.
    """
    there = standing_index(ecr, registry, image, tag)
    if there is not None or not make:
        return there
    started, place, said = time.monotonic(), ecr.place, json.loads(image.text)
    configuration = registry.configuration(image) if said.get("layers") else None
    if configuration is None:
        raise RequestError(f"--soci: {place.digested(image.digest)} is not a single image", remedy="Leave out --soci.")
    if unfit := unfit_layers(said):
        raise RequestError(
            f"--soci: {place.digested(image.digest)} has layers of the type {', '.join(unfit)}; SOCI needs gzip",
            remedy="Build it with gzip, which is the default, or push it without --soci; the image itself is there.",
            uri=place.digested(image.digest),
        )
    if not (layers := large_layers(said, SMALLEST)):
        note(f"{place.tagged(tag)}: no layer of {size(SMALLEST)} or more, so it gets no SOCI index")
        return None
    total = sum(int(layer["size"]) for layer in layers)
    say(f"{place.tagged(tag)}: indexing {len(layers)} of {len(said['layers'])} layers ({size(total)})")
    transfer = Transfer(len(layers), total)
    with heartbeat(say, transfer.text), ThreadPoolExecutor(_AT_ONCE) as pool:
        ztocs = [*pool.map(lambda layer: _ztoc(registry, layer, transfer), layers)]
    for ztoc in (*ztocs, EMPTY):
        registry.put_blob(ztoc, digest_of(ztoc))
    platform = {key: configuration[key] for key in ("architecture", "os", "variant") if configuration.get(key)}
    labels = (configuration.get("config") or {}).get("Labels") or {}
    original = Written(image.text, image.media_type)
    made = enabled(original, platform, list(zip(layers, ztocs, strict=True)), labels=labels)
    soci, inner, index = (_manifest(one) for one in (made.soci, made.image, made.index))
    registry.put_manifest(soci)
    registry.put_manifest(inner)
    named = soci_tag(tag)
    registry.put_manifest(index, named)
    if (found := ecr.digest(named)) != index.digest:
        raise RegistryRefused(
            f"{place.tagged(named)}: pushed as {index.digest}, but ECR says {found or 'no image'}; no moving tag was "
            "moved",
            remedy="Run the same command again.",
            cause="digest",
            place=place.tagged(named),
        )
    seconds = time.monotonic() - started
    return Indexed(index, inner, named, len(layers), sum(map(len, ztocs)), True, seconds)


def _ztoc(registry: Registry, layer: Mapping[str, Any], transfer: Transfer) -> bytes:
    """The ztoc of a layer; made once on this machine, because images share layers and pushes are repeated."""
    digest = str(layer["digest"])
    folder = cache_dir() / "ztocs"
    kept = folder / f"{digest.removeprefix('sha256:')}-{SPAN}-{VERSION}"
    if kept.is_file():
        transfer.at(digest, int(layer["size"]))
        transfer.finish()
        return kept.read_bytes()
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="layer-", dir=folder) as scratch:
        path = Path(scratch) / digest.replace(":", "-")
        registry.save_blob(digest, int(layer["size"]), path, moved=partial(transfer.at, digest))
        made = make_ztoc(path)
        transfer.finish()
        part = Path(scratch) / f"ztoc-{os.getpid()}"
        part.write_bytes(made)
        part.replace(kept)
    return made


def _manifest(written: Written) -> ImageManifest:
    return ImageManifest(written.digest, written.text, written.media_type)
