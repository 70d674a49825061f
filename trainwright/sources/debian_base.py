"""The Debian base: a root file system made from Debian's archive, so no registry is needed.

It is minimal (``minbase`` and ca-certificates), without documentation, device nodes, logs, caches or traces of the
machine that made it, and byte for byte reproducible from the same archive.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import json
import platform
import re
import shutil
import tarfile
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from trainwright.catalog.platforms import PLATFORMS, here
from trainwright.core import runner
from trainwright.core.data_files import read_json
from trainwright.core.errors import EngineError, Failure, RequestError, SourceError
from trainwright.core.masking import mask, without_credentials
from trainwright.core.owned import write_atomically
from trainwright.core.paths import cache_dir
from trainwright.core.say import Say
from trainwright.site.site import Site

RECIPE = 3  # increment when the same options give another file system
VARIANT = "minbase"
INCLUDE = ("ca-certificates",)
EPOCH = 1_700_000_000  # SOURCE_DATE_EPOCH: the time of files made here; those of packages keep their own
STALE_DAYS = 30
# Debian 12's init-system-helpers needs `usrmerge | usr-is-merged`: the first needs all of perl, 47 MB that nothing else
# uses. With this hook /usr is merged before the first package is unpacked, as in Debian's own images, which have the
# second. Debian 11 needs neither, and Debian 13's packages come merged.
MERGED_USR = Path("/usr/share/mmdebstrap/hooks/merged-usr")
# What Debian's slim images omit; licences stay. These options remain in effect in the image.
DPKG_OPTIONS = (
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
    "path-exclude=/usr/share/groff/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/linda/*",
    "path-exclude=/usr/share/lintian/*",
    "path-exclude=/usr/share/locale/*",
    "path-include=/usr/share/locale/locale.alias",
    "path-exclude=/usr/share/man/*",
)
APT_OPTIONS = ('Acquire::Languages "none"',)
_DROP = re.compile(
    r"dev/.+|var/log/.+|var/lib/apt/lists/.+|var/cache/(apt|ldconfig)/.+|run/.+|tmp/.+"
    r"|var/cache/debconf/.+-old|var/lib/dpkg/.+-old|etc/.+-"
)
# Made here: the folders dev and run/lock, and empty files instead of copies from this machine, or of those that a build
# step would make to mount its own over them.
_EMPTY = ("etc/hostname", "etc/hosts", "etc/machine-id", "etc/resolv.conf")
_MADE = {"dev": 0o755, "run/lock": 0o1777, **dict.fromkeys(_EMPTY, 0o644)}


@dataclass(frozen=True)
class RootFileSystem:
    """A root file system that is ready to import.

    Attributes:
        path: the uncompressed tar.
        sha256: its digest (hex).
        packages: number of Debian packages in it.
        created: when it was made (ISO 8601, UTC).
        cached: whether it existed already.
        stale: whether it is older than 30 days and so lacks security updates.
        size: bytes of the tar.
    """

    path: Path
    sha256: str
    packages: int
    created: str
    cached: bool
    stale: bool
    size: int


def make_base(
    suite: str, site: Site, *, say: Say, refresh: bool = False, since: str = "", architecture: str | None = None
) -> RootFileSystem:
    """The base of a Debian suite, from the cache if it was made before.

    Args:
        suite: Debian's name for the release, for example ``bookworm``.
        site: its apt mirror and proxies are used; neither is stored in the result.
        say: progress callback.
        refresh: make it again even if it is cached.
        since: a day (``2026-11-25``, UTC); one from before it is made again.
        architecture: of Debian's archive, such as ``arm64`` (default: this machine's own). The programs of another one
            run under qemu-user, which this machine's kernel must know (binfmt_misc).

    Raises:
        RequestError: ``suite`` is not a valid name.
        EngineError: mmdebstrap is not installed, or this user is not allowed to make root file systems.
        SourceError: the archive does not answer, or the disk is full; nothing half-made is left.
    """
    if not re.fullmatch(r"[a-z][a-z0-9-]{1,30}", suite):
        raise RequestError(f"{suite!r} is not a Debian suite", remedy="For example: bookworm or trixie")
    own = PLATFORMS.get(here(platform.machine()) or "")
    if own is not None and architecture == own.debian:
        architecture = None
    folder = cache_dir() / "base" / recipe_key(suite, site, architecture)
    with _locked(folder, say):
        for left in folder.glob(".*"):  # left by a killed process: we hold the lock
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        if not refresh and (base := _cached(folder)) and base.created[:10] >= since:
            return base
        say(f"making the Debian {suite} base with mmdebstrap (about half a minute)")
        try:
            with tempfile.TemporaryDirectory(prefix=".making-", dir=folder) as work:
                return _make(suite, site, folder, Path(work), say, architecture=architecture)
        except OSError as wrong:
            if wrong.errno in {errno.ENOSPC, errno.EDQUOT}:
                raise _disk_full(folder) from wrong
            raise


def made_at(tar: Path) -> datetime | None:
    """When a root file system of the cache was made; None for one from elsewhere."""
    try:
        return datetime.fromisoformat(read_json(tar.with_name("base.json"))["created"])
    except (RequestError, ValueError, KeyError, TypeError):
        return None


def recipe_key(suite: str, site: Site, architecture: str | None = None) -> str:
    """The cache key of a base: sha256 (hex) of everything that determines its content, except the archive's state."""
    recipe = {
        "recipe": RECIPE,
        "suite": suite,
        "machine": architecture or platform.machine(),
        "variant": VARIANT,
        "include": INCLUDE,
        "epoch": EPOCH,
        "options": [*DPKG_OPTIONS, *APT_OPTIONS],
        "sources": without_credentials(site.apt_sources(suite)),
    }
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()


@contextmanager
def _locked(folder: Path, say: Say) -> Iterator[None]:
    """One process per base; the lock ends with the process that holds it."""
    folder.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another process that is making the same base")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _cached(folder: Path) -> RootFileSystem | None:
    """The base in ``folder`` if it is complete; its digest is computed again only if its modification time changed."""
    tar, note = folder / "rootfs.tar", folder / "base.json"
    try:
        stat, noted = tar.stat(), read_json(note)
        base = _from_note(tar, noted)
        if stat.st_size != base.size:
            return None
        if stat.st_mtime_ns != noted["mtime_ns"]:
            with tar.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != base.sha256:
                    return None
            write_atomically(note, json.dumps(noted | {"mtime_ns": stat.st_mtime_ns}, indent=2))
    except (OSError, RequestError, ValueError, KeyError, TypeError, OverflowError):
        return None
    return base


def _from_note(tar: Path, noted: dict[str, Any]) -> RootFileSystem:
    age = time.time() - datetime.fromisoformat(noted["created"]).timestamp()
    return RootFileSystem(
        path=tar,
        sha256=str(noted["sha256"]),
        packages=int(noted["packages"]),
        created=str(noted["created"]),
        cached=True,
        stale=age > STALE_DAYS * 86_400,
        size=int(noted["size"]),
    )


def _make(suite: str, site: Site, folder: Path, work: Path, say: Say, *, architecture: str | None) -> RootFileSystem:
    """Make the tar in ``work``, then move it and its metadata to ``folder``, atomically."""
    raw, tar = work / "raw.tar", work / "rootfs.tar"
    _mmdebstrap(suite, site, raw, work, say, architecture=architecture)
    with raw.open("rb") as source, tar.open("wb") as out:
        packages = clean(source, out, own_sources=site.apt_mirror is None)
    raw.unlink()
    with tar.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    stat = tar.stat()
    noted = {
        "schema": "trainwright/base/1",
        "suite": suite,
        "sha256": sha256,
        "size": stat.st_size,
        "mtime_ns": stat.st_mtime_ns,
        "packages": packages,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    tar.replace(folder / "rootfs.tar")
    write_atomically(folder / "base.json", json.dumps(noted, indent=2))
    return replace(_from_note(folder / "rootfs.tar", noted), cached=False)


def _mmdebstrap(suite: str, site: Site, target: Path, work: Path, say: Say, *, architecture: str | None = None) -> None:
    """Run mmdebstrap; as root in its mode ``root``, otherwise in the mode that works (``unshare``, ``fakechroot``)."""
    argv = ["mmdebstrap", f"--variant={VARIANT}", f"--include={','.join(INCLUDE)}", "--format=tar"]
    # Device nodes hang `docker build --output type=local` on 20.10, and a container creates its own anyway.
    argv += ["--skip=output/dev", *(f"--dpkgopt={option}" for option in DPKG_OPTIONS)]
    argv += [f"--architectures={architecture}"] if architecture else []
    if suite == "bookworm" and MERGED_USR.is_dir():
        argv.append(f"--hook-dir={MERGED_USR}")
    argv += [*(f"--aptopt={option}" for option in APT_OPTIONS), suite, str(target)]
    if sources := site.apt_sources(suite):
        # In a file: the mirror's URL may contain a password, while argv is public and logged in the journal.
        mirror = work / "mirror.list"
        mirror.touch(mode=0o600)
        mirror.write_text(sources)
        argv.append(str(mirror))
    environment = {"SOURCE_DATE_EPOCH": str(EPOCH), "LC_ALL": "C.UTF-8", **site.build_args()}
    last: deque[str] = deque(maxlen=20)
    try:
        with runner.stream(argv, env=environment) as running:
            for line in running.lines():
                last.append(mask(line))
                if step := re.fullmatch(r"I: ((?:running|downloading|extracting|installing) .*?)\.*", line):
                    say(step[1])
            done = running.wait()
    except FileNotFoundError as missing:
        raise EngineError(
            "mmdebstrap is not installed, so no Debian base can be made",
            remedy="apt-get install mmdebstrap, or set a base image: base_image in trainwright.toml",
        ) from missing
    if not done.ok or not target.is_file():
        raise _failure(suite, done.returncode, "\n".join(last), target)


def _failure(suite: str, status: int, last: str, target: Path) -> Failure:
    if re.search(r"No space left on device|[Qq]uota exceeded|not enough (free )?space", last):
        return _disk_full(target.parent.parent, last)
    if re.search(r"install arch-test|can neither be executed natively|cannot find /usr/bin/qemu-", last):
        return EngineError(
            "this machine cannot run programs of the other processor, as making a Debian base for it does",
            remedy="apt-get install qemu-user-static binfmt-support arch-test, or use a machine with that processor",
        )
    if "unable to pick chroot mode" in last:
        return EngineError(
            "mmdebstrap cannot make a root file system as this user",
            remedy="Run as root, or allow user namespaces (apt-get install uidmap), or apt-get install fakechroot",
        )
    return SourceError(
        f"mmdebstrap could not make Debian {suite} (exit status {status}):\n{last}",
        remedy=f"Check that the archive answers and has the suite {suite} (apt-get update), set a proxy, "
        "or configure a mirror: apt_mirror in trainwright.toml",
        status=status,
    )


def _disk_full(folder: Path, last: str = "") -> SourceError:
    free = shutil.disk_usage(folder).free // 1_000_000
    return SourceError(
        f"the disk is full: the Debian base needs about 800 MB while it is made, {free} MB are free in {folder}"
        + (f"\n{last}" if last else ""),
        remedy="Free some space there and in /tmp, or set other folders with TRAINWRIGHT_CACHE and TMPDIR",
    )


def clean(source: IO[bytes], out: IO[bytes], *, own_sources: bool = True) -> int:
    """Copy a root file system without anything that varies between runs or reveals the machine.

    Args:
        source: a tar stream, entries sorted by name.
        out: gets an uncompressed tar in pax format, with an empty folder ``dev``.
        own_sources: keep ``etc/apt/sources.list``; otherwise it is emptied.

    Returns:
        The number of installed Debian packages.

    Raises:
        SourceError: ``source`` is not a complete tar.
    """
    made = _MADE if own_sources else _MADE | {"etc/apt/sources.list": 0o644}
    packages = 0
    try:
        with (
            tarfile.open(fileobj=source, mode="r|") as old,
            tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT, encoding="utf-8") as new,
        ):
            for entry in old:
                name = entry.name.removeprefix("./")
                keep_folder = entry.isdir() and not name.startswith(("run/", "tmp/"))
                dropped = _DROP.fullmatch(name) and not keep_folder
                if dropped or name in made or entry.ischr() or entry.isblk():
                    continue
                content: IO[bytes] | None = old.extractfile(entry) if entry.isreg() else None
                if name == "var/lib/dpkg/status" and content is not None:
                    status = content.read()
                    packages = len(re.findall(rb"^Status: install ok installed$", status, re.MULTILINE))
                    content = io.BytesIO(status)
                new.addfile(entry, content)
            for name, mode in made.items():
                added = tarfile.TarInfo(f"./{name}")
                added.mtime, added.mode = EPOCH, mode
                added.type = tarfile.REGTYPE if mode == 0o644 else tarfile.DIRTYPE
                new.addfile(added)
    except tarfile.TarError as wrong:
        raise SourceError(f"mmdebstrap wrote an incomplete tar: {wrong}", remedy="Run the command again.") from wrong
    if not packages:  # tarfile accepts a tar that is truncated between two entries
        raise SourceError("mmdebstrap wrote an incomplete tar without packages", remedy="Run the command again.")
    return packages
