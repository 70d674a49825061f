"""Extending an AWS Deep Learning Container (``--base dlc``): which image a line starts from, and where to pull it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.catalog import incompatibilities
from trainwright.catalog.image_line import (
    BASE,
    LINE_FILE,
    Evidence,
    ImageLine,
    Line,
    LineBase,
    Selection,
    begins,
    version_key,
)
from trainwright.core.errors import RequestError, did_you_mean

if TYPE_CHECKING:
    from trainwright.plan.request import Request
    from trainwright.sagemaker.dlc import PublishedImage
    from trainwright.sagemaker.dlc_contents import DlcContents

# The region of AWS's first registry, if none is given.
DEFAULT_REGION = "us-west-2"
SMP_FRAMEWORK = "pytorch-smp"
# What every training container of AWS has, whatever else is known of it.
AT_LEAST = ("ssh", "sagemaker-toolkit")
_NAMED = 6  # versions of a framework in one command
_ENDS = "the build ends with a conflict"


def extended(entry: Line) -> Line | None:
    """The line that starts from the Deep Learning Container of the same framework, CUDA and Python.

    Only what the container's name states is claimed: Python, the framework and CUDA. What else it holds has no version
    here: its build looks (:mod:`trainwright.prove.base`).

    Returns:
        None if AWS has not published such a container, or the line is not one of AWS's.
    """
    from trainwright.sagemaker.dlc import FRAMEWORKS
    from trainwright.sagemaker.dlc_lookup import dlc_image

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
    """Lines for AWS's containers whose names say enough: those that no image line describes can be extended by them.

    Only what AWS's table of its images says of one is in its line. An image whose distribution, Python or CUDA is
    unknown has none. Of several that differ in the Hugging Face library, the one with the newest has.
    """
    from trainwright.sagemaker.dlc import load_dlc

    images = [each for each in load_dlc().images if each.framework == framework]
    images.sort(key=lambda each: version_key(each.transformers or "0"))
    lines = {}
    for image in images:
        alike = _alike(image, load_dlc().images)
        if alike is None or len(image.python or "") < 4 or (image.device == "gpu" and image.cuda is None):
            continue
        python = f"{str(image.python)[2]}.{str(image.python)[3:]}"
        main = "tensorflow" if "tensorflow" in framework else "pytorch"
        cuda = _dotted(image.cuda) or "cpu"
        claims = {"python": python, main: image.version} | ({} if cuda == "cpu" else {"cuda": cuda})
        claims |= {} if image.transformers is None else {"huggingface": image.transformers}
        ended = image.end_of_patch is not None and image.end_of_patch < date.today()
        name, other = f"{image.repository}:{image.tag}", f"{alike.repository}:{alike.tag}"
        told = f"the distribution of {name} is not known before the build; that of {other} is taken"
        line = ImageLine(
            framework=framework,
            version=image.version,
            component=main,
            cuda=cuda,
            python=python,
            base=LineBase(kind="dlc", os=_os(str(alike.os)), image=name),
            status="end-of-support" if ended else "supported",
            components={name: Selection(provider=BASE, version=claims.get(name, "")) for name in (*claims, *AT_LEAST)},
            notices=() if alike is image else (told,),
            evidence=tuple(Evidence(source=source, date=_read_on(), says=name) for source in image.evidence),
        )
        tag = "-".join((image.version, image.cuda or "cpu", str(image.python)))
        lines[tag] = Line(line=line, path=Path("images", framework, tag, LINE_FILE))
    return list(lines.values())


def without_a_line(framework: str | None = None, tag: str | None = None) -> list[str]:
    """The commands that extend AWS's containers as they are published, each with the newest versions that it takes.

    Args:
        framework: by default all.
        tag: of the CUDA version, or ``cpu``; by default all.
    """
    from trainwright.sagemaker.dlc import load_dlc

    commands = []
    for name in sorted({each.framework for each in load_dlc().images if framework in (None, each.framework)}):
        lines = [entry.line for entry in published(name) if tag in (None, entry.line.cuda_tag)]
        versions = sorted({line.version for line in lines}, key=version_key, reverse=True)
        older = f" and {len(versions) - _NAMED} older ones" if len(versions) > _NAMED else ""
        words = f"--framework {name}{f' --cuda {tag}' if tag else ''} --base dlc"
        commands += [f"./invoke plan {words}   # --version {', '.join(versions[:_NAMED])}{older}"] if versions else []
    return commands


def not_enough_known(framework: str, version: str) -> str:
    """Why AWS's containers of a version cannot be extended yet, and what to do; empty if all of them can."""
    from trainwright.sagemaker.dlc import load_dlc

    known = {entry.line.base.image for entry in published(framework)}
    names = (
        f"{each.repository}:{each.tag}"
        for each in load_dlc().images
        if (each.framework, each.version, each.device) == (framework, version, "gpu")
    )
    if not (lacking := [name for name in names if name not in known]):
        return ""
    return (
        f"AWS has {', '.join(lacking)}, but no source states all of its Python, CUDA and distribution. A line of "
        "your own that does (CONTRIBUTING.md, Without a fork; provider base) extends it, and the build checks them"
    )


def _alike(image: PublishedImage, images: Sequence[PublishedImage]) -> PublishedImage | None:
    """The image whose distribution one has: itself, or else one of the same version for GPUs.

    SMP v2 is made from PyTorch's: of the same minor version and CUDA, or else the last with that CUDA. Its 2.4.1 with
    CUDA 12.1, which PyTorch 2.4 does not have, has EFA and NCCL of PyTorch's 2.3.0 (AWS's release notes of SMP v2.7.0).
    """
    if image.os:
        return image
    known = [each for each in images if each.os]
    if image.framework != SMP_FRAMEWORK:
        same = (image.repository, image.version)
        return next((each for each in known if (each.repository, each.version) == same), None)
    from_ = [each for each in known if (each.repository, each.cuda) == ("pytorch-training", image.cuda)]
    minor = [each for each in from_ if each.version.rpartition(".")[0] == image.version.rpartition(".")[0]]
    return max(minor or from_, key=lambda each: version_key(each.version), default=None)


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


def notes_of(line: ImageLine, request: Request) -> list[str]:
    """What a user should know about a base image that nobody has looked into yet."""
    if line.base.kind != "dlc":
        return []
    found = _contents(line.base)
    says = "what the base image holds is known from its name only" if found is None else f"{found.source} installs "
    against = [] if found is None else _against(found, line, request)
    return [f"{says}{found.listed if found else ''}; the build reads what the container holds", *against]


def _against(found: DlcContents, line: ImageLine, request: Request) -> list[str]:
    """A notice for each word that a build refuses if the container is as AWS's Dockerfile says.

    The build looks: :func:`trainwright.prove.base.check_claims`.
    """
    from trainwright.sagemaker.dlc_contents import load_contents

    has, looked_for = {**found.components, **found.also}, load_contents().looked_for
    installed = {name for name, each in line.components.items() if each.provider != BASE} | line.options.keys()
    pins = dict(request.set_)
    words = {f"--set {name}={version}": name for name, version in pins.items()}
    words |= {f"--with {name}": name for name in request.with_ if name not in pins}
    told = []
    for word, name in words.items():
        wanted = pins.get(name, BASE)
        if name in installed or (name not in has and name not in looked_for):
            continue
        if name not in has:
            told.append(f"{word}: {found.source} does not install it; {_ENDS} unless the container has it")
        elif has[name] and wanted != BASE and not begins(wanted, has[name]):
            told.append(
                f"{word}: {found.source} installs {name} {has[name]}; {_ENDS} unless the container has {wanted}"
            )
    for name in (each for each in request.without if each in has):
        what = " ".join(filter(None, (name, has[name])))
        told.append(f"--without {name}: {found.source} installs {what}; {_ENDS} if the container has it")
    return told


def bad_versions(
    line: ImageLine, rules: tuple[incompatibilities.Incompatibility, ...], facts: incompatibilities.Composition
) -> list[str]:
    """The notices about known-bad versions that AWS's Dockerfile installs in a base image; the request's words win."""
    found = _contents(line.base)
    if found is None:
        return []
    told = incompatibilities.notices(rules, incompatibilities.beside(facts, {**found.components, **found.also}))
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
