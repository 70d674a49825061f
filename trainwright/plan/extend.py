"""Extending an AWS Deep Learning Container (``--base dlc``): which image a line starts from, and where to pull it."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.catalog import incompatibilities
from trainwright.catalog.image_line import BASE, LINE_FILE, Evidence, ImageLine, Line, LineBase, Selection
from trainwright.core.errors import RequestError, did_you_mean

if TYPE_CHECKING:
    from trainwright.sagemaker.dlc import PublishedImage
    from trainwright.sagemaker.dlc_contents import DlcContents

# The region of AWS's first registry, if none is given.
DEFAULT_REGION = "us-west-2"
SMP_FRAMEWORK = "pytorch-smp"
# What every training container of AWS has, whatever else is known of it.
AT_LEAST = ("ssh", "sagemaker-toolkit")


def extended(entry: Line) -> Line | None:
    """The line that starts from the Deep Learning Container of the same framework, CUDA and Python.

    Only what the container's name states is claimed: Python, the framework and CUDA. What else it holds has no version
    here: its build looks (:mod:`trainwright.prove.base`).

    Returns:
        None if AWS has not published such a container, or the line is not one of AWS's.
    """
    from trainwright.sagemaker.dlc import FRAMEWORKS, dlc_image

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
    evidence = Evidence(source=image.evidence[0], date=_read_on(), says=says)
    base = LineBase(kind="dlc", os=line.base.os, image=f"{image.repository}:{image.tag}")
    claims = {"python": line.python, line.main: line.version}
    if line.cuda != "cpu":
        claims["cuda"] = _dotted(line.published_cuda) or line.cuda
    names = (*claims, *(AT_LEAST if _contents(base) else line.components))
    held = {name: Selection(provider=BASE, version=claims.get(name, "")) for name in names}
    fields = {"base": base, "components": held, "options": {}, "evidence": (*line.evidence, evidence)}
    return entry.replace(line=line.replace(**fields))


def published(framework: str) -> list[Line]:
    """Lines for AWS's containers that no image line describes: those for CPUs, and those of SMP v2.

    Only what AWS's table of its images says of one is in its line. An image whose distribution or Python is unknown has
    none.
    """
    from trainwright.sagemaker.dlc import load_dlc

    images = [each for each in load_dlc().images if each.framework == framework]
    lines = []
    for image in images:
        alike = (each.os for each in load_dlc().images if _alike(each, image) and each.os)
        os_name = image.os or next(alike, None)
        if (image.device == "gpu" and framework != SMP_FRAMEWORK) or os_name is None or len(image.python or "") < 4:
            continue
        python = f"{str(image.python)[2]}.{str(image.python)[3:]}"
        main = "tensorflow" if "tensorflow" in framework else "pytorch"
        cuda = _dotted(image.cuda) or "cpu"
        claims = {"python": python, main: image.version} | ({} if cuda == "cpu" else {"cuda": cuda})
        ended = image.end_of_patch is not None and image.end_of_patch < date.today()
        line = ImageLine(
            framework=framework,
            version=image.version,
            component=main,
            cuda=cuda,
            python=python,
            base=LineBase(kind="dlc", os=_os(os_name), image=f"{image.repository}:{image.tag}"),
            status="end-of-support" if ended else "supported",
            components={name: Selection(provider=BASE, version=claims.get(name, "")) for name in (*claims, *AT_LEAST)},
            evidence=tuple(
                Evidence(source=source, date=_read_on(), says=f"{image.repository}:{image.tag}")
                for source in image.evidence
            ),
        )
        tag = "-".join(filter(None, (image.version, image.cuda or "cpu")))
        lines.append(Line(line=line, path=Path("images", framework, tag, LINE_FILE)))
    return lines


def _alike(other: PublishedImage, image: PublishedImage) -> bool:
    """Whether another image has the same distribution: the same version for GPUs, or what SMP v2 is made from."""
    if image.framework != SMP_FRAMEWORK:
        return (other.repository, other.version) == (image.repository, image.version)
    same = (other.version.rpartition(".")[0], other.cuda) == (image.version.rpartition(".")[0], image.cuda)
    return other.repository == "pytorch-training" and same


def _read_on() -> str:
    """The day on which AWS's table of its images was read."""
    from trainwright.sagemaker.dlc import Snapshot, load_dlc

    return str(max(source.date for source in load_dlc().provenance.images if isinstance(source, Snapshot)))


def _os(name: str) -> str:
    """``ubuntu22.04`` as ``ubuntu-22.04``, ``amzn2023`` as ``amazonlinux-2023``."""
    return name.replace("amzn", "amazonlinux-").replace("ubuntu", "ubuntu-")


def _dotted(cuda_tag: str | None) -> str | None:
    """``cu133`` as ``13.3``."""
    return None if cuda_tag is None else f"{cuda_tag[2:-1]}.{cuda_tag[-1]}"


def _contents(base: LineBase) -> DlcContents | None:
    if base.kind != "dlc":
        return None
    from trainwright.sagemaker.dlc_contents import contents_of

    return contents_of(base.image or "")


def with_evidence(entry: Line) -> Line:
    """A line on one of AWS's containers, with the components that AWS's own Dockerfile installs in that."""
    found = _contents(entry.line.base)
    if found is None:
        return entry
    held = {name: Selection(provider=BASE) for name in found.components} | entry.line.components
    return entry.replace(line=entry.line.replace(components=held))


def notes_of(line: ImageLine) -> list[str]:
    """What a user should know about a base image that nobody has looked into yet."""
    if line.base.kind != "dlc":
        return []
    found = _contents(line.base)
    says = "what the base image holds is known from its name only" if found is None else f"{found.source} installs "
    return [f"{says}{found.listed if found else ''}; the build reads what the container holds"]


def bad_versions(
    line: ImageLine, rules: tuple[incompatibilities.Incompatibility, ...], facts: incompatibilities.Composition
) -> list[str]:
    """The notices about known-bad versions that AWS's Dockerfile installs in a base image; the request's words win."""
    found = _contents(line.base)
    if found is None:
        return []
    told = incompatibilities.notices(rules, incompatibilities.beside(facts, found.components))
    new = [notice for notice in told if notice not in incompatibilities.notices(rules, facts)]
    return [f"{notice} ({found.source} installs it; AWS may have replaced the image since)" for notice in new]


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
