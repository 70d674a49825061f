"""Every input of a build, in one record: what it is, who needs it, where to look for it, and what is on this machine.

:func:`trainwright.sources.gather.gather` makes the record, :mod:`trainwright.sources.fetch` adds what is fetched before
a build; all other code reads it and looks nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from trainwright.catalog.catalog import Catalog
from trainwright.plan.plan import Plan, PlannedSource
from trainwright.plan.plan_lock import PlanLock
from trainwright.site.site import Site

InputKind = Literal["root file system", "archive", "python", "package", "package index", "component file", "user file"]
MISSING = "no such file"


@dataclass(frozen=True)
class Place:
    """A place to look for an input.

    Attributes:
        where: what it is: a ``folder`` or ``mirror`` or ``index`` of the site, this user's ``store``, ``upstream``
            (its publisher's server), or the ``line index`` of an image line.
        address: a path, or a URL with its credentials.
    """

    where: Literal["folder", "store", "mirror", "upstream", "index", "line index"]
    address: str


@dataclass(frozen=True)
class Input:
    """A file that a build needs.

    Attributes:
        owner: the component; ``base``, ``tools``, or for a distribution package its stages.
        source: its name, checksum and size, if known; for a package its name and version.
        places: where to look for it, in order.
        path: its path on this machine if the content is right; otherwise a build step fetches it.
        wrong: paths of files with its name but other content, with their sha256.
    """

    owner: str
    kind: InputKind
    source: PlannedSource
    places: tuple[Place, ...] = ()
    path: Path | None = None
    wrong: Mapping[str, str] = field(default_factory=dict)

    @property
    def file(self) -> str:
        """Its name; for a component's or user's file the path in its folder."""
        return self.source.file or ""

    @property
    def sha256(self) -> str | None:
        """Its checksum; ``None`` if it is neither published nor locked."""
        return self.source.sha256

    @property
    def local(self) -> tuple[Path, ...]:
        """The places on this machine, whether or not they have the file."""
        return tuple(Path(place.address) for place in self.places if place.where in ("folder", "store"))

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs of the file itself, credentials included; indexes are not included."""
        return tuple(place.address for place in self.places if place.where in ("mirror", "upstream"))

    @property
    def indexes(self) -> tuple[str, ...]:
        """The site's package indexes for it, credentials included."""
        return tuple(place.address for place in self.places if place.where == "index")

    @property
    def absent(self) -> dict[str, str]:
        """The places in the site's folders, and why each cannot be used."""
        folders = [place.address for place in self.places if place.where == "folder"]
        notes = {path: f"has the sha256 {found}" for path, found in self.wrong.items()}
        return {path: notes.get(path, MISSING) for path in dict.fromkeys([*folders, *notes])}

    @property
    def notes(self) -> list[str]:
        """A sentence for each file with the right name but other content."""
        expected = self.sha256
        return [f"{path} is ignored: its sha256 is {it}, expected {expected}" for path, it in self.wrong.items()]


@dataclass(frozen=True)
class BaseImage:
    """A registry image that a build starts from.

    Attributes:
        argument: the build argument that names it.
        name: the image as its publisher names it.
        digest: in its registry, if the plan or the lock has it.
        image_id: of its content, if the lock has it.
        reference: what it is pulled as at this site, without the digest.
        path: its path in the site's folder of images, if there is such a folder and the lock has an id.
    """

    argument: str
    name: str
    digest: str | None
    image_id: str | None
    reference: str
    path: Path | None = None

    @property
    def pinned(self) -> str:
        """What it is pulled as at this site, with its digest if known."""
        return with_digest(self.reference, self.digest)


def with_digest(reference: str, digest: str | None) -> str:
    """The reference of exactly this content."""
    return reference if digest is None or "@" in reference else f"{reference}@{digest}"


@dataclass(frozen=True)
class Materials:
    """Every input of a build, by kind.

    Attributes:
        images: base images of registries, each once by its build argument.
        rootfs: the Debian root file system, if the base is one.
        archives: what components are made from, other than Python packages.
        python: the files of Python packages; the tools' come last.
        packages: distribution packages: the lock's, or all in the site's folder; that folder's index comes first.
        files: of the components' folders and of ``--code``.
    """

    images: tuple[BaseImage, ...] = ()
    rootfs: Input | None = None
    archives: tuple[Input, ...] = ()
    python: tuple[Input, ...] = ()
    packages: tuple[Input, ...] = ()
    files: tuple[Input, ...] = ()

    def __iter__(self) -> Iterator[Input]:
        """Every file, so no base images."""
        yield from [self.rootfs] if self.rootfs is not None else []
        yield from (*self.archives, *self.python, *self.packages, *self.files)


@dataclass(frozen=True, kw_only=True)
class Inputs(Materials):
    """A plan with every input of its build.

    Attributes:
        resolved: the plan as it was resolved.
        plan: the plan with everything that the lock adds.
        catalog: that it was resolved against, for templates.
        site: how to reach the places.
        lock: if there is one.
        strict: whether only locked inputs may be used (``--locked``).
        flags: the request as the command line spells it.
        requirements: the checked lines of ``--with-requirements``.
        script: the text of ``--with-run``.
    """

    resolved: Plan
    plan: Plan
    catalog: Catalog
    site: Site
    lock: PlanLock | None = None
    strict: bool = False
    flags: str = ""
    requirements: tuple[str, ...] = ()
    script: str | None = None
