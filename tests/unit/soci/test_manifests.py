"""The manifests of an image with a SOCI index: what they say of the image."""

from __future__ import annotations

import json

from trainwright.soci.manifests import MANIFEST, ORIGINAL, Written, enabled, same_content

LAYER = {"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": f"sha256:{'a' * 64}", "size": 20_000_000}
CONFIG = {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": f"sha256:{'b' * 64}", "size": 2}
TEXT = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "config": CONFIG, "layers": [LAYER]})
# Keys of https://github.com/opencontainers/image-spec/blob/main/annotations.md, and labels that are not among them.
ABOUT = {
    "org.opencontainers.image.created": "2026-11-21T10:00:00Z",
    "org.opencontainers.image.source": "https://example.com/team/images",
    "org.opencontainers.image.licenses": "Apache-2.0 AND BSD-3-Clause",
    "org.opencontainers.image.documentation": "https://example.com/docs",
    "org.opencontainers.image.base.name": "docker.io/nvidia/cuda:12.4.1",
    "org.opencontainers.image.base.digest": f"sha256:{'c' * 64}",
}
LABELS = {**ABOUT, "org.opencontainers.image.vendor": "", "io.trainwright.plan": "p", "maintainer": "x"}


def made(labels: dict[str, str] | None) -> tuple[dict, dict]:
    """The manifest of the image, and the index."""
    found = enabled(
        Written(TEXT, MANIFEST), {"architecture": "amd64", "os": "linux"}, [(LAYER, b"ztoc")], labels=labels
    )
    return json.loads(found.image.text), json.loads(found.index.text)


def test_labels_of_oci_are_annotations_of_image_and_index():
    image, index = made(LABELS)
    assert index["annotations"] == ABOUT  # an empty label says that a key of the base does not hold
    notes = {key: value for key, value in image["annotations"].items() if not key.startswith("org.")}
    assert image["annotations"] == ABOUT | notes
    assert set(notes) == {"com.amazon.soci.index-digest", ORIGINAL}
    # The index says the same of it, so that nobody has to read the manifest for that.
    assert index["manifests"][0]["annotations"] == image["annotations"]
    assert same_content(image, json.loads(TEXT))


def test_equal_images_have_equal_manifests_and_one_without_labels_has_no_annotations_of_oci():
    assert made(LABELS) == made(dict(reversed(LABELS.items())))
    image, index = made(None)
    assert "annotations" not in index
    assert not any(key.startswith("org.") for key in image["annotations"])
