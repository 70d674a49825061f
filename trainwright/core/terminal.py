"""Colour for a terminal, by what it means; plain text everywhere else (https://no-color.org)."""

from __future__ import annotations

import os
from typing import Literal, TextIO

Style = Literal["bold", "dim", "good", "notice", "bad"]
# SGR codes of ECMA-48; the 16 colours are the reader's own, on light and on dark.
_CODES: dict[Style, str] = {"bold": "1", "dim": "2", "good": "32", "notice": "33", "bad": "1;31"}


def has_colour(stream: TextIO) -> bool:
    """Whether a stream is a terminal whose reader wants colour: ``NO_COLOR`` is unset, and ``TERM`` is not ``dumb``."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()


def styled(text: str, style: Style, stream: TextIO) -> str:
    """``text`` in a style, if the stream shows one.

    Args:
        text: printable; it may hold more than one line.
        style: what it means.
        stream: where it will be written.
    """
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if text and has_colour(stream) else text
