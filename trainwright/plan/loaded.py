"""The CUDA, NCCL and cuDNN that a framework really loads, which need not be those beside it in the image."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from trainwright.catalog.component import BuildTarget, Provider
from trainwright.catalog.image_line import ImageLine
from trainwright.catalog.wheel_lock import LockedPackage

INSIDE, OF_THE_BASE = "inside its wheel", "of the base image"
# NVIDIA's wheels of a library: nvidia-nccl-cu12, nvidia-cudnn-cu12.
_WHEEL = r"nvidia-{}-cu\d+"


def loaded(
    framework: str,
    provider: Provider,
    packages: Iterable[LockedPackage],
    versions: Mapping[str, str],
    target: BuildTarget,
) -> dict[str, str]:
    """The libraries that a framework loads: name to version, or to where it is if no version is known before a build.

    Args:
        framework: its component.
        provider: of the framework.
        packages: the locked Python packages of the image; a wheel of the library is what the framework loads.
        versions: of the image's components.
        target: what the image is, which chooses among the framework's files.
    """
    build = provider.build_for(versions[framework], target)
    holds = build.holds if build is not None else {}
    locked = {p.name: p.version for p in packages}
    found = {}
    for name, where in provider.loads.items():
        wheel = next((v for n, v in locked.items() if re.fullmatch(_WHEEL.format(name), n)), None)
        otherwise = {
            "inside": holds.get(name, INSIDE),
            "base": OF_THE_BASE,
            "component": versions.get(name, OF_THE_BASE),
        }[where]
        found[name] = wheel or otherwise
    return found


def expected(name: str, loads: Mapping[str, str]) -> str:
    """What a framework must report as the version of a library, ``*`` if it is not known: 9.1.0.70 reports 9.1.0."""
    version = loads.get(name, "")
    return ".".join(version.split(".")[:3]) if version[:1].isdigit() else "*"


def series(name: str, loads: Mapping[str, str]) -> str:
    """The first number of a library's version, with ``*`` for the rest, or alone if the version is not known."""
    version = expected(name, loads)
    return version if version == "*" else f"{version.partition('.')[0]}*"


def unused(framework: str, loads: Mapping[str, str], versions: Mapping[str, str]) -> list[str]:
    """Notices about components that the framework does not use."""
    return [
        f"{framework} loads the {name} {where}, not {name} {versions[name]}, which what is compiled against it uses"
        for name, where in loads.items()
        if name in versions and where not in (versions[name], OF_THE_BASE)
    ]


def other_toolkit(line: ImageLine, versions: Mapping[str, str]) -> list[str]:
    """A notice if the CUDA in /usr/local/cuda is another than the one that the framework is compiled for.

    Args:
        line: has the framework's CUDA, and that of AWS's tag if it differs.
        versions: of the image's components.
    """
    toolkit = versions.get("cuda") or line.cuda
    if toolkit == line.cuda:
        return []
    named = f" (AWS's tag says {line.published_cuda})" if line.published_cuda else ""
    return [f"{line.main} is compiled for CUDA {line.cuda} and uses that; /usr/local/cuda is CUDA {toolkit}{named}"]
