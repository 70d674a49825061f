"""A pytest plugin that writes how far a run is: ``-p trainwright.prove.image_progress``.

The first line of the file is the number of tests, each further line the name of one that has ended.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainwright.prove.smoke_view import VARIABLE


def _tell(text: str) -> None:
    with Path(os.environ[VARIABLE]).open("a") as out:
        out.write(f"{text}\n")


def pytest_collection_finish(session: pytest.Session) -> None:
    _tell(str(len(session.items)))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "teardown":
        _tell(report.location[2])
