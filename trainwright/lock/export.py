"""A lock's Python packages in the files that other programs read: ``pylock.toml`` (PEP 751), pinned requirements."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from trainwright.core.errors import RequestError
from trainwright.core.owned import check_replaceable, write_atomically
from trainwright.lock.documents import ExportDocument
from trainwright.plan.plan_lock import LockedPython, PlanLock

# PEP 751, "File Name"; a name without dots between the two parts.
_PYLOCK = re.compile(r"pylock\.([^.]+\.)?toml")
_REQUIREMENTS = re.compile(r".+\.txt")
MARK = "# Made by `lock --export`"  # begins every file, so that no other one is replaced
FOLDER = "wheels"  # of a mirror (trainwright/lock/mirror.py): a pylock.toml in a mirror leads to its files


def export(lock: PlanLock, source: Path, target: Path) -> ExportDocument:
    """Write the Python packages of an image, as its lock has them.

    Tools that build the image and do not enter it are left out.

    Args:
        lock: of the plan.
        source: the lock's file.
        target: ``pylock.toml``, ``pylock.NAME.toml``, or a name that ends in ``.txt``: requirements with checksums.

    Raises:
        RequestError: the name is neither, the lock has no Python packages so far, or a file is there that this has not
            written.
    """
    made_by = {_PYLOCK: pylock, _REQUIREMENTS: requirements}
    text_of = next((make for name, make in made_by.items() if name.fullmatch(target.name)), None)
    if text_of is None:
        raise RequestError(
            f"--export {target}: the name says the format: pylock.toml, pylock.NAME.toml or NAME.txt",
            remedy=f"For example: --export {target.with_name('pylock.toml')}",
        )
    if lock.python is None:
        raise RequestError(
            f"{source}: names no Python packages yet; a build alone has written it",
            remedy=f"./invoke lock {lock.request}",
        )
    check_replaceable(target, f"--export {target}", mark=MARK)
    packages = sorted([*lock.python, *(lock.user or ())], key=lambda package: package.name)
    try:
        write_atomically(
            target, f"{MARK} for plan {lock.plan}, Python {lock.python_version}.\n{text_of(lock, packages)}"
        )
    except OSError as refused:
        raise RequestError(f"--export {target}: cannot be written: {refused.strerror}") from None
    return ExportDocument(
        schema="trainwright/lock-export/1", plan=lock.plan, lock=str(source), path=str(target), packages=len(packages)
    )


def pylock(lock: PlanLock, packages: list[LockedPython]) -> str:
    """The text of a ``pylock.toml``.

    A lock names no host, so each file is a path: that of a mirror's folder. Names, versions and checksums are what
    auditors read; an installer needs the files beside it.
    """
    machine = lock.platform.partition("-")[0]
    marker = f"sys_platform == 'linux' and platform_machine == '{machine}'"
    lines = [
        'lock-version = "1.0"',
        f"environments = [{_text(marker)}]",
        f"requires-python = {_text(f'=={lock.python_version}.*')}",
        'created-by = "trainwright"',
    ]
    for package in packages:
        file = {"name": package.file, "path": f"{FOLDER}/{package.file}", "size": package.size}
        kind = "sdist" if package.sdist else "wheels"
        row = _table({**file, "hashes": {"sha256": package.sha256}})
        lines += [
            "",
            "[[packages]]",
            f"name = {_text(package.name)}",
            f"version = {_text(package.version)}",
            f"{kind} = {row if package.sdist else f'[{row}]'}",
        ]
    lines += ["", "[tool.trainwright]", f"plan = {_text(lock.plan)}"]
    return "\n".join(lines) + "\n"


def requirements(lock: PlanLock, packages: list[LockedPython]) -> str:
    """The text of a requirements file in which every package is pinned with its checksum."""
    rows = [f"{package.name}=={package.version} --hash=sha256:{package.sha256}" for package in packages]
    indexes = [f"--extra-index-url {url}" for url in lock.indexes]
    return "\n".join([*indexes, *rows]) + "\n"


def _text(value: str) -> str:
    """A string of TOML: one of JSON, whose escapes are TOML's, too."""
    return json.dumps(value)


def _table(values: dict[str, Any]) -> str:
    """An inline table; keys without a value are left out."""
    rows = {key: _table(value) if isinstance(value, dict) else json.dumps(value) for key, value in values.items()}
    return "{" + ", ".join(f"{key} = {row}" for key, row in rows.items() if values[key] is not None) + "}"
