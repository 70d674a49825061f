"""Everything that a build takes in, as one record: what it is, whose it is, where it is looked for, what is here.

:func:`trainwright.sources.gather.gather` makes the record, :mod:`trainwright.sources.fetch` adds what is fetched before
a build; whoever needs bytes reads it and looks nowhere else.
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
MISSING = "there is no such file"


@dataclass(frozen=True)
class Place:
    """A place at which an input is looked for.

    Attributes:
        where: what it is: a ``folder`` or ``mirror`` or ``index`` of the site, this user's ``store``, ``upstream``
            (its makers' server), or the ``line index`` that an image line names.
        address: a path, or a URL with its credentials.
    """

    where: Literal["folder", "store", "mirror", "upstream", "index", "line index"]
    address: str


@dataclass(frozen=True)
class Input:
    """A file that a build takes in.

    Attributes:
        owner: the component; ``base``, ``tools``, or the stages of a package of the distribution.
        source: its name, checksum and size, where these are known; of a package its name and version.
        places: where it is looked for, in order.
        path: where it is on this machine with the right content, if it is; a build step fetches the others.
        wrong: files of its name with other content, each path with its sha256.
    """

    owner: str
    kind: InputKind
    source: PlannedSource
    places: tuple[Place, ...] = ()
    path: Path | None = None
    wrong: Mapping[str, str] = field(default_factory=dict)

    @property
    def file(self) -> str:
        """Its name; of a component's or user's file the path in its folder."""
        return self.source.file or ""

    @property
    def sha256(self) -> str | None:
        """Its checksum; ``None`` where nobody publishes it and no lock has it."""
        return self.source.sha256

    @property
    def local(self) -> tuple[Path, ...]:
        """The places on this machine, whether or not the file is there."""
        return tuple(Path(place.address) for place in self.places if place.where in ("folder", "store"))

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs of the file itself, credentials included; an index has many files, so it is not among them."""
        return tuple(place.address for place in self.places if place.where in ("mirror", "upstream"))

    @property
    def indexes(self) -> tuple[str, ...]:
        """The site's package indexes that are asked for it, credentials included."""
        return tuple(place.address for place in self.places if place.where == "index")

    @property
    def absent(self) -> dict[str, str]:
        """The places of the site's folders, and why each is of no use."""
        folders = [place.address for place in self.places if place.where == "folder"]
        notes = {path: f"has the sha256 {found}" for path, found in self.wrong.items()}
        return {path: notes.get(path, MISSING) for path in dict.fromkeys([*folders, *notes])}

    @property
    def notes(self) -> list[str]:
        """A sentence for each file that has the right name and other content."""
        expected = self.sha256
        return [f"{path} is passed over: its sha256 is {it}, expected {expected}" for path, it in self.wrong.items()]


@dataclass(frozen=True)
class BaseImage:
    """An image of a registry that a build starts from.

    Attributes:
        argument: the build argument that names it.
        name: the image as its makers name it.
        digest: in its registry, where the plan or the lock has it.
        image_id: of its content, where the lock has it.
        reference: what it is pulled as here, without the digest.
        path: where the site's folder of images has it, if the site has such a folder and the lock an id.
    """

    argument: str
    name: str
    digest: str | None
    image_id: str | None
    reference: str
    path: Path | None = None

    @property
    def pinned(self) -> str:
        """What it is pulled as here, with its digest where that is known."""
        return with_digest(self.reference, self.digest)


def with_digest(reference: str, digest: str | None) -> str:
    """The reference that names these very bytes."""
    return reference if digest is None or "@" in reference else f"{reference}@{digest}"


@dataclass(frozen=True)
class Materials:
    """Every byte of a build, by kind.

    Attributes:
        images: base images of registries, each once by its build argument.
        rootfs: the Debian root file system, where the base is one.
        archives: what components are made from beside Python packages.
        python: the files of Python packages; the tools' come last.
        packages: of the distribution: those of the lock, or all of the site's folder; first that folder's index.
        files: of the components' folders and of ``--code``.
    """

    images: tuple[BaseImage, ...] = ()
    rootfs: Input | None = None
    archives: tuple[Input, ...] = ()
    python: tuple[Input, ...] = ()
    packages: tuple[Input, ...] = ()
    files: tuple[Input, ...] = ()

    def __iter__(self) -> Iterator[Input]:
        """Every file; base images, which are not files, are left out."""
        yield from [self.rootfs] if self.rootfs is not None else []
        yield from (*self.archives, *self.python, *self.packages, *self.files)


@dataclass(frozen=True, kw_only=True)
class Inputs(Materials):
    """A plan with every byte that its build takes in.

    Attributes:
        resolved: the plan as it was resolved.
        plan: the plan with everything that the lock adds.
        catalog: where it was resolved, for templates.
        site: how the places are reached.
        lock: where there is one.
        strict: whether only what the lock names may be used (``--locked``).
        flags: the request as the command line spells it.
        requirements: the lines of ``--with-requirements`` as they were checked.
    """

    resolved: Plan
    plan: Plan
    catalog: Catalog
    site: Site
    lock: PlanLock | None = None
    strict: bool = False
    flags: str = ""
    requirements: tuple[str, ...] = ()
