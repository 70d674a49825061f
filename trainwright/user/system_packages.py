"""The distribution packages of ``--with-apt``: their names are checked as they are read."""

from __future__ import annotations

import re
from collections.abc import Iterable

from trainwright.core.errors import RequestError
from trainwright.core.text import fits

# Debian Policy 5.6.1 (Source), 5.6.7 (Package) and 5.6.12 (Version).
_NAME = r"[a-z0-9][a-z0-9+.-]{1,126}"
_VERSION = r"(?:[0-9]{1,9}:)?[0-9][0-9A-Za-z.+~-]{0,126}"


def read_packages(words: Iterable[str]) -> tuple[str, ...]:
    """The packages of ``--with-apt``, each as ``NAME`` or ``NAME=VERSION``, sorted.

    Args:
        words: what the flag was given, each a list with commas.

    Raises:
        RequestError: a name or version is invalid, or a package is named twice in different versions.
    """
    found: dict[str, str] = {}
    for word in words:
        for part in (each.strip() for each in word.split(",")):
            name, pinned, version = part.partition("=")
            if not fits(_NAME, name):
                raise RequestError(f"--with-apt {part or word!r}: {_trouble(name)}", remedy=_remedy(part))
            if pinned and not fits(_VERSION, version):
                raise RequestError(
                    f"--with-apt {part}: {version!r} is not a version of a Debian package",
                    remedy=f"--with-apt {name} takes the newest; apt-cache policy {name} shows versions in full.",
                )
            if found.setdefault(name, version) != version:
                raise RequestError(f"--with-apt names {name} twice, in different versions: which one?")
    return tuple(f"{name}={version}" if version else name for name, version in sorted(found.items()))


def names_of(packages: Iterable[str]) -> list[str]:
    """The names without versions."""
    return [each.partition("=")[0] for each in packages]


def _trouble(name: str) -> str:
    if not name:
        return "an empty name"
    if ":" in name:
        return "names an architecture; images are of one architecture alone"
    if "/" in name or name.endswith(".deb"):
        return "a file, not the name of a package"
    return "not the name of a Debian package, which has small letters, digits and + - . alone"


def _remedy(part: str) -> str:
    near = re.sub(r"[^a-z0-9+.-]", "", part.partition("=")[0].partition(":")[0].replace("_", "-").lower()).lstrip("+.-")
    if "/" not in part and fits(_NAME, near) and not near.endswith(".deb"):
        return f"Did you mean --with-apt {near}?"
    return "For example: --with-apt ffmpeg,libsndfile1"
