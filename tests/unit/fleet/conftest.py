"""The folder of the worker that stands in for builds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fleet_units import Yard


@pytest.fixture
def yard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_places: None) -> Iterator[Yard]:
    """The folder of the worker of this test."""
    monkeypatch.setenv("FLEET", str(tmp_path / "yard"))
    made = Yard(tmp_path / "yard")
    yield made
    made.go()  # a test that fails leaves no worker behind
