"""What a page shows below a command, held against what the command printed: numbers that differ between runs apart."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?) (B|kB|MB|GB)\b")
UNITS = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}
# What is another one in each run, and the word for it.
VARIES = (
    (re.compile(r"\S*/images/[0-9a-f]+/"), "<folder>/"),
    (re.compile(r"\b[0-9a-f]{12}\b"), "<id>"),
    (re.compile(r"(?<![\w.-])\d+(?:\.\d+)? ?s\b"), "<seconds>"),
    (re.compile(r"(?<![\w.-])\d+\.\d(?![\w.])"), "<seconds>"),
    (re.compile(r" cached$"), ""),
)
# What is printed of a build that took long, and not of one from the cache.
OF_SOME = re.compile(r"slowest ")


def block(page: str, command: str) -> list[str]:
    """The lines that a page of ``docs/`` shows below ``$ ./invoke COMMAND``.

    Raises:
        AssertionError: it shows no such command, or nothing below it.
    """
    text = (ROOT / "docs" / page).read_text()
    typed = rf"^    \$ \./invoke {re.escape(command)}(?: .*)?\n(?:        .*\n)*"  # the rest of the command is indented
    found = re.search(rf"{typed}((?:    (?!\$| ).*\n|\n)+)", text, re.MULTILINE)
    assert found, command
    lines = [line.strip() for line in found[1].splitlines() if line.strip()]
    assert [line for line in lines if line != "…"], command
    return lines


def differences(shown: list[str], printed: str) -> list[str]:
    """The shown lines that were not printed, in their order; a size counts as the same within a tenth or a megabyte."""
    rest = [" ".join(line.split()) for line in printed.splitlines() if line.strip()]
    missing = []
    for line in shown:
        if line == "…" or OF_SOME.match(line):
            continue
        at = next((at for at, each in enumerate(rest) if _same(" ".join(line.split()), each)), None)
        if at is None:
            missing.append(line)
        else:
            rest = rest[at + 1 :]
    return missing


def _same(shown: str, printed: str) -> bool:
    if _plain(shown) != _plain(printed):
        return False
    return all(abs(a - b) <= max(0.1 * max(a, b), 1e6) for a, b in zip(_sizes(shown), _sizes(printed), strict=True))


def _plain(line: str) -> str:
    line = SIZE.sub("<size>", line)
    for pattern, word in VARIES:
        line = pattern.sub(word, line)
    return line


def _sizes(line: str) -> list[float]:
    return [float(number) * UNITS[unit] for number, unit in SIZE.findall(line)]
