"""The arguments of Horovod's learning rate callbacks.

Sources: horovod/tensorflow/keras/callbacks.py at the tags v0.20.3 (`initial_lr=None` comes last) and v0.21.0 (it is the
first argument, and required), horovod/horovod #2459; tensorflow/training/docker of aws/deep-learning-containers:
horovod==0.20.3 in the images of TensorFlow 2.3, horovod==0.21.0 in those of 2.4.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.training_scripts import P4D, findings
from trainwright.preflight.preflight import preflight

MPI: dict[str, Any] = {"distribution": {"mpi": {"enabled": True, "processes_per_host": 8}}, "instance_type": P4D}
SCRIPT = """
import tensorflow as tf
import horovod.{module} as hvd
hvd.init()
def made(rate=0.1 * hvd.size()):
    return [hvd.callbacks.{callback}]
model.fit(data, callbacks=made())
"""


def on(image: str | None) -> dict[str, Any]:
    return MPI | {"image": image} if image else MPI


def tagged(version: str) -> str:
    return f"123456789012.dkr.ecr.eu-west-1.amazonaws.com/tensorflow-training:{version}-gpu-py37-cu110-ubuntu18.04"


def severity(callback: str, image: str | None, module: str = "tensorflow.keras") -> str | None:
    found = findings(SCRIPT.format(module=module, callback=callback), on(image))
    return next((each.severity for each in found if each.code == "TW575"), None)


@pytest.mark.parametrize("module", ["tensorflow.keras", "keras"])
@pytest.mark.parametrize(
    "callback",
    [
        "LearningRateWarmupCallback()",
        "LearningRateWarmupCallback(warmup_epochs=5, verbose=1)",
        "LearningRateWarmupCallback(5, initial_lr=rate)",
        "LearningRateScheduleCallback(multiplier=1e-1, start_epoch=30)",
        "LearningRateScheduleCallback(1e-1, start_epoch=30, end_epoch=60)",
        "LearningRateScheduleCallback(1e-1, initial_lr=rate, start_epoch=30)",
    ],
)
def test_arguments_that_a_release_requires(callback: str, module: str) -> None:
    assert severity(callback, tagged("2.4.1"), module) == "error"
    assert severity(callback, f"huggingface-{tagged('2.11.1').rpartition('/')[2]}", module) == "error"
    assert severity(callback, "own-image:1", module) == "warning"
    assert severity(callback, None, module) == "warning"
    assert severity(callback, tagged("2.3.2"), module) is None


@pytest.mark.parametrize(
    "callback",
    [
        "LearningRateWarmupCallback(rate)",
        "LearningRateWarmupCallback(rate, 5)",
        "LearningRateWarmupCallback(initial_lr=rate)",
        "LearningRateWarmupCallback(**settings)",
        "LearningRateScheduleCallback(rate, 1e-1)",
        "LearningRateScheduleCallback(rate, multiplier=1e-1)",
        "LearningRateScheduleCallback(initial_lr=rate, multiplier=lambda epoch: 0.1 ** epoch, start_epoch=5)",
        "LearningRateWarmupCallback() if hvd.__version__ < '0.21' else None",
    ],
)
def test_callbacks_that_get_all(callback: str) -> None:
    assert severity(callback, tagged("2.4.1")) is None


def test_a_script_that_tries_both_ways() -> None:
    tries = "try:\n    c = hvd.callbacks.LearningRateWarmupCallback(rate)\nexcept TypeError:\n    "
    script = f"import horovod.keras as hvd\nhvd.init()\n{tries}c = hvd.callbacks.LearningRateWarmupCallback()\n"
    assert "TW575" not in {each.code for each in findings(script, on(tagged("2.4.1")))}


@pytest.mark.parametrize(("wanted", "found"), [("0.20.3", False), ("0.28.1", True)])
def test_what_requirements_ask_for(tmp_path: Path, wanted: str, found: bool) -> None:
    text = SCRIPT.format(module="keras", callback="LearningRateWarmupCallback()")
    (tmp_path / "requirements.txt").write_text(f"horovod=={wanted}\n")
    (tmp_path / "train.py").write_text(text)
    (tmp_path / "job.yaml").write_text(json.dumps(on(tagged("2.4.1"))))
    document = preflight([str(tmp_path / "train.py")], job_file=str(tmp_path / "job.yaml"))
    assert ("TW575" in {each.code for each in document.findings}) == found
