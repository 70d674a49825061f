"""The lock of an image line: its exact Python files, each with its sha256 and the components that need it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from trainwright.catalog.platforms import AMD64, PLATFORMS
from trainwright.core.checked import Checked
from trainwright.core.data_files import read_json, while_unchanged
from trainwright.core.fields import (
    AnyVersion,
    Name,
    OneLine,
    PackageName,
    Platform,
    Python,
    PythonFile,
    Sha256,
    each_once,
)
from trainwright.core.records import Field, Record, parse_record

SCHEMA: Literal["trainwright/lock/1"] = "trainwright/lock/1"
PLATFORM = "x86_64-manylinux_2_28"  # in uv's syntax; Debian 12 has glibc 2.36, our locked wheels need at most 2.28
# For bases with an older C library: Ubuntu 18.04 has glibc 2.27, and uv's next platform below 2.28 is 2.17.
_OLD_PLATFORMS = {"ubuntu-18.04": "x86_64-manylinux_2_17"}


def normalise(name: str) -> str:
    """A distribution's name as indexes compare it (PEP 503): ``Inotify_Simple`` is ``inotify-simple``."""
    return re.sub(r"[-_.]+", "-", name).lower()


class LockedPackage(Record):
    """The one file of a Python package that an image installs.

    ``size`` is in bytes (compressed), None if the index did not state it. ``components`` are all components that depend
    on the package, directly or not.
    """

    name: Checked[PackageName, normalise]
    version: AnyVersion
    file: PythonFile
    sha256: Sha256
    size: Annotated[int, Meta(ge=0)] | None = None
    components: tuple[Name, ...] = ()

    @property
    def sdist(self) -> bool:
        """Whether the file is a source distribution."""
        return not self.file.endswith(".whl")


def _name(package: LockedPackage) -> str:
    return package.name


_once = each_once(_name, "package")


def _sorted(packages: tuple[LockedPackage, ...]) -> tuple[LockedPackage, ...]:
    return tuple(sorted(_once(packages), key=_name))


class Lock(Record):
    """Every Python package of an image line, sorted by name, for one Python and one platform."""

    schema: Literal["trainwright/lock/1"] = SCHEMA
    python: Python
    platform: Platform
    insecure_hosts: tuple[OneLine, ...] = Field(
        default=(), description="hosts whose certificates were not checked when the lock was made"
    )
    packages: Checked[tuple[LockedPackage, ...], _sorted]

    @classmethod
    def load(cls, path: Path) -> Lock:
        """The lock in a file.

        Raises:
            RequestError: the file is missing or is not a lock.
        """
        return _load(path)

    def dump(self) -> str:
        """The text of the lock file: equal locks give equal text."""
        document = self.as_json()
        if not self.insecure_hosts:
            del document["insecure_hosts"]
        return dump_rows(document)


@while_unchanged
def _load(path: Path) -> Lock:
    return parse_record(Lock, read_json(path, remedy="./invoke lock-lines writes it again."), str(path))


def dump_rows(document: Mapping[str, Any]) -> str:
    """A document as JSON with one line for each entry of a list of records, so that a diff shows packages.

    Args:
        document: JSON values; its keys are sorted, except those of records in a list.
    """
    return f"{_rows(document, ' ')}\n"


def _rows(value: Any, indent: str) -> str:
    if isinstance(value, Mapping):
        rows = [f"{json.dumps(key)}: {_rows(each, indent + ' ')}" for key, each in sorted(value.items())]
        return _bracketed("{", rows, "}", indent)
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return _bracketed("[", [json.dumps(row) for row in value], "]", indent)
    return json.dumps(value)


def _bracketed(begin: str, rows: Iterable[str], end: str, indent: str) -> str:
    return begin + "\n" + ",\n".join(indent + row for row in rows) + "\n" + indent[1:] + end


def platform_of(os_name: str, image_platform: str = AMD64) -> str:
    """The platform of wheels for images of a distribution."""
    machine = PLATFORMS[image_platform].machine
    return _OLD_PLATFORMS.get(os_name, PLATFORM).replace(PLATFORMS[AMD64].machine, machine)
