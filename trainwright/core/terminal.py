"""Text for a terminal: lines as wide as it is, colour by what it means; plain everywhere else (https://no-color.org)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
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


# What follows is compiled only for a terminal.
# A word that says how something went or stands, at the beginning of a line, before the code of a finding or in a column
# of a table; and the signs of what changed.
_SAID = (
    r"^( *)(ok|passed|error|warning|failed|skipped|note)(?=:|  | [a-z ]+:)"
    r"|(?<=: )(error|warning|note)(?= TW\d)"
    r"|(?<=  )(supported|unmaintained|end-of-support|unreleased|passed|failed|not run)(?=  )"
    r"|^(  [+~-])(?=  )"
)
_SHADES: dict[str, Style] = {
    **dict.fromkeys(("ok", "passed", "supported", "  +"), "good"),
    **dict.fromkeys(("warning", "skipped", "unmaintained", "not run", "  ~"), "notice"),
    **dict.fromkeys(("error", "failed", "  -"), "bad"),
    **dict.fromkeys(("note", "end-of-support", "unreleased"), "dim"),
}
# Lines that are copied to a command line, or quoted from a log, stay whole.
_PROGRAMS = r"\./invoke|trainwright|docker|aws|apt-get|sudo|pip|git|rm|kill|export|[A-Z_]+=\S+"
_WHOLE = rf" *(?:\||next +|(?:{_PROGRAMS}) )"
_GAP = r"(?<=\S) {2,}(?=\S)|^warning "  # doctor's longest word has one blank behind it


def for_terminal(text: str, stream: TextIO) -> str:
    """``text`` as a terminal shows it best: wrapped between words, with colours; unchanged for other streams.

    A line goes on below its last column, or by two characters further in. Words, and commands to copy, stay whole.

    Args:
        text: printable, without colours.
        stream: where it will be written.
    """
    if not stream.isatty():
        return text
    import shutil

    width, colour = max(shutil.get_terminal_size().columns, 40), has_colour(stream)
    lines = (each for line in text.split("\n") for each in _wrapped(line, width))
    return "\n".join(re.sub(_SAID, _shaded, line) if colour else line for line in lines)


def _wrapped(line: str, width: int) -> Iterator[str]:
    if len(line) <= width or re.match(_WHOLE, line):
        yield line
        return
    import textwrap

    inner = len(line) - len(line.lstrip())  # a gap is between two words, so never this one
    columns = [gap.end() for gap in re.finditer(_GAP, line) if gap.end() <= width * 0.6]
    hanging = columns[-1] if columns else inner + 2
    yield from textwrap.wrap(
        line, width, subsequent_indent=" " * hanging, break_long_words=False, break_on_hyphens=False
    )


def _shaded(said: re.Match[str]) -> str:
    indent, word = said[1] or "", next(filter(None, said.groups()[1:]))
    return f"{indent}\x1b[{_CODES[_SHADES[word]]}m{word}\x1b[0m"
