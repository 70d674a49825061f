"""The labels of an image in Amazon ECR, read from its configuration; nothing is pulled."""

from __future__ import annotations

import json
from collections.abc import Mapping

from trainwright.core.errors import Failure
from trainwright.push.ecr import Ecr, ImageManifest
from trainwright.push.references import PushPlace
from trainwright.push.registry import Registry, labels_of
from trainwright.site.site import Site

_TRIES = 2  # an image that cannot be read is not a failure: its labels are unknown


def ecr_labels(
    place: PushPlace, site: Site, *, tag: str | None = None, digest: str | None = None
) -> Mapping[str, str] | None:
    """Return the labels of an image in ECR; of a multi-platform image, those for x86-64.

    Args:
        place: its repository.
        site: proxies and certificate authorities.
        tag: its tag, if no digest is given.
        digest: its digest.

    Returns:
        The labels; None if credentials, the image or a response is missing.
    """
    try:
        ecr = Ecr(place, site, _TRIES)
        manifest = ecr.manifest(digest=digest) if digest else ecr.manifest(tag=tag)
        if manifest is not None and (one := _platform(manifest)):
            manifest = ecr.manifest(digest=one)
        configuration = Registry(ecr, site).configuration(manifest) if manifest else None
    except Failure:
        return None
    return None if configuration is None else labels_of(configuration)


def _platform(manifest: ImageManifest) -> str | None:
    """Return the digest of the x86-64 image in an index; None if the manifest is not an index."""
    images = json.loads(manifest.text).get("manifests") or []
    fitting = [each for each in images if each.get("platform", {}).get("architecture") == "amd64"]
    return next((str(each["digest"]) for each in fitting or images), None)
