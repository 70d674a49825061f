"""Where things lie: the shipped data, the state of a checkout, the caches of a user."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


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


def own_catalog() -> Path | None:
    """The user's own folder of ``images/`` and ``templates/components/`` beside the shipped ones, if there is one.

    ``TRAINWRIGHT_CATALOG`` names it; ``--catalog`` sets that for one run.
    """
    named = os.environ.get("TRAINWRIGHT_CATALOG")
    return Path(named).absolute() if named else None


def state_dir() -> Path:
    """Records, contexts, logs and reports of this project: ``.trainwright/`` in the working folder.

    ``TRAINWRIGHT_STATE`` names another folder. Made when it is missing.
    """
    path = Path(os.environ.get("TRAINWRIGHT_STATE", ".trainwright")).absolute()
    path.mkdir(parents=True, exist_ok=True)
    ignore = path / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n")
    return path


def cache_dir() -> Path:
    """What may be thrown away and made again, shared by all projects of a user (base file systems).

    ``TRAINWRIGHT_CACHE`` names another folder, else ``$XDG_CACHE_HOME/trainwright``. Made when it is missing.
    """
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    path = Path(os.environ.get("TRAINWRIGHT_CACHE") or Path(home) / "trainwright")
    path.mkdir(parents=True, exist_ok=True)
    return path


def write_atomically(path: Path, text: str) -> None:
    """Write ``text`` so that ``path`` holds either its old content or all of the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on ``path`` (a file beside the data it guards); waits for another holder.

    The lock ends with the process that holds it, however that ends.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
