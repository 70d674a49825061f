"""Folders and files that a command writes on a user's disk: only what is known to be ours is changed or removed.

A folder is ours to fill where it is missing, empty, or holds :data:`MANIFEST` of the same kind; any other is refused
before anything is touched. The manifest is written before the first file, so whatever ends the process, the next run
knows what it may complete or remove.
"""

from __future__ import annotations

import errno
import json
import os
import re
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from trainwright.core.errors import BuildFailed, RequestError

MANIFEST = ".trainwright-manifest.json"
SCHEMA = "trainwright/manifest/1"
ABOUT = "Made by Trainwright: the command that made these files may replace or remove them, and no others."
SMALL = 1_000_000  # bytes; smaller files are copied and compared, larger ones are linked where the disk allows it


class Manifest(NamedTuple):
    """Which files of a folder are ours.

    Attributes:
        kind: of folder, such as ``context`` or ``mirror``; a command fills no folder of another kind.
        files: by name, seen from the folder; with what tells whether the original of a large file has changed since.
            Names of directories end with ``/``.
        whole: everything in the folder is ours, whatever its name.
        complete: whether the last run ended well.
        pid: of the process that wrote it; the names of its part files have it.
    """

    kind: str
    files: Mapping[str, tuple[int, ...]] = {}
    whole: bool = False
    complete: bool = True
    pid: int = 0


def write_atomically(path: Path, text: str) -> None:
    """Write ``text`` so that ``path`` holds either its old content or all of the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = _part(path, threading.get_native_id())  # in the main thread, the process id
    try:
        part.write_text(text)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def check_replaceable(path: Path, named: str, *, mark: str = "", text: str | None = None) -> None:
    """Refuse to write to a file that is there and that the same command did not write.

    Args:
        path: the file.
        named: how the user named it, as in ``--output start.py``.
        mark: stands among the first 2000 characters of every file that the command writes; empty where its files are
            the user's to edit, so that none is replaced.
        text: what will be written; a file that holds just that is not an obstacle.

    Raises:
        RequestError: the file exists and lacks the mark, or is not a regular file.
    """
    if not (path.is_symlink() or path.exists()):
        return
    if path.is_file():
        there = path.read_text(errors="replace")
        if there in ("", text) or (mark and mark in there[:2000]):
            return
    raise RequestError(
        f"{named}: exists, and this command did not write it; nothing was changed",
        remedy="Name a file that does not exist yet, or move that one away.",
    )


def claim(folder: Path, kind: str, named: str, *, whole: bool = False) -> Manifest | None:
    """Check that a folder may be filled; returns its manifest, or ``None`` if it is missing or empty.

    Args:
        folder: to fill.
        kind: what with; the manifest's must be the same.
        named: how the user named the folder, as in ``--output build``.
        whole: mark the folder as ours in every part of it, and make it where it is missing.

    Raises:
        RequestError: the folder holds something else, or is not a folder.
    """
    found = _read(folder)
    if found is None and (folder.is_symlink() or folder.exists()):
        if not folder.is_dir():
            raise RequestError(f"{named}: not a directory", remedy="Name a new folder or an empty one.")
        # Another process may be claiming it right now: the part of a manifest, then the manifest.
        part = re.compile(rf"\.{re.escape(MANIFEST)}\.\d+\.part")
        held = any(not part.fullmatch(each.name) for each in folder.iterdir())
        if held and (found := _read(folder)) is None:
            raise RequestError(
                f"{named}: the folder is not empty, and Trainwright did not fill it; nothing was changed",
                remedy="Name a new folder or an empty one.",
            )
    if found is not None and found.kind != kind:
        raise RequestError(
            f"{named}: the folder holds another thing that Trainwright made (a {found.kind}); nothing was changed",
            remedy="Name a new folder or an empty one.",
        )
    if whole and found is None:
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder, Manifest(kind, whole=True))
    return found


def fill(
    folder: Path,
    files: Mapping[str, str | Path],
    *,
    kind: str,
    named: str,
    directories: Iterable[str] = (),
    last: str,
) -> None:
    """Make a folder hold these files and directories, and nothing that an earlier run put there besides.

    Files that a user added stay as they are. Unchanged files are left alone, so that a builder need not read them
    again. Cut short, the folder has no ``last`` file; a folder that was new is removed.

    Args:
        folder: created if missing.
        files: content by name, seen from the folder: a text, or the file to copy (linked where it is large).
        kind, named: as for :func:`claim`.
        directories: that are there even if they are empty.
        last: the file without which the folder is of no use; written when all others are.

    Raises:
        RequestError: the folder, or something of these names in it, is not ours; nothing was changed.
        BuildFailed: the disk is full.
    """
    before = claim(folder, kind, named)
    if before is not None:
        _remove_parts(folder, before)
    wanted = {name: _origin(content) for name, content in files.items()}
    wanted |= {f"{name.rstrip('/')}/": () for name in directories}
    old = before.files if before is not None else {}
    _refuse_strangers(folder, wanted, old, named)
    changed = [name for name in wanted if not _same(folder / name, files.get(name), old.get(name), wanted[name])]
    gone = [name for name in old if name not in wanted]
    if before is not None and before.complete and not changed and not gone:
        return
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    known = Manifest(kind, {**old, **wanted}, complete=False, pid=os.getpid())
    try:
        _write(folder, known)
        (folder / last).unlink(missing_ok=True)
        for name in sorted({*changed, last}, key=lambda name: name == last):
            _put(folder / name, files.get(name))
        _remove(folder, gone, kept=wanted)
        _write(folder, Manifest(kind, wanted))
    except BaseException as wrong:
        if before is None:
            _undo(folder, known, made=made)
        if isinstance(wrong, OSError) and wrong.errno in (errno.ENOSPC, errno.EDQUOT):
            left = "nothing of it was kept" if before is None else f"it is incomplete now, without {last}"
            raise BuildFailed(
                f"{named}: the disk is full ({wrong.filename or folder}); {left}",
                remedy=f"df -h {folder.parent} shows the disk. Make room and run the command again.",
            ) from None
        raise


def clear(folder: Path) -> None:
    """Remove what :func:`fill` put into a folder, and the folder itself if it is then empty."""
    found = _read(folder)
    if found is not None and not found.whole:
        _undo(folder, found, made=True)


def _part(path: Path, pid: int) -> Path:
    return path.with_name(f".{path.name}.{pid}.part")


def _read(folder: Path) -> Manifest | None:
    """The manifest in a folder; ``None`` if it has no readable one."""
    path = folder / MANIFEST
    try:
        if path.is_symlink() or not path.is_file():
            return None
        data: dict[str, Any] = json.loads(path.read_text())
        files = {_inside(str(name)): tuple(map(int, origin)) for name, origin in data["files"].items()}
        whole, complete = data["whole"] is True, data["complete"] is True
        return Manifest(str(data["kind"]), files, whole=whole, complete=complete, pid=int(data["pid"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _inside(name: str) -> str:
    """A name of a manifest, which may lead to nothing outside of its folder, and to nothing there like ``.git``."""
    parts = Path(name).parts
    if not parts or Path(name).is_absolute() or ".." in parts or parts[0].startswith("."):
        raise ValueError(name)
    return name


def _write(folder: Path, manifest: Manifest) -> None:
    data = {
        "schema": SCHEMA,
        "about": ABOUT,
        "kind": manifest.kind,
        "whole": manifest.whole,
        "complete": manifest.complete,
        "pid": manifest.pid,
        "files": {name: list(origin) for name, origin in sorted(manifest.files.items())},
    }
    write_atomically(folder / MANIFEST, json.dumps(data, indent=1) + "\n")


def _refuse_strangers(folder: Path, wanted: Iterable[str], old: Iterable[str], named: str) -> None:
    """Refuse names that somebody else's file has, and ways that lead through a link out of the folder."""
    ours = set(old)
    for name in wanted:
        for parent in (folder / each for each in Path(name).parents[:-1]):
            if parent.is_symlink() or (parent.exists() and not parent.is_dir()):
                _in_the_way(parent, named)
        path = folder / name
        if name not in ours and (path.is_symlink() or path.exists()) and not (name.endswith("/") and path.is_dir()):
            _in_the_way(path, named)


def _in_the_way(path: Path, named: str) -> NoReturn:
    raise RequestError(
        f"{named}: {path} is in the way, and Trainwright did not write it; nothing was changed",
        remedy="Move it away, or name a new folder.",
    )


def _origin(content: str | Path) -> tuple[int, ...]:
    """What tells whether a large file has changed; the time of change of its inode cannot be set back."""
    if isinstance(content, str):
        return ()
    stat = content.stat()
    return (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) if stat.st_size >= SMALL else ()


def _same(target: Path, content: str | Path | None, before: tuple[int, ...] | None, now: tuple[int, ...]) -> bool:
    if content is None:
        return target.is_dir()
    if target.is_symlink() or not target.is_file():
        return False
    if isinstance(content, str):
        return target.read_bytes() == content.encode()
    if not now:
        import filecmp

        return filecmp.cmp(target, content, shallow=False) and target.stat().st_mode == content.stat().st_mode
    # A linked file is its original, whatever its times say: the link itself changed them.
    return target.samefile(content) or (before == now and target.stat().st_size == content.stat().st_size)


def _put(target: Path, content: str | Path | None) -> None:
    if content is None:
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
        write_atomically(target, content)
        target.chmod(0o755 if content.startswith("#!") else 0o644)
        return
    part = _part(target, os.getpid())
    try:
        try:
            if content.stat().st_size < SMALL:
                raise OSError("small files are copied: an edit of the original must not change a context")
            os.link(content.resolve(), part)
        except OSError:
            import shutil

            shutil.copy2(content, part)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _remove(folder: Path, names: Iterable[str], kept: Iterable[str] = ()) -> None:
    """Remove files, then the directories that are empty without them, but for those ``kept``."""
    stay = {folder / name for name in kept}
    parents: set[Path] = set()
    for name in names:
        path = folder / name
        if not name.endswith("/"):
            path.unlink(missing_ok=True)
        parents |= {folder / parent for parent in Path(name).parents[:-1]} | ({path} if name.endswith("/") else set())
    for path in sorted(parents - stay, reverse=True):
        if path.is_dir() and not path.is_symlink() and next(path.iterdir(), None) is None:
            path.rmdir()


def _remove_parts(folder: Path, manifest: Manifest) -> None:
    """Remove what a process that was killed left half written."""
    if not manifest.complete:
        for name in manifest.files:
            _part(folder / name, manifest.pid).unlink(missing_ok=True)


def _undo(folder: Path, manifest: Manifest, *, made: bool) -> None:
    _remove_parts(folder, manifest)
    _remove(folder, manifest.files)
    (folder / MANIFEST).unlink(missing_ok=True)
    if made and folder.is_dir() and next(folder.iterdir(), None) is None:
        folder.rmdir()
