"""Which process something belongs to: told from a later one of the same number, and whether it still runs."""

from __future__ import annotations

from pathlib import Path


def described(pid: int) -> str:
    """A running process as ``<boot>:<pid namespace>:<pid>:<start>``, as pids are reused."""
    return f"{_boot()}:{_namespace()}:{pid}:{_start(pid)}"


def lives(process: str) -> bool | None:
    """Whether the process that :func:`described` described still runs; ``None`` if unknown here."""
    boot, _, rest = process.partition(":")
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


def pid_of(process: str) -> int:
    """The number of a described process."""
    return int(process.split(":")[2])


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
    """When a process started, in clock ticks since boot; empty if it does not exist or only waits to be reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]
