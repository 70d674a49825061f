"""What an emulated registry changes on this machine, and how it is undone: /etc/hosts and the engine's certificates.

Every change carries :data:`MARK` and the process that made it, so that the next start removes what a killed one left.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

HOSTS = Path("/etc/hosts")
CERTIFICATES = Path("/etc/docker/certs.d")
MARK = "# trainwright emulated AWS"
OWNER = re.compile(re.escape(MARK) + r", process (\d+), (\S+)")
FOLDER_PREFIX = "trainwright-aws-"
WAIT_SECONDS = 900.0


def scratch_folder() -> Path:
    """A new folder for the files of one emulated AWS; one that is left behind is removed by a later start."""
    return Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))


@contextmanager
def claimed(names: Sequence[str], wait_s: float = WAIT_SECONDS) -> Iterator[None]:
    """Hold host names for this process: one name leads to one address on a machine, whoever runs tests on it.

    A lock is a socket in Linux's abstract namespace, which leaves no file and ends with its process.

    Raises:
        TimeoutError: another process has held a name for ``wait_s`` seconds.
    """
    with ExitStack() as held:
        for name in sorted(names):  # in one order, so that two cannot wait for each other
            lock = held.enter_context(socket.socket(socket.AF_UNIX))
            end = time.monotonic() + wait_s
            while True:
                try:
                    lock.bind(f"\0trainwright-{name}")
                    break
                except OSError as taken:
                    if taken.errno != errno.EADDRINUSE:
                        raise
                    if time.monotonic() > end:
                        raise TimeoutError(f"{name} is emulated by another process for {wait_s:.0f} s") from taken
                    time.sleep(0.2)
        yield


@contextmanager
def known_to_this_machine(address: str, names: Sequence[str], authority: Path, folder: Path) -> Iterator[None]:
    """``names`` lead to ``address``, and the engine trusts ``authority`` (a file) for them, while this is open.

    Args:
        folder: of this emulated AWS; it is named in the mark, so that a later start can remove it.
    """
    mark = f"{MARK}, process {os.getpid()}, {folder}"
    try:
        with _hosts() as lines:
            remove_leftovers(lines, names)
            for name in names:
                if (CERTIFICATES / name).exists():
                    raise FileExistsError(f"{CERTIFICATES / name} is not of these tests: is this registry in use here?")
            for name in names:
                (CERTIFICATES / name).mkdir(parents=True)
                # Text before the first PEM block is a comment.
                (CERTIFICATES / name / "ca.crt").write_text(f"{mark}\n{authority.read_text()}")
            lines.append(f"{address} {' '.join(names)} {mark}")
        yield
    finally:
        with _hosts() as lines:
            lines[:] = [line for line in lines if not line.endswith(mark)]
            _forget_certificates(lambda text: text.startswith(f"{mark}\n"))


def remove_leftovers(lines: list[str], names: Sequence[str] = ()) -> None:
    """Take what ended processes left out of the lines of /etc/hosts, the engine's certificates and the scratch folders.

    Args:
        lines: of /etc/hosts, changed in place.
        names: which this process has claimed: whatever there is of them is left over.
    """
    for line in list(lines):
        if (owner := OWNER.search(line)) and (_ended(owner[1]) or set(names) & set(line.split())):
            lines.remove(line)
            folder = Path(owner[2])
            if folder.parent == Path(tempfile.gettempdir()) and folder.name.startswith(FOLDER_PREFIX):
                shutil.rmtree(folder, ignore_errors=True)
    live = {owner[0] for line in lines if (owner := OWNER.search(line))}
    _forget_certificates(lambda text: bool((owner := OWNER.match(text)) and owner[0] not in live))


def _forget_certificates(ours: Callable[[str], bool]) -> None:
    for file in list(CERTIFICATES.glob("*/ca.crt")):
        if ours(file.read_text(errors="replace")):
            shutil.rmtree(file.parent)
    with contextlib.suppress(OSError):  # where others have some, or where there are none
        CERTIFICATES.rmdir()


def _ended(pid: str) -> bool:
    return not Path("/proc", pid).exists()


@contextmanager
def _hosts() -> Iterator[list[str]]:
    """The lines of /etc/hosts to be changed, by one process at a time.

    Written in place: in a container the file is a mount, which cannot be replaced.
    """
    with HOSTS.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        before = file.read()
        lines = before.splitlines()
        yield lines
        after = "".join(f"{line}\n" for line in lines)
        if after != before:
            file.seek(0)
            file.write(after)
            file.truncate()
