"""One CUDA line in full, through the program: the main job of the README, with a compiler."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.support import image_tests
from tests.support.skips import short_of
from trainwright.engine.engine import connect

pytestmark = pytest.mark.cuda
FREE_GB = 30


@pytest.fixture(scope="module")
def built(program):
    root = Path(connect(setup=False).data_root or "/")
    free = shutil.disk_usage(root if root.exists() else "/").free
    if short := short_of(FREE_GB, free, "a CUDA image with its cache"):
        pytest.skip(short)
    if os.environ.get("TRAINWRIGHT_TEST_CUDA") == "never":
        pytest.skip("TRAINWRIGHT_TEST_CUDA=never")
    done = program(
        "build", "--framework", "pytorch", "--cuda", "cu124", "--with", "cuda-compiler", "--json", "--progress", "plain"
    )
    assert done.code == 0, done.err[-4000:]
    return done.json


def test_cuda_is_in_the_image_once(built):
    assert built["size_bytes"] < 7_000_000_000
    duplicates = built["probe"]["duplicates"]
    assert not duplicates


def test_what_torch_was_built_with_is_what_the_plan_says(built):
    facts = built["probe"]["facts"]
    assert facts["pytorch"]["cuda"] == "12.4"
    assert facts["nccl"]["version"] == facts["pytorch"]["nccl"] == "2.21.5"
    assert facts["cuda"]["version"] == "12.4"


def test_smoke_is_all_green(built, program):
    done = program("smoke", "--image", built["tags"][0], "--json")
    assert done.code == 0, done.err[-4000:]
    rows = done.json["rows"]
    assert done.json["failed"] == 0
    record = json.loads(Path(built["record"]).read_text())
    planned = [component["name"] for component in record["plan"]["components"]]
    assert {"cuda", "cuda-compiler", "nccl", "rmm"} <= set(planned)
    assert image_tests.reported(rows) == image_tests.expected(planned)
    assert record["smoke"]["failed"] == 0
