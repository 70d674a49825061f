"""Image lines (``images/<framework>/<line>/line.yaml``): known-good sets of versions, with their evidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from trainwright.catalog.budget import SIZE, SMALLEST, Size
from trainwright.catalog.platforms import AMD64, PLATFORMS
from trainwright.core.errors import did_you_mean
from trainwright.core.fields import (
    Capability,
    Constraint,
    Cuda,
    Day,
    Name,
    OptionalVersion,
    Os,
    PackageName,
    Pin,
    Prose,
    Python,
    Requirement,
    Statement,
    Url,
    VersionText,
    form,
)
from trainwright.core.records import Record, parse_record
from trainwright.site.apt_sources import DEBIAN_SUITES

Status = Literal["supported", "unmaintained", "end-of-support"]
BaseKind = Literal["debian", "nvidia", "dlc"]
# A provider of every component: the base image contains it, so nothing is installed.
BASE = "base"
# In the folder of a line, images/<framework>/<line>, beside its rendered Dockerfile.
LINE_FILE = "line.yaml"
LOCK_FILE = "lock.json"
# An image reference for FROM: no digest and no tag latest; a lock adds the digest.
_Image = Annotated[
    str, form(r"^(?!.{513})[a-z0-9][A-Za-z0-9_.-]*(:[0-9]+)?(/[A-Za-z0-9_.-]+)*:[A-Za-z0-9_][A-Za-z0-9_.-]*$")
]


class Evidence(Record):
    """Why a row is correct: where it was read or measured, when, and what it says."""

    source: Statement
    date: Statement
    says: Statement


class Selection(Record):
    """One component of an image line: who provides it, in which version.

    ``packages`` are Python requirements with exact versions (``torch==2.6.0``) that the component installs;
    ``index`` names a further Python package index that holds them. ``needs`` says what source packages among them
    depend on, by name: their own setup.py says so only where what they are compiled against is installed, which a
    resolver does not do. Only what the base image holds may have no version: the build looks whether it is there, and
    which version; a version is a claim that the build checks.
    """

    provider: Name
    version: OptionalVersion = ""
    packages: tuple[Pin, ...] = ()
    index: Url | None = None
    needs: dict[PackageName, tuple[Requirement, ...]] = {}

    def __post_init__(self) -> None:
        if not self.version and self.provider != BASE:
            raise ValueError(f"key 'version' is missing: only a component of the provider {BASE} may omit it")


class LineBase(Record):
    """What an image starts from.

    Attributes:
        kind: ``debian`` (a root file system made locally; CUDA comes with the wheels), ``nvidia`` (``nvidia/cuda``)
            or ``dlc`` (an AWS Deep Learning Container to extend).
        os: distribution and release, such as ``ubuntu-20.04``.
        image: what the image itself starts from; None if it is made locally.
        build_image: what build stages start from, of the same distribution; by default ``image``.
    """

    kind: BaseKind
    os: Os
    image: _Image | None = None
    build_image: _Image | None = None

    def __post_init__(self) -> None:
        if self.image is None and self.kind != "debian":
            raise ValueError(f"key 'image' is missing: a base of kind {self.kind} needs one")
        if self.image is None:
            known_suite(self.os)


class ImageLine(Record):
    """A known-good set for one framework version and one CUDA version.

    Attributes:
        variant: what distinguishes it from lines of the same framework version and CUDA; part of the image's tags.
        component: the component that provides the framework's version; by default the one named like the framework.
        base: a record, or ``debian-12`` for a Debian root file system.
        released: whether anybody published an image of this set; if not, the resolver uses it only if its version is
            asked for.
        preferred: the one to use of several lines for one framework version and CUDA that differ in nothing else.
        published_cuda: the CUDA version in the name of AWS's container, if it differs from the framework's.
        architectures: compute capabilities of the GPUs that native code is compiled for, such as ``8.0``.
        options: components that ``--with`` adds.
        constraints: bounds for Python packages that no component lists.
        excluded: Python packages that others depend on but that come from the base image or a component's archive
            instead of a package index; they are not locked.
        budget: the size of the line's own image, unpacked, such as ``5.0 GB``, or bytes. An image that is more than
            3 % larger gets no tag.
        as_of: a date; unpinned packages are locked as the index had them then, so that they fit a base image of that
            time.
    """

    framework: Name
    version: VersionText
    variant: Annotated[str, form(r"^[a-z0-9.-]{0,64}$")] = ""
    component: Name | None = None
    cuda: Cuda
    python: Python
    base: LineBase
    status: Status
    released: bool = True
    preferred: bool = False
    published_cuda: Annotated[str, form(r"^cu[0-9]{2,4}$")] | None = None
    architectures: tuple[Capability, ...] = ()
    components: dict[Name, Selection]
    options: dict[Name, Selection] = {}
    constraints: tuple[Constraint, ...] = ()
    excluded: tuple[PackageName, ...] = ()
    budget: Size | None = None
    as_of: Day | None = None
    notices: tuple[Prose, ...] = ()
    evidence: Annotated[tuple[Evidence, ...], Meta(min_length=1)]

    @classmethod
    def read(cls, data: Any, where: str, place: Callable[[Sequence[object]], str] | None = None) -> ImageLine:
        """The line in the content of a file; as :func:`trainwright.core.records.parse_record` reads a record."""
        if isinstance(data, dict) and isinstance(base := data.get("base"), str):
            data = data | {"base": {"kind": base.split("-")[0], "os": base}}
        return parse_record(cls, data, where, place=place)

    @property
    def main(self) -> str:
        """The component that is the framework."""
        return self.component or self.framework

    @property
    def cuda_tag(self) -> str:
        """The CUDA version as the command line spells it: ``cu124`` or ``cpu``."""
        return cuda_tag(self.cuda)

    def goes_by_cuda(self, tag: str) -> bool:
        """Whether a request for that CUDA version may mean this line, whose AWS tag may state another."""
        return tag in (self.cuda_tag, self.published_cuda)


class LineFile(ImageLine):
    """An image line as ``line.yaml`` has it, for the schema of that file."""

    base: LineBase | Os  # type: ignore[assignment]
    budget: Annotated[str, form(SIZE)] | Annotated[int, Meta(ge=SMALLEST)] | None = None


class Line(Record):
    """An image line and the file it was read from; the folder of the file has the line's name."""

    line: ImageLine
    path: Path

    @property
    def name(self) -> str:
        """What distinguishes the line from others of its framework, such as ``2.6.0-cu126``."""
        return self.path.parent.name

    @property
    def file(self) -> str:
        """The line's file, as shown to users."""
        return f"images/{self.path.parent.parent.name}/{self.name}/{LINE_FILE}"

    @property
    def lock_path(self) -> Path:
        """The lock of every Python package of the line."""
        return self.path.with_name(LOCK_FILE)

    def lock_for(self, platform: str) -> Path:
        """The lock of the line for a platform; a line has none for a platform that it was not resolved for."""
        return self.lock_path if platform == AMD64 else self.path.with_name(f"lock.{PLATFORMS[platform].debian}.json")


def known_suite(os: str) -> str:
    """The suite of Debian's archive that a root file system is made from.

    Raises:
        ValueError: the distribution has no such suite.
    """
    if os not in DEBIAN_SUITES:
        raise ValueError(f"there is no root file system for {os}. {did_you_mean(os, DEBIAN_SUITES)}")
    return DEBIAN_SUITES[os]


def cuda_tag(cuda: str) -> str:
    """``12.4`` as ``cu124``; ``cpu`` stays."""
    return cuda if cuda == "cpu" else "cu" + cuda.replace(".", "")


def version_key(version: str) -> tuple[int, ...]:
    """The numbers of a version, as a sort key (1.9 before 1.10); empty for ``cpu`` and other words."""
    numbers = []
    for part in version.split("+", maxsplit=1)[0].split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def begins(version: str, prefix: str) -> bool:
    """Whether a version equals or starts with another, part by part: 2.6.0 starts with 2.6, not with 2.60."""
    plain = version.split("+", maxsplit=1)[0]
    return prefix in (version, plain) or plain.startswith(prefix + ".")
