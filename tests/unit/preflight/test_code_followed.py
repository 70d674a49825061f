"""Contexts, generators, classes and settings are followed, each beside its nearest right way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.followed_code import FOLLOWED, Pair
from tests.support.followed_steps import STEPS
from tests.support.training_scripts import codes
from trainwright.preflight.preflight import preflight

CASES = [pytest.param(pair, id=name) for name, pair in (FOLLOWED | STEPS).items()]
STAGED = """
import deepspeed
from transformers import Trainer, TrainingArguments
args = TrainingArguments(output_dir="/opt/ml/checkpoints", per_device_train_batch_size=4, deepspeed="zero.json")
trainer = Trainer(model=net, args=args)
trainer.train()
trainer.save_model("/opt/ml/model")
"""


@pytest.mark.parametrize("pair", CASES)
def test_the_mistake_is_reported_and_the_right_way_is_not(pair: Pair) -> None:
    code, wrong, right, job = pair
    assert code in codes(wrong, job)
    assert code not in codes(right, job)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"train_micro_batch_size_per_gpu": 8}, {"TW157"}),
        ({"train_micro_batch_size_per_gpu": "auto"}, set()),
        # transformers, integrations/deepspeed.py, trainer_config_process: 8 processes * 4 per device * 1 accumulated.
        ({"train_batch_size": 64, "train_micro_batch_size_per_gpu": "auto"}, {"TW157"}),
        ({"train_batch_size": 32, "gradient_accumulation_steps": "auto"}, set()),
        ({"train_batch_size": "auto"}, set()),
        ({"zero_optimization": {"stage": 3}}, {"TW450"}),
        ({"zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True}}, set()),
    ],
)
def test_a_settings_file_beside_the_script_is_read(
    tmp_path: Path, settings: dict[str, object], expected: set[str]
) -> None:
    (tmp_path / "zero.json").write_text(json.dumps(settings))
    (tmp_path / "train.py").write_text(STAGED)
    (tmp_path / "job.yaml").write_text(
        "instance_type: ml.p4d.24xlarge\nentry_point: train.py\ndistribution: {torch_distributed: {enabled: true}}\n"
    )
    found = {f.code for f in preflight([str(tmp_path / "train.py")], job_file=str(tmp_path / "job.yaml")).findings}
    assert found & {"TW157", "TW450"} == expected


@pytest.mark.parametrize("name", ["x" * 5000 + ".json", "no\\0name.json", "deep.json", "broken.yaml", "../zero.json"])
def test_a_settings_file_that_cannot_be_read_says_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "broken.yaml").write_text("a: [")
    (tmp_path / "train.py").write_text(STAGED.replace("zero.json", name))
    found = {f.code for f in preflight([str(tmp_path / "train.py")]).findings}
    assert not found & {"TW157", "TW450"}
