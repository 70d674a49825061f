"""Compares the distribution's packages in an image with its lock, and explains apt steps that cannot match it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from trainwright.core.errors import ProofFailed, SourceError
from trainwright.plan.dockerfile import IMAGE_STAGES
from trainwright.sources.inputs import Inputs

# What apt-get prints if a pin leaves nothing to install.
_NOT_THERE = re.compile(
    r"has no installation candidate|is not installable|not going to be installed|held broken|Unable to locate package"
)
_NAMED = re.compile(r"Package '?([\w.+-]+)'? has no|Depends: ([\w.+-]+) .*but it is not|locate package ([\w.+-]+)")


def check_system_packages(inputs: Inputs, found: Mapping[str, Any]) -> None:
    """Check the packages of an image against its lock, if the build may use only the lock.

    Args:
        inputs: of the build.
        found: by the probe.

    Raises:
        ProofFailed: a package is missing or has another version.
    """
    if not inputs.strict or inputs.lock is None:
        return
    installed: Mapping[str, str] = found.get("packages", {})
    rows = [
        f"  {package.name}: the lock has {package.version}, the image {installed.get(package.name, 'none')}"
        for package in inputs.lock.system or ()
        if set(IMAGE_STAGES) & set(package.stages) and installed.get(package.name) != package.version
    ]
    if rows:
        raise ProofFailed(
            "\n".join([f"{len(rows)} distribution packages differ from the lock", *rows]),
            remedy=f"./invoke lock {inputs.lock.request} --upgrade apt",
            packages=[row.strip() for row in rows],
        )


def gone_from_archive(inputs: Inputs, component: str | None, lines: Sequence[str], log: str) -> SourceError | None:
    """The failure of an apt step, if it failed because it could only install locked versions.

    Args:
        inputs: of the build.
        component: the component of the step, if known.
        lines: the last lines of its output.
        log: the path of the whole log.
    """
    text = "\n".join(lines)
    if inputs.lock is None or not inputs.lock.system or not _NOT_THERE.search(text):
        return None
    named = sorted({name for pair in _NAMED.findall(text) for name in pair if name})
    versions = {p.name: p.version for p in inputs.lock.system}
    rows = [f"  {name}: {versions.get(name, 'is not in the lock')}" for name in named]
    return SourceError(
        "\n".join([f"{component or 'os'}: apt cannot find the locked versions of these packages", *rows]),
        remedy="Distributions keep only the latest versions. Build from a folder that ./invoke mirror pull filled "
        f"earlier, or lock today's: ./invoke lock {inputs.lock.request} --upgrade apt\nThe whole log: {log}",
        component=component or "os",
        file=named[0] if named else None,
        urls=[],
        packages=named,
        last_lines=list(lines),
        log=log,
    )
