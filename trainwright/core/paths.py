"""Where files are: the shipped data, the state of a checkout, the caches of a user."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from trainwright.core.errors import RequestError
from trainwright.core.owned import claim

ARTIFACTS = "TRAINWRIGHT_ARTIFACTS"  # the variable that names where archives are; --artifacts sets it for one run
STATE_REMEDY = "Set TRAINWRIGHT_STATE and TRAINWRIGHT_CACHE to writable folders."
_PACKAGE = Path(__file__).resolve().parents[1]


def setting(name: str, environ: Mapping[str, str] | None = None) -> str | None:
    """The value of an environment variable; empty counts as unset, because build services pass empty ones.

    Args:
        name: of the variable.
        environ: the environment (default: this process's).
    """
    return (os.environ if environ is None else environ).get(name) or None


def import_root() -> Path:
    """The folder from which Python imports this program: the checkout, or that of installed packages."""
    return _PACKAGE.parent


def data_root() -> Path:
    """The folder that contains ``images/`` and ``templates/``: the checkout, or the installed package's data."""
    installed = _PACKAGE / "data"
    return installed if installed.is_dir() else _PACKAGE.parent


def images_dir() -> Path:
    """The shipped image lines, one folder per framework."""
    return data_root() / "images"


def templates_dir() -> Path:
    """The Dockerfile skeleton, the components and the contract tests."""
    return data_root() / "templates"


def tool_files() -> list[Path]:
    """The programs that build steps call: each is in the build context, under ``tools/`` in its folder."""
    return sorted((templates_dir() / "tools").glob("*/*"))


def use_catalog(folder: str | None) -> None:
    """Make a user's folder of image lines and components (``--catalog``) the one of this run."""
    if folder:
        os.environ["TRAINWRIGHT_CATALOG"] = folder


def own_catalog() -> Path | None:
    """The user's own folder of ``images/`` and ``templates/components/``, if there is one.

    ``TRAINWRIGHT_CATALOG`` names it; ``--catalog`` sets that for one run.
    """
    named = setting("TRAINWRIGHT_CATALOG")
    return Path(named).absolute() if named else None


def state_dir() -> Path:
    """Records, contexts, logs and reports of this project: ``.trainwright/`` in the working folder.

    ``TRAINWRIGHT_STATE`` names another folder. Created if missing, with a ``.gitignore`` for its
    content.

    Raises:
        RequestError: the variable names a folder with other content.
    """
    return _own_folder("TRAINWRIGHT_STATE", lambda: Path(".trainwright").absolute(), "state", ignored=True)


def existing_state() -> Path | None:
    """The folder of :func:`state_dir` if there is one: what only reads makes none."""
    path = Path(setting("TRAINWRIGHT_STATE") or ".trainwright").absolute()
    return path if path.is_dir() else None


def cache_dir() -> Path:
    """Data that can be created again, shared by all projects of a user, such as base file systems.

    ``TRAINWRIGHT_CACHE`` names another folder, else ``$XDG_CACHE_HOME/trainwright``. Created if missing.

    Raises:
        RequestError: the variable names a folder with other content; or no variable is set, and this user has no home
            folder.
    """
    return _own_folder("TRAINWRIGHT_CACHE", lambda: _user_cache() / "trainwright", "cache")


def _own_folder(variable: str, usual: Callable[[], Path], kind: str, *, ignored: bool = False) -> Path:
    """A folder that belongs to Trainwright. One that a variable names must be new, empty or marked as such, because
    commands remove old contexts and reports in it."""
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
        raise RequestError(f"{path}: cannot be created: {refused.strerror}", remedy=STATE_REMEDY) from None
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
    """The user's home folder; ``None`` if ``HOME`` is unset and /etc/passwd has no entry for the user id, as in some
    containers."""
    try:
        return Path(setting("HOME") or Path.home())
    except RuntimeError:
        return None


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock for ``path``, a file or folder of ours; waits for another holder.

    The parent folder of ``path`` is created if missing. The lock file itself is in the cache folder, so nothing is left
    beside data that a user commits. The lock ends with its process, however that ends.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    import hashlib

    name = hashlib.sha256(os.fsencode(path.absolute())).hexdigest()[:32]
    guard = cache_dir() / "guards" / name
    guard.parent.mkdir(exist_ok=True)
    with guard.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
