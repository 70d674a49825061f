"""Four small lines, two at a time on one engine: killed after the first, resumed; each is built once, and proven."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.finished import Finished
from trainwright.core.paths import images_dir
from trainwright.core.processes import lives, pid_of

ROOT = Path(__file__).resolve().parents[2]
LINE = """\
framework: pytorch
version: {version}
cuda: cpu
python: "3.11"
base: debian-12
status: supported
components:
  python: {{provider: debian, version: "3.11"}}
{more}
evidence: [{{source: this test, date: "2026-11-23", says: small}}]
"""
SSH, METIS = '  ssh: {provider: debian, version: "9.2"}', "  metis: {provider: debian, version: 5.1.0}"
# Versions that no shipped line has; all but the second share stages.
LINES = {"0.1.0": SSH, "0.2.0": METIS, "0.3.0": f"{SSH}\n{METIS}", "0.4.0": f"{METIS}\n{SSH}"}
NAMES = [f"pytorch-{version}-cpu-debian" for version in LINES]


@pytest.fixture
def catalog(tmp_path: Path, docker: Callable[..., str]) -> Iterator[Path]:
    """A catalog of the test's own; what was built of it is removed from the engine."""
    for version, more in LINES.items():
        folder = tmp_path / "catalog/images/pytorch" / f"{version}-cpu"
        folder.mkdir(parents=True)
        (folder / "line.yaml").write_text(LINE.format(version=version, more=more))
        shutil.copy(images_dir() / "pytorch/cpu/lock.json", folder)
    yield tmp_path / "catalog"
    tags = docker("image", "ls", "--format", "{{.Repository}}:{{.Tag}}", "trainwright/pytorch").splitlines()
    for tag in tags:
        if tag.startswith("trainwright/pytorch:0."):
            docker("rmi", tag)


def units(folder: Path) -> dict[str, Any]:
    found = [json.loads(path.read_text()) for path in folder.glob("lines/*.json")]
    return {unit["name"]: unit for unit in found}


def killed_midway(words: tuple[str, ...], environment: dict[str, str], state: Path, log: Path) -> tuple[Path, Any]:
    """Begin a run; kill one of the two builds that run first, and the run itself when a line is built.

    Each with SIGKILL: a build with all that it has started, of the run its own process and no other.
    """
    argv = [str(Path(sys.executable).with_name("invoke")), "build", *words]
    with log.open("wb") as out:
        process = subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=out, stderr=out)
    killed = False
    try:
        limit = time.monotonic() + 900
        while True:
            assert process.poll() is None and time.monotonic() < limit, log.read_text()[-4000:]
            found = [(path, units(path)) for path in (state / "fleet").glob("*")]
            states = [unit["state"] for unit in found[0][1].values()] if found else []
            if states.count("running") == 2 and not killed:
                victim = next(unit for unit in found[0][1].values() if unit["state"] == "running")
                os.killpg(pid_of(victim["process"]), signal.SIGKILL)
                killed = True
            if {"built", "failed", "running"} <= {*states}:
                break
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait()
    ((folder, _),) = found
    return folder, units(folder)


def test_a_killed_run_goes_on_where_it_was(
    program: Callable[..., Finished],
    docker: Callable[..., str],
    environment: dict[str, str],
    catalog: Path,
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    words = ("--images", "pytorch-0.*", "--catalog", str(catalog), "--jobs", "2", "--keep-going")
    own = {"TRAINWRIGHT_STATE": str(state)}
    folder, before = killed_midway(words, environment | own, state, tmp_path / "log")
    done = [unit for unit in before.values() if unit["state"] == "built"]
    left = [unit for unit in before.values() if unit["state"] == "running"]
    (victim,) = [unit for unit in before.values() if unit["state"] == "failed"]
    assert victim["error"]["message"].startswith("signal 9 ended it")
    assert done and any(lives(unit["process"]) for unit in left)  # it was the run that was killed, not the builds

    resumed = program("build", "--resume", folder.name, "--jobs", "2", "--json", **own)
    assert resumed.code == 0, resumed.err[-4000:]
    assert not any(lives(unit["process"]) for unit in left)
    document = resumed.json
    assert [(line["name"], line["state"]) for line in document["lines"]] == [(name, "built") for name in sorted(NAMES)]
    after = units(folder)
    assert all(after[unit["name"]] == unit for unit in done)  # not touched again
    assert all(after[unit["name"]]["process"] != unit["process"] for unit in (*left, victim))
    for line in document["lines"]:
        label = '{{index .Config.Labels "io.trainwright.plan"}}'
        assert docker("image", "inspect", "--format", label, line["image"]) == line["plan"]
        assert line["tags"][0] in docker("image", "inspect", "--format", "{{.RepoTags}}", line["image"])
        record = json.loads((state / "images" / line["image"][7:23] / "record.json").read_text())
        assert record["probe"]["facts"]["python"]["version"].startswith("3.11")
    suite = ET.parse(folder / "junit.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "0", "0")

    again = program("build", "--resume", folder.name, "--json", **own)
    assert again.code == 0, again.err[-4000:]
    assert units(folder) == after  # nothing is left to build

    # An image that is gone is built again, from the builder's cache.
    gone = next(line for line in document["lines"] if line["name"] == done[0]["name"])
    for tag in gone["tags"]:
        docker("rmi", tag)
    third = program("build", "--resume", folder.name, "--json", **own)
    assert third.code == 0, third.err[-4000:]
    assert docker("image", "inspect", "--format", "{{.Id}}", gone["tags"][0])
    changed = {name for name, unit in units(folder).items() if unit != after[name]}
    assert changed == {done[0]["name"]}
