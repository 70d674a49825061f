"""``build --dry-run``: engine and sources are asked, what would be built is said, and nothing is fetched or built."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.documents import validated
from tests.support.in_process import call
from trainwright.core.errors import SourceError
from trainwright.engine import engine as engines
from trainwright.engine.engine import Client, Engine

ENGINE = Engine(Client("/bin/false", "builtin", "20.10", "plain"), "20.10.24")

pytestmark = pytest.mark.usefixtures("own_places")


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Which of the engine and the sources were asked; whatever comes after them fails the test."""
    found: list[str] = []

    def connect(**_: object) -> Engine:
        found.append("engine")
        return ENGINE

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(engines, "connect", connect)
    monkeypatch.setattr("trainwright.sources.reachability.check_sources", lambda *_: found.append("sources"))
    for later in (
        "sources.fetch.fetch",
        "build.context.write_context",
        "build.build.run_build",
        "push.push.push_images",
    ):
        monkeypatch.setattr(f"trainwright.{later}", lambda *_, later=later, **__: pytest.fail(f"{later} was called"))
    return found


# A line on NVIDIA's base: one made here would ask for mmdebstrap first.
LINE = ("build", "pytorch:cu117", "--dry-run")


def test_it_says_what_would_be_built_and_where_it_would_go(asked: list[str]) -> None:
    place = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/training"
    done = call(*LINE, "--tag", "mine:1", "--push", place)
    assert asked == ["engine", "sources"]
    for line in ("plan    ", "tag     trainwright/pytorch:2.0.1-cu117", "tag     mine:1", "engine  Docker 20.10.24"):
        assert f"\n{line}" in f"\n{done.stdout}"
    assert "push    training (eu-west-1)" in done.stdout


def test_its_document_counts_what_is_not_here(asked: list[str]) -> None:
    found = validated(call(*LINE, "--json").stdout)
    assert found["schema"] == "trainwright/dry-run/1"
    assert found["inputs"] > found["here"] > 0
    assert found["download_bytes"] > 1e9, "PyTorch's wheels alone"
    assert (found["push"], found["builder"]) == ([], "builtin")


def test_a_source_that_does_not_answer_is_its_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def dead(*_: object) -> None:
        raise SourceError("nothing answers")

    monkeypatch.setattr("trainwright.sources.reachability.check_sources", dead)
    done = call(*LINE)
    assert (done.returncode, "nothing answers" in done.stderr) == (SourceError.exit_code, True)


@pytest.mark.parametrize("words", [("--images", "pytorch"), ("--stages", "tools"), ("--resume", "a-run")], ids=str)
def test_it_is_for_one_whole_image(words: tuple[str, ...], asked: list[str]) -> None:
    done = call("build", "--dry-run", *words)
    assert done.returncode == 2
    assert words[0] in done.stderr
    assert asked == []
