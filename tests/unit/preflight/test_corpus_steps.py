"""Beside mistakes of processes that part, of schedules and of strategies: the nearest right ways (right_ways.yaml)."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.support.corpus import Planted, edited, load

RIGHT = {row["name"]: row for row in yaml.safe_load(Path(__file__).with_name("right_ways.yaml").read_text())}
CORPUS = {good.base: good for good, _ in load(sorted({row["script"] for row in RIGHT.values()}))}


@pytest.mark.parametrize("name", RIGHT)
def test_the_right_way_is_not_blamed(name):
    row = RIGHT[name]
    good = CORPUS[row["script"]]
    changed = Planted(
        good.base, name, (), edited(good.base, name, good.text, row["edits"]), good.job | row.get("job", {})
    )
    assert [(f.code, f.line, f.message) for f in changed.findings()] == []
