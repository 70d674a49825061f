"""Image lines (``images/<framework>/<line>.yaml``): known-good sets and where the knowledge comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from trainwright.core.errors import did_you_mean
from trainwright.core.fields import (
    AnyVersion,
    Capability,
    Constraint,
    Cuda,
    Day,
    Name,
    Os,
    PackageName,
    Pin,
    Prose,
    Python,
    Url,
    VersionText,
)
from trainwright.core.records import Record
from trainwright.site.apt_sources import DEBIAN_SUITES

Status = Literal["supported", "unmaintained", "end-of-support"]
BaseKind = Literal["debian", "nvidia", "dlc"]
# What an image is called in FROM: no digest, no tag named latest; a lock adds the digest.
_REFERENCE = r"^[a-z0-9][A-Za-z0-9_.-]*(:[0-9]+)?(/[A-Za-z0-9_.-]+)*:[A-Za-z0-9_][A-Za-z0-9_.-]*$"


class Evidence(Record):
    """How a row is known: where it was read or measured, when, and what it says."""

    source: Prose = Field(min_length=1)
    date: Prose = Field(min_length=1)
    says: Prose = Field(min_length=1)


class Selection(Record):
    """One component of an image line: who provides it, in which version.

    ``packages`` are Python requirements with exact versions (``torch==2.6.0``) that the component installs;
    ``index`` names a further Python package index that holds them.
    """

    provider: Name
    version: AnyVersion
    packages: tuple[Pin, ...] = ()
    index: Url | None = None


class LineBase(Record):
    """What an image starts from.

    Attributes:
        kind: ``debian`` (a root file system made on the spot; CUDA comes with the wheels), ``nvidia`` (``nvidia/cuda``)
            or ``dlc`` (an AWS Deep Learning Container that is extended).
        os: distribution and release, such as ``ubuntu-20.04``.
        image: what the image itself starts from; nothing where it is made on the spot.
        build_image: what build stages start from, of the same distribution; by default ``image``.
    """

    kind: BaseKind
    os: Os
    image: str | None = Field(default=None, pattern=_REFERENCE, max_length=512)
    build_image: str | None = Field(default=None, pattern=_REFERENCE, max_length=512)

    @model_validator(mode="after")
    def _can_be_made(self) -> LineBase:
        if self.image is None and self.kind != "debian":
            raise ValueError(f"key 'image' is missing: a base of kind {self.kind} is an image")
        if self.image is None:
            known_suite(self.os)
        return self


class ImageLine(Record):
    """A known-good set for one framework version and one CUDA version.

    Attributes:
        variant: what sets it apart from other lines of the same framework version and CUDA; part of the image's tags.
        component: the component whose version the framework's is; by default the one of the framework's name.
        base: a record, or ``debian-12`` for a Debian root file system.
        released: whether anybody published an image of this set; the resolver takes one that was not only when it is
            asked for by its version.
        preferred: of several lines for one framework version and CUDA, the one to take where nothing tells them apart.
        published_cuda: the CUDA version in the name of AWS's container, where it is not the one of the framework.
        architectures: compute capabilities of the GPUs that native code is compiled for, such as ``8.0``.
        options: components that ``--with`` adds.
        constraints: bounds for Python packages that nobody names.
        excluded: Python packages that something depends on and that no package index brings here: the base image or a
            component's archive holds them, so the lock leaves them out.
        as_of: a day; packages that nobody pins are locked as the index had them then, so that they stay near those of a
            base image of that time.
    """

    framework: Name
    version: VersionText
    variant: str = Field(default="", pattern=r"^[a-z0-9.-]*$", max_length=64)
    component: Name | None = None
    cuda: Cuda
    python: Python
    base: LineBase
    status: Status
    released: bool = True
    preferred: bool = False
    published_cuda: str | None = Field(default=None, pattern=r"^cu[0-9]{2,4}$")
    architectures: tuple[Capability, ...] = ()
    components: dict[Name, Selection]
    options: dict[Name, Selection] = {}
    constraints: tuple[Constraint, ...] = ()
    excluded: tuple[PackageName, ...] = ()
    as_of: Day | None = None
    notices: tuple[Prose, ...] = ()
    evidence: tuple[Evidence, ...] = Field(min_length=1)

    @field_validator("base", mode="before")
    @classmethod
    def _short_base(cls, base: Any) -> Any:
        return {"kind": base.split("-")[0], "os": base} if isinstance(base, str) else base

    @property
    def main(self) -> str:
        """The component that is the framework."""
        return self.component or self.framework

    @property
    def cuda_tag(self) -> str:
        """The CUDA version as the command line spells it: ``cu124`` or ``cpu``."""
        return cuda_tag(self.cuda)

    def goes_by_cuda(self, tag: str) -> bool:
        """Whether somebody who asks for that CUDA version may mean this line, which AWS may call by another."""
        return tag in (self.cuda_tag, self.published_cuda)


class Line(Record):
    """An image line and the file it was read from (its lock lies beside it)."""

    line: ImageLine
    path: Path

    @property
    def lock_path(self) -> Path:
        """The lock of every Python package of the line."""
        return self.path.with_suffix(".lock.json")


def known_suite(os: str) -> str:
    """The suite of Debian's archive that a root file system is made from.

    Raises:
        ValueError: of that distribution none is made.
    """
    if os not in DEBIAN_SUITES:
        raise ValueError(f"no root file system of {os} can be made. {did_you_mean(os, DEBIAN_SUITES)}")
    return DEBIAN_SUITES[os]


def cuda_tag(cuda: str) -> str:
    """``12.4`` as ``cu124``; ``cpu`` stays."""
    return cuda if cuda == "cpu" else "cu" + cuda.replace(".", "")


def version_key(version: str) -> tuple[int, ...]:
    """The numbers of a version, for an order that knows 1.9 from 1.10; ``cpu`` and other words give nothing."""
    numbers = []
    for part in version.split("+", maxsplit=1)[0].split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def begins(version: str, prefix: str) -> bool:
    """Whether a version is, or begins with, the parts of another: 2.6.0 begins with 2.6, not with 2.60."""
    plain = version.split("+", maxsplit=1)[0]
    return prefix in (version, plain) or plain.startswith(prefix + ".")
