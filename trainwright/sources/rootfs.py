"""The Debian root file system that a lock names by its checksum: where one lies, and that a new one is the same."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from trainwright.core.errors import Failure, SourceError
from trainwright.core.hashes import KnownHashes
from trainwright.core.masking import mask
from trainwright.core.paths import cache_dir
from trainwright.core.records import read_state
from trainwright.site.apt_sources import DEBIAN_SUITES
from trainwright.site.site import Site
from trainwright.sources import download
from trainwright.sources.debian_base import make_base
from trainwright.sources.download import Store, Wanted
from trainwright.sources.locations import on_mirror

FILE = "rootfs.tar"


def store() -> Store:
    """This user's store of files by checksum."""
    return Store(cache_dir() / "archives")


def keep(path: Path, sha256: str) -> None:
    """Put a root file system into the store: a lock names it, and a fresh base would take its place otherwise."""
    put(path, store().path(FILE, sha256), link=True)


def put(source: Path, target: Path, *, link: bool = False) -> None:
    """Make ``target`` a copy of ``source``, whole or not at all.

    Args:
        link: share the bytes where the file system allows it; only for files that nobody writes to in place.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        try:
            if not link:
                raise OSError("a copy is asked for")
            os.link(source.resolve(), part)
        except OSError:
            shutil.copyfile(source, part)
            part.chmod(0o644)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def locked_rootfs(os_name: str, sha256: str, site: Site, *, say: Callable[[str], None]) -> Path:
    """The root file system with this checksum: of the site's folder, of the cache, of the site's mirror, made anew.

    Raises:
        SourceError: there is none, and Debian's archive of today gives another one.
    """
    known = KnownHashes()
    tried: list[str] = []
    for path in _candidates(sha256, site):
        if not path.is_file():
            continue
        if (found := known.sha256(path)) == sha256:
            return path
        tried.append(f"{path}: has the sha256 {found}")
    if site.artifact_folder is not None:
        tried += [f"{site.artifact_folder / p}: no right file" for p in on_mirror(FILE, sha256) if not _named(p, tried)]
    if site.artifact_mirror:
        urls = tuple(f"{site.artifact_mirror.rstrip('/')}/{path}" for path in on_mirror(FILE, sha256))
        try:
            return download.fetch_all([Wanted("base", FILE, urls, sha256)], site, store(), say=say)[0].path
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
        tried.append(f"made anew: has the sha256 {made.sha256}, for Debian's archive has gone on")
    except Failure as failed:
        tried.append(f"made anew: {failed.message.splitlines()[0]}")
    raise SourceError(
        "\n".join(
            [f"base: the root file system of the lock, sha256 {sha256}, is not to be had", *(f"  {t}" for t in tried)]
        ),
        remedy="Take it from a folder that ./invoke mirror pull filled, or lock today's: "
        "./invoke lock … --upgrade base",
        component="base",
        file=FILE,
        expected=sha256,
        found=found_sha,
        urls=[line.partition(": ")[0] for line in tried],
    )


def _named(path: str, tried: list[str]) -> bool:
    return any(path in line for line in tried)


def _candidates(sha256: str, site: Site) -> Iterator[Path]:
    """Where it may lie on this machine; what the cache has of another checksum is left out."""
    if site.artifact_folder is not None:
        yield from (site.artifact_folder / path for path in on_mirror(FILE, sha256))
    yield store().path(FILE, sha256)
    for note in sorted((cache_dir() / "base").glob("*/base.json")):
        noted = read_state(note)
        if isinstance(noted, dict) and noted.get("sha256") == sha256:
            yield note.with_name(FILE)
