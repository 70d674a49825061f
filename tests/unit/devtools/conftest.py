"""What tests of the front door share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.front_door import python_with_venv


@pytest.fixture(scope="session")
def copying_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real Python whose ``-m venv`` copies one that was really made."""
    return python_with_venv(tmp_path_factory.mktemp("python"))
