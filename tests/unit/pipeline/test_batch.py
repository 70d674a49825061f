"""The jobs of a batch: how many it has, and what is rehearsed in an image."""

from __future__ import annotations

import json

from tests.support.in_process import call
from trainwright.catalog.catalog import load_catalog
from trainwright.core.paths import data_root
from trainwright.pipeline.batch import identifier, rehearsal, split
from trainwright.pipeline.buildspec import parse
from trainwright.pipeline.images import choose
from trainwright.pipeline.pipeline import shared_groups
from trainwright.plan.of_line import plan_of
from trainwright.site.site import Site


def test_what_is_rehearsed_in_a_tensorflow_image_takes_its_model_dir() -> None:
    """SDK 2 adds --model_dir to the arguments of every script there; a rehearsal of tensorflow/cpu ended with it."""
    catalog = load_catalog()
    entries = [entry for entry in catalog.lines if entry.line.framework == "tensorflow"]
    assert entries
    for entry in entries:
        job = rehearsal(plan_of(entry, catalog))
        assert "parse_known_args()" in (data_root() / job["SOURCE_DIR"] / "train.py").read_text(), entry.name


def test_a_batch_stays_within_its_limit_and_every_image_is_in_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("trainwright.pipeline.pipeline.MOST", 6)
    monkeypatch.setattr("trainwright.pipeline.batch.split.__defaults__", (6,))
    done = call("pipeline", "--format", "batch", "--images", "pytorch-*-debian", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["files"] == [f"buildspec-batch-{number}.yml" for number in range(1, len(document["files"]) + 1)]
    seen = []
    for name in document["files"]:
        graph = parse((tmp_path / name).read_text(), name)["batch"]  # what a job depends on is there
        *nodes, last = graph["build-graph"]
        assert len(nodes) + 1 <= 6
        own = [node["identifier"] for node in nodes if "STAGES" not in node["env"]["variables"]]
        assert last["depend-on"] == own, "each batch moves the tags of its images"
        assert [identifier(name) for name in last["env"]["variables"]["LINES"].split(",")] == own
        seen += own
    assert sorted(seen) == sorted(identifier(image["name"]) for image in document["images"])
    done = call("pipeline", "--images", "pytorch-*-debian", cwd=tmp_path)
    assert done.returncode == 2
    assert "at most 6 jobs" in done.stderr
    assert "--format batch" in done.stderr


def test_the_shipped_catalog_fits_into_batches():
    """96 of 100 once: five more lines would have been refused by AWS, and by nothing before it."""
    images = choose("*", load_catalog(), Site())
    shared = shared_groups(images, load_catalog())
    parts = split(images, shared)
    assert [image.name for some, _ in parts for image in some] == [image.name for image in images]
    for some, theirs in parts:
        assert len(some) + len(theirs) + 1 <= 100
        names = {group.name for group in theirs}
        assert all(group.parent is None or group.parent in names for group in theirs)
