"""The AWS Deep Learning Container that a request means: the one that ``--base dlc`` extends, and its address."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from typing import Literal

from packaging.version import InvalidVersion, Version

from trainwright.core.errors import RequestError, did_you_mean, nearest
from trainwright.core.records import Field, Record
from trainwright.sagemaker.dlc import GALLERY, DlcTable, PublishedImage, load_dlc, registry_of

_CUDA = re.compile(r"(?:cu|cuda)?[ -]?(\d{2})\.?(\d)(?:\.\d+)?", re.IGNORECASE | re.ASCII)
_PYTHON = re.compile(r"(?:py|python)?[ -]?([23])\.?(\d{0,2})(?:\.\d+)?", re.IGNORECASE | re.ASCII)

DlcStatus = Literal["supported", "end-of-support", "unknown"]


class DlcImage(Record):
    """An image for a ``FROM`` line."""

    uri: str
    account: str | None = Field(description="null in the public gallery")
    region: str | None = Field(description="null in the public gallery")
    repository: str
    tag: str
    version: str
    transformers: str | None
    os: str | None
    cuda: str | None
    python: str | None
    status: DlcStatus
    end_of_patch: date | None
    evidence: tuple[str, ...]


def dlc_image(
    *,
    framework: str,
    version: str,
    cuda: str | None = None,
    python: str | None = None,
    region: str | None = None,
    gallery: bool = False,
    transformers: str | None = None,
    today: date | None = None,
    table: DlcTable | None = None,
) -> DlcImage:
    """Return the one image that fits.

    Args:
        framework: a value of :data:`FRAMEWORKS`.
        version: version of the framework; ``2.8`` means the newest ``2.8.x``.
        cuda: ``cu113``, ``11.3`` or ``cpu``; None: the only GPU image.
        python: ``py38`` or ``3.8``; None: the only Python version.
        region: AWS region of the registry; required unless ``gallery``.
        gallery: use the public gallery, which needs no account.
        transformers: version of the Hugging Face library, if images differ only in that.
        today: the date for ``status``; by default the current one.
        table: by default the shipped one.

    Raises:
        RequestError: no image fits (``details["nearest"]`` has the nearest ones), or several do.
    """
    table = table or load_dlc()
    names = sorted({each.framework for each in table.images})
    if framework not in names:
        raise _unknown(f"AWS has no training image of {framework!r}", framework, names)
    images = [each for each in table.images if each.framework == framework]
    wanted_version = _full_version(version, images)
    images = [each for each in images if each.version == wanted_version]
    title = f"{framework} {wanted_version}"
    images = _by_cuda(images, cuda, title, table)
    if python is not None:
        wanted_python = _spelled(_PYTHON, "py", python, "--python", "py310 or 3.10")
        images = _only(images, lambda each: each.python, wanted_python, f"{title} has no image with Python {python}")
    if transformers is not None:
        nothing = f"{title} has no image with transformers {transformers}"
        images = _only(images, lambda each: each.transformers, transformers, nothing)
    if gallery:
        images = _in_gallery(images, title, table)
    return _located(_single(images, title), table, region, gallery, today or date.today())


def _located(image: PublishedImage, table: DlcTable, region: str | None, gallery: bool, today: date) -> DlcImage:
    account: str | None = None
    evidence = image.evidence
    if gallery:
        if region is not None:
            raise RequestError("the public gallery has no regions", remedy="Remove the region or the gallery.")
        host = GALLERY
    else:
        account = _account(image, table, region)
        host = f"{account}.dkr.ecr.{region}.{table.domains[str(region)]}"
        if image.regions is None:
            evidence = (*evidence, "the regions of this image are unknown; the account is that of the region")
    name = f"{image.repository}:{image.tag}"
    names = ("repository", "tag", "version", "transformers", "os", "cuda", "python")
    facts = {name: getattr(image, name) for name in names}
    status: DlcStatus = "unknown"
    if image.end_of_patch is not None:
        status = "supported" if today <= image.end_of_patch else "end-of-support"
    return DlcImage(
        **facts,
        uri=f"{host}/{name}",
        account=account,
        region=region,
        status=status,
        end_of_patch=image.end_of_patch,
        evidence=evidence,
    )


def _account(image: PublishedImage, table: DlcTable, region: str | None) -> str:
    accounts = table.accounts[registry_of(image.repository)]
    if region is None:
        raise RequestError("the registry's region is missing", remedy="Name the region, such as us-west-2.")
    everywhere = {name for regions in table.accounts.values() for name in regions}
    if region not in everywhere:
        raise _unknown(f"AWS has no Deep Learning Containers in region {region!r}", region, everywhere)
    there = set(accounts if image.regions is None else table.region_sets[image.regions])
    if region not in there:
        what = f"{image.repository}:{image.tag} is not published in {region}"
        raise _unknown(what, region, there)
    return accounts[region]


# --- selection -------------------------------------------------------------------------------------------------------


def _full_version(version: str, images: Sequence[PublishedImage]) -> str:
    """Return the version itself, or the newest one that starts with it."""
    known = sorted({each.version for each in images}, key=Version)
    fitting = [each for each in known if each == version or each.startswith(f"{version}.")]
    if fitting and version:
        return fitting[-1]
    similar = neighbours(version, known)
    raise RequestError(
        f"AWS has no {images[0].framework} {version!r} training image. The nearest: {', '.join(similar)}.",
        remedy=f"Use one of: {', '.join(known)}.",
        nearest=similar,
    )


def neighbours(version: str, known: Sequence[str]) -> list[str]:
    """Return the next lower and higher known version (``known`` is ascending), or the most similar names."""
    try:
        wanted = Version(version)
    except InvalidVersion:
        return nearest(version, known) or [known[-1]]
    below = [each for each in known if Version(each) <= wanted]
    above = [each for each in known if Version(each) > wanted]
    return [*below[-1:], *above[:1]]


def _by_cuda(images: Sequence[PublishedImage], cuda: str | None, title: str, table: DlcTable) -> list[PublishedImage]:
    if cuda is not None and cuda.lower() == "cpu":
        return _only(images, lambda each: each.device, "cpu", f"{title} has no CPU image")
    gpu = _only(images, lambda each: each.device, "gpu", f"{title} has no GPU image")
    if cuda is None:
        return gpu
    wanted = _spelled(_CUDA, "cu", cuda, "--cuda", "cu124, 12.4 or cpu")
    fitting = [each for each in gpu if each.cuda == wanted]
    if fitting:
        return fitting
    if all(each.cuda is None for each in gpu):
        tags = " and ".join(each.tag for each in gpu)
        raise RequestError(
            f"{title} is published as {tags}, but its CUDA version is unknown",
            remedy="Omit the CUDA version and check it in the image, or use a version whose CUDA is known.",
            nearest=[],
        )
    repositories = {each.repository for each in gpu}
    for each in table.unpublished:
        if each.repository in repositories and each.version == gpu[0].version and each.cuda == wanted:
            what = f"AWS has a Dockerfile for {title} with {wanted}, but no source lists a SageMaker image of it"
            raise _unknown(f"{what} ({'; '.join(each.evidence)})", wanted, {one.cuda for one in gpu if one.cuda})
    return _only(gpu, lambda each: each.cuda, wanted, f"{title} has no image with {wanted}")


def _in_gallery(images: Sequence[PublishedImage], title: str, table: DlcTable) -> list[PublishedImage]:
    fitting = [each for each in images if each.gallery]
    if fitting:
        return fitting
    framework = images[0].framework
    known = {each.version for each in table.images if each.gallery and each.framework == framework}
    near = neighbours(images[0].version, sorted(known, key=Version)) if known else []
    hint = f"The nearest there: {', '.join(near)}." if near else f"It has no {framework} image."
    raise RequestError(
        f"{title} is not known to be in the public gallery. {hint}",
        remedy="Name a region to use AWS's private registry.",
        nearest=near,
    )


def _single(images: Sequence[PublishedImage], title: str) -> PublishedImage:
    if len(images) == 1:
        return images[0]
    differing = [
        f"{field} ({', '.join(sorted({str(getattr(each, field)) for each in images}))})"
        for field in ("cuda", "python", "transformers")
        if len({getattr(each, field) for each in images}) > 1
    ]
    raise RequestError(
        f"{len(images)} images of {title} fit; they differ in {' and '.join(differing)}",
        remedy="Specify which one.",
        nearest=[each.tag for each in images],
    )


def _only(
    images: Sequence[PublishedImage], of: Callable[[PublishedImage], str | None], wanted: str, nothing: str
) -> list[PublishedImage]:
    """Return the images with a value; if there are none, raise an error that lists the valid values."""
    fitting = [each for each in images if of(each) == wanted]
    if fitting:
        return fitting
    raise _unknown(nothing, wanted, {value for each in images if (value := of(each))})


def _spelled(pattern: re.Pattern[str], prefix: str, word: str, flag: str, examples: str) -> str:
    found = pattern.fullmatch(word.strip())
    if found is None:
        raise RequestError(f"{flag} {word!r} is invalid", remedy=f"Write it as {examples}.", nearest=[])
    return prefix + "".join(found.groups())


def _unknown(what: str, word: str, known: Iterable[str]) -> RequestError:
    names = sorted(known)
    near = nearest(word, names) or names
    return RequestError(f"{what}. {did_you_mean(word, names)}".strip(), remedy="Use a valid one.", nearest=near)
