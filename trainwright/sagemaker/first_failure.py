"""Which process of a job failed first, as its launcher reports it."""

from __future__ import annotations

import re

# What launchers say of the process that failed first: mpirun, then torchrun (torch.distributed.elastic).
_FIRST_OF_MPI = re.compile(
    r"mpirun noticed that process rank (?P<rank>\d+) with PID \d+ on node (?P<host>\S+) (?P<how>exited on signal \d+)"
    r"|Process name: \[\[\d+,\d+\],(?P<name>\d+)\]"
)
_FIRST_OF_TORCHRUN = re.compile(r"\brank\s+: (?P<rank>\d+) \(local_rank")
_HOST_OF_TORCHRUN = re.compile(r"\bhost\s+: (?P<host>\S+)")
_SUMMARY_OF_TORCHRUN = "Root Cause (first observed failure)"


def may_report(message: str) -> bool:
    """Whether a line may report the process that failed first; its digits do not matter."""
    return _SUMMARY_OF_TORCHRUN in message or bool(_FIRST_OF_MPI.search(message))


def reported_first(message: str, after: bytes, host: str | None) -> str | None:
    """The process that a line reports as the first to fail; ``None`` if the line reports none.

    Args:
        message: the line without prefixes.
        after: the lines that follow it.
        host: whose log it is, if known.
    """
    if _SUMMARY_OF_TORCHRUN in message:
        details = after.decode("utf-8", "replace")
        if rank := _FIRST_OF_TORCHRUN.search(details):
            at = _HOST_OF_TORCHRUN.search(details)
            return f"rank {rank['rank']}" + (f" on {at['host']}" if at else "") + ", as torchrun reports"
    if found := _FIRST_OF_MPI.search(message):
        on = found["host"] or host
        how = f", which {found['how']}" if found["how"] else ""
        return f"rank {found['rank'] or found['name']}" + (f" on {on}" if on else "") + how
    return None
