"""A job's ``requirements.txt`` against the packages of its image: what needs another version than the image carries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.core.errors import Conflict, RequestError
from trainwright.core.findings import Finding, Rule
from trainwright.preflight.carried import Carried, of_job
from trainwright.sagemaker.job import Job
from trainwright.user.requirements import logical_lines, requirements_text

if TYPE_CHECKING:
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

FILE = "requirements.txt"
CHANGES = Rule(
    code="TW199",
    severity="error",
    title="requirements.txt needs another version of a package than the image carries",
    source="images set PIP_CONSTRAINT and UV_CONSTRAINT to their own packages (docs/images.md), so pip refuses when "
    "the job starts; without constraints it would replace what was tested (pip, User Guide, Constraints Files)",
    remedy="ask for the image's version, or leave the line out; --with-requirements builds an image with another one",
)
TIED = Rule(
    code="TW475",
    severity="note",
    title="requirements.txt asks for a package that goes with one torch only, and the image lacks it (a warning: the "
    "package index has it for another build of torch)",
    source="METADATA of their releases: `torch==X` in torchvision 0.28.0, torchaudio 2.10.0, xformers 0.0.34, "
    "torchtext 0.17.2 and vllm 0.33.0; `torchvision` in fastai 2.8.12, timm 1.0.31, ultralytics 8.4.190, "
    "easyocr 1.7.2, open_clip_torch 3.3.0, segmentation_models_pytorch 0.6.0 and torchgeo 0.8.1. Beside torch "
    "2.13.0+cpu the index's torchvision cannot be imported: images/pytorch/cpu/line.yaml",
    remedy="Build the image --with-requirements; then nothing is chosen when the job starts.",
)
UNKNOWN = Rule(
    code="TW476",
    severity="note",
    title="requirements.txt was not compared with the image, as its packages are not known",
    source="the packages are those of a build record of this machine, or of the lock of the job's `plan`",
    remedy="Name the image that was built here (preflight --image), or the job (--job), whose file has image or plan.",
)
RULES = (CHANGES, TIED, UNKNOWN)
# Up to this torch each release pins one (`torch==`), and each torch has one release; later ones state a lower bound or
# nothing (METADATA of torchvision 0.28.0 and 0.29.2, and of torchaudio 2.10.0 and 2.11.0).
_PINNING = {"torchvision": "2.13.0", "torchaudio": "2.10.0"}
_OF_ONE_TORCH = {*_PINNING, "xformers", "torchtext", "vllm"}
_BRINGING_TORCHVISION = {
    *("fastai", "timm", "ultralytics", "easyocr", "open-clip-torch", "segmentation-models-pytorch", "torchgeo"),
}


def check_for(job: Job | None, path: Path, shown: str) -> list[Finding]:
    """The findings of a requirements file for the image or the plan of a job; a note if its packages are not known.

    Where neither is named, that matters to what belongs to one torch alone.
    """
    if job is None or (job.image is None and job.plan is None):
        try:
            return _tied_to_no_image(path, shown)
        except RequestError:
            return []  # pip guesses other encodings
    try:
        image = of_job(job)
    except (RequestError, Conflict) as unknown:
        return [UNKNOWN.finding(unknown.message.splitlines()[0], path=shown)]
    return check(path, shown, image)


def check(path: Path, shown: str, image: Carried) -> list[Finding]:
    """The lines of a requirements file that the image's own packages do not satisfy.

    Options, addresses without a name, and lines that pip cannot read either are passed over.

    Args:
        path: the file.
        shown: its name in findings.
        image: what the image carries.
    """
    from packaging.utils import canonicalize_name

    found = []
    for number, text in logical_lines(requirements_text(path, shown)):
        wanted = _requirement(text)
        if wanted is None or not _applies(wanted, image):
            continue
        asks = f"{wanted.name} from {wanted.url}" if wanted.url else f"{wanted.name}{wanted.specifier}"
        has = image.packages.get(canonicalize_name(wanted.name), "")
        if not has:
            found += _companion(wanted, asks, image, shown, number)
        elif wanted.url or not wanted.specifier.contains(has, prereleases=True):
            message = f"{asks}, but {image.image} carries {wanted.name} {has}"
            found.append(CHANGES.finding(message, path=shown, line=number))
    return found


def asked_for(path: Path, name: str) -> SpecifierSet | None:
    """The versions of a package that a requirements file admits; None if it, or the file, is not there.

    Args:
        path: the file.
        name: the package, normalized.
    """
    from packaging.utils import canonicalize_name

    if not path.is_file():
        return None
    try:
        whole = requirements_text(path, str(path))
        lines = list(logical_lines(whole)) if name in canonicalize_name(whole) else []
    except RequestError:  # reported where the file itself is checked
        return None
    for _, text in lines:
        wanted = _requirement(text) if name in canonicalize_name(text) else None
        if wanted is not None and canonicalize_name(wanted.name) == name and wanted.specifier:
            return wanted.specifier
    return None


def _tied_to_no_image(path: Path, shown: str) -> list[Finding]:
    """A note on the first line whose package replaces the image's torch unless both fit."""
    from packaging.utils import canonicalize_name

    for number, text in logical_lines(requirements_text(path, shown)):
        wanted = _requirement(text)
        if wanted is not None and canonicalize_name(wanted.name) in {"torch", *_OF_ONE_TORCH, *_BRINGING_TORCHVISION}:
            message = f"{wanted.name} has to fit the image's torch, but no image is named"
            return [UNKNOWN.finding(message, path=shown, line=number)]
    return []


def _companion(wanted: Requirement, asks: str, image: Carried, shown: str, line: int) -> list[Finding]:
    """What a package that the image lacks has to do with the image's torch, if anything."""
    from packaging.utils import canonicalize_name
    from packaging.version import Version

    asked, torch = str(canonicalize_name(wanted.name)), image.packages.get("torch", "")
    name = "torchvision" if asked in _BRINGING_TORCHVISION else asked
    if not torch or wanted.url or name not in _OF_ONE_TORCH or name in image.packages:
        return []
    has = Version(torch)
    fits = _fitting(name, has.public)
    fit = f"; {name} {fits} is made for it" if fits else ""
    if fits and asked in _PINNING and not wanted.specifier.contains(fits, prereleases=True):
        if has.local and wanted.specifier.contains(f"{fits}+{has.local}", prereleases=True):
            return []
        if Version(has.public) <= Version(_PINNING[asked]):
            message = f"{asks} requires another torch, but {image.image} carries torch {torch}{fit}"
            return [CHANGES.finding(message, path=shown, line=line)]
    what = asks if name == asked else f"{name}, which {asks} requires,"
    message = f"{what} is not in {image.image}, which carries torch {torch}{fit}"
    if has.local:
        message += f". The {name} of the Python package index is not compiled for +{has.local}"
    remedy = f"Build the image --with {name}; then nothing is chosen when the job starts." if fits else None
    severity = "warning" if has.local else TIED.severity
    return [TIED.finding(message, path=shown, line=line, severity=severity, remedy=remedy)]


def _fitting(name: str, torch: str) -> str:
    """The version of a package that the image lines have beside a torch; empty if none has it."""
    from packaging.version import Version

    from trainwright.catalog.catalog import open_catalog

    for entry in open_catalog().lines:
        own = {**entry.line.options, **entry.line.components}
        if "pytorch" in own and name in own and Version(own["pytorch"].version).public == torch:
            return own[name].version
    return ""


def _requirement(line: str) -> Requirement | None:
    """The requirement of a line (PEP 508), without its comment and pip's own options."""
    from packaging.requirements import InvalidRequirement, Requirement

    text = f" {line}".partition(" #")[0].partition(" --")[0].strip()
    try:
        return Requirement(text)
    except InvalidRequirement:
        return None


def _applies(wanted: Requirement, image: Carried) -> bool:
    """Whether a requirement's marker, if any, is true in the image."""
    short = ".".join(image.python.split(".")[:2])
    # The platform of every image; PEP 508 names the variables.
    own = {"python_version": short, "python_full_version": image.python, "sys_platform": "linux", "os_name": "posix"}
    own |= {"platform_system": "Linux", "platform_machine": "x86_64", "implementation_name": "cpython"}
    return wanted.marker is None or wanted.marker.evaluate({**own, "extra": ""})
