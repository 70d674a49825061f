"""Whether a command may change this machine (install packages, start an engine), and how it says so.

``TRAINWRIGHT_ENGINE_SETUP`` decides: ``auto`` goes ahead, ``ask`` asks on the terminal, ``never`` refuses. Unset, the
commands go ahead where nobody minds (CI, CodeBuild, a container), ask on a terminal and refuse elsewhere.
``./invoke`` has the same rule in its shell.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trainwright.core.errors import EngineError, RequestError, did_you_mean
from trainwright.core.paths import setting
from trainwright.core.say import Say

Permission = Literal["auto", "ask", "never"]

VARIABLE = "TRAINWRIGHT_ENGINE_SETUP"
SYSTEM_FOLDERS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# What Docker and Podman put into every container; others set the variable ``container`` (systemd's interface).
CONTAINER_MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))


@dataclass(frozen=True)
class MachineChange:
    """What is about to be changed on this machine.

    Attributes:
        why: what is missing, as in ``no container engine answers``.
        does: what changes, one thing a line.
        undo: the command lines that undo it.
        by_hand: the command line that does the same; the remedy where this may not be done.
    """

    why: str
    does: tuple[str, ...]
    undo: tuple[str, ...]
    by_hand: str


def permission() -> tuple[Permission, str]:
    """Whether this machine may be changed, and by which rule (in a few words, for messages).

    Raises:
        RequestError: ``TRAINWRIGHT_ENGINE_SETUP`` has an invalid value.
    """
    named = setting(VARIABLE)
    if named == "auto":
        return "auto", f"{VARIABLE}=auto"
    if named == "never":
        return "never", f"{VARIABLE}=never"
    if named not in (None, "ask"):
        raise RequestError(
            f"{VARIABLE}={named} is invalid: auto, ask or never. {did_you_mean(named, ('auto', 'ask', 'never'))}",
            remedy=f"unset {VARIABLE}",
        )
    if named is None and (place := _unattended()):
        return "auto", place
    if sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty():
        return "ask", "on a terminal"
    return "never", f"there is no terminal to ask on; {VARIABLE}=auto goes ahead without a question"


def forbidden(*, packages: bool = False) -> str:
    """Why this machine may not be changed; empty where it may, possibly after a question.

    Args:
        packages: whether packages have to be installed, which needs apt-get.
    """
    mode, rule = permission()
    if mode == "never" and setting(VARIABLE) == "never":
        return rule
    if os.geteuid() != 0:
        return "setting one up needs root"
    if packages and find("apt-get") is None:
        return "this is neither Debian nor Ubuntu: apt-get is missing"
    return rule if mode == "never" else ""


def agree(change: MachineChange, say: Say) -> None:
    """Say what is about to change and how to undo it; on a terminal, ask first.

    Raises:
        EngineError: the answer was no; the remedy is the command line to do it by hand.
    """
    mode, rule = permission()
    say(f"{change.why}\nTo go on, this machine is changed ({rule}):")
    for line in change.does:
        say(f"  {line}")
    say("To undo it:")
    for line in change.undo:
        say(f"  {line}")
    if mode == "ask" and not _yes("Go ahead? [y/N] "):
        raise EngineError(
            f"{change.why} (the answer was no, so nothing was changed)", remedy=change.by_hand, state="refused"
        )


def search_path() -> str:
    """PATH and the system folders, which a root shell may lack (``su`` without ``-``)."""
    return f"{os.environ.get('PATH', '')}:{SYSTEM_FOLDERS}".strip(":")


def find(name: str) -> str | None:
    """The path of a program of this machine."""
    return shutil.which(name, path=search_path())


def sudo() -> str:
    """What a command line by hand begins with: nothing for root."""
    return "" if os.geteuid() == 0 else "sudo "


def _unattended() -> str:
    """In which place this runs that is made anew each time; empty for a machine of somebody's."""
    if (setting("CI") or "false").lower() not in ("false", "0"):
        return "in CI"
    if setting("CODEBUILD_BUILD_ID"):
        return "in CodeBuild"
    if setting("container") or any(mark.exists() for mark in CONTAINER_MARKS):
        return "inside a container"
    return ""


def _yes(question: str) -> bool:
    """Ask on standard error, as standard output may be a document; only a plain yes counts."""
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
