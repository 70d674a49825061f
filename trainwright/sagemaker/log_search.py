"""Finds the lines of a log that may show a cause: each kind of line is looked at once, and few patterns are tried.

Most of a log repeats itself but for its numbers. So a line is looked up by its *shape*, the line without digits in
lower case; only new shapes are searched, for one piece of text of each pattern, and for all pieces at once.

Lines that this finds may repeat themselves, too: a warning in each step. They are looked up by their *mask*, the line
with 0 for each digit. A pattern that does not tell digits apart matches all lines of a mask or none, so it is tried on
the first one alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, Protocol, TypeVar

from ahocorasick_rs import BytesAhoCorasick

from trainwright.sagemaker.log_lines import LONGEST_LINE, bare, clean

AFTER = 12  # lines of context behind a line
MOST_SHAPES = 200_000  # that are remembered, and as many masks
_DIGITS = b"0123456789"
_MASK = bytes.maketrans(_DIGITS, b"0" * len(_DIGITS))
_GROUP = re.compile(r"\((\?(?:P<\w+>|[:i]\)?|<?[=!]))?([^()]*)\)([?*]?)")
_SPECIAL = re.compile(r"[.^$+*?{}]")
_REPEATED = re.compile(r"(?<!\\)\{\d*,?\d*\}")
_NOT_TEXT = re.compile(r"\[(?:\\.|[^\]\\])*\]|\\.|[^()][?*]|\d")


class Shows(Protocol):
    """A cause with patterns."""

    @property
    def patterns(self) -> tuple[str, ...]:
        """Regular expressions, each for one line."""


C = TypeVar("C", bound=Shows)


@dataclass(frozen=True)
class Tried(Generic[C]):
    """A pattern of a cause."""

    place: int
    cause: C
    pattern: str

    @cached_property
    def search(self) -> Callable[[str], re.Match[str] | None]:
        """Looks for the pattern; compiled when first tried, as a log needs few of them."""
        return re.compile(self.pattern).search

    @cached_property
    def by_digits(self) -> bool:
        """Whether lines that differ only in their digits may differ in whether it matches."""
        return tells_digits(self.pattern)


@dataclass(frozen=True)
class MaskKind(Generic[C]):
    """What all lines of a mask have in common.

    Args:
        tried: the patterns that match them, and those that match some of them.
        matters: whether they mention an error.
        noted: whether they are looked at for another reason.
    """

    tried: tuple[Tried[C], ...]
    matters: bool
    noted: bool


@dataclass
class Hit(Generic[C]):
    """A line that may show a cause or mentions an error."""

    line: int
    kind: MaskKind[C]
    lines: list[bytes]
    place: int

    @property
    def text(self) -> bytes:
        """The line."""
        return self.lines[self.place]

    @property
    def after(self) -> bytes:
        """The lines after it."""
        return b"\n".join(self.lines[self.place + 1 : self.place + 1 + AFTER])

    def matches(self, message: str) -> Iterator[tuple[C, re.Match[str]]]:
        """The causes that the line shows, each once.

        Args:
            message: the line without prefixes.
        """
        found = None
        for each in self.kind.tried:
            if each.place != found and (match := each.search(message)):
                found = each.place
                yield each.cause, match


def tells_digits(pattern: str) -> bool:
    """Whether a pattern may match one of two texts that differ only in digits: it has a digit or repeats a group."""
    return bool(re.search(r"\d", _REPEATED.sub("", pattern))) or "(?P=" in pattern


def certain(pattern: str) -> str:
    """The parts of a pattern that every match of it contains, in lower case; between them, line ends.

    Groups with alternatives, optional ones and looks around are no such parts. Digits and escaped characters are left
    out, as shapes have none of the former.
    """
    text = _NOT_TEXT.sub("\n", pattern)
    while (plain := _GROUP.sub(_content, text)) != text:
        text = plain
    return "" if "|" in text else _SPECIAL.sub("\n", text).lower()


def _content(group: re.Match[str]) -> str:
    kind, content, optional = group[1] or "", group[2], group[3]
    looks = kind in ("?=", "?!", "?<=", "?<!")
    return "\n" if looks or optional or "|" in content else content


class Search(Generic[C]):
    """Causes by a piece of text of each of their patterns; a pattern without any is tried on every line.

    Args:
        causes: in the order in which they are tried.
        matters: lines that match are hits, too; a pattern for shapes, which does not tell digits apart.
        words: in lower case and without digits; one of them is in each line that matters.
        noted: whether to look at a message of such a line for another reason, whatever its digits.
    """

    def __init__(
        self,
        causes: Sequence[C],
        matters: re.Pattern[bytes],
        words: Sequence[str],
        noted: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self.matters, self.noted = matters, noted
        by_piece: dict[bytes, list[Tried[C]]] = {word.encode(): [] for word in words}
        for place, cause in enumerate(causes):
            for pattern in cause.patterns:
                piece = max(certain(pattern).split("\n"), key=len).encode()
                by_piece.setdefault(piece, []).append(Tried(place, cause, pattern))
        self._everywhere = by_piece.pop(b"", [])
        self._tried = list(by_piece.values())
        self._pieces = BytesAhoCorasick(list(by_piece))

    def look(self, shapes: Iterable[bytes]) -> dict[bytes, tuple[Tried[C], ...]]:
        """Those of some shapes that are hits, with the patterns to try on their lines."""
        everything = b"\n".join(shapes)
        numbers: dict[bytes, set[int]] = {}
        of_line, end = set[int](), -1
        for number, at, _ in self._pieces.find_matches_as_indexes(everything, overlapping=True):
            if at > end:
                start, end = everything.rfind(b"\n", 0, at) + 1, everything.find(b"\n", at)
                end = len(everything) if end < 0 else end
                of_line = numbers.setdefault(everything[start:end], set())
            of_line.add(number)
        if self._everywhere:
            numbers = {shape: set[int]() for shape in everything.split(b"\n")} | numbers
        found = {}
        for shape, of_pieces in numbers.items():
            tried = [*self._everywhere, *(each for number in of_pieces for each in self._tried[number])]
            if tried or self.matters.search(shape):
                found[shape] = tuple(sorted(tried, key=lambda each: each.place))
        return found

    def kind(self, mask: bytes, tried: Iterable[Tried[C]]) -> MaskKind[C]:
        """What lines of a mask have in common.

        Args:
            mask: a line with 0 for each digit.
            tried: the patterns to try on lines of its shape.
        """
        message = bare(clean(mask.decode("utf-8", "replace")))
        left = tuple(each for each in tried if each.by_digits or each.search(message))
        return MaskKind(left, bool(self.matters.search(mask.lower())), self.noted(message))


def _visible(line: bytes) -> bytes:
    """A line without what a progress bar wrote over."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]


class Finder(Generic[C]):
    """Counts the lines of one log, and finds those to look at."""

    def __init__(self, search: Search[C]) -> None:
        self.lines = 0
        self._search = search
        self._known: dict[bytes, tuple[Tried[C], ...] | None] = {}
        self._kinds: dict[bytes, MaskKind[C]] = {}

    def find(self, block: bytes) -> Iterator[Hit[C]]:
        """The hits of the next block, in order.

        Args:
            block: whole lines.
        """
        before = self.lines
        if b"\r" in block:
            block = b"\n".join(_visible(line) for line in block.split(b"\n"))
        shapes = block.removesuffix(b"\n").lower().translate(None, _DIGITS).split(b"\n")
        self.lines += len(shapes) if block else 0
        here = set(shapes)
        new = here - self._known.keys()
        if len(self._known) + len(new) > MOST_SHAPES:
            self._known.clear()
            new = here
        self._known |= dict.fromkeys(new) | self._search.look(new)
        hits = {shape: tried for shape in here if (tried := self._known[shape]) is not None}
        if hits:
            lines = block.split(b"\n")
            for number, shape in enumerate(shapes):
                if shape in hits:
                    kind = self._kind(lines[number], hits[shape])
                    if kind.tried or kind.matters or kind.noted:
                        yield Hit(before + number + 1, kind, lines, number)

    def _kind(self, line: bytes, tried: tuple[Tried[C], ...]) -> MaskKind[C]:
        mask = line.translate(_MASK)
        if len(mask) > LONGEST_LINE:
            return self._search.kind(mask, tried)
        if (kind := self._kinds.get(mask)) is None:
            if len(self._kinds) == MOST_SHAPES:
                self._kinds.clear()
            kind = self._kinds[mask] = self._search.kind(mask, tried)
        return kind

    def last_lines(self, block: bytes, count: int) -> list[tuple[int, str]]:
        """The last lines of the block just searched that are not empty, with their numbers."""
        number, found = self.lines, []
        for line in reversed(block[-(1 << 16) :].removesuffix(b"\n").split(b"\n")):
            text = clean(line.decode("utf-8", "replace"))
            if text.strip():
                found.append((number, text))
                if len(found) == count:
                    break
            number -= 1
        return found[::-1]
