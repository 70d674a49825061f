"""What a build takes in beside its plan: the lock, checksums of first use, and files that are here already."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import NoReturn

from trainwright.catalog.wheel_lock import platform_of
from trainwright.core.errors import SourceError
from trainwright.core.paths import locked as holding
from trainwright.plan.plan import Plan, PlannedSource
from trainwright.plan.plan_lock import (
    LockedArchive,
    PlanLock,
    completed,
    files_of,
    find_lock,
    lock_path,
    planned,
    refuse_unlocked,
    save_lock,
)
from trainwright.site.site import Site
from trainwright.sources import download, locations
from trainwright.sources.download import Wanted, digest
from trainwright.sources.rootfs import put, store


@dataclass(frozen=True)
class Inputs:
    """A plan and what completes it.

    Attributes:
        resolved: the plan as it was resolved.
        lock: where there is one.
        strict: whether only what the lock names may be used (``--locked``).
        files: archives that are here already, by component and file.
    """

    resolved: Plan
    lock: PlanLock | None = None
    strict: bool = False
    files: Mapping[tuple[str, str], Path] = field(default_factory=dict)

    @cached_property
    def plan(self) -> Plan:
        """The plan with everything that the lock adds."""
        return completed(self.resolved, self.lock)

    @property
    def ids(self) -> Mapping[str, str | None]:
        """The ids of the base images that the lock has, by build argument."""
        return self.lock.base.ids if self.lock is not None and self.lock.base is not None else {}


def inputs_of(what: Plan | Inputs) -> Inputs:
    """A plan without a lock as inputs; inputs as they are."""
    return what if isinstance(what, Inputs) else Inputs(what)


def locked_inputs(plan: Plan, site: Site, flags: str, *, strict: bool) -> Inputs:
    """What a lock that is there gives; nothing is fetched.

    Args:
        plan: as it was resolved.
        site: its folder of locks.
        flags: the request, for the command that locks it.
        strict: refuse what is not locked.

    Raises:
        RequestError: the lock cannot be read, or (``strict``) does not determine the plan.
    """
    lock = find_lock(plan, site)
    if strict:
        refuse_unlocked(plan, lock, flags)
    inputs = Inputs(plan, lock, strict)
    return replace(inputs, files=_kept(inputs))


def first_use(inputs: Inputs, site: Site, flags: str, *, say: Callable[[str], None]) -> Inputs:
    """Fetch the archives for which there is no checksum, and record theirs in the lock.

    Raises:
        SourceError: no place has one of them.
    """
    missing = [(c.name, s) for c in inputs.plan.components for s in c.archives if s.sha256 is None]
    if not missing:
        return inputs
    path = lock_path(inputs.plan, site)
    with holding(path):
        made = fetch_unchecked(missing, site, say=say)
        lock = with_archives(inputs.lock or new_lock(inputs.plan, flags), made)
        save_lock(lock, path)
    say(f"{path}: recorded the checksum of {len(made)} archives for which nobody publishes one")
    finished = replace(inputs, lock=lock)
    return replace(finished, files=_kept(finished))


def with_archives(lock: PlanLock, made: Iterable[LockedArchive]) -> PlanLock:
    """A lock with further archives; one of the same component and file takes the place of the earlier."""
    held = {(a.component, a.file): a for a in (*lock.archives, *made)}
    return lock.model_copy(update={"archives": tuple(held[key] for key in sorted(held))})


def new_lock(plan: Plan, flags: str) -> PlanLock:
    """A lock of a plan with nothing in it."""
    indexes = tuple(dict.fromkeys(c.index for c in plan.components if c.index))
    return PlanLock(
        plan=plan.id, request=flags, python_version=plan.python, platform=platform_of(plan.base.os), indexes=indexes
    )


def fetch_unchecked(
    missing: list[tuple[str, PlannedSource]], site: Site, *, say: Callable[[str], None]
) -> list[LockedArchive]:
    """The checksum of each archive that has none, by its bytes: from the site's folder or mirror, else upstream.

    The files stay in this user's store, so the build does not fetch them again.

    Raises:
        SourceError: no place has one.
    """
    found: list[LockedArchive] = []
    wanted: list[tuple[Wanted, PlannedSource]] = []
    for component, archive in missing:
        here, _ = locations.in_folder([archive], site)
        if path := here.get(archive.file or ""):
            sha256 = digest(path)
            put(path, store().path(path.name, sha256))
            found.append(locked_archive(component, archive, sha256, path.stat().st_size))
        else:
            urls = tuple(locations.places(archive, site))
            wanted.append((Wanted(component, archive.file or "", urls, size=archive.size), archive))
    for (asked, archive), got in zip(
        wanted, download.fetch_all([w for w, _ in wanted], site, store(), say=say), strict=True
    ):
        found.append(locked_archive(asked.component, archive, got.sha256, got.size))
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


def _kept(inputs: Inputs) -> dict[tuple[str, str], Path]:
    """The archives of first use that lie in the store. Others a build step fetches, so its cache stays as it is."""
    kept: dict[tuple[str, str], Path] = {}
    unpublished = {(c.name, s.file) for c in inputs.resolved.components for s in c.archives if s.sha256 is None}
    for component in inputs.plan.components:
        for source in component.archives:
            if source.sha256 is None or (component.name, source.file) not in unpublished:
                continue
            path = store().path(source.file or "", source.sha256)
            if path.is_file() and digest(path) == source.sha256:
                kept[component.name, source.file or ""] = path
    return kept


def check_folders(inputs: Inputs, site: Site) -> None:
    """Whether the folders of a site that reaches nothing else hold all that a plan takes in.

    Python packages are looked at where the site has no index, archives where its builds have no network.

    Raises:
        SourceError: a file is missing or another one: which, whose it is, where it was looked for.
    """
    plan, lock = inputs.plan, inputs.lock
    if site.build_network == "none":
        for component in plan.components:
            here, wrong = locations.in_folder(files_of(component), site)
            for source in files_of(component):
                if source.file not in here and (component.name, source.file) not in inputs.files:
                    _refuse(component.name, source, _looked_for(source, wrong, site))
    if not site.no_index:
        return
    tools = planned(lock.tools or ()) if lock is not None else []
    parts = [(c.name, [s for s in c.sources if s.package and "==" in s.package]) for c in plan.components]
    for name, sources in [*parts, ("tools", tools)]:
        try:
            found = site.wheelhouse({s.file: s.sha256 for s in sources if s.file and s.sha256})
        except SourceError as other:
            wrong_one = next(s for s in sources if s.file == other.details["file"])
            _refuse(name, wrong_one, dict.fromkeys(other.details["urls"], f"has the sha256 {other.details['found']}"))
        for source in sources:
            if source.file not in found:
                places = [str(folder / (source.file or "")) for folder in site.find_links]
                _refuse(name, source, dict.fromkeys(places, "there is no such file"))


def _looked_for(source: PlannedSource, wrong: Iterable[str], site: Site) -> dict[str, str]:
    """The paths of a site's folder at which an archive was looked for, and why each is of no use."""
    if site.artifact_folder is None:
        return {}
    paths = [str(site.artifact_folder / path) for path in locations.on_mirror(source.file or "", source.sha256)]
    notes = {path: note.partition(": ")[2] for path in paths for note in wrong if note.startswith(f"{path} ")}
    return {path: notes.get(path, "there is no such file") for path in paths}


def _refuse(component: str, source: PlannedSource, tried: Mapping[str, str]) -> NoReturn:
    rows = [f"  {place}: {why}" for place, why in tried.items()] or ["  the site names no folder for it"]
    raise SourceError(
        "\n".join([f"{component}: no place has {source.file} with the sha256 {source.sha256}", *rows]),
        remedy="The site reaches nothing but its folders. Fill them where there is a network: "
        "./invoke mirror pull --lock FILE --to DIR",
        component=component,
        file=source.file,
        expected=source.sha256,
        urls=list(tried),
    )
