"""The owner of a rehearsal: distinguishes leftovers of a killed one from what a running one uses."""

from __future__ import annotations

import os
from pathlib import Path

LABEL = "io.trainwright.rehearsal"
OWNER_LABEL = "io.trainwright.rehearsal.owner"
PREFIX = "trainwright-rehearsal-"


def this_process() -> str:
    """This process as ``<boot>:<pid namespace>:<pid>:<start>``, as pids are reused."""
    return f"{_boot()}:{_namespace()}:{os.getpid()}:{_start(os.getpid())}"


def lives(owner: str) -> bool | None:
    """Whether the process that :func:`this_process` described still runs; ``None`` if unknown here."""
    boot, _, rest = owner.partition(":")
    namespace, _, rest = rest.partition(":")
    pid, _, start = rest.partition(":")
    if not pid.isdigit() or not start:
        return None
    if boot != _boot():
        # Another machine, or this one before a reboot, which an engine's containers survive.
        return None
    if namespace != _namespace():
        return None
    return _start(int(pid)) == start


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"


def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink()).strip("pid:[]")
    except OSError:
        return "unknown"


def _start(pid: int) -> str:
    """When a process started, in clock ticks since boot; empty if it does not exist."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""
