"""The tools that build images but are not part of them: uv, pip and build backends, by Python version.

``images/tools.yaml`` lists them, ``images/tools/<python>.lock.json`` pins their files.
"""

from __future__ import annotations

from pathlib import Path

from trainwright.catalog.image_line import version_key
from trainwright.catalog.platforms import AMD64, PLATFORMS
from trainwright.catalog.wheel_lock import Lock, normalise
from trainwright.core.data_files import read_yaml, while_unchanged
from trainwright.core.errors import RequestError, did_you_mean
from trainwright.core.paths import images_dir
from trainwright.core.records import Record, parse_record

COMPONENT = "tools"
# The oldest glibc of the base images is 2.27; every tool has a wheel for 2.17.
PLATFORM = "x86_64-manylinux_2_17"


class ToolWheel(Record):
    """A program that comes as a wheel: its requirement, and the oldest Python that its metadata allows."""

    package: str
    python: str


class Tools(Record):
    """``images/tools.yaml``."""

    uv: ToolWheel
    packages: dict[str, tuple[str, ...]]

    def roots(self, python: str) -> tuple[str, ...]:
        """The requirements for images with that Python (major and minor).

        Raises:
            RequestError: no tools are listed for that Python.
        """
        if python not in self.packages:
            raise RequestError(
                f"there are no tools for Python {python}. {did_you_mean(python, self.packages)}",
                remedy="images/tools.yaml lists the build tools of each Python.",
            )
        return (self.uv.package, *self.packages[python])


def tools_file() -> Path:
    """The file that lists the tools."""
    return images_dir() / "tools.yaml"


def load_tools() -> Tools:
    """The shipped list of tools.

    Raises:
        RequestError: the file is malformed.
    """
    return _load(tools_file())


@while_unchanged
def _load(path: Path) -> Tools:
    return parse_record(Tools, read_yaml(path), str(path))


def lock_path(python: str, platform: str = AMD64) -> Path:
    """The path of the lock of the tools for that Python, and for a platform."""
    other = "" if platform == AMD64 else f".{PLATFORMS[platform].debian}"
    return images_dir() / COMPONENT / f"{python}{other}.lock.json"


def tools_lock(python: str, platform: str = AMD64) -> Lock:
    """The lock of the tools for images with that Python (major and minor).

    Raises:
        RequestError: there is no such lock.
    """
    path = lock_path(python, platform)
    if not path.is_file():
        names = (file.name.removesuffix(".lock.json") for file in path.parent.glob("*.json"))
        known = sorted((name for name in names if name.count(".") == 1), key=version_key)
        raise RequestError(
            f"no tools are locked for Python {python}, only for {', '.join(known)}",
            remedy="Add them to images/tools.yaml and lock again.",
        )
    return Lock.load(path)


def stale_tools(tools: Tools, python: str, platform: str = AMD64) -> list[str]:
    """The requirements that are missing from the lock, or why it cannot be read."""
    try:
        held = {f"{p.name}=={p.version}" for p in tools_lock(python, platform).packages}
    except RequestError as missing:
        return [missing.message]
    names = {requirement: requirement.partition("==") for requirement in tools.roots(python)}
    return [text for text, (name, _, version) in names.items() if f"{normalise(name)}=={version}" not in held]
