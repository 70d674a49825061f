"""One CUDA line in full, through the program: the main job of the README, with a compiler, on Debian 13.

It has machine code for two kinds of GPUs alone; without ``--for-gpus`` there is a step less. NCCL's plugin is compiled
from a stand-in for its archive (``tests/twin/shapes/ofi-1.21``), which no registry has.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.support import image_tests
from tests.support.cuda_faults import COVERED, WHEELS, WHEELS_FAIL
from tests.support.planted import failing, planted
from tests.support.plugin_release import with_standin
from tests.support.skips import short_of
from trainwright.engine.engine import connect

pytestmark = pytest.mark.cuda
FREE_GB = 30


@pytest.fixture(scope="module")
def built(program, tmp_path_factory):
    root = Path(connect(setup=False).data_root or "/")
    free = shutil.disk_usage(root if root.exists() else "/").free
    if short := short_of(FREE_GB, free, "a CUDA image with its cache"):
        pytest.skip(short)
    if os.environ.get("TRAINWRIGHT_TEST_CUDA") == "never":
        pytest.skip("TRAINWRIGHT_TEST_CUDA=never")
    line = ("--framework", "pytorch", "--cuda", "cu130", "--version", "2.13.0")
    more = ("--with", "cuda-compiler", "--for-gpus", "ml.p4d,H100", "--json", "--progress", "plain")
    done = program("build", *line, *with_standin(tmp_path_factory.mktemp("plugin")), *more)
    assert done.code == 0, done.err[-4000:]
    return done.json


def test_cuda_is_in_the_image_once(built):
    assert built["size_bytes"] < 4_900_000_000  # 5.04 GB with machine code for all GPUs
    duplicates = built["probe"]["duplicates"]
    assert not duplicates


def test_the_image_says_for_which_gpus_it_is(built):
    labels = json.loads(Path(built["record"]).read_text())["plan"]["labels"]
    assert [value for name, value in labels.items() if name.endswith(".gpus")] == ["8.0, 9.0"]
    assert built["tags"][0].endswith("-gpu80-90")


def test_what_torch_was_built_with_is_what_the_plan_says(built):
    facts = built["probe"]["facts"]
    assert facts["pytorch"]["cuda"] == "13.0"
    assert facts["nccl"]["version"] == facts["pytorch"]["nccl"] == "2.29.7"
    assert facts["cuda"]["version"] == "13.0"
    assert facts["aws-ofi-nccl"]["version"] == "1.21.1"


@pytest.fixture(scope="module")
def smoked(built, program):
    done = program("smoke", "--image", built["tags"][0], "--json")
    assert done.code == 0, done.err[-4000:]
    return done.json


def test_smoke_is_all_green(built, smoked):
    assert smoked["failed"] == 0
    record = json.loads(Path(built["record"]).read_text())
    planned = [component["name"] for component in record["plan"]["components"]]
    assert {"aws-ofi-nccl", "cuda", "cuda-compiler", "efa", "nccl", "openmpi", "rmm"} <= set(planned)
    assert image_tests.reported(smoked["rows"]) == image_tests.expected(planned)
    assert record["smoke"]["failed"] == 0


def test_planted_faults_are_found(built, smoked, tmp_path):
    plan = json.loads((Path(built["record"]).parent / "plan.json").read_text())
    with planted(built["tags"][0], WHEELS, "trainwright-test/planted:wheels", tmp_path) as image:
        _, failed = failing(image, plan, tmp_path, COVERED, image_tests.of(smoked["rows"], COVERED))
    assert failed == WHEELS_FAIL
