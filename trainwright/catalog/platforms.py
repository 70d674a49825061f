"""The platforms that images are made for, and their names in wheels, in Debian's archive and of the machine."""

from __future__ import annotations

from typing import Final, NamedTuple

AMD64: Final = "linux/amd64"
ARM64: Final = "linux/arm64"


class PlatformNames(NamedTuple):
    """The names of one platform."""

    debian: str  # an architecture of Debian's archive, and of OCI images
    machine: str  # as uname, Python and names of wheels have it


PLATFORMS = {AMD64: PlatformNames("amd64", "x86_64"), ARM64: PlatformNames("arm64", "aarch64")}


def here(machine: str) -> str | None:
    """The platform of a machine, by the name that it gives its processor; None for another one."""
    name = machine.lower()
    return next((platform for platform, names in PLATFORMS.items() if name in names), None)
