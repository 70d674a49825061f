"""What the version of a library decides: trl counts the completions of GRPO in another way in each of these.

trl 0.14 has no check, 0.15.2 and 0.16 compare num_generations with per_device_train_batch_size * processes
(trainer/grpo_trainer.py), 0.17 multiplies by gradient_accumulation_steps.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.training_scripts import P4D, TORCHRUN
from trainwright.core.records import parse_record
from trainwright.preflight.preflight import examine
from trainwright.sagemaker.job import Job
from trainwright.script.reader import Reader

JOB: dict[str, Any] = {"distribution": TORCHRUN, "instance_type": P4D, "instance_count": 2}
# 64 completions, and 192 with three accumulated steps.
SETTINGS = "num_generations=6, per_device_train_batch_size=4, gradient_accumulation_steps=3"
CALLED = f"settings = GRPOConfig('/tmp/x', {SETTINGS})\n"
PARSED = """
from dataclasses import dataclass
from transformers import HfArgumentParser
@dataclass
class Settings(GRPOConfig):
    output_dir: str = "/tmp/x"
    num_generations: int = 6
(settings,) = HfArgumentParser(Settings).parse_args_into_dataclasses()
"""
HYPERPARAMETERS = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 3}


@pytest.mark.parametrize("settings", [CALLED, PARSED], ids=["called", "parsed"])
@pytest.mark.parametrize(
    ("wanted", "reported"),
    [
        ("trl==0.14.0", False),
        ("trl==0.15.2", True),
        ("trl>=0.15,<0.17", True),
        ("trl~=0.16.0", True),
        ("trl==0.17.0", False),
        ("trl>=0.15", False),
        ("trl>=0.18,<0.20", False),
        ("trl", False),
    ],
)
def test_completions_that_divide_a_batch(tmp_path: Path, settings, wanted, reported):
    (tmp_path / "requirements.txt").write_text(f"{wanted}\n")
    entry = tmp_path / "train.py"
    trains = "GRPOTrainer(model, reward_funcs=score, args=settings, train_dataset=data).train()\n"
    entry.write_text(f"from trl import GRPOConfig, GRPOTrainer\n{settings}{trains}")
    job = parse_record(Job, {**JOB, "hyperparameters": HYPERPARAMETERS if settings is PARSED else {}}, "job")
    found = [f.message for f in examine(Reader().script(entry, tmp_path), job).findings if f.code == "TW157"]
    assert ["does not divide 4 completions * 16 processes" in message for message in found] == [True] * reported
