"""`tags advance` in a registry with ECR's rules: the moving tags of a set move together, forward, or not at all."""

from __future__ import annotations

import json
import os
import sys
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.aws import EmulatedAws
from tests.doubles.codebuild import run_build
from tests.support.documents import validated
from tests.support.in_process import call
from tests.support.registry_images import index_of, push_proven
from tests.support.signing_keys import write_pair
from trainwright.catalog.catalog import load_catalog
from trainwright.pipeline.images import ChosenImage, choose
from trainwright.push.ecr import Ecr, ImageManifest
from trainwright.push.references import PushPlace
from trainwright.push.registry import Registry
from trainwright.push.tags import soci_tag, tags_of
from trainwright.site.site import Site

ROOT = Path(__file__).resolve().parents[2]
CATALOG = load_catalog()
TORCH, FLOW = "pytorch-2.13.0-cpu-debian", "tensorflow-2.21.0-cpu-debian"
DAY = datetime(2026, 11, 1, 12, tzinfo=UTC)


@pytest.fixture
def prefix(aws: EmulatedAws, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of two repositories, one for each framework."""
    aws.lend(monkeypatch)
    made = f"set-{uuid.uuid4().hex[:8]}"
    for framework in ("pytorch", "tensorflow"):
        aws.client("ecr").create_repository(repositoryName=f"{made}/{framework}")
    return made


@pytest.fixture
def shelf(aws: EmulatedAws, prefix: str):
    def opened(image: ChosenImage) -> tuple[Ecr, Registry]:
        ecr = Ecr(PushPlace(aws.account, aws.regions[0], f"{prefix}/{image.plan.framework}"), Site())
        return ecr, Registry(ecr, Site())

    return opened


def line(name: str, **more: str) -> ChosenImage:
    (found,) = choose(name, CATALOG, Site(), **more)
    return found


def arrive(shelf: Any, image: ChosenImage, built: datetime = DAY, *, smoke: bool = True) -> ImageManifest:
    """What the job of an image leaves: it is there under its fixed tag, with its proof."""
    ecr, registry = shelf(image)
    return push_proven(ecr, registry, image.plan, os.urandom(100), built=built, smoke=smoke)


def moving(shelf: Any, image: ChosenImage) -> dict[str, str | None]:
    """What the moving tags of an image point to."""
    ecr, _ = shelf(image)
    return {tag: ecr.digest(tag) for tag in tags_of(image.plan, DAY, CATALOG).moving}


def advance(*words: str, code: int = 0) -> dict[str, Any]:
    done = call("tags", "advance", *words, "--json")
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout) if code else validated(done.stdout)


def test_the_tags_of_a_set_move_when_all_of_it_is_there(shelf, prefix):
    torch, flow = line(TORCH), line(FLOW)
    words = (TORCH, FLOW, "--repository-prefix", prefix)
    first = arrive(shelf, torch)
    refused = advance(*words, code=7)
    assert [why.partition(":")[0] for why in refused["lacking"]] == [FLOW]
    assert FLOW in refused["message"] and TORCH not in refused["message"]
    assert set(moving(shelf, torch).values()) == {None}, "an image that is missing holds the tags of the others back"
    second = arrive(shelf, flow)
    rows = advance(*words)["tags"]
    assert {row["state"] for row in rows} == {"made"}
    assert set(moving(shelf, torch).values()) == {first.digest}
    assert set(moving(shelf, flow).values()) == {second.digest}
    assert {row["tag"] for row in rows} == {*moving(shelf, torch), *moving(shelf, flow)}
    again = advance(*words)["tags"]
    assert {row["state"] for row in again} == {"there already"}
    assert [row["history"] for row in again] == [row["history"] for row in rows]


def test_an_image_without_a_proof_holds_the_set_back(shelf, prefix):
    arrive(shelf, line(TORCH))
    arrive(shelf, line(FLOW), smoke=False)
    refused = advance(TORCH, FLOW, "--repository-prefix", prefix, code=7)
    assert "is not proven" in refused["message"] and [FLOW in why for why in refused["lacking"]] == [True]
    assert set(moving(shelf, line(TORCH)).values()) == {None}


def test_an_older_proof_does_not_stand_in_for_the_newest_image(shelf, prefix):
    image = line(TORCH)
    arrive(shelf, image)
    arrive(shelf, image, DAY + timedelta(days=1), smoke=False)
    assert "is not proven" in advance(TORCH, "--repository-prefix", prefix, code=7)["message"]
    newest = arrive(shelf, image, DAY + timedelta(days=2))
    advance(TORCH, "--repository-prefix", prefix)
    assert set(moving(shelf, image).values()) == {newest.digest}


def test_an_image_of_another_plan_is_not_the_one_that_is_meant(shelf, prefix):
    """The compiler was added to the images of the batch, or to none of them."""
    plain, more = line(TORCH), line(TORCH, with_="compiler")
    there = arrive(shelf, more)
    assert plain.plan.id[:12] in advance(TORCH, "--repository-prefix", prefix, code=7)["message"]
    advance(TORCH, "--repository-prefix", prefix, "--with", "compiler")
    assert set(moving(shelf, more).values()) == {there.digest}
    assert set(moving(shelf, plain).values()) == {None}


def test_a_signature_that_the_site_demands_counts_as_well(aws, shelf, prefix, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    private, public = write_pair(tmp_path)
    (tmp_path / "trainwright.toml").write_text(f'[signing]\ntrusted = ["{public}"]\n')
    image = line(TORCH)
    there = arrive(shelf, image)
    assert "no valid signature" in advance(TORCH, "--repository-prefix", prefix, code=7)["message"]
    place = PushPlace(aws.account, aws.regions[0], f"{prefix}/pytorch")
    assert call("sign", place.digested(there.digest), "--key", str(private)).returncode == 0
    advance(TORCH, "--repository-prefix", prefix)
    assert set(moving(shelf, image).values()) == {there.digest}


def test_a_tag_that_is_further_stays_there(shelf, prefix):
    """A batch that began earlier ends later: its images are older than those that the tags have."""
    image = line(TORCH)
    ecr, registry = shelf(image)
    newer = arrive(shelf, image, DAY + timedelta(hours=2))
    advance(TORCH, "--repository-prefix", prefix)
    tag = tags_of(image.plan, DAY, CATALOG, revision=2).immutable
    other = push_proven(ecr, registry, image.plan, b"older", built=DAY - timedelta(days=1))
    ecr.put_tag(other, tag)
    rows = advance(TORCH, "--repository-prefix", prefix)["tags"]
    assert {row["state"] for row in rows} == {"kept"}
    assert set(moving(shelf, image).values()) == {newer.digest}


def test_a_set_is_whole_in_every_region_or_stays(aws, shelf, prefix):
    image, other = line(TORCH), aws.regions[1]
    aws.client("ecr", other).create_repository(repositoryName=f"{prefix}/pytorch")
    arrive(shelf, image)
    words = (TORCH, "--repository-prefix", prefix, "--region", aws.regions[0], "--region", other)
    assert other in advance(*words, code=7)["message"]
    assert set(moving(shelf, image).values()) == {None}


def test_tags_point_to_the_index_of_an_image_that_has_one(shelf, prefix):
    image = line(TORCH)
    ecr, _ = shelf(image)
    alone = arrive(shelf, image)
    index = index_of(ecr, alone, soci_tag(tags_of(image.plan, DAY, CATALOG).immutable), alone=True)
    advance(TORCH, "--repository-prefix", prefix)
    assert set(moving(shelf, image).values()) == {index.digest}


def test_a_repository_that_is_not_there_has_none_of_the_images(shelf, prefix):
    arrive(shelf, line(TORCH))
    refused = advance(TORCH, "--repository", f"{prefix}/none", code=7)
    assert f"{prefix}/none" in refused["message"] and "--create" not in refused["remedy"]


DOOR = f"""#!/bin/sh
exec {sys.executable} {ROOT / "tasks.py"} "$@"
"""


@pytest.mark.parametrize("missing", [False, True])
def test_the_last_job_of_a_batch(aws, shelf, prefix, tmp_path, missing):
    """Its phases as CodeBuild runs them, on a machine without an engine."""
    torch, flow = line(TORCH), line(FLOW)
    arrive(shelf, torch)
    if not missing:
        arrive(shelf, flow)
    (tmp_path / "buildspec-tags.yml").write_text((ROOT / "buildspec-tags.yml").read_text())
    (tmp_path / "invoke").write_text(DOOR)
    (tmp_path / "invoke").chmod(0o755)
    machine = {"PATH": "/usr/bin:/bin", "DOCKER_HOST": f"unix://{tmp_path}/nobody", "PYTHONPATH": str(ROOT)}
    own = {"LINES": f"{TORCH},{FLOW}", "REPOSITORY_PREFIX": prefix, "TRAINWRIGHT_STATE": str(tmp_path / "state")}
    built = run_build(tmp_path, "buildspec-tags.yml", environment={**aws.environment, **machine, **own}, timeout=120)
    assert built.succeeded is not missing, built.log
    assert (f"{FLOW}: no image of plan {flow.plan.id[:12]}" in built.log) == missing
    assert (None in moving(shelf, torch).values()) == missing


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("advance", TORCH, "--repository", "a", "--repository-prefix", "b"), "one of them"),
        (("advance", "pytroch", "--repository", "a"), "pytorch"),
        (("advance", TORCH, "--repository", "a", "--to", "b"), "--to is for move and hold"),
        (("list", "--repository-prefix", "b"), "--repository-prefix is for advance"),
        (("hold", "a", "--repository", "b", "--with", "c"), "--with is for advance"),
    ],
)
def test_flags_that_mean_nothing_are_refused(words, says, prefix):
    done = call("tags", *words)
    assert done.returncode == 2 and says in done.stderr
