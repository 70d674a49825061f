"""The room that the tests with an engine need on its disk."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from devtools.checks import FULL, NEARLY_FULL, ROOM, ROOM_IF_PRUNED, keep_room, make_room
from trainwright.core.errors import EngineError
from trainwright.engine import setup
from trainwright.engine.engine import Client, Engine

LEFT_BY_A_RUN = 3_000_000_000


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """An engine on a full disk, with something in it, whose client writes down how it is called and frees the disk."""
    client = tmp_path / "docker"
    held = f'if [ "$1 $2" = "system df" ]; then cat {tmp_path}/sizes; exit; fi'
    client.write_text(f'#!/bin/sh\n{held}\necho "$@" >> {tmp_path}/calls\n')
    (tmp_path / "sizes").write_text("0B\n0B\n0B\n1.5GB\n")
    monkeypatch.setattr(setup, "PID_FILE", tmp_path / "docker.pid")
    client.chmod(0o755)
    free = LEFT_BY_A_RUN
    monkeypatch.delenv("TRAINWRIGHT_TEST_PRUNE", raising=False)
    monkeypatch.setattr(
        shutil, "disk_usage", lambda _: SimpleNamespace(free=ROOM if (tmp_path / "calls").is_file() else free)
    )
    return Engine(
        client=Client(str(client), "buildx", "28.2.2", "plain"), server_version="28.2.2", data_root=str(tmp_path)
    )


def test_a_full_disk_ends_the_run_before_its_first_build(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="has 3 GB") as lacking:
        make_room(engine)
    assert "system prune" in lacking.value.remedy
    assert not (tmp_path / "calls").exists(), "nobody's images were deleted"


def test_a_machine_made_for_the_run_is_emptied(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_TEST_PRUNE", "1")
    make_room(engine)
    assert (tmp_path / "calls").read_text() == "system prune --all --force --volumes\n"


def test_an_empty_engine_is_not_emptied(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_TEST_PRUNE", "1")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=ROOM_IF_PRUNED))
    (tmp_path / "sizes").write_text("0B\n0B\n0B\n0B\n")
    make_room(engine)
    assert not (tmp_path / "calls").exists()


def test_an_engine_that_was_emptied_is_started_again(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine does not build on layers that are made again after it deleted cache from before its start."""
    monkeypatch.setenv("TRAINWRIGHT_TEST_PRUNE", "1")
    states: list[int | None] = []
    with subprocess.Popen(["sleep", "60"]) as process:
        (tmp_path / "docker.pid").write_text(f"{process.pid}\n")
        monkeypatch.setattr(setup, "start", lambda *_, **__: states.append(process.poll()))
        make_room(engine)
    assert states == [-signal.SIGTERM], "started once, after the old one had ended"


def test_a_machine_that_is_emptied_needs_less_but_not_nothing(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=ROOM_IF_PRUNED))
    with pytest.raises(EngineError, match=f"need {ROOM // 10**9} GB"):
        make_room(engine)
    monkeypatch.setenv("TRAINWRIGHT_TEST_PRUNE", "1")
    make_room(engine)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=ROOM_IF_PRUNED - 1))
    with pytest.raises(EngineError, match=f"need {ROOM_IF_PRUNED // 10**9} GB"):
        make_room(engine)


def test_an_engine_with_room_is_left_alone(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_TEST_PRUNE", "1")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=ROOM + NEARLY_FULL))
    make_room(engine)
    assert not (tmp_path / "calls").exists()


@pytest.mark.parametrize("free", [0, FULL - 1, FULL, NEARLY_FULL - 1, NEARLY_FULL])
@pytest.mark.parametrize("made_for_the_run", [False, True])
def test_a_run_deletes_old_cache_when_the_disk_is_nearly_full(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, made_for_the_run: bool
) -> None:
    if made_for_the_run:
        monkeypatch.setenv("TRAINWRIGHT_TEST_PRUNE", "1")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    keep_room(engine)
    called = (tmp_path / "calls").read_text().splitlines() if (tmp_path / "calls").exists() else []
    kept_recent = ["--filter until=" in call for call in called]
    if not made_for_the_run or free >= NEARLY_FULL:
        assert not called
    else:
        assert kept_recent == ([True] if free >= FULL else [True, False]), "what was just built goes last"
    assert all(call.startswith("builder prune --all --force --keep-storage") for call in called), "images stay"
