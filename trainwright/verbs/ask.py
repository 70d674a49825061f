"""Asks for the image, where a command line and the project file name none and there is somebody to ask."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainwright.cli.output import complain
from trainwright.core.errors import RequestError, did_you_mean

if TYPE_CHECKING:
    from trainwright.catalog.catalog import Catalog

NEWEST = "newest"


def somebody_answers() -> bool:
    """Whether a person can be asked: what they read and what they type with are a terminal."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def ask_for_image(verb: str, catalog: Catalog, *, known: bool = False) -> tuple[str, str | None]:
    """The framework and the CUDA version that a person picks from what is still maintained; Enter takes the first.

    Args:
        verb: what the image is for, for the command line that would have said the same.
        catalog: what there is to pick from.
        known: the command line has a version or a CUDA version, so only the framework is asked for.

    Returns:
        The names as on a command line; no CUDA version is the newest one.

    Raises:
        RequestError: nothing was picked: end of input, or three answers that are not among the names.
    """
    from trainwright.catalog.image_line import version_key
    from trainwright.catalog.listing import CURRENT

    current = [entry.line for entry in catalog.lines if entry.line.status in CURRENT]
    lines = sorted(current, key=lambda line: version_key(line.version), reverse=True)
    names = sorted({line.framework for line in lines}, key=lambda name: (name != "pytorch", name))
    complain("No image is named, and no trainwright.toml has one. Enter takes the first.")
    framework = _picked("framework", names)
    if known:
        return framework, None
    tags = list(dict.fromkeys(line.cuda_tag for line in lines if line.framework == framework))
    tag = _picked("CUDA", [NEWEST, *tags])
    cuda = None if tag == NEWEST else tag
    complain(f"· ./invoke {verb} {framework}{f':{cuda}' if cuda else ''}   (./invoke init makes a project file)")
    return framework, cuda


def _picked(what: str, names: Sequence[str]) -> str:
    for _ in range(3):
        complain(f"{what}: {', '.join(names)}")
        sys.stderr.write("> ")
        sys.stderr.flush()
        typed = sys.stdin.readline()
        if not typed:
            break
        word = typed.strip().lower() or names[0]
        if word in names:
            return word
        complain(f"{word}: not among them. {did_you_mean(word, names)}")
    raise RequestError(f"no {what} was picked", remedy="./invoke list shows all image lines.")
