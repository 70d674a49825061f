"""Images in an emulated registry that no engine made: a configuration, layers, a manifest, over HTTP."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from tests.support.build_records import record_of
from trainwright.catalog.catalog import open_catalog
from trainwright.plan.plan import LABEL, Plan
from trainwright.push.attest import statements
from trainwright.push.ecr import Ecr, ImageManifest
from trainwright.push.proof import BUILT_LABEL
from trainwright.push.registry import MANIFEST, Registry
from trainwright.push.sbom import make_sbom
from trainwright.push.tags import tags_of

CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def push_image(
    ecr: Ecr,
    registry: Registry,
    *layers: bytes,
    tag: str,
    version: str = "2.6.0",
    built: datetime,
    labels: Mapping[str, str] | None = None,
) -> ImageManifest:
    """Push an image whose labels say what it is.

    Args:
        ecr: the repository.
        registry: the same, over HTTP.
        layers: their contents.
        tag: of the image.
        version: of PyTorch.
        built: when.
        labels: of the image, if not those of any plan.
    """
    said = {"plan": "1" * 64, "framework": "pytorch", "framework-version": version}
    named = {f"{LABEL}.{name}": text for name, text in said.items()} if labels is None else dict(labels)
    named |= {BUILT_LABEL: built.isoformat()}
    config = {
        "architecture": "amd64",
        "os": "linux",
        "created": built.isoformat(),
        "config": {"Labels": named},
        "rootfs": {"type": "layers", "diff_ids": [_diff_id(one) for one in layers]},
    }
    body = json.dumps(config).encode()
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": _put(registry, body, CONFIG),
        "layers": [_put(registry, one, LAYER) for one in layers],
    }
    text = json.dumps(manifest)
    made = ImageManifest(_digest(text.encode()), text, MANIFEST)
    ecr.put_tag(made, tag)
    return made


def index_of(ecr: Ecr, image: ImageManifest, tag: str, *, alone: bool = False) -> ImageManifest:
    """Put an index around an image, as a SOCI converter does, under a tag; ``alone``: it has only what is there."""
    arm: dict[str, Any] = {"mediaType": MANIFEST, "digest": _digest(b"arm"), "size": 3}
    arm["platform"] = {"architecture": "arm64", "os": "linux"}
    soci: dict[str, Any] = {"mediaType": MANIFEST, "digest": _digest(b"soci"), "size": 4}
    soci["artifactType"] = "application/vnd.amazon.soci.index.v2+json"
    soci["platform"] = {"architecture": "amd64", "os": "linux"}
    own: dict[str, Any] = {"mediaType": image.media_type, "digest": image.digest, "size": len(image.text)}
    own["platform"] = {"architecture": "amd64", "os": "linux"}
    kind = "application/vnd.oci.image.index.v1+json"
    text = json.dumps({"schemaVersion": 2, "mediaType": kind, "manifests": [own] if alone else [soci, arm, own]})
    made = ImageManifest(_digest(text.encode()), text, kind)
    ecr.put_tag(made, tag)
    return made


def _put(registry: Registry, content: bytes, kind: str) -> Mapping[str, Any]:
    digest = _digest(content)
    registry.put_blob(content, digest)
    return {"mediaType": kind, "digest": digest, "size": len(content)}


def _diff_id(layer: bytes) -> str:
    """The digest of a layer as it is unpacked; of its bytes if it is broken, which nobody could unpack."""
    with suppress(EOFError, gzip.BadGzipFile, zlib.error):
        return _digest(gzip.decompress(layer))
    return _digest(layer)


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def push_proven(
    ecr: Ecr, registry: Registry, plan: Plan, *layers: bytes, built: datetime, smoke: bool = True
) -> ImageManifest:
    """Push an image of a plan under its immutable tag, with the proof that ``push`` attaches."""
    catalog = open_catalog()
    tag = tags_of(plan, built, catalog).immutable
    image = push_image(ecr, registry, *layers, tag=tag, built=built, labels=plan.labels)
    record = record_of(plan, json.loads(image.text)["config"]["digest"], smoke=smoke)
    sbom = make_sbom(plan, record.probe, record.image_id, built).encode()
    for one in statements(record, image.digest, sbom, built):
        one.attach(registry, image)
    return image
