"""Extending an AWS Deep Learning Container (``--base dlc``): which image a line starts from, and where to pull it."""

from __future__ import annotations

from trainwright.catalog.catalog import BASE
from trainwright.catalog.image_line import Evidence, Line, LineBase, Selection
from trainwright.core.errors import RequestError, did_you_mean

# The region of AWS's first registry, if none is given.
DEFAULT_REGION = "us-west-2"


def extended(entry: Line) -> Line | None:
    """The line that starts from the Deep Learning Container of the same framework, CUDA and Python.

    That container already has everything in the line, so its components become those of the base image.

    Returns:
        None if AWS has not published such a container, or the line is not one of AWS's.
    """
    from trainwright.sagemaker.dlc import FRAMEWORKS, Snapshot, dlc_image, load_dlc

    line = entry.line
    if line.base.kind == "debian" or line.framework not in FRAMEWORKS.values():
        return None
    try:
        image = dlc_image(
            framework=line.framework,
            version=line.version,
            cuda=line.published_cuda or line.cuda_tag,
            python=line.python,
            region=DEFAULT_REGION,
        )
    except RequestError:
        return None
    says = f"the container is {image.repository}:{image.tag}"
    read = max(source.date for source in load_dlc().provenance.images if isinstance(source, Snapshot))
    evidence = Evidence(source=image.evidence[0], date=str(read), says=says)
    base = LineBase(kind="dlc", os=line.base.os, image=f"{image.repository}:{image.tag}")
    held = {name: Selection(provider=BASE, version=chosen.version) for name, chosen in line.components.items()}
    fields = {"base": base, "components": held, "options": {}, "evidence": (*line.evidence, evidence)}
    return entry.replace(line=line.replace(**fields))


def registry_reference(image: str, region: str | None) -> str:
    """The full reference of a Deep Learning Container.

    Args:
        image: repository and tag, such as ``pytorch-training:2.8.0-gpu-py312-cu129-ubuntu22.04-sagemaker``.
        region: of the registry; by default the public gallery if it has the image, otherwise ``us-west-2``.

    Raises:
        RequestError: AWS has no such registry in the region.
    """
    from trainwright.sagemaker.dlc import GALLERY, load_dlc, registry_of

    table = load_dlc()
    repository, _, tag = image.partition(":")
    published = [each for each in table.images if (each.repository, each.tag) == (repository, tag)]
    if region is None and any(each.gallery for each in published):
        return f"{GALLERY}/{image}"
    place = region or DEFAULT_REGION
    accounts = table.accounts[registry_of(repository)]
    if place not in accounts:
        raise RequestError(
            f"AWS has no Deep Learning Containers in a region {place!r}. {did_you_mean(place, accounts)}",
            remedy="Correct the region of the site (aws.region in trainwright.toml, or AWS_REGION).",
        )
    return f"{accounts[place]}.dkr.ecr.{place}.{table.domains[place]}/{image}"
