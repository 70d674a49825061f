"""The table in docs/benchmarks.md of how many planted faults the unit tests see, by module."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench.measured import PAGE, with_part

BEGIN, END = "<!-- faults: written by ./invoke test --mutants -->", "<!-- faults: end -->"
HEAD = ("| module | seen | share | seed | when |", "| --- | --- | --- | --- | --- |")
_ROW = re.compile(r"^\| (?P<module>\w+/\w+) \|.*$", re.MULTILINE)


def keep(scores: Mapping[str, Sequence[bool]], seed: int, page: Path = PAGE) -> None:
    """Write the rows of some modules into the table; those of others stay.

    Args:
        scores: whether each fault of a module was seen.
        seed: of the sample.
        page: that has the table.

    Raises:
        ValueError: it has none.
    """
    text = page.read_text()
    rows = {match["module"]: match[0] for match in _ROW.finditer(text.partition(BEGIN)[2].partition(END)[0])}
    today = datetime.now(UTC).date().isoformat()
    for module, seen in scores.items():
        if seen:
            share = f"{sum(seen) / len(seen):.0%}"
            rows[module] = f"| {module} | {sum(seen)} of {len(seen)} | {share} | {seed} | {today} |"
    page.write_text(with_part(text, BEGIN, END, "\n".join([*HEAD, *(rows[name] for name in sorted(rows))])))
