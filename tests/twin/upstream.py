"""Holds the shapes of stand-ins against the tags that they are made after: ``shapes/upstream.yaml``.

    python -m tests.twin.upstream --clone NVIDIA/nccl=~/nccl --clone aws/aws-ofi-nccl=~/aws-ofi-nccl

A clone has the tags; nothing is fetched. What no clone is given for is left out, and named.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainwright.core.data_files import read_yaml

SHAPES = Path(__file__).with_name("shapes")
UPSTREAM = SHAPES / "upstream.yaml"


def compared() -> Iterator[tuple[dict[str, Any], str, str, list[str]]]:
    """Of each file of a shape that is made after one of upstream's: the entry, both paths, the words that both hold."""
    for entry in read_yaml(UPSTREAM).values():
        for own, row in entry.get("files", {}).items():
            if not isinstance(row, str):
                yield entry, own, row["of"], row["says"]


def differences(clones: Mapping[str, Path]) -> list[str]:
    """The words that a file of a tag does not hold.

    Args:
        clones: by repository, git folders with the tags.
    """
    wrong = []
    for entry, _, of, says in compared():
        if clone := clones.get(entry["repository"]):
            argv = ["git", "-C", str(clone), "show", f"{entry['tag']}:{of}"]
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            held = done.stdout if done.returncode == 0 else ""
            wrong += [f"{entry['repository']} {entry['tag']} {of}: {word!r}" for word in says if word not in held]
    return wrong


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--clone", action="append", default=[], metavar="OWNER/NAME=FOLDER")
    given = {
        name: Path(path).expanduser() for name, _, path in (each.partition("=") for each in words.parse_args().clone)
    }
    found = differences(given)
    print(*found, sep="\n", end="\n" if found else "")
    left = sorted({entry["repository"] for entry, *_ in compared()} - given.keys())
    print(f"{len(found)} words are not upstream's{'; not looked at: ' + ', '.join(left) if left else ''}")
    sys.exit(bool(found))
