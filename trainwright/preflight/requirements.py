"""A job's ``requirements.txt`` against the packages of its image: what needs another version than the image carries."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from trainwright.core.data_files import read_text
from trainwright.core.errors import RequestError, did_you_mean
from trainwright.core.findings import Finding, Rule

if TYPE_CHECKING:
    from packaging.requirements import Requirement

FILE = "requirements.txt"
CHANGES = Rule(
    code="TW199",
    severity="error",
    title="requirements.txt needs another version of a package than the image carries",
    source="images set PIP_CONSTRAINT and UV_CONSTRAINT to their own packages (docs/images.md), so pip refuses when "
    "the job starts; without constraints it would replace what was tested (pip, User Guide, Constraints Files)",
    remedy="ask for the image's version, or leave the line out; --with-requirements builds an image with another one",
)
RULES = (CHANGES,)


class Carried(NamedTuple):
    """What an image carries: its name, its Python's full version, and versions of packages by normalized name."""

    image: str
    python: str
    packages: Mapping[str, str]


def carried(image: str) -> Carried:
    """The packages of an image that was built here, from its record.

    Args:
        image: a tag, its address in a registry, or the beginning of its id.

    Raises:
        RequestError: no image of that name was built here.
    """
    from packaging.utils import canonicalize_name

    from trainwright.build.store import all_records

    records = all_records()
    for record in records:
        if image in (*record.tags, record.pushed) or record.image_id.removeprefix("sha256:").startswith(
            image.removeprefix("sha256:") or " "
        ):
            found = record.probe.get("distributions", {})
            packages = {str(canonicalize_name(name)): str(version) for name, version in found.items()}
            python = record.probe.get("interpreter", {}).get("version") or record.plan.python
            return Carried(image, str(python), packages)
    known = [tag for record in records for tag in record.tags]
    raise RequestError(
        f"--image {image}: was not built here, so its packages are not known. {did_you_mean(image, known)}".strip(),
        remedy="./invoke list --built shows the images that were built here.",
    )


def check(path: Path, shown: str, image: Carried) -> list[Finding]:
    """The lines of a requirements file that the image's own packages do not satisfy.

    Options, addresses without a name, and lines that pip cannot read either are passed over.

    Args:
        path: the file.
        shown: its name in findings.
        image: what the image carries.
    """
    found = []
    for number, text in enumerate(read_text(path).splitlines(), start=1):
        wanted = _requirement(text)
        if wanted is not None and (has := _changed(wanted, image)):
            asks = f"{wanted.name} from {wanted.url}" if wanted.url else f"{wanted.name}{wanted.specifier}"
            message = f"{asks}, but {image.image} carries {wanted.name} {has}"
            found.append(CHANGES.finding(message, path=shown, line=number))
    return found


def _requirement(line: str) -> Requirement | None:
    """The requirement of a line (PEP 508), without its comment and pip's own options."""
    from packaging.requirements import InvalidRequirement, Requirement

    text = f" {line}".partition(" #")[0].partition(" --")[0].strip()
    try:
        return Requirement(text)
    except InvalidRequirement:
        return None


def _changed(wanted: Requirement, image: Carried) -> str:
    """The version of the image that a requirement is at odds with; empty if it is not."""
    from packaging.utils import canonicalize_name

    has = image.packages.get(canonicalize_name(wanted.name), "")
    short = ".".join(image.python.split(".")[:2])
    # The platform of every image; PEP 508 names the variables.
    own = {"python_version": short, "python_full_version": image.python, "sys_platform": "linux", "os_name": "posix"}
    own |= {"platform_system": "Linux", "platform_machine": "x86_64", "implementation_name": "cpython"}
    if not has or (wanted.marker is not None and not wanted.marker.evaluate({**own, "extra": ""})):
        return ""
    return has if wanted.url or not wanted.specifier.contains(has, prereleases=True) else ""
