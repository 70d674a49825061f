"""The labels of an image in Amazon ECR, read from its configuration; nothing is pulled."""

from __future__ import annotations

from collections.abc import Mapping

from trainwright.core.errors import Failure
from trainwright.push.ecr import Ecr
from trainwright.push.published import labels_of
from trainwright.push.references import PushPlace
from trainwright.push.registry import Registry
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
        registry = Registry(ecr, site, tries=_TRIES)
        configuration = registry.configuration(registry.single(manifest)) if manifest else None
    except Failure:
        return None
    return None if configuration is None else labels_of(configuration)
