"""The user's own step in a build (``--with-run``), when it fails."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trainwright.core.errors import BuildFailed

SCRIPT = "/mnt/script"  # as in templates/components/user/Dockerfile.j2
_NOT_FOUND = 127  # POSIX, Shell Command Language, 2.8.2


def step_failure(script: Path, text: str, *, step: str, exit_code: int, last: Sequence[str], log: str) -> BuildFailed:
    """The failure of a script: how it ended, and the last lines that it wrote itself.

    Args:
        script: the file, as the user named it.
        text: its content; the first line names its interpreter.
        step: the instruction of the Dockerfile.
        exit_code: of the step.
        last: the last lines of output.
        log: the path of the whole log.
    """
    interpreter = text.partition("\n")[0].removeprefix("#!").strip()
    said = next((line.strip() for line in reversed(last) if line.strip()), "")
    how = f"ended with exit code {exit_code}"
    remedy = f"Correct the script; the steps before it come from the cache. The whole log: {log}"
    if exit_code == _NOT_FOUND and f"{SCRIPT}: not found" in said:
        how, remedy = (
            f"{interpreter} is not in the image",
            f"--with-apt can add it, or begin the script with #!/bin/sh. {remedy}",
        )
    elif said:
        how = f"{how}: {said[:300]}"
    return BuildFailed(
        f"--with-run {script}: {how}; no tag was moved",
        remedy=remedy,
        component="user",
        step=step,
        step_exit_code=exit_code,
        last_lines=list(last),
        log=log,
    )
