"""What this machine fetches before a build begins: archives whose checksum nobody publishes, and the Debian base."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from trainwright.catalog.platforms import PLATFORMS
from trainwright.catalog.wheel_lock import platform_of
from trainwright.core.errors import RequestError
from trainwright.core.paths import locked
from trainwright.core.say import Say
from trainwright.plan.plan import Plan, PlannedSource
from trainwright.plan.plan_lock import LockedArchive, PlanLock, lock_path, save_lock
from trainwright.site.apt_sources import DEBIAN_SUITES
from trainwright.site.site import Site
from trainwright.sources import download
from trainwright.sources.debian_base import make_base
from trainwright.sources.download import Wanted, digest
from trainwright.sources.gather import with_lock
from trainwright.sources.inputs import Input, Inputs
from trainwright.sources.locations import store
from trainwright.sources.rootfs import locked_rootfs, put


def fetch(inputs: Inputs, *, fresh_base: bool = False, refresh: str | None = None, say: Say) -> Inputs:
    """The inputs with everything that no build step can fetch.

    Args:
        inputs: as they were gathered.
        fresh_base: make the root file system of the base again, from today's packages.
        refresh: a day; a root file system from before it is made again, unless a lock pins it.
        say: progress callback.

    Raises:
        SourceError: an archive is not available, or the base cannot be made or differs from the lock.
        RequestError: ``fresh_base`` although a lock pins the base.
    """
    return fetch_base(first_use(inputs, say=say), fresh=fresh_base, since=refresh or "", say=say)


def unpublished(inputs: Inputs) -> list[Input]:
    """The archives without a checksum in the plan and its lock."""
    return [archive for archive in inputs.archives if archive.sha256 is None]


def first_use(inputs: Inputs, *, say: Say) -> Inputs:
    """The inputs with the archives that had no checksum; their checksums are recorded in the lock.

    Raises:
        SourceError: one of them is not available.
    """
    missing = unpublished(inputs)
    if not missing:
        return inputs
    path = lock_path(inputs.plan, inputs.site)
    with locked(path):
        made = fetch_unchecked(missing, inputs.site, say=say)
        lock = with_archives(inputs.lock or new_lock(inputs.plan, inputs.flags), made)
        save_lock(lock, path)
    say(f"{path}: recorded the checksums of {len(made)} archives that are published without one")
    return with_lock(inputs, lock)


def fetch_base(inputs: Inputs, *, fresh: bool = False, since: str = "", say: Say) -> Inputs:
    """The inputs with the root file system of their base, if it has one.

    Raises:
        SourceError: it cannot be made, or differs from the lock.
        RequestError: ``fresh`` where a lock pins it.
    """
    rootfs = inputs.rootfs
    if rootfs is None:
        return inputs
    if rootfs.sha256 is None:
        suite, architecture = DEBIAN_SUITES[inputs.plan.base.os], PLATFORMS[inputs.plan.platform].debian
        made = make_base(suite, inputs.site, say=say, refresh=fresh, since=since, architecture=architecture)
        if made.stale:
            again = f"./invoke build {inputs.flags} --fresh-base"  # render, which has no such flag, comes here as well
            say(f"the base file system is from {made.created[:10]}; for a new one: {again}")
        path = made.path
    elif fresh:
        remedy = f"./invoke lock {inputs.lock.request if inputs.lock is not None else inputs.flags} --upgrade base"
        raise RequestError("--fresh-base: the lock of this plan pins the base", remedy=remedy)
    else:
        path = locked_rootfs(rootfs, inputs.plan.base.os, inputs.site, say=say)
    return replace(inputs, rootfs=replace(rootfs, path=path))


def with_archives(lock: PlanLock, made: Iterable[LockedArchive]) -> PlanLock:
    """A lock with further archives; one of the same component and file replaces the earlier."""
    held = {(a.component, a.file): a for a in (*lock.archives, *made)}
    return lock.replace(archives=tuple(held[key] for key in sorted(held)))


def new_lock(plan: Plan, flags: str) -> PlanLock:
    """A lock of a plan with nothing in it."""
    indexes = tuple(dict.fromkeys(c.index for c in plan.components if c.index))
    return PlanLock(
        plan=plan.id,
        request=flags,
        python_version=plan.python,
        platform=platform_of(plan.base.os, plan.platform),
        indexes=indexes,
    )


def fetch_unchecked(missing: Sequence[Input], site: Site, *, say: Say) -> list[LockedArchive]:
    """The computed checksum of each archive that has none; from the site's folder or mirror, otherwise from upstream.

    The files stay in this user's store, so the build does not fetch them again.

    Raises:
        SourceError: one of them is not available.
    """
    found: list[LockedArchive] = []
    for archive in missing:
        if (path := archive.path) is not None:
            sha256 = digest(path)
            put(path, store().path(path.name, sha256))
            found.append(locked_archive(archive.owner, archive.source, sha256, path.stat().st_size))
    asked = [archive for archive in missing if archive.path is None]
    wanted = [Wanted(archive.owner, archive.file, archive.urls, size=archive.source.size) for archive in asked]
    for archive, got in zip(asked, download.fetch_all(wanted, site, store(), say=say), strict=True):
        found.append(locked_archive(archive.owner, archive.source, got.sha256, got.size))
    return found


def locked_archive(component: str, source: PlannedSource, sha256: str, size: int | None) -> LockedArchive:
    """An archive of a lock."""
    return LockedArchive(
        component=component,
        file=source.file or "",
        url=source.url,
        mirrors=source.mirrors,
        package=source.package,
        sha256=sha256,
        size=size,
    )
