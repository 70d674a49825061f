"""The labels of an image in Amazon ECR: its configuration is read as docker reads it, nothing is pulled."""

from __future__ import annotations

import json
from collections.abc import Mapping

from trainwright.core.errors import Failure
from trainwright.push.ecr import Ecr, ImageManifest
from trainwright.push.references import Place
from trainwright.push.registry import Registry, labels_of
from trainwright.site.site import Site

_TRIES = 2  # an image that cannot be asked is no failure: its labels are unknown


def ecr_labels(
    place: Place, site: Site, *, tag: str | None = None, digest: str | None = None
) -> Mapping[str, str] | None:
    """The labels of an image in ECR, of several platforms that for x86-64.

    Args:
        place: its repository.
        site: proxies and authorities.
        tag: its tag, where no digest is given.
        digest: its digest.

    Returns:
        The labels; nothing without credentials, without the image, or without an answer.
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
    """The digest of the image for x86-64 in an index of images; nothing where the manifest is an image's own."""
    images = json.loads(manifest.text).get("manifests") or []
    fitting = [each for each in images if each.get("platform", {}).get("architecture") == "amd64"]
    return next((str(each["digest"]) for each in fitting or images), None)
