"""The ecosystems of OSV that images have packages of: how they name packages, and how their versions are ordered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from trainwright.catalog.wheel_lock import normalise
from trainwright.scan.debian_version import debian_key

PYTHON = "PyPI"


@dataclass(frozen=True)
class Order:
    """An ecosystem. ``name`` gives a package's name in the form in which names are compared; ``key``, what a version is
    sorted by, or ``None`` for what is not a version there."""

    ecosystem: str
    name: Callable[[str], str]
    key: Callable[[str], Any]

    def has(self, ecosystem: str) -> bool:
        """Whether packages of an ecosystem, as a record writes it, are of this one.

        Without a release, a record is about all releases of a distribution.
        """
        return ecosystem in (self.ecosystem, self.ecosystem.partition(":")[0])


@cache
def _python_key(version: str) -> Any:
    """PEP 440. A local version (``2.6.0+cu124``) is a build of the public one, as for its version specifiers."""
    from packaging.version import InvalidVersion, Version

    try:
        return Version(Version(version).public)
    except InvalidVersion:
        return None


@cache
def _debian_key(version: str) -> Any:
    try:
        return debian_key(version)
    except ValueError:
        return None


def order_of(ecosystem: str) -> Order:
    """An ecosystem by its name in OSV.

    Args:
        ecosystem: one of those that :func:`of_distribution` gives, or :data:`PYTHON`.
    """
    if ecosystem == PYTHON:
        return Order(ecosystem, normalise, _python_key)
    return Order(ecosystem, str, _debian_key)


def of_distribution(name: str, release: str) -> str:
    """The ecosystem of a distribution's packages; empty if OSV has none, or its versions have another order.

    Args:
        name: as in os-release: ``debian``.
        release: ``12``, ``22.04``.
    """
    if name == "debian" and release:
        return f"Debian:{release}"
    # Images start from releases with long-term support, which OSV names so.
    return f"Ubuntu:{release}:LTS" if name == "ubuntu" and release else ""
