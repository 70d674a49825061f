"""The fleet in docs/benchmarks.md: its table of figures, and that every test which it names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from bench import measured, shown

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("name", "values", "says"),
    [
        ("built", {"1": 200.0, "2": 120.0}, "1: 72 (200 s), 2: 120 (120 s)"),
        (
            "uploaded",
            {"image": 100_000_000, "sent": 101_000_000, "registries": 6, "again": 0},
            "101.0 MB, 1.01 of the image, into 6 registries; again: 0 B",
        ),
        (
            "promoted",
            {"bytes": 3_000_000_000, "seconds": 30, "docker_seconds": 120, "rounds": 2},
            "3.00 GB in 30 s; docker pull and push 120 s; ratio 0.25",
        ),
        ("raced", {"orders": 1000, "lost": 3, "seconds": 1.5}, "1,000 orders, 3 with something lost (1.5 s)"),
    ],
)
def test_what_a_measurement_says(
    name: str, values: dict[str, float], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured, "FOLDER", tmp_path)
    assert sum("not measured" in row for row in shown.rows()) == 5
    measured.keep(f"fleet-{name}", values)
    (row,) = (row for row in shown.rows() if "accounts.py" in row and "not measured" not in row)
    assert row.split(" | ")[1] == says
    assert measured.machine()[:8] in row
    results = {"rows": [{"builders": 1, "lines_per_hour": 6}, {"builders": 64, "lines_per_hour": 116}]}
    images = {"rows": [{"builders": 1, "lines_per_hour": 4}], "builders": 3, "what": "transfers"}
    measured.keep("fleet", {"results": {**results, "builders": 196, "what": "cores"}, "images": images})
    said = next(shown.rows())
    assert "proof alone comes back: 1: 6, 64: 116; the client's cores from 196 builders on" in said
    assert "images come back, too: 1: 4; the client's transfers from 3 builders on" in said


def test_every_test_that_the_page_names_exists() -> None:
    page = (ROOT / "docs/benchmarks.md").read_text()
    named = re.findall(r"`(tests/\S+\.py)::(\w+)`", page)
    assert len(named) > 10
    for path, name in named:
        tree = ast.parse((ROOT / path).read_text())
        assert name in {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}, (path, name)


def test_the_page_has_the_table_of_the_measurements_that_are_kept() -> None:
    page = (ROOT / "docs/benchmarks.md").read_text()
    assert shown.with_fleet(page) == page
