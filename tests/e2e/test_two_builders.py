"""Four lines on two builders: one of them dies in the middle of a build, the other goes on, and the run is resumed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.packages import unpacked
from tests.doubles.remote_builder import RELEASE, RemoteBuilder, buildx_configuration, remote_builder
from tests.e2e.test_build_images import NAMES, ROOT, catalog, units
from tests.support.finished import Finished

__all__ = ["catalog"]  # a fixture


@pytest.fixture
def farms(tmp_path: Path) -> Iterator[tuple[RemoteBuilder, RemoteBuilder]]:
    if os.geteuid() != 0 or shutil.which("runc", path=f"{os.environ['PATH']}:/usr/sbin") is None:
        pytest.skip("a second engine needs root and runc")
    unpacked("docker.io", release=RELEASE)
    client = buildx_configuration(tmp_path / "client")
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(remote_builder(Path(tempfile.mkdtemp(prefix="tw-")), client, number))
            for number in (1, 2)
        )
        yield first, second


def killed_midway(argv: list[str], environment: dict[str, str], state: Path, log: Path, farm: RemoteBuilder) -> Any:
    """Begin a run; kill a builder while it builds a line, and wait for the end; the folder of the run."""
    with log.open("wb") as out:
        process = subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=out, stderr=out)
    killed, limit = False, time.monotonic() + 1500
    try:
        while process.poll() is None:
            assert time.monotonic() < limit, log.read_text()[-4000:]
            lines = [unit for path in (state / "fleet").glob("*") for unit in units(path).values()]
            mine = [unit for unit in lines if unit["state"] == "running" and unit["builder"] == farm.name]
            # Some seconds into a build, which has begun to run steps by then.
            if not killed and any(" RUN " in Path(unit["log"]).read_text() for unit in mine):
                farm.kill()
                killed = True
            time.sleep(0.1)
    finally:
        process.kill()
        process.wait()
    assert killed, log.read_text()[-4000:]
    (folder,) = (state / "fleet").glob("*")
    return folder


def test_what_one_builder_leaves_is_built_by_the_other(
    program: Callable[..., Finished],
    docker: Callable[..., str],
    environment: dict[str, str],
    catalog: Path,
    farms: tuple[RemoteBuilder, RemoteBuilder],
    tmp_path: Path,
) -> None:
    state, site = tmp_path / "state", tmp_path / "site.toml"
    site.write_text('build_network = "host"\n')
    own = {"TRAINWRIGHT_STATE": str(state), "DOCKER_CONFIG": str(farms[0].configuration)}
    argv = [str(Path(sys.executable).with_name("invoke")), "build", "--images", "pytorch-0.*", "--keep-going"]
    argv += ["--catalog", str(catalog), "--site", str(site), "--builder", ",".join(farm.name for farm in farms)]
    folder = killed_midway(argv, environment | own, state, tmp_path / "log", farms[1])
    before = units(folder)
    said = (tmp_path / "log").read_text()
    (victim,) = [unit for unit in before.values() if unit["state"] == "failed"]
    assert victim["builder"] == farms[1].name
    done = [unit for unit in before.values() if unit["state"] == "built"]
    assert {unit["builder"] for unit in done} == {farms[0].name} and len(done) == len(NAMES) - 1, said[-4000:]
    assert f"another builder takes it, as {farms[1].name} gets nothing more" in said

    resumed = program("build", "--resume", folder.name, "--json", **own)
    assert resumed.code == 0, resumed.err[-4000:]
    after = units(folder)
    assert [after[name]["state"] for name in NAMES] == ["built"] * len(NAMES)
    assert all(after[unit["name"]] == unit for unit in done)  # not touched again
    for line in resumed.json["lines"]:
        label = '{{index .Config.Labels "io.trainwright.plan"}}'
        assert docker("image", "inspect", "--format", label, line["image"]) == line["plan"]
        record = json.loads((state / "images" / line["image"][7:23] / "record.json").read_text())
        assert record["probe"]["facts"]["python"]["version"].startswith("3.11")
