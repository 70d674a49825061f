"""`smoke --attach` on another machine than the one that built an image: pulled by its digest, tested, written back."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import pytest

from tests.support.documents import validated
from trainwright.core.paths import templates_dir

WEST = "us-west-2"


@pytest.fixture
def pushed(program, aws, cpu_image) -> str:
    """The address of the CPU image in a repository of its own, by its digest."""
    words = ("--repository", f"dev/{uuid.uuid4().hex[:8]}", "--region", WEST, "--create", "--leave-tags")
    done = program("push", "--image", cpu_image, *words, "--progress", "plain", "--json", **aws.environment)
    assert done.code == 0, done.err[-4000:]
    return str(done.json["images"][0]["uri"])


def test_an_image_is_tested_by_its_digest_and_the_result_decides(program, aws, pushed, docker, tmp_path: Path) -> None:
    own = {"TRAINWRIGHT_STATE": str(tmp_path / "state"), **aws.environment}
    to = ("--to", f"{aws.account}/{WEST}/prod/{uuid.uuid4().hex[:8]}", "--create", "--json")
    # METIS of somebody else, whose test fails.
    broken = tmp_path / "catalog/templates/components/metis"
    shutil.copytree(templates_dir() / "components/metis", broken)
    with (broken / "test_metis.py").open("a") as tests:
        tests.write("\n\ndef test_planted():\n    assert False, 'planted'\n")
    failed = program("smoke", "--image", pushed, "--attach", "--catalog", str(tmp_path / "catalog"), "--json", **own)
    assert failed.code == 6, failed.err[-4000:]
    assert [row["check"] for row in validated(failed.out)["failed"]] == ["test_planted"]
    refused = program("promote", pushed, *to, **own)
    assert refused.code == 6
    assert "a job without GPUs failed in it" in refused.json["message"]
    assert "metis: test_planted" in refused.json["message"]
    passed = program("smoke", "--image", pushed, "--attach", "--json", **own)
    assert passed.code == 0, passed.err[-4000:]
    document = validated(passed.out)
    assert (document["image"], document["failed"]) == (pushed, 0)
    assert document["passed"] > 100
    done = program("promote", pushed, *to, **own)
    assert done.code == 0, done.err[-4000:]
    # The record came with the image, for what else is done with it here.
    (built,) = program("list", "--built", "--json", **own).json["images"]
    assert built["smoke"] == "passed"
    assert docker("image", "inspect", "--format", "{{.Id}}", pushed) == built["image_id"]
    docker("rmi", pushed)
