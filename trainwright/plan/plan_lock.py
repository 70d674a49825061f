"""The lock of a plan (``locks/<plan id>.lock.json``): every byte that goes into its image, by checksum or version.

A plan says what an image is made from; its lock adds what only a download can tell: unpublished checksums, digests of
base images, versions of the distribution's packages, the user's own requirements. The plan's id does not depend on it,
so labels and tags are the same before and after.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from trainwright.catalog.image_line import BaseKind, known_suite
from trainwright.catalog.wheel_lock import LockedPackage, dump_rows
from trainwright.core.checked import Checked
from trainwright.core.data_files import read_json
from trainwright.core.errors import RequestError
from trainwright.core.fields import (
    Digest,
    FileName,
    Name,
    OneLine,
    Os,
    Platform,
    Python,
    Reference,
    Sha256,
    Stamp,
    SystemName,
    SystemVersion,
    Url,
    each_once,
)
from trainwright.core.owned import write_atomically
from trainwright.core.records import Field, Record, parse_record
from trainwright.plan.plan import Base, Plan, PlannedComponent, PlannedSource
from trainwright.site.site import Site

SCHEMA: Literal["trainwright/plan-lock/1"] = "trainwright/plan-lock/1"


class SystemPackage(Record):
    """A package of the distribution, in one version."""

    name: SystemName
    version: SystemVersion
    architecture: Name


class LockedSystemPackage(SystemPackage):
    """A package that apt installs. ``stages``: in which stages, such as ``os`` and ``toolchain``."""

    sha256: Sha256
    size: Annotated[int, Meta(ge=0)]
    stages: tuple[Name, ...]


class LockedBase(Record):
    """What the image starts from.

    Attributes:
        image: a reference, with its ``digest`` in the registry and the ``image_id`` of its content; an image that
            did not come from a registry has no digest.
        build_image: the same for build stages, if that is another image.
        sha256: of the root file system, if it is made locally.
        packages: the distribution packages in it, and those that are only in ``build_image``.
    """

    kind: BaseKind
    os: Os
    image: Reference | None = None
    digest: Digest | None = None
    image_id: Digest | None = None
    build_image: Reference | None = None
    build_digest: Digest | None = None
    build_image_id: Digest | None = None
    sha256: Sha256 | None = None
    size: int | None = None
    packages: tuple[SystemPackage, ...] = ()

    def __post_init__(self) -> None:
        if self.image is None or self.sha256 is not None:
            known_suite(self.os)

    def as_base(self) -> Base:
        """The base of a plan, digests included."""
        shared = ("kind", "os", "image", "digest", "build_image", "build_digest")
        return Base(**{name: getattr(self, name) for name in shared})

    @property
    def ids(self) -> dict[str, str | None]:
        """The ids of its images by build argument."""
        return {"BASE_IMAGE": self.image_id, "BUILD_IMAGE": self.build_image_id}


class LockedArchive(Record):
    """An archive, or (``package``, without a URL) a file of a package in Debian's archive."""

    component: Name
    file: FileName
    url: Url | None = None
    mirrors: tuple[Url, ...] = ()
    package: SystemName | None = None
    sha256: Sha256
    size: int | None = None


class LockedPython(LockedPackage):
    """A file of a Python package and the component whose layer it is in."""

    component: Name
    components: tuple[Name, ...] = ()


_Python = Checked[tuple[LockedPython, ...], each_once(lambda row: row.name, "package")]
_System = Checked[
    tuple[LockedSystemPackage, ...], each_once(lambda row: (row.name, row.version, row.architecture), "package")
]
_Archives = Checked[tuple[LockedArchive, ...], each_once(lambda row: (row.component, row.file), "archive")]


class PlanLock(Record):
    """The lock of a plan. ``None`` means not locked yet: the first build of a plan records only unpublished checksums.

    Attributes:
        plan: the plan's id.
        request: the request as the command line spells it.
        made: when anything in it changed last (UTC); missing if only a build wrote it.
        python: the packages of the image line, or newer ones after ``--upgrade``.
        user: what ``--with-requirements`` adds to them.
        system: what apt installs; empty if the distribution has another package manager (then its packages follow
            from the base image, whose repositories are versioned).
        tools: what builds the image without being part of it.
    """

    schema: Literal["trainwright/plan-lock/1"] = SCHEMA
    plan: Sha256
    request: OneLine
    made: Stamp | None = None
    base: LockedBase | None = None
    archives: _Archives = ()
    python: _Python | None = None
    python_version: Python
    platform: Platform
    indexes: tuple[Url, ...] = Field(default=(), description="of the image line, in addition to the site's own")
    insecure_hosts: tuple[OneLine, ...] = Field(
        default=(), description="hosts whose certificates were not checked when Python packages were resolved"
    )
    user: _Python | None = None
    system: _System | None = None
    tools: _Python | None = None

    @classmethod
    def load(cls, path: Path) -> PlanLock:
        """The lock in a file.

        Raises:
            RequestError: the file is missing or is not the lock of a plan.
        """
        data = read_json(
            path, remedy=f"Move it away (mv {path} {path}.old); ./invoke lock --framework … writes it again."
        )
        return parse_record(cls, data, str(path))

    def dump(self) -> str:
        """The text of the lock file: equal locks give equal text."""
        return dump_rows(self.unusual() | {"schema": SCHEMA})

    @property
    def python_files(self) -> tuple[LockedPython, ...]:
        """Every file of a Python package, the tools' included."""
        return (*(self.python or ()), *(self.user or ()), *(self.tools or ()))


def locks_folder(site: Site) -> Path:
    """The folder of plans' locks: the site's, otherwise ``locks`` in the working folder."""
    return site.locks if site.locks is not None else Path("locks").absolute()


def lock_path(plan: Plan, site: Site) -> Path:
    """The file of a plan's lock."""
    return locks_folder(site) / f"{plan.id}.lock.json"


def find_lock(plan: Plan, site: Site) -> PlanLock | None:
    """The lock of a plan, if there is one.

    Raises:
        RequestError: the file is not a lock, or is one of another plan.
    """
    path = lock_path(plan, site)
    if not path.is_file():
        return None
    found = PlanLock.load(path)
    if found.plan != plan.id:
        raise RequestError(f"{path}: is the lock of plan {found.plan[:12]}, not of {plan.id[:12]}")
    return found


def save_lock(lock: PlanLock, path: Path) -> None:
    """Write a lock atomically."""
    write_atomically(path, lock.dump())


def unlocked(plan: Plan, lock: PlanLock | None) -> list[str]:
    """What a lock does not pin of a plan, in words; empty if it determines every byte of a build."""
    if lock is None:
        return ["there is no lock of this plan"]
    missing = []
    base = lock.base
    if base is None:
        missing.append("the base")
    elif plan.base.image is None:
        missing += [] if base.sha256 else ["the root file system of the base"]
    else:
        missing += [] if base.digest or base.image_id else [f"the base image {plan.base.image}"]
        if plan.base.build_image is not None and not (base.build_digest or base.build_image_id):
            missing.append(f"the base image of build stages, {plan.base.build_image}")
    held = {(a.component, a.file) for a in lock.archives}
    missing += [f"{c.name}: {s.file}" for c in plan.components for s in files_of(c) if (c.name, s.file) not in held]
    names = {p.name for p in lock.python or ()}
    missing += [
        f"{c.name}: {s.package}"
        for c in plan.components
        for s in c.sources
        if s.package and "==" in s.package and s.package.partition("==")[0] not in names
    ]
    if plan.user.requirements_sha256 is not None and lock.user is None:
        missing.append("the packages of --with-requirements")
    missing += ["the distribution's packages"] if lock.system is None else []
    missing += ["the tools that build the image"] if lock.tools is None else []
    return missing


def refuse_unlocked(plan: Plan, lock: PlanLock | None, flags: str) -> None:
    """Refuse a plan that its lock does not pin completely.

    Raises:
        RequestError: with the command that locks it.
    """
    missing = unlocked(plan, lock)
    if missing:
        raise RequestError(
            "\n".join([f"--locked: plan {plan.id[:12]} is not locked", *(f"  {each}" for each in missing)]),
            remedy=f"./invoke lock {flags}",
            unlocked=missing,
        )


def files_of(component: PlannedComponent) -> list[PlannedSource]:
    """What a component is made from, other than Python packages: archives, and files of Debian's archive."""
    return [s for s in component.sources if s.file and not (s.package and "==" in s.package)]


def completed(plan: Plan, lock: PlanLock | None) -> Plan:
    """The plan with what its lock adds; id, labels and tags are the same.

    Args:
        plan: as it was resolved.
        lock: of this plan; without one nothing is added.

    Raises:
        RequestError: the lock is of another plan, or its checksum of a file differs from the plan's.
    """
    if lock is None:
        return plan
    if lock.plan != plan.id:
        raise RequestError(f"a lock of plan {lock.plan[:12]} cannot complete plan {plan.id[:12]}")
    components = tuple(_completed(component, lock) for component in plan.components)
    update: dict[str, object] = {"components": components}
    if lock.base is not None:
        digests = {"digest": lock.base.digest, "build_digest": lock.base.build_digest}
        update["base"] = plan.base.replace(**{key: value for key, value in digests.items() if value})
    return plan.replace(**update)


def _completed(component: PlannedComponent, lock: PlanLock) -> PlannedComponent:
    held = {a.file: a for a in lock.archives if a.component == component.name}
    sources = []
    for source in component.sources:
        known = held.get(source.file or "")
        if known is None or (source.package and "==" in source.package):
            sources.append(source)
            continue
        if source.sha256 not in (None, known.sha256):
            raise RequestError(
                f"the lock has another sha256 for {component.name}: {source.file} than the catalog: "
                f"{known.sha256}, {source.sha256}",
                remedy="The lock was edited: delete it and make it again.",
            )
        sources.append(source.replace(sha256=known.sha256, size=source.size or known.size))
    python = lock.user if component.name == "user" else lock.python
    if python is not None:
        own = [s for s in sources if not (s.package and "==" in s.package)]
        sources = [*own, *planned(p for p in python if p.component == component.name)]
    return component.replace(sources=tuple(sources))


def planned(packages: Iterable[LockedPackage]) -> list[PlannedSource]:
    """Locked Python packages in the form of a plan."""
    return [
        PlannedSource(package=f"{p.name}=={p.version}", file=p.file, sha256=p.sha256, size=p.size) for p in packages
    ]
