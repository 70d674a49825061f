"""The smoke test that runs in an image in the cluster: what it holds against the plan, and the job that it runs."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainwright.pipeline.kubernetes import smoke_training

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def smoke(tmp_path, monkeypatch):
    """The smoke test in an image whose probe finds what is said, and whose ``train`` does what is said."""

    def run(found: dict[str, Any], train: str = "", **request: Any) -> tuple[int, str]:
        bin_folder = tmp_path / "bin"
        bin_folder.mkdir(exist_ok=True)
        (bin_folder / "train").write_text(f"#!/bin/sh\n{train}\n")
        (bin_folder / "train").chmod(0o755)
        asked = {"probes": [], "secrets": {}, "expect": [], "module": "", "gpus": 0, "job": None, **request}
        call_main = f"import sys; sys.exit(main(sys.argv[1], sys.argv[2], {str(tmp_path / 'ml')!r}))"
        program = (ROOT / "templates/pipeline/kubernetes/smoke.py").read_text().partition("\nif __name__")[0]
        probe = f"import json, sys\nassert json.loads(sys.argv[1])['probes'] == []\nprint({json.dumps(found)!r})\n"
        done = subprocess.run(
            [sys.executable, "-c", f"{program}\n{call_main}", probe, json.dumps(asked)],
            capture_output=True,
            text=True,
            check=False,
            env={
                "PATH": f"{bin_folder}:/usr/bin:/bin",
                "ROOT": str(tmp_path / "ml"),
                "PYTHONPATH": str(tmp_path / "lib"),
            },
        )
        return done.returncode, done.stdout + done.stderr

    return run


def expected(component: str, fact: str, value: str) -> dict[str, str]:
    return {"component": component, "fact": fact, "value": value}


@pytest.mark.parametrize(
    ("seen", "value", "fits"),
    [
        ("3.11.2", "3.11.*", True),
        ("3.11.2", "3.11", False),
        (True, "true", True),
        (None, "null", True),
        ("2.21.5", "2.21.*", True),
        ("2.22.0", "2.21.*", False),
    ],
)
def test_a_fact_is_held_against_the_plan(smoke, seen, value, fits):
    code, said = smoke({"facts": {"nccl": {"version": seen}}}, expect=[expected("nccl", "version", value)])
    assert (code == 0) == fits, said
    assert ("nccl: version should be" in said) != fits


def test_a_probe_that_failed_is_a_difference(smoke):
    code, said = smoke({"facts": {"nccl": {"error": "no such library"}}}, expect=[expected("nccl", "version", "2.*")])
    assert code == 1 and "no such library" in said
    code, said = smoke({"facts": {}}, expect=[expected("nccl", "version", "2.*")])
    assert code == 1 and "the image has nothing" in said


def test_a_training_job_is_run_as_the_platform_does(smoke, tmp_path):
    train = 'cd "$ROOT/code" && SM_MODEL_DIR="$ROOT/model" SM_NUM_GPUS=0 ' + f"{sys.executable} train.py"
    code, said = smoke({"facts": {}}, train, job=smoke_training(""))
    assert code == 0, said
    assert json.loads((tmp_path / "ml/input/config/resourceconfig.json").read_text())["hosts"] == ["algo-1"]
    parameters = json.loads((tmp_path / "ml/input/config/hyperparameters.json").read_text())
    assert json.loads(parameters["sagemaker_program"]) == "train.py"
    shutil.rmtree(tmp_path / "ml")
    # `train` that ends with 0 after a failure.
    code, said = smoke({"facts": {}}, "echo no such module >&2", job=smoke_training(""))
    assert code == 1 and "no such module" in said
    assert smoke({"facts": {}}, f"{train}; exit 3", job=smoke_training(""))[0] == 1


@pytest.mark.parametrize(("seen", "code"), [(2, 0), (4, 0), (1, 1), (0, 1)])
def test_the_framework_sees_the_gpus_of_the_container(smoke, tmp_path, seen, code):
    (tmp_path / "lib/torch").mkdir(parents=True)
    (tmp_path / "lib/torch/__init__.py").write_text(f"class cuda:\n    device_count = staticmethod(lambda: {seen})\n")
    assert smoke({"facts": {}}, module="torch", gpus=2)[0] == code


def test_the_program_is_one_for_the_oldest_python():
    """The first PyTorch images have 3.6."""
    ast.parse((ROOT / "templates/pipeline/kubernetes/smoke.py").read_text(), feature_version=(3, 6))
