"""The packages that ``./invoke`` and ``./invoke test`` install: pins of what ``pyproject.toml`` names, a line each.

``python -m devtools.requirements`` makes both files anew (needs the package index). What is pinned stays as long as it
fits; a line that is deleted first takes the newest version.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MADE = "# {what}, each file by its sha256. Made, not written: python -m devtools.requirements\n"
# File: what it is, and what uv is told beside the rest.
FILES: dict[str, tuple[str, tuple[str, ...]]] = {
    "requirements.txt": ("What `./invoke` installs (pyproject.toml)", ()),
    "requirements-dev.txt": ("What `./invoke test` adds (pyproject.toml with its dev extra)", ("--extra", "dev")),
}
COMPILE = (
    *("uv", "pip", "compile", "pyproject.toml", "--universal", "--python-version", "3.11", "--generate-hashes"),
    *("--no-header", "--no-annotate", "--no-emit-index-url", "--quiet"),
)


def one_line_each(compiled: str, what: str) -> str:
    """The file of requirements that uv has compiled, each package with its hashes on one line.

    Args:
        compiled: what uv wrote: a line for each hash.
        what: what the file is, for its first line.
    """
    return MADE.format(what=what) + re.sub(r" *\\\n +", " ", compiled)


def main() -> None:
    """Compile both files; uv keeps the pins that it finds in them."""
    for name, (what, more) in FILES.items():
        done = subprocess.run([*COMPILE, *more, "-o", name], cwd=ROOT, check=False)  # noqa: S603 - argv is ours
        if done.returncode:
            sys.exit(done.returncode)
        path = ROOT / name
        path.write_text(one_line_each(path.read_text(), what))


if __name__ == "__main__":
    main()
