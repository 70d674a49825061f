"""Text from outside (a user, a file, a server): how to quote it in a message, and which values to accept.

A message has a limited length and only printable characters. Values for a Dockerfile, a requirements file, a shell or a
command line are checked with :func:`trouble` and :func:`fits` where they enter.
"""

from __future__ import annotations

import re
import unicodedata

LONGEST_WORD = 400  # characters of a word in a message; any path that a person types is shorter
LONGEST_LINE = 4000
LONGEST_VALUE = 4096  # characters of a value: PATH_MAX of Linux

# Cc: C0 and C1 (among them 8-bit CSI, U+009B). Cf: bidi marks and other invisible ones. Zl, Zp: line separators.
_HIDDEN = {"Cc", "Cf", "Zl", "Zp", "Cs"}
_COLOUR = re.compile(r"(\x1b\[[0-9;]{0,32}m)")
_SPLIT = re.compile(r"(\s+)")


def hidden(text: str, *, allowed: str = "") -> list[str]:
    """The control and invisible characters of ``text``, each once, except ``allowed`` ones."""
    return [char for char in dict.fromkeys(text) if unicodedata.category(char) in _HIDDEN and char not in allowed]


def printable(text: str, *, allowed: str = "\n\t") -> str:
    """``text`` with every hidden character in backslash form, as ``\\x9b`` or ``\\u202e``."""
    for char in hidden(text, allowed=allowed):
        text = text.replace(char, char.encode("unicode_escape", "surrogatepass").decode("ascii"))
    return text


def coloured(text: str) -> str:
    """One line of a program's log for a terminal: colours stay, other control characters are escaped.

    Colours are ECMA-48's SGR, the control sequences that end with ``m``.
    """
    pieces = _COLOUR.split(text)
    return "".join(piece if number % 2 else printable(piece, allowed="\t") for number, piece in enumerate(pieces))


def shortened(text: str, limit: int) -> str:
    """``text``, cut at ``limit`` characters with its full length appended if it is longer."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


def for_people(text: str) -> str:
    """``text`` for a message: printable, with long words and lines shortened."""
    if len(text) > LONGEST_WORD:
        lines = text.split("\n")
        text = "\n".join(shortened(_short_words(line[: 2 * LONGEST_LINE]), LONGEST_LINE) for line in lines)
    return printable(text)


def _short_words(line: str) -> str:
    if len(line) <= LONGEST_WORD:
        return line
    return "".join(shortened(part, LONGEST_WORD) for part in _SPLIT.split(line))


def trouble(text: str, *, lines: bool = False, limit: int = LONGEST_VALUE) -> str:
    """Why a value must not enter a file or a command line, in a few words; empty if it may.

    Args:
        text: the value.
        lines: whether it may have several lines and tabs.
        limit: maximum number of characters.
    """
    if len(text) > limit:
        return f"is too long: {len(text)} characters, at most {limit}"
    if found := hidden(text, allowed="\n\t" if lines else ""):
        return f"contains a control character ({printable(found[0], allowed='')})"
    return ""


def fits(pattern: str, text: str, *, limit: int = 128) -> bool:
    """Whether the whole of ``text`` matches a pattern: ASCII, and no longer than ``limit`` characters.

    Every pattern for input is matched here, so that each has a length limit. The patterns themselves must be linear
    (``tests/unit/core/test_text.py`` counts their steps).
    """
    return len(text) <= limit and re.fullmatch(pattern, text, re.ASCII) is not None
