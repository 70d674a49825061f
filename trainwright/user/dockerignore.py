"""``.dockerignore``, as Docker reads it: the rules of moby's ``patternmatcher`` and ``ignorefile`` packages.

The matcher of the docker SDK is an older port of it: it checks only one parent folder, ignores case and has no
escapes, so it would let files through that Docker excludes.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from trainwright.core.errors import RequestError

NAME = ".dockerignore"
_LONGEST = 4096  # characters of a pattern: PATH_MAX of Linux
_MOST = 1_000_000  # bytes of the file


class IgnoreRules:
    """The patterns of a file, in order: the last one that matches a path or one of its parent folders decides."""

    def __init__(self, lines: list[str], where: str = NAME) -> None:
        self._patterns: list[tuple[re.Pattern[str], bool]] = []
        for number, line in enumerate(lines, 1):
            if line.startswith("#") or not line.strip():
                continue
            text = line.strip()
            kept = text.startswith("!")
            text = text[kept:].strip()
            try:
                self._patterns.append((_compile(_clean(text)), kept))
            except (re.error, ValueError, OverflowError, RecursionError) as wrong:
                raise RequestError(
                    f"{where}:{number}: {line.strip()!r} is not a pattern: {wrong}",
                    remedy="Correct the line; Docker rejects it as well.",
                ) from None

    @property
    def exceptions(self) -> bool:
        """Whether a line includes files again, so that excluded folders must be searched."""
        return any(kept for _, kept in self._patterns)

    def matches(self, name: str) -> bool:
        """Whether a path, relative to the folder of the file, is excluded."""
        parts = name.split("/")
        paths = ["/".join(parts[: end + 1]) for end in range(len(parts))]
        for pattern, kept in reversed(self._patterns):
            if any(pattern.fullmatch(path) for path in paths):
                return not kept
        return False


def read_ignore(folder: Path) -> IgnoreRules:
    """The patterns of a folder's ``.dockerignore``; empty if it has no such file.

    Raises:
        RequestError: the file cannot be read, or a line of it is not a pattern.
    """
    path = folder / NAME
    if not path.is_file():
        return IgnoreRules([])
    try:
        if path.stat().st_size > _MOST:
            raise RequestError(f"{path}: too large for a list of patterns", remedy="Shorten it.")
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as wrong:
        raise RequestError(f"{path}: cannot be read: {wrong}", remedy="Make it a text file in UTF-8.") from None
    # Not splitlines(): that takes form feeds and others for ends of lines.
    return IgnoreRules(text.replace("\r\n", "\n").split("\n"), str(path))


def _clean(text: str) -> str:
    """As ``ignorefile`` and Go's ``filepath.Clean``: ``/a/./b/`` is ``a/b``."""
    if not text:
        raise ValueError("nothing after the exclamation mark")
    if len(text) > _LONGEST:
        raise ValueError(f"longer than {_LONGEST} characters")
    cleaned = posixpath.normpath(text)
    return cleaned.lstrip("/") or "/"


def _compile(pattern: str) -> re.Pattern[str]:
    # Go's filepath.Match refuses these; Python's re takes them.
    if re.search(r"\[\^?[]-]|[^\\]-\]", pattern) or re.search(r"(?<!\\)(?:\\\\)*\\\Z", pattern):
        raise ValueError("an incomplete range or escape")
    rest = pattern[2:]
    if pattern.startswith("**") and not re.search(r"[*?\[\]\\]", rest):
        # `**/x` is x in any folder, and `**x` whatever ends with it.
        ending = re.escape(rest[1:]) if rest.startswith("/") else re.escape(rest)
        return re.compile((r"(?:.*/)?" if rest.startswith("/") else ".*") + ending, re.DOTALL)
    words = re.findall(r"\*\*/?|\\.|.", pattern, re.DOTALL)
    found: list[str] = []
    opened = -1  # the place of the bracket that a range began with
    for place, word in enumerate(words):
        rule = re.escape(word[-1])
        if opened >= 0:
            begins = word == "^" and place == opened + 1
            # Of two dashes the second is a character: `[+--]` reaches from the plus sign to it.
            rule = word if word == "]" or begins or (word == "-" and found[-1] != "-") else rule
            opened = -1 if word == "]" else opened
        elif word.startswith("**"):
            rule = ".*" if place == len(words) - 1 else "(?:.*/)?"
        elif word in "*?[":
            rule = {"*": "[^/]*", "?": "[^/]", "[": "["}[word]
            opened = place if word == "[" else -1
        if not (found[-1:] == [rule] and rule in ("[^/]*", "(?:.*/)?")):  # twice means the same, and is slow
            found.append(rule)
    if opened >= 0:
        raise ValueError("an unfinished range")
    return re.compile("".join(found), re.DOTALL)
