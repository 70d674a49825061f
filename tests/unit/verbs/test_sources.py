"""``sources``: which image lines it asks for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.in_process import call
from trainwright.sources.survey import SourcesDocument

pytestmark = pytest.mark.usefixtures("own_places")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines that are asked for, by their folders."""
    found: list[str] = []

    def survey(entries: Any, *_: Any, **__: Any) -> SourcesDocument:
        found.extend(f"{entry.line.framework}/{entry.name}" for entry in entries)
        return SourcesDocument(schema="trainwright/sources/1", base_images_asked=False, lines=())

    monkeypatch.setattr("trainwright.sources.survey.survey", survey)
    return found


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (("pytorch/cpu", "tensorflow/cpu"), ["pytorch/cpu", "tensorflow/cpu"]),
        (("pytorch:cu117", "pytorch/cpu"), ["pytorch/1.13.1-cu117", "pytorch/cpu", "pytorch/cu117"]),
        (("*/2.18.0-*",), ["tensorflow/2.18.0-cu125"]),
        (("--framework", "pytorch", "--version", "2.2"), ["pytorch/2.2.0-cu121"]),
    ],
)
def test_lines_by_their_names_or_by_flags(asked: list[str], words: tuple[str, ...], lines: list[str]) -> None:
    assert call("sources", *words).returncode == 0
    assert sorted(asked) == lines


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("pytorch/cpi",), "pytorch/cpi: no image line matches. Did you mean pytorch/cpu"),
        (("pytorch/cpu", "--cuda", "cpu"), "not both"),
    ],
)
def test_what_names_no_line_asks_for_nothing(asked: list[str], words: tuple[str, ...], says: str) -> None:
    done = call("sources", *words)
    assert (done.returncode, asked) == (2, [])
    assert says in done.stderr
