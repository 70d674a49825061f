"""Text that somebody else wrote (a user, a file, a server): how a message quotes it, and what may go on from it.

A message is one terminal's worth of harmless characters. What goes on into a Dockerfile, a requirements file, a shell
or a command line is held to :func:`check_word` or :func:`check_line` where it enters.
"""

from __future__ import annotations

import re
import unicodedata

LONGEST_WORD = 400  # characters of one unbroken word in a message: any path a person types is shorter
LONGEST_LINE = 4000
LONGEST_VALUE = 4096  # of a value that is taken on: PATH_MAX of Linux

# Cc: C0 and C1 (among them 8-bit CSI, U+009B). Cf: bidi marks and other invisible ones. Zl, Zp: line separators.
_HIDDEN = {"Cc", "Cf", "Zl", "Zp", "Cs"}
_COLOUR = re.compile(r"(\x1b\[[0-9;]{0,32}m)")
_SPLIT = re.compile(r"(\s+)")


def hidden(text: str, *, allowed: str = "") -> list[str]:
    """The characters of ``text`` that a terminal obeys or does not show, each once; ``allowed`` ones left out."""
    return [char for char in dict.fromkeys(text) if unicodedata.category(char) in _HIDDEN and char not in allowed]


def printable(text: str, *, allowed: str = "\n\t") -> str:
    """``text`` with every hidden character in backslash form, as ``\\x9b`` or ``\\u202e``."""
    for char in hidden(text, allowed=allowed):
        text = text.replace(char, char.encode("unicode_escape", "surrogatepass").decode("ascii"))
    return text


def coloured(text: str) -> str:
    """One line of a program's log for a terminal: colours stay, whatever else a terminal would obey is shown.

    Colours are ECMA-48's SGR, the control sequences that end with ``m``.
    """
    pieces = _COLOUR.split(text)
    return "".join(piece if number % 2 else printable(piece, allowed="\t") for number, piece in enumerate(pieces))


def shortened(text: str, limit: int) -> str:
    """The beginning of ``text``, with the number of characters it has in all where it is longer than ``limit``."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


def for_people(text: str) -> str:
    """``text`` as a message may hold it: printable, no word and no line of endless length."""
    if len(text) > LONGEST_WORD:
        lines = text.split("\n")
        text = "\n".join(shortened(_short_words(line[: 2 * LONGEST_LINE]), LONGEST_LINE) for line in lines)
    return printable(text)


def _short_words(line: str) -> str:
    if len(line) <= LONGEST_WORD:
        return line
    return "".join(shortened(part, LONGEST_WORD) for part in _SPLIT.split(line))


def trouble(text: str, *, lines: bool = False, limit: int = LONGEST_VALUE) -> str:
    """Why a value may not go on into a file or a command line, in a few words; empty where it may.

    Args:
        text: the value.
        lines: whether it may have several lines and tabs.
        limit: characters that it may have.
    """
    if len(text) > limit:
        return f"is too long: {len(text)} characters, at most {limit}"
    if found := hidden(text, allowed="\n\t" if lines else ""):
        return f"holds a control character ({printable(found[0], allowed='')})"
    return ""


def fits(pattern: str, text: str, *, limit: int = 128) -> bool:
    """Whether the whole of ``text`` matches a pattern: ASCII, and no longer than ``limit`` characters.

    Every pattern that input meets goes through here, so that a length limit stands before each of them. The patterns
    themselves have to be linear (``tests/unit/core/test_text.py`` counts their steps).
    """
    return len(text) <= limit and re.fullmatch(pattern, text, re.ASCII) is not None
