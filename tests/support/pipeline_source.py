"""A checkout for pipelines whose front door and tools note how they are called."""

from __future__ import annotations

import sys
from pathlib import Path

URI = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/trainwright/pytorch@sha256:" + "a" * 64
BASE = "763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch-training:2"
# What the front door answers, and which verb fails.
FRONT_DOOR = f"""#!/bin/sh
printf '%s\\n' "invoke $*" >> "$CALLED"
case "$1" in
  plan) case "$*" in *--json*) echo '{{"base": {{"image": "{BASE}"}}}}' ;; esac ;;
  smoke) mkdir -p reports ;;
  push) echo '{{"images": [{{"uri": "{URI}"}}]}}' ;;
  report) echo "| a report |" ;;
esac
[ "$1" != "${{FAILING:-}}" ]
"""
TOOL = """#!/bin/sh
case "$*" in *--password-stdin*) read -r password; set -- "$@" "with $password" ;; esac
printf '%s\\n' "${0##*/} $*" >> "$CALLED"
case "$*" in *get-login-password*) echo token ;; esac
[ "${0##*/}" != "${FAILING:-}" ]
"""


def made_source(folder: Path) -> Path:
    """Make the checkout. Each call is a line of the file that ``CALLED`` names, and what ``FAILING`` names fails."""
    (folder / ".venv/bin").mkdir(parents=True)
    (folder / ".venv/bin/python").symlink_to(sys.executable)
    for path, text in {"invoke": FRONT_DOOR, "bin/aws": TOOL, "bin/docker": TOOL}.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text)
        (folder / path).chmod(0o755)
    return folder
