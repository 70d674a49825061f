"""Sizes, columns of text and JSON for people. Plain: they can be read, piped and pasted."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

WIDTH = 120  # characters of a line of JSON
UNITS = ("B", "kB", "MB", "GB")  # decimal, as registries and ``docker images`` count


def size(count: float) -> str:
    """Bytes in decimal units: ``6.11 GB``."""
    for unit in UNITS[:-1]:
        if count < 1000:
            return f"{count:.0f} {unit}" if unit in ("B", "kB") else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} GB"


def change(before: float, after: float) -> str:
    """The difference of two sizes, with its sign: ``+1.2 MB``."""
    return f"{'-' if after < before else '+'}{size(abs(after - before))}"


def short_digests(text: str) -> str:
    """A text with the first twelve characters of each sha256 in it, as ``docker images`` shows them."""
    return re.sub(r"\b([0-9a-f]{12})[0-9a-f]{52}\b", r"\1", text)


def duration(seconds: float | None, *, tenths: bool = True) -> str:
    """``0.4s``, ``12.3s``, ``2m05s``, ``1h02m``; empty for ``None``. Without ``tenths``, ``12s``."""
    if seconds is None:
        return ""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    if seconds >= 60:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{seconds:.1f}s" if tenths else f"{whole}s"


def table(rows: Sequence[Sequence[str]], indent: str = "") -> str:
    """Rows as aligned columns, the last one ragged."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)] if rows else []
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        lines.append((indent + "  ".join([*cells, row[-1]])).rstrip())
    return "\n".join(lines)


def json_lines(value: Any, depth: int = 0) -> str:
    """JSON of a file that is kept: keys in order, and as many parts in a line as fit.

    Args:
        value: what ``json.dumps`` takes.
        depth: of what it is a part of.
    """
    line = json.dumps(value, ensure_ascii=False, sort_keys=True)
    if len(line) + depth < WIDTH or not isinstance(value, dict | list):
        return line
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {json_lines(each, depth + 1)}" for key, each in sorted(value.items())]
    else:
        parts = [json_lines(each, depth + 1) for each in value]
    rows = parts[:1]
    for part in parts[1:]:
        joined = f"{rows[-1]}, {part}"
        rows[-1:] = [joined] if len(joined) + depth + 1 < WIDTH and "\n" not in joined else [rows[-1], part]
    indent = "\n" + " " * depth
    return f"{line[0]}{indent} " + f",{indent} ".join(rows) + f"{indent}{line[-1]}"
