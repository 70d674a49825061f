"""A mirror of one or more locks in a folder: everything that a build without network access needs.

    DIR/trainwright.toml                            refers to the rest: build with --site DIR/trainwright.toml
    DIR/locks/<plan id>.lock.json                   the locks
    DIR/archives/<sha256[:2]>/<sha256>/<file>       archives, and the root file system of a Debian base
    DIR/wheels/<file>                               Python packages
    DIR/apt/dists, DIR/apt/pool                     the distribution's packages
    DIR/images/<image id>.tar                       base images

The checksum of each file is verified before the file gets its name; correct files are not fetched again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from trainwright.catalog.platforms import AMD64, PLATFORMS
from trainwright.core.errors import RequestError, SourceError
from trainwright.core.hashes import KnownHashes
from trainwright.core.heartbeat import heartbeat, waiting
from trainwright.core.owned import claim, write_atomically
from trainwright.core.paths import locked
from trainwright.core.say import Say
from trainwright.engine.engine import Engine
from trainwright.lock.apt_packages import fetch_packages
from trainwright.lock.documents import MirrorDocument
from trainwright.lock.make import start_of
from trainwright.lock.python_files import addresses, local_path, tool_addresses
from trainwright.plan.plan_lock import PlanLock, save_lock
from trainwright.site.site import Site
from trainwright.sources import apt_repository, base_image, download, rootfs
from trainwright.sources.download import Wanted
from trainwright.sources.gather import gather_lock
from trainwright.sources.inputs import Input, Materials
from trainwright.sources.locations import Store
from trainwright.sources.rootfs import put

KIND = "mirror"  # of folder, as its manifest says
SITE_TEXT = """\
# Made by `./invoke mirror pull`: everything that builds of the locks in this folder need.
#
#     ./invoke build --site {path}/trainwright.toml --locked ...
#
# Paths are relative to this file, so the folder may be moved.
no_index = true
build_network = "none"
locks = "locks"
find_links = ["wheels"]
artifact_mirror = "archives"
apt_folder = "apt"
image_folder = "images"
"""


def pull(lock: PlanLock, folder: Path, site: Site, engine: Engine, *, say: Say) -> MirrorDocument:
    """Fetch every locked byte into a folder.

    Args:
        lock: a complete lock.
        folder: missing, empty, or a mirror that may hold other locks.
        site: where things come from here.
        engine: asks apt and saves base images.
        say: progress callback.

    Returns:
        What the mirror contains.

    Raises:
        RequestError: the lock is incomplete, its packages cannot be mirrored, or the folder contains something else.
        SourceError: a file is missing, incomplete or has another checksum: its owner and the places tried.
    """
    base = lock.base
    if base is None or lock.python is None or lock.tools is None or lock.system is None:
        raise RequestError(
            f"the lock of plan {lock.plan[:12]} is incomplete: it was written by a first build",
            remedy=f"./invoke lock {lock.request}",
        )
    if base.as_base().family != "apt":
        raise RequestError(
            f"packages of {base.os} cannot be mirrored",
            remedy="Its repositories are versioned, so a locked build uses them directly.",
        )
    if not lock.platform.startswith(PLATFORMS[AMD64].machine):
        raise RequestError(
            f"packages for {lock.platform.partition('-')[0]} cannot be mirrored: the folder is a repository for amd64",
            remedy="Build with the lock and without a mirror.",
        )
    claim(folder, KIND, f"--to {folder}", whole=True)
    named = gather_lock(lock, base, site)
    with locked(folder):
        counts = {"archives": _archives(named.archives, folder, site, say)}
        counts["python"] = _wheels(named.python, lock, folder, site, say)
        counts["packages"] = _system(named.archives, lock, folder, site, engine=engine, say=say)
        counts["images"] = _base(named, lock, folder, site, engine=engine, say=say)
        for name in ("archives", "wheels", "apt", "images"):
            (folder / name).mkdir(exist_ok=True)
        save_lock(lock, folder / "locks" / f"{lock.plan}.lock.json")
        write_atomically(folder / "trainwright.toml", SITE_TEXT.format(path=folder))
    files = [path for path in folder.rglob("*") if path.is_file() and not _internal(path, folder)]
    return MirrorDocument(
        schema="trainwright/mirror/1",
        plan=lock.plan,
        folder=str(folder),
        site=str(folder / "trainwright.toml"),
        files=len(files),
        bytes=sum(path.stat().st_size for path in files),
        kinds=counts,
    )


def _internal(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


# ---- archives and root file systems --------------------------------------------------------------------------------


def _archives(archives: Sequence[Input], folder: Path, site: Site, say: Say) -> int:
    """Fetch archives with a URL; those that apt fetches come with the packages. Returns the number of all archives."""
    store = Store(folder / "archives")
    wanted = [a for a in archives if a.source.package is None and not _take(a, store)]
    download.fetch_all([_wanted(a, a.urls) for a in wanted], site, store, say=say)
    return len(archives)


def _wanted(each: Input, urls: tuple[str, ...]) -> Wanted:
    return Wanted(each.owner, each.file, urls, each.sha256, each.source.size)


def _take(each: Input, store: Store) -> bool:
    """Copy a file of this machine to the mirror if it is missing there; whether the mirror has it now."""
    target, known = store.path(each.file, str(each.sha256)), KnownHashes()
    if target.is_file() and known.sha256(target) == each.sha256:
        return True
    if each.path is None or known.sha256(each.path) != each.sha256:  # it may have changed since
        return False
    put(each.path, target)
    return True


def _base(named: Materials, lock: PlanLock, folder: Path, site: Site, *, engine: Engine, say: Say) -> int:
    """Fetch the root file system or the images; returns their number."""
    assert lock.base is not None
    if named.rootfs is not None:
        path = rootfs.locked_rootfs(named.rootfs, lock.base.os, site, say=say)
        _take(replace(named.rootfs, path=path), Store(folder / "archives"))
        return 1
    arguments = base_image.build_arguments(named.images, engine, say=say)
    pinned = [(image, image.image_id) for image in named.images if image.image_id is not None]
    for image, image_id in pinned:
        if base_image.image_file(folder / "images", image_id).is_file():
            continue  # its id is checked when it is loaded
        if base_image.inspect(engine, image_id) is None:
            reference = arguments.get(image.argument) or image.pinned
            pulled = base_image.pull(engine, reference, say=say)
            if pulled.image_id != image_id:
                raise SourceError(
                    f"base: {reference} is the image {pulled.image_id[7:19]}, the lock has {image_id[7:19]}",
                    remedy=f"./invoke lock {lock.request} --upgrade base",
                    component="base",
                    file=reference,
                    expected=image_id,
                    found=pulled.image_id,
                    urls=[reference],
                )
        say(f"saving the base image {image_id[7:19]}")
        with heartbeat(say, waiting(f"saving the base image {image_id[7:19]}")):
            base_image.save(engine, image_id, folder / "images")
    return len(pinned)


# ---- Python packages -----------------------------------------------------------------------------------------------


def _wheels(packages: Sequence[Input], lock: PlanLock, folder: Path, site: Site, say: Say) -> int:
    """Fetch every file of a Python package; returns their number."""
    store = Store(folder / "wheels", flat=True)
    missing = {package.file: package for package in packages if not _take(package, store)}
    tools = [p for p in lock.tools or () if p.file in missing]
    others = [p for p in lock.python_files if p.file in missing and p not in tools]
    if missing:
        say(f"asking the index for {len(missing)} files")
    found = addresses(others, lock.python_version, lock.platform, site, lock.indexes)
    found |= tool_addresses(tools, lock.python_version, site)
    wanted = []
    for file, package in missing.items():
        address = found.get(file)
        path = local_path(address) if address else None
        if path is not None and path.is_file() and KnownHashes().sha256(path) == package.sha256:
            put(path, store.path(file, str(package.sha256)))
        elif address is None or path is not None:
            raise _no_index_has(package, site, address)
        else:
            wanted.append(_wanted(package, (address,)))
    download.fetch_all(wanted, site, store, say=say)
    return len(packages)


def _no_index_has(package: Input, site: Site, address: str | None) -> SourceError:
    urls = [address] if address else [str(site.describe().get("index_url") or "the default index")]
    return SourceError(
        f"{package.owner}: no index offers {package.file} with the sha256 {package.sha256}",
        remedy="Set an index or a folder that has it (index_url, extra_index_urls, find_links in trainwright.toml), "
        "or lock again.",
        component=package.owner,
        file=package.file,
        expected=package.sha256,
        urls=[*package.absent, *urls],
    )


# ---- the distribution's packages -----------------------------------------------------------------------------------


def _system(archives: Sequence[Input], lock: PlanLock, folder: Path, site: Site, *, engine: Engine, say: Say) -> int:
    """Fetch packages into the pool and its index, and files of Debian's archive; returns the number of packages."""
    assert lock.base is not None and lock.system is not None
    repository, store = folder / "apt", Store(folder / "archives")
    taken = {(a.owner, a.file) for a in archives if a.source.package is not None and _take(a, store)}
    pool_files = [a for a in lock.archives if a.package is not None]
    lacking = tuple(a for a in pool_files if (a.component, a.file) not in taken)
    index = repository / apt_repository.packages_path(lock.base.os)
    known = KnownHashes()
    there = {apt_repository.key(s) for s in apt_repository.stanzas(index.read_text())} if index.is_file() else set()
    missing = []
    for package in lock.system:
        named = (package.name, package.version, package.architecture)
        path = repository / "pool" / apt_repository.file_name(*named)
        if named not in there or not path.is_file() or known.sha256(path) != package.sha256:
            missing.append(package)
    if missing or lacking:
        say(f"fetching {len(missing) + len(lacking)} files of the distribution's archive through apt")
        (repository / "pool").mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetching-", dir=repository) as name:
            start = start_of(lock, site, engine, say=say)
            with heartbeat(say, waiting("fetching through apt")):
                records = fetch_packages(tuple(missing), lacking, start, site, engine, target=Path(name))
            for package in missing:
                file = apt_repository.file_name(package.name, package.version, package.architecture)
                _accept(Path(name, file), package.sha256, "/".join(package.stages), repository / "pool" / file)
            for archive in lacking:
                target = store.path(archive.file, archive.sha256)
                _accept(Path(name, archive.file), archive.sha256, archive.component, target)
        wanted = {(p.name, p.version, p.architecture): p.sha256 for p in lock.system}
        found = apt_repository.stanzas(records)
        own = [s for s in found if wanted.get(apt_repository.key(s)) == apt_repository.field(s, "SHA256")]
        apt_repository.write_index(repository, lock.base.os, own)
    return len(lock.system)


def _accept(path: Path, sha256: str, owner: str, target: Path) -> None:
    """Move a fetched file to its place if its checksum is right."""
    found = download.digest(path) if path.is_file() else None
    if found != sha256:
        raise SourceError(
            f"{owner}: {path.name} of the distribution's archive "
            + (f"has the sha256 {found}, the lock {sha256}" if found else "is missing"),
            remedy="Check the mirror that apt uses (apt_mirror in trainwright.toml), or lock today's packages: "
            "./invoke lock … --upgrade apt",
            component=owner,
            file=path.name,
            expected=sha256,
            found=found,
            urls=[],
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    path.chmod(0o644)
    path.replace(target)
