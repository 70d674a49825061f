"""The whole test run: no test is left out because of where it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools.checks import MARKED

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("mark", MARKED)
def test_marked_tests_are_where_they_are_looked_for(mark: str) -> None:
    marked = {
        path.relative_to(ROOT)
        for path in (ROOT / "tests").rglob("test_*.py")
        if f"pytest.mark.{mark}" in path.read_text() and path != Path(__file__)
    }
    assert marked
    assert not {path for path in marked if not any(path.is_relative_to(place) for place in MARKED[mark])}
