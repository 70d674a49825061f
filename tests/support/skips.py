"""Why tests may skip: a reason that is not listed here is a failure, and where CI runs, so are those of a machine.

A reason is compared from its beginning. What needs a GPU, EFA or AWS itself begins with ``needs a GPU``, ``needs EFA``
or ``needs AWS``.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping

ELSEWHERE = ("needs a GPU", "needs EFA", "needs AWS")
# What a developer's machine may lack. A machine that tests all of it (``CI``, ``TRAINWRIGHT_REQUIRE_ENGINE``) has it.
LACKING = (
    "no engine: ",
    "no browser: ",
    "no container engine answers",
    "a second engine needs root and ",
    "a disk of its own needs root",
    "a small disk needs root",
    "mounts are not allowed here",
    "needs two users",
    "veth pairs need root",
    "only root",
    "port 443 and /etc/hosts need root",
    "/etc/hosts cannot be written",
    "the engine cannot create a bridge network",
    "not enough disk: ",
    "TRAINWRIGHT_TEST_CUDA=never",
    "no apt to get the package ",
    "dpkg is not installed",
    "mmdebstrap is not installed",
    "gcc is not installed",
    "no gpg here to sign with",
    "no ssh-keygen here",
    "no curl on this machine",
    "this Python has no pip",
)


def required(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this machine has to run every test that it can."""
    return bool(environment.get("CI") or environment.get("TRAINWRIGHT_REQUIRE_ENGINE"))


def reason_of(longrepr: object) -> str:
    """The reason in pytest's report of a test that skips."""
    text = str(longrepr[2]) if isinstance(longrepr, tuple) else str(longrepr)
    return re.sub(r"^Skipped: ", "", text)


def objection(reason: str, *, everything: bool) -> str:
    """Why a test may not skip for a reason; empty if it may.

    Args:
        reason: what the test says.
        everything: this machine has to run every test that it can.
    """
    if reason.startswith(ELSEWHERE):
        return ""
    if not reason.startswith(LACKING):
        return f"tests/support/skips.py has no such reason to skip: {reason}"
    return f"nothing is left out where CI or TRAINWRIGHT_REQUIRE_ENGINE is set: {reason}" if everything else ""


def short_of(need_gb: float, free_bytes: float, what: str) -> str:
    """The reason of a test for which the disk is too small; empty if it is not.

    Args:
        need_gb: what the test needs, in GB (10^9 bytes).
        free_bytes: what is free.
        what: takes the space: ``a CUDA image with its cache``.
    """
    missing = need_gb - free_bytes / 1e9
    if missing <= 0:
        return ""
    return f"not enough disk: {what} needs {need_gb:.0f} GB, and {missing:.1f} GB are missing"


def by_reason(reports: Iterable[object]) -> list[str]:
    """Lines for people: how many tests were skipped for which reason."""
    counted = Counter(reason_of(getattr(report, "longrepr", "")) for report in reports)
    return [f"{number:>5}  {reason}" for reason, number in sorted(counted.items())]
