"""A run's folder: found again by its name, held by one process, and never half written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trainwright.core.errors import RequestError
from trainwright.fleet import run_folder
from trainwright.fleet.run_folder import UnitProgress, create, find, runs

pytestmark = pytest.mark.usefixtures("own_places")
UNIT = UnitProgress(name="pytorch-2.6.0-cu124-debian", kind="line", plan="p", request="--framework pytorch")


def test_a_run_is_found_by_its_name_and_by_its_folder():
    made = create("pytorch-*", ("a", "b"), {"smoke": True, "cache": ("x", "y"), "site": "/s"})
    for word in (made.run.id, str(made.path)):
        found = find(word)
        assert (found.path, found.run) == (made.path, made.run)
    assert (found.run.images, found.run.lines) == ("pytorch-*", ("a", "b"))
    assert found.run.options == {"smoke": True, "cache": ("x", "y"), "site": "/s"}


def test_two_runs_of_one_second_are_two_and_the_newest_comes_first():
    ids = [create("x", (), {}).run.id for _ in range(3)]
    assert len(set(ids)) == 3
    assert runs() == ids[::-1]


def test_units_are_read_as_they_were_kept_and_a_broken_file_is_none():
    folder = create("x", (UNIT.name,), {})
    stages = UnitProgress(name="shared_1", kind="stages", plan="p", request="", stages=("os",), state="built")
    folder.keep(UNIT)
    folder.keep(stages)
    assert folder.units() == [UNIT, stages]
    assert json.loads((folder.path / "lines" / f"{UNIT.name}.json").read_text())["state"] == "pending"
    (folder.path / "lines" / f"{UNIT.name}.json").write_text('{"schema": ')
    assert folder.progress("line", UNIT.name) is None
    folder.forget_stages()
    assert folder.units() == []


def test_a_write_that_is_cut_short_leaves_the_state_before(monkeypatch):
    folder = create("x", (UNIT.name,), {})
    folder.keep(UNIT)

    def full(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        folder.keep(UNIT.replace(state="built"))
    monkeypatch.undo()
    assert [path.name for path in (folder.path / "lines").iterdir()] == [f"{UNIT.name}.json"]


def test_an_unknown_run_is_refused_with_those_that_there_are(tmp_path):
    with pytest.raises(RequestError, match="--resume x: no such run, and this project has none") as none:
        find("x")
    assert "--images" in none.value.remedy
    older, newer = create("x", (), {}).run.id, create("x", (), {}).run.id
    with pytest.raises(
        RequestError, match=f"--resume x: no such run. Runs here, newest first: {newer}, {older}"
    ) as one:
        find("x")
    assert one.value.remedy == f"./invoke build --resume {newer}"


@pytest.mark.parametrize("content", ["nothing", "a stranger's", "another kind", "not a run"])
def test_a_foreign_folder_is_refused(tmp_path, content):
    folder = tmp_path / "foreign"
    folder.mkdir()
    made = create("x", (), {})
    if content == "a stranger's":
        (folder / "run.json").write_text((made.path / "run.json").read_text())
    elif content == "another kind":
        (folder / "run.json").write_text((made.path / "run.json").read_text())
        manifest = (made.path / ".trainwright-manifest.json").read_text()
        (folder / ".trainwright-manifest.json").write_text(manifest.replace(run_folder.KIND, "mirror"))
    elif content == "not a run":
        (folder / ".trainwright-manifest.json").write_text((made.path / ".trainwright-manifest.json").read_text())
        (folder / "run.json").write_text("{}")
    with pytest.raises(RequestError, match=f"foreign: the folder is not that of a run. Runs here.*{made.run.id}"):
        find(str(folder))


HOLD = """
import sys, time
from trainwright.fleet.run_folder import find
with find(sys.argv[1]).held():
    print("held", flush=True)
    time.sleep(60)
"""


def test_two_processes_do_not_work_on_one_run():
    folder = create("x", (), {})
    root = str(Path(__file__).parents[3])
    argv = [sys.executable, "-c", HOLD, folder.run.id]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": root}) as other:
        try:
            assert other.stdout.readline() == b"held\n"
            with pytest.raises(RequestError, match=f"process {other.pid} works on this run"), folder.held():
                pass
        finally:
            other.kill()
        other.wait()
        limit = time.monotonic() + 10
        while time.monotonic() < limit:  # the lock ended with its process
            try:
                with folder.held():
                    break
            except RequestError:
                time.sleep(0.05)
        else:
            pytest.fail("a dead process holds the run")
    with folder.held():
        pass
