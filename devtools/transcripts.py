"""What a page shows of verbs that only answer: made by calling them, so that it is what they answer."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from trainwright.core.paths import data_root

PAGES = ("docs/tour.md", "docs/pipeline.md", "docs/estimator.md", "docs/preflight.md")  # that have such lines
# Command lines that are made again: they answer at once, and build nothing. Those of `build` are refused.
_ANSWERED = (
    r"(?:plan|list|pipeline) .+|build --framework pytorch --cuda cu113 --version 2\.5|build --framwork pytorch"
    r"|estimator --job job\.yaml --check-only|preflight train\.py|diagnose job\.log"
)
# A file that the page shows: its commands are typed in a folder that has these files.
_FILE = re.compile(r'^```\w+ title="([\w.]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
# In an indented block: a command line, and what it printed, up to the next one or the end of the block.
SHOWN = re.compile(rf"^    \$ \./invoke ({_ANSWERED})\n((?:(?!    \$)(?:    .*)?\n)+)", re.MULTILINE)


def with_transcripts(page: str) -> str:
    """A page with the answers of today below each command line that only reads: ``$ ./invoke plan ...`` and others."""
    files = dict(_FILE.findall(page))

    def answered(shown: re.Match[str]) -> str:
        argv = [sys.executable, str(data_root() / "tasks.py"), *shlex.split(shown[1])]
        with tempfile.TemporaryDirectory() as empty:  # what was built in the checkout is no part of the page
            for name, text in files.items():
                Path(empty, name).write_text(text)
            plain = {**os.environ, "COLUMNS": "120", "TRAINWRIGHT_STATE": f"{empty}/state"}
            done = subprocess.run(argv, cwd=empty, env=plain, capture_output=True, text=True, check=False)  # noqa: S603
        answer = textwrap.indent("\n".join(map(str.rstrip, (done.stdout + done.stderr).rstrip().splitlines())), "    ")
        space = shown[2][len(shown[2].rstrip()) :]
        return f"    $ ./invoke {shown[1]}\n{answer}{space}"

    return SHOWN.sub(answered, page)
