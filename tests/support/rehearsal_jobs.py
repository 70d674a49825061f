"""Jobs to rehearse, for tests of what becomes of them."""

from __future__ import annotations

from typing import Any

from trainwright.rehearse.flags import make_job
from trainwright.rehearse.rehearsed_job import RehearsedJob

JOB = RehearsedJob(image="x", entry_point="train.py", hosts=2, distribution={"torch_distributed": {"enabled": True}})

WORDS: dict[str, Any] = {
    "image": "x",
    "entry_point": "train.py",
    "source_dir": None,
    "requirements": None,
    "hosts": 2,
    "processes_per_host": 0,
    "distribution": None,
    "instance_type": "ml.m5.xlarge",
    "hyperparameters": None,
    "inputs": [],
    "environment": [],
    "sdk": 2,
    "launch_only": False,
    "timeout": 300.0,
    "stop_after": None,
    "instance_groups": None,
    "memory": None,
}

MIXED = (
    '[{"name": "data", "instance_type": "ml.c5.xlarge", "instance_count": 1},'
    ' {"name": "train", "instance_type": "ml.g5.12xlarge", "instance_count": 2}]'
)
GROUPED = '{"mpi": {"enabled": true}, "instance_groups": ["train"]}'


def job(**more: Any) -> RehearsedJob:
    own = {"hosts": 1} if "instance_groups" in more else {}
    return make_job(**{**WORDS, **own, **more})
