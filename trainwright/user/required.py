"""What ``--with-requirements`` asks for, in whichever file a project keeps it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from trainwright.core.data_files import parse_toml, parse_yaml
from trainwright.core.errors import RequestError
from trainwright.user.lock_files import read_pylock, read_uv_lock
from trainwright.user.project_files import read_environment, read_pyproject
from trainwright.user.requirements import read_requirements, requirements_text

# pylock.toml and pylock.NAME.toml: PEP 751, "File Name".
_PYLOCK = re.compile(r"pylock\.(?:[^.]+\.)?toml")
_EXTRAS = re.compile(r"(.+)\[([A-Za-z0-9._, -]+)\]", re.DOTALL)


class Required(NamedTuple):
    """What a file asks for.

    Attributes:
        lines: requirements, as uv reads them.
        python: the versions of Python that the file is for (PEP 440); empty for any.
        resolved: whether the file is a lock: what it pins was resolved together.
        plain: whether it is a requirements file.
    """

    lines: list[str]
    python: str = ""
    resolved: bool = False
    plain: bool = False


def file_of(path: Path) -> Path:
    """The file itself of what ``--with-requirements`` names: without the extras that may follow it."""
    with_extras = None if path.exists() else _EXTRAS.fullmatch(str(path))
    return Path(with_extras[1]) if with_extras else path


def read_required(path: Path, what: str, *, git: bool = False) -> Required:
    """What a requirements file, ``pyproject.toml``, ``uv.lock``, ``pylock.toml`` or ``environment.yml`` asks for.

    Args:
        path: the file; extras of a project may follow a ``pyproject.toml`` or ``uv.lock``, as in ``uv.lock[train]``.
        what: how messages name it.
        git: whether the image has git to fetch a requirement with.

    Raises:
        RequestError: the file cannot be read, or asks for what is not allowed in an image or not there to take.
    """
    extras: list[str] = []
    with_extras = None if path.exists() else _EXTRAS.fullmatch(str(path))
    if with_extras:
        path = Path(with_extras[1])
        extras = [each.strip() for each in with_extras[2].split(",") if each.strip()]
    name = path.name
    if name in ("pyproject.toml", "uv.lock"):
        data = parse_toml(requirements_text(path, what), what)
        if name == "uv.lock":
            return Required(*read_uv_lock(data, extras, what, git=git), resolved=True)
        return Required(*read_pyproject(data, extras, what, git=git))
    if extras:
        raise RequestError(
            f"{what}: extras can be named of pyproject.toml and uv.lock alone",
            remedy=f"Write --with-requirements {name}",
        )
    if _PYLOCK.fullmatch(name):
        data = parse_toml(requirements_text(path, what), what)
        return Required(*read_pylock(data, what, git=git), resolved=True)
    if path.suffix in (".yml", ".yaml"):
        return Required(*read_environment(parse_yaml(requirements_text(path, what), what), what, git=git))
    if path.suffix in (".toml", ".lock"):
        raise RequestError(
            f"{what}: not a file that is read here",
            remedy="Give requirements.txt, pyproject.toml, uv.lock, pylock.toml or environment.yml; "
            "`poetry export` and `uv export` write the first.",
        )
    return Required(read_requirements(path, what, git=git), plain=True)
