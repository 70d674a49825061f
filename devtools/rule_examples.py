"""An example of each rule of ``preflight``: the smallest mistake of that code in ``tests/corpus/``, and its fix."""

from __future__ import annotations

import difflib
import textwrap

from tests.support.corpus import load

AROUND = 2  # lines of the script before and after a mistake


def rule_examples() -> dict[str, str]:
    """Return code → a difference: ``-`` is the mistake, ``+`` the right way."""
    found: dict[str, list[str]] = {}
    for good, wrong in load():
        for planted in wrong:
            if planted.text != good.text:
                found.setdefault(planted.codes[0], []).append(fix(planted.text, good.text))
    return {code: min(each, key=_order) for code, each in sorted(found.items())}


def _order(text: str) -> tuple[bool, int, str]:
    """Examples that show both the mistake and the right way come first, then short ones."""
    signs = {row[:1] for row in text.split("\n")}
    return not signs >= {"-", "+"}, text.count("\n"), text


def fix(wrong: str, right: str) -> str:
    """Return the difference between two scripts, without its headings and the indentation that all lines share."""
    rows = list(difflib.unified_diff(wrong.splitlines(), right.splitlines(), lineterm="", n=AROUND))[2:]
    hunks: list[list[str]] = []
    for row in rows:
        if row.startswith("@@"):
            hunks.append([])
        else:
            hunks[-1].append(row)
    made: list[str] = []
    for hunk in hunks:
        code = textwrap.dedent("\n".join(row[1:] for row in hunk)).split("\n")
        made += ["…"] if made else []
        made += [f"{row[0]}{line}".rstrip() for row, line in zip(hunk, code, strict=True)]
    return "\n".join(made).strip("\n")
