"""Sizes and columns of text for people. Plain: they can be read, piped and pasted."""

from __future__ import annotations

from collections.abc import Sequence

UNITS = ("B", "kB", "MB", "GB")  # decimal, as registries and ``docker images`` count


def size(count: float) -> str:
    """Bytes in decimal units: ``6.11 GB``."""
    for unit in UNITS[:-1]:
        if count < 1000:
            return f"{count:.0f} {unit}" if unit in ("B", "kB") else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} GB"


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
