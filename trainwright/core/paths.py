"""Where things lie: the shipped data, the state of a checkout, the caches of a user."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from trainwright.core.errors import RequestError
from trainwright.core.owned import claim

STATE_REMEDY = "TRAINWRIGHT_STATE and TRAINWRIGHT_CACHE name folders that can be written."
_PACKAGE = Path(__file__).resolve().parents[1]


def setting(name: str, environ: Mapping[str, str] | None = None) -> str | None:
    """The value of an environment variable; an empty one counts as unset, as build services pass on what they lack.

    Args:
        name: of the variable.
        environ: to look in (default: this process's).
    """
    return (os.environ if environ is None else environ).get(name) or None


def data_root() -> Path:
    """The folder that holds ``images/`` and ``templates/``: the checkout, or the installed package's data."""
    installed = _PACKAGE / "data"
    return installed if installed.is_dir() else _PACKAGE.parent


def images_dir() -> Path:
    """The shipped image lines, one folder per framework."""
    return data_root() / "images"


def templates_dir() -> Path:
    """The Dockerfile skeleton, the components and the contract tests."""
    return data_root() / "templates"


def tool_files() -> list[Path]:
    """The programs that build steps call: each lies in the build context, in ``tools/`` and its folder."""
    return sorted((templates_dir() / "tools").glob("*/*"))


def own_catalog() -> Path | None:
    """The user's own folder of ``images/`` and ``templates/components/`` beside the shipped ones, if there is one.

    ``TRAINWRIGHT_CATALOG`` names it; ``--catalog`` sets that for one run.
    """
    named = setting("TRAINWRIGHT_CATALOG")
    return Path(named).absolute() if named else None


def state_dir() -> Path:
    """Records, contexts, logs and reports of this project: ``.trainwright/`` in the working folder.

    ``TRAINWRIGHT_STATE`` names another folder. Made when it is missing, with a ``.gitignore`` for all that will be in
    it.

    Raises:
        RequestError: the variable names a folder that holds something else.
    """
    return _own_folder("TRAINWRIGHT_STATE", lambda: Path(".trainwright").absolute(), "state", ignored=True)


def cache_dir() -> Path:
    """What may be thrown away and made again, shared by all projects of a user (base file systems).

    ``TRAINWRIGHT_CACHE`` names another folder, else ``$XDG_CACHE_HOME/trainwright``. Made when it is missing.

    Raises:
        RequestError: the variable names a folder that holds something else; or no variable names a folder, and this
            user has no home folder.
    """
    return _own_folder("TRAINWRIGHT_CACHE", lambda: _user_cache() / "trainwright", "cache")


def _own_folder(variable: str, usual: Callable[[], Path], kind: str, *, ignored: bool = False) -> Path:
    """A folder that is wholly ours. The usual one is so by its name; one that a variable names has to be new, empty or
    marked, as commands remove old contexts and reports in it."""
    named = setting(variable)
    path = Path(named).absolute() if named else usual()
    new = not path.exists()
    try:
        if named:
            claim(path, kind, f"{variable}={named}", whole=True)
        else:
            path.mkdir(parents=True, exist_ok=True)
        if new and ignored:
            (path / ".gitignore").write_text("*\n")
    except OSError as refused:
        if refused.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise RequestError(f"{path}: cannot be made: {refused.strerror}", remedy=STATE_REMEDY) from None
    return path


def _user_cache() -> Path:
    if named := setting("XDG_CACHE_HOME"):
        return Path(named).absolute()
    if (home := home_dir()) is not None:
        return home / ".cache"
    raise RequestError(
        "no folder for caches: HOME is not set, and this user has no entry in /etc/passwd", remedy=STATE_REMEDY
    )


def home_dir() -> Path | None:
    """The user's home folder; nothing where ``HOME`` is unset and the user id has no entry in /etc/passwd, as in a
    container that runs with an id of its own."""
    try:
        return Path(setting("HOME") or Path.home())
    except RuntimeError:
        return None


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock that stands for ``path``, a file or folder of ours; waits for another holder.

    The folder that ``path`` lies in is made when it is missing.

    The lock file itself lies in the cache folder, so nothing is left beside data that a user commits. The lock ends
    with the process that holds it, however that ends.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(os.fsencode(path.absolute())).hexdigest()[:32]
    guard = cache_dir() / "guards" / name
    guard.parent.mkdir(exist_ok=True)
    with guard.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
