"""The order of versions of Debian's packages (Debian Policy, 5.6.12; deb-version(7))."""

from __future__ import annotations

import re

# Below the end of a part, as ~ is. Letters sort by their ASCII codes, before every other character.
_TILDE, _END, _OTHERS = -1, 0, 256
_PARTS = re.compile(r"([^0-9]*)([0-9]*)")
_VERSION = re.compile(r"(?:([0-9]+):)?([0-9A-Za-z.+~-]*?)(?:-([0-9A-Za-z+.~]*))?")

SortedPart = tuple[tuple[tuple[int, ...], int], ...]


def debian_key(version: str) -> tuple[int, SortedPart, SortedPart]:
    """What a version is sorted by: epoch, upstream version, revision; a missing revision equals ``0``.

    Raises:
        ValueError: that is not a version.
    """
    match = _VERSION.fullmatch(version)
    if match is None or not match[2]:
        raise ValueError(f"{version!r} is not a version of a Debian package")
    return int(match[1] or 0), _part(match[2]), _part(match[3] or "")


def _part(text: str) -> SortedPart:
    """Stretches of characters and of digits, in turn. An empty stretch of digits counts as 0."""
    pairs = [((*map(_weight, letters), _END), int(digits or 0)) for letters, digits in _PARTS.findall(text)]
    while len(pairs) > 1 and pairs[-1] == ((_END,), 0):  # the end of a part equals one more 0
        pairs.pop()
    # Compared with a longer part, the end is a stretch without characters and a 0. The first pair stays, as only it can
    # be like the end while more follows: 0~ comes before 0.
    return (*pairs, ((_END,), 0))


def _weight(character: str) -> int:
    if character == "~":
        return _TILDE
    return ord(character) + (0 if character.isalpha() else _OTHERS)
