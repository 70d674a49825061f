"""The job that a pipeline, and `prove`, rehearse in an image."""

from __future__ import annotations

from trainwright.catalog.catalog import load_catalog
from trainwright.core.paths import data_root
from trainwright.pipeline.batch import rehearsal
from trainwright.plan.of_line import plan_of


def test_what_is_rehearsed_in_a_tensorflow_image_takes_its_model_dir() -> None:
    """SDK 2 adds --model_dir to the arguments of every script there; a rehearsal of tensorflow/cpu ended with it."""
    catalog = load_catalog()
    entries = [entry for entry in catalog.lines if entry.line.framework == "tensorflow"]
    assert entries
    for entry in entries:
        job = rehearsal(plan_of(entry, catalog))
        assert "parse_known_args()" in (data_root() / job["SOURCE_DIR"] / "train.py").read_text(), entry.name
