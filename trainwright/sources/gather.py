"""Finds every input of a build, once: from a plan, its lock, the catalog and the site to the record that a build reads.

Only this machine's disk is read. Checksums are verified; missing and wrong files are recorded, and whoever needs the
file decides what that means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from trainwright.catalog.catalog import Catalog
from trainwright.catalog.tools import COMPONENT as TOOLS
from trainwright.catalog.tools import tools_lock
from trainwright.catalog.wheel_lock import LockedPackage
from trainwright.core.hashes import KnownHashes
from trainwright.plan.plan import Plan, PlannedSource
from trainwright.plan.plan_lock import LockedBase, PlanLock, completed, files_of, find_lock, planned, refuse_unlocked
from trainwright.site.site import Site
from trainwright.sources import apt_repository, locations, rootfs
from trainwright.sources.base_image import images_of
from trainwright.sources.inputs import Input, InputKind, Inputs, Materials, Place
from trainwright.user.files import FoundFile, code_files, component_files, user_requirements, user_script


def gather(
    plan: Plan, catalog: Catalog, site: Site, lock: PlanLock | None = None, *, strict: bool = False, flags: str = ""
) -> Inputs:
    """Every input of a build of a plan, and where it is.

    Args:
        plan: as it was resolved.
        catalog: has its components.
        site: folders and mirrors of this machine.
        lock: of the plan.
        strict: whether the build uses only what the lock names.
        flags: the request, for the command that locks the plan.

    Raises:
        RequestError: the lock is of another plan or has another checksum; a user's file is not allowed in an image.
    """
    whole = completed(plan, lock)
    base = lock.base if lock is not None else None
    look = _Look(site)
    # Others are fetched in a build step, which keeps its cache valid.
    kept = {(c.name, s.file) for c in plan.components for s in c.archives if s.sha256 is None}
    archives = [(c.name, s) for c in whole.components for s in files_of(c)]
    python = [(c.name, s, c.index) for c in whole.components for s in c.sources if s.package and "==" in s.package]
    locked = lock.tools if lock is not None else None
    tools = tools_lock(plan.python, plan.platform).packages if locked is None else locked
    user = plan.user
    folders = [(c.name, catalog.components[c.name].path) for c in plan.components]
    own = [(name, each) for name, path in folders for each in component_files(path, allow_secrets=user.allow_secrets)]
    code = code_files(user.code, allow_secrets=user.allow_secrets) if user.code is not None else []
    return Inputs(
        resolved=plan,
        plan=whole,
        catalog=catalog,
        site=site,
        lock=lock,
        strict=strict,
        flags=flags,
        requirements=tuple(required.lines if (required := user_requirements(user)) else ()),
        script=user_script(user),
        images=images_of(whole.base, base.ids if base is not None else {}, site),
        rootfs=look.rootfs(base.sha256 if base is not None else None) if plan.base.image is None else None,
        archives=tuple(look.archive(owner, s, kept=(owner, s.file) in kept) for owner, s in archives),
        python=(*(look.python(*row) for row in python), *(look.python(TOOLS, _pinned(p)) for p in tools)),
        packages=apt_repository.gathered(site, plan.base.os, lock.system if lock is not None else None),
        files=(
            *(_found(name, "component file", each) for name, each in own),
            *(_found("user", "user file", each) for each in code),
        ),
    )


def gather_locked(plan: Plan, catalog: Catalog, site: Site, flags: str, *, strict: bool) -> Inputs:
    """The same with the plan's lock in the site's folder.

    Raises:
        RequestError: the lock cannot be read, or (``strict``) does not determine the plan; or as :func:`gather`.
    """
    lock = find_lock(plan, site)
    if strict:
        refuse_unlocked(plan, lock, flags)
    return gather(plan, catalog, site, lock, strict=strict, flags=flags)


def with_lock(inputs: Inputs, lock: PlanLock | None) -> Inputs:
    """The inputs of the same plan with another lock, or without one."""
    return gather(inputs.resolved, inputs.catalog, inputs.site, lock, strict=inputs.strict, flags=inputs.flags)


def gather_base(base: LockedBase, site: Site) -> Materials:
    """The base of a lock."""
    debian = _Look(site).rootfs(base.sha256) if base.sha256 is not None else None
    return Materials(images=images_of(base.as_base(), base.ids, site), rootfs=debian)


def gather_lock(lock: PlanLock, base: LockedBase, site: Site) -> Materials:
    """The inputs in a lock: everything but the distribution's packages and the files of folders."""
    look = _Look(site)
    # A locked archive has the fields of a planned one.
    archives = (
        (a.component, PlannedSource(**{key: getattr(a, key) for key in PlannedSource.__struct_fields__}))
        for a in lock.archives
    )
    return replace(
        gather_base(base, site),
        archives=tuple(look.archive(owner, source, kept=True) for owner, source in archives),
        python=tuple(look.python(p.component, _pinned(p)) for p in lock.python_files),
    )


def _pinned(package: LockedPackage) -> PlannedSource:
    return planned([package])[0]


def _found(owner: str, kind: InputKind, file: FoundFile) -> Input:
    source = PlannedSource(file=file.name, sha256=None, size=file.size)
    return Input(owner, kind, source, (Place("folder", str(file.path)),), file.path)


class _Look:
    """One look at the disk of this machine."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._known = KnownHashes()

    def rootfs(self, sha256: str | None) -> Input:
        """The Debian root file system; without a checksum it does not exist yet, as it is made for the build."""
        source = PlannedSource(file=rootfs.FILE, sha256=sha256)
        return self._here("base", "root file system", source, rootfs.places(source, self._site) if sha256 else [])

    def archive(self, owner: str, source: PlannedSource, *, kept: bool) -> Input:
        """An archive; ``kept``: whether to look in this user's store."""
        return self._here(owner, "archive", source, locations.places(source, self._site, kept=kept))

    def python(self, owner: str, source: PlannedSource, index: str | None = None) -> Input:
        """A file of a Python package; ``index``: its image line's own, in addition to the site's."""
        site = self._site
        places = [Place("folder", str(path)) for path in site.local_files(source.file or "")]
        named = () if site.no_index else (site.index_url, *site.extra_index_urls)
        places += [Place("index", url) for url in (*named, *site.find_links_urls) if url]
        places += [Place("line index", index)] if index and not site.no_index else []
        return self._here(owner, "python", source, places)

    def _here(self, owner: str, kind: InputKind, source: PlannedSource, places: Sequence[Place]) -> Input:
        """The input with the first local path that has the right content, if any."""
        asked, wrong = Input(owner, kind, source, tuple(places)), dict[str, str]()
        for path in filter(Path.is_file, asked.local):
            # Without a published checksum, the file in the site's folder is accepted.
            if (found := self._known.sha256(path)) == source.sha256 or source.sha256 is None:
                return replace(asked, path=path, wrong=wrong)
            wrong[str(path)] = found
        return replace(asked, wrong=wrong)
