"""Turns other exceptions into a :class:`~trainwright.core.errors.Failure`: errors of the system, and bugs."""

from __future__ import annotations

import errno
import os
import sys
import time
from pathlib import Path

from trainwright import __version__
from trainwright.core.errors import BuildFailed, Failure, InternalError, RequestError
from trainwright.core.masking import mask
from trainwright.core.paths import STATE_REMEDY, setting, state_dir

_FULL = (errno.ENOSPC, errno.EDQUOT)
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
_REMEDIES = {
    errno.ENAMETOOLONG: "Most file systems take 255 bytes for a name and 4096 for a path.",
    errno.ENOTDIR: "A part of this path is a file.",
    errno.EISDIR: "Name a file.",
    errno.EEXIST: "Name a folder, or a path that does not exist yet.",
    errno.EMFILE: "ulimit -n shows how many files a process may open.",
    errno.ENFILE: "The whole system has too many files open.",
    errno.EIO: "The disk or the network file system has a fault: dmesg may say which.",
}
# Errors of the system that may have no file name: a full disk, a closed standard output.
_SYSTEM = {*_FULL, *_DENIED, errno.EMFILE, errno.ENFILE, errno.EIO, errno.EBADF, errno.EFBIG, errno.ENOMEM}


def as_failure(fault: Exception, words: list[str]) -> Failure:
    """The failure for an exception that is not a :class:`Failure`.

    Args:
        fault: the exception.
        words: the command line, for the report of a bug.
    """
    if isinstance(fault, OSError):
        failure = _refused(fault)
        if failure is not None:
            return failure
    return _ours(fault, words)


def _refused(refused: OSError) -> Failure | None:
    """The failure for an error of the system; ``None`` if it may be a bug."""
    if isinstance(refused, FileNotFoundError) and _working_folder_is_gone():
        return RequestError("the working folder no longer exists", remedy="Change to an existing folder: cd")
    if refused.errno is None or (refused.filename is None and refused.errno not in _SYSTEM):
        return None
    # Of two files, as in a rename, the user knows the second.
    named = refused.filename if refused.filename2 is None else refused.filename2
    path = os.fsdecode(named) if isinstance(named, str | bytes) else ""
    what = f"{path}: {refused.strerror}" if path else str(refused.strerror)
    if refused.errno in _FULL:
        return BuildFailed(
            f"the disk is full ({what})",
            remedy="df -h shows which disk, docker system df what the engine uses; free space and run it again.",
        )
    remedy = _REMEDIES.get(refused.errno, "")
    if path and refused.errno in (*_DENIED, errno.ENOENT) and _of_ours(Path(path)):
        remedy = STATE_REMEDY
    elif path and refused.errno in _DENIED:
        remedy = f"Check its permissions: ls -ld {path}"
    return RequestError(what, remedy=remedy)


def _working_folder_is_gone() -> bool:
    try:
        Path.cwd()
    except OSError:
        return True
    return False


def _of_ours(path: Path) -> bool:
    """Whether a path is in or above the state or cache folder of this run."""
    try:
        named = [setting("TRAINWRIGHT_STATE") or ".trainwright", setting("TRAINWRIGHT_CACHE") or ""]
        named.append(setting("XDG_CACHE_HOME") or str(Path(setting("HOME") or "~").expanduser() / ".cache"))
        folders = [Path(name).absolute() for name in named if name]
        path = path.absolute()
    except (OSError, RuntimeError):
        return False
    return any(path == folder or folder in path.parents or path in folder.parents for folder in folders)


def _ours(fault: Exception, words: list[str]) -> InternalError:
    """The failure for a bug: one line, with the traceback in a file."""
    report = mask(_report(fault, words))
    if setting("TRAINWRIGHT_DEBUG") not in (None, "0"):
        print(report, file=sys.stderr)
    summary = f"{type(fault).__name__}: {fault}".splitlines()[0][:200]
    kept = _keep(report)
    return InternalError(
        f"Trainwright itself failed ({summary})",
        remedy=f"The details are in {kept}; please report them." if kept else "TRAINWRIGHT_DEBUG=1 shows the details.",
        report=kept,
    )


def _report(fault: Exception, words: list[str]) -> str:
    import platform
    import traceback

    lines = [
        f"trainwright {__version__}, Python {platform.python_version()}, {platform.platform()}",
        f"argv: {words!r}",
        "",
        *(line.rstrip("\n") for line in traceback.format_exception(fault)),
    ]
    return "\n".join([*lines, ""])


def _keep(report: str) -> str:
    """Write a report that only the user can read; returns its path, or empty if no folder is writable."""
    import tempfile

    prefix = f"crash-{time.strftime('%Y%m%d-%H%M%S')}-"
    for folder in (state_dir, lambda: Path(tempfile.gettempdir())):
        try:
            # Its own name each time: several lines of one run may fail in the same second.
            handle, path = tempfile.mkstemp(".log", prefix, folder())
            with os.fdopen(handle, "w", errors="replace") as file:
                file.write(report)
        except (OSError, Failure):
            continue
        return path
    return ""
