"""An image with a SOCI index (version 2): the manifests, and the index that holds both.

The index has two entries: the image, whose manifest names the SOCI index in an annotation, and the SOCI index, whose
layers are the ztocs. The annotation gives the image another digest; configuration and layers are the same ones.

Sources: ``docs/soci-index-manifest-v2.md``, ``soci/soci_index.go`` and ``soci/soci_convert.go`` of
awslabs/soci-snapshotter at commit 77fb426; the order of fields is that of ``specs-go/v1`` of opencontainers/image-spec.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TOOL = "trainwright"
SPAN = 1 << 22  # bytes between two places at which decompression can begin: defaultSpanSize of soci_index.go
SMALLEST = 10 << 20  # bytes of a layer that gets a ztoc: defaultMinLayerSize of soci_index.go
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
SOCI = "application/vnd.amazon.soci.index.v2+json"
EMPTY = b"{}"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_ZTOC = "application/octet-stream"
_NOTE = "com.amazon.soci"
_OCI = "org.opencontainers.image."  # the keys of annotations.md of opencontainers/image-spec
# Media types of layers that gzip has compressed: of OCI and of Docker.
_GZIP = (".tar+gzip", ".tar.gzip")
# The digest of the image as it was pushed, before it got the annotation.
ORIGINAL = "io.trainwright.image"


@dataclass(frozen=True)
class Written:
    """A manifest: ``text`` byte for byte, its media type and its digest."""

    text: str
    media_type: str

    @property
    def digest(self) -> str:
        """The checksum of the text."""
        return digest_of(self.text.encode())

    def descriptor(self, **more: object) -> dict[str, Any]:
        """What an index says of it."""
        known = {"mediaType": self.media_type, "digest": self.digest, "size": len(self.text.encode())}
        return known | {key: value for key, value in more.items() if value}


@dataclass(frozen=True)
class Enabled:
    """The three manifests of an image with a SOCI index."""

    image: Written
    soci: Written
    index: Written


def digest_of(content: bytes) -> str:
    """The digest of bytes."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def unfit_layers(manifest: Mapping[str, Any]) -> list[str]:
    """The media types of layers that have no ztoc because they are not compressed with gzip."""
    kinds = [str(layer["mediaType"]) for layer in manifest.get("layers") or ()]
    return list(dict.fromkeys(kind for kind in kinds if not kind.endswith(_GZIP)))


def large_layers(manifest: Mapping[str, Any], smallest: int) -> list[Mapping[str, Any]]:
    """The descriptors of the layers of at least this size, from below, each once."""
    layers = {layer["digest"]: layer for layer in manifest.get("layers") or () if int(layer["size"]) >= smallest}
    return list(layers.values())


def enabled(
    original: Written,
    platform: Mapping[str, str],
    ztocs: Sequence[tuple[Mapping[str, Any], bytes]],
    *,
    labels: Mapping[str, str] | None = None,
    span: int = SPAN,
) -> Enabled:
    """The manifests of an image and its SOCI index.

    Args:
        original: the manifest of the image.
        platform: of the image: architecture, operating system, and what else its configuration says.
        ztocs: those of its large layers, each with the layer's descriptor, from below.
        labels: of the image; those of OCI become annotations of its manifest and of the index, as they say the same of
            both, and follow from the image alone.
        span: bytes between two places at which decompression can begin.
    """
    said = json.loads(original.text)
    soci = _written(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": SOCI, "digest": digest_of(EMPTY), "size": len(EMPTY)},
            "layers": [_ztoc(layer, ztoc, span) for layer, ztoc in ztocs],
            "annotations": {f"{_NOTE}.build-tool-identifier": TOOL},
        },
        MANIFEST,
    )
    about = {key: value for key, value in sorted((labels or {}).items()) if key.startswith(_OCI) and value}
    notes = about | (said.get("annotations") or {})
    notes = dict(sorted((notes | {f"{_NOTE}.index-digest": soci.digest, ORIGINAL: original.digest}).items()))
    config = {**said["config"], "mediaType": _CONFIG}
    # As upstream: ECR takes no index that mixes Docker's media types with OCI's; layers keep theirs.
    changed = {**said, "mediaType": MANIFEST, "config": config, "annotations": notes}
    image = _written(changed, MANIFEST)
    of_image = {f"{_NOTE}.image-manifest-digest": image.digest}
    entries = [
        image.descriptor(annotations=notes, platform=dict(platform)),
        soci.descriptor(annotations=of_image, platform=dict(platform), artifactType=SOCI),
    ]
    whole = {"schemaVersion": 2, "mediaType": INDEX, "manifests": entries} | ({"annotations": about} if about else {})
    index = _written(whole, INDEX)
    return Enabled(image, soci, index)


def same_content(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two manifests have the same configuration and layers."""
    return _content(one) == _content(other)


def _content(manifest: Mapping[str, Any]) -> tuple[object, list[object]]:
    layers = [layer.get("digest") for layer in manifest.get("layers") or ()]
    return (manifest.get("config") or {}).get("digest"), layers


def _ztoc(layer: Mapping[str, Any], ztoc: bytes, span: int) -> dict[str, Any]:
    notes = {
        f"{_NOTE}.image-layer-digest": layer["digest"],
        f"{_NOTE}.image-layer-mediaType": layer["mediaType"],
        f"{_NOTE}.span-size": str(span),
    }
    return {"mediaType": _ZTOC, "digest": digest_of(ztoc), "size": len(ztoc), "annotations": notes}


def _written(manifest: Mapping[str, Any], media_type: str) -> Written:
    return Written(json.dumps(manifest, separators=(",", ":")), media_type)
