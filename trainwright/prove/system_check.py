"""Compares the distribution's packages in an image with its lock, and explains apt steps that cannot match it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
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
    """Check the packages of ``--with-apt`` in an image, and all against its lock if the build may use only that.

    A package of ``--with-apt`` has the version that it was asked for in, otherwise that of the lock, if there is one.

    Args:
        inputs: of the build.
        found: by the probe.

    Raises:
        ProofFailed: a package is missing or has another version.
    """
    installed: Mapping[str, str] = found.get("packages", {})
    lock = inputs.lock
    locked = {p.name: p.version for p in (lock.system if lock else None) or () if set(IMAGE_STAGES) & set(p.stages)}
    if wrong := list(_differing(inputs.plan.user.apt, locked, installed)):
        raise ProofFailed(
            "\n".join([f"{len(wrong)} packages of --with-apt are not in the image as planned", *wrong]),
            remedy="A later step changed them, as --with-run can, or another repository of the base has them.",
            packages=[row.strip() for row in wrong],
        )
    if not inputs.strict or lock is None:
        return
    rows = [
        f"  {name}: the lock has {version}, the image {installed.get(name, 'none')}"
        for name, version in locked.items()
        if installed.get(name) != version
    ]
    if rows:
        raise ProofFailed(
            "\n".join([f"{len(rows)} distribution packages differ from the lock", *rows]),
            remedy=f"./invoke lock {lock.request} --upgrade apt",
            packages=[row.strip() for row in rows],
        )


def _differing(asked: Sequence[str], locked: Mapping[str, str], installed: Mapping[str, str]) -> Iterator[str]:
    for package in asked:
        name, _, version = package.partition("=")
        wanted, seen = version or locked.get(name), installed.get(name)
        if seen is None or wanted not in (None, seen):
            yield f"  {name}: the plan has {wanted or 'it in any version'}, the image {seen or 'none'}"


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
