"""The Debian root file system in a lock: finds it by its checksum, or makes it again and compares."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from trainwright.core.data_files import read_state
from trainwright.core.errors import Failure, SourceError
from trainwright.core.masking import mask
from trainwright.core.paths import cache_dir
from trainwright.core.say import Say
from trainwright.plan.plan import PlannedSource
from trainwright.site.apt_sources import DEBIAN_SUITES
from trainwright.site.site import Site
from trainwright.sources import download, locations
from trainwright.sources.debian_base import make_base
from trainwright.sources.download import Wanted
from trainwright.sources.inputs import Input, Place
from trainwright.sources.locations import store

FILE = "rootfs.tar"


def keep(path: Path, sha256: str) -> None:
    """Put a locked root file system into the store, so that a fresh base cannot replace it."""
    put(path, store().path(FILE, sha256), link=True)


def put(source: Path, target: Path, *, link: bool = False) -> None:
    """Make ``target`` a copy of ``source``, atomically.

    Args:
        link: share the bytes if the file system allows it; only for files that are never modified in place.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        try:
            if not link:
                raise OSError("copy instead")
            os.link(source.resolve(), part)
        except OSError:
            shutil.copyfile(source, part)
            part.chmod(0o644)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def locked_rootfs(rootfs: Input, os_name: str, site: Site, *, say: Say) -> Path:
    """The root file system of a lock: local, otherwise from the site's mirror, otherwise made again.

    Raises:
        SourceError: it is missing, and Debian's archive now gives a different one.
    """
    if rootfs.path is not None:
        return rootfs.path
    sha256 = rootfs.sha256
    tried = [f"{path}: {why}" for path, why in rootfs.absent.items()]
    if rootfs.urls:
        try:
            return download.fetch_all([Wanted("base", FILE, rootfs.urls, sha256)], site, store(), say=say)[0].path
        except SourceError as failed:
            tried += [f"{mask(row['url'])}: {row['why']}" for row in failed.details["tried"]]
    found_sha = None
    try:
        made = make_base(DEBIAN_SUITES[os_name], site, say=say)
        if made.sha256 != sha256:
            made = make_base(DEBIAN_SUITES[os_name], site, say=say, refresh=True)
        if made.sha256 == sha256:
            keep(made.path, sha256)
            return made.path
        found_sha = made.sha256
        tried.append(f"made again: has the sha256 {made.sha256}, because Debian's archive has changed")
    except Failure as failed:
        tried.append(f"made again: {failed.message.splitlines()[0]}")
    raise SourceError(
        "\n".join(
            [f"base: the root file system of the lock, sha256 {sha256}, cannot be obtained", *(f"  {t}" for t in tried)]
        ),
        remedy="Use a folder that ./invoke mirror pull filled, or lock today's: ./invoke lock … --upgrade base",
        component="base",
        file=FILE,
        expected=sha256,
        found=found_sha,
        urls=[line.partition(": ")[0] for line in tried],
    )


def places(source: PlannedSource, site: Site) -> list[Place]:
    """The places of the root file system with a checksum; one with another checksum in the cache is ignored."""
    notes = [(note, read_state(note)) for note in sorted((cache_dir() / "base").glob("*/base.json"))]
    cached = [
        n.with_name(FILE) for n, noted in notes if isinstance(noted, dict) and noted.get("sha256") == source.sha256
    ]
    return [*locations.places(source, site, kept=True), *(Place("store", str(path)) for path in cached)]
