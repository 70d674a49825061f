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

from trainwright.core.errors import ProofFailed
from trainwright.pipeline.kubernetes import smoke_training
from trainwright.push.job_results import content_of, read_result

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def smoke(tmp_path, monkeypatch):
    """The smoke test in an image whose probe finds what is said, and whose ``train`` does what is said."""

    def run(found: dict[str, Any], train: str = "", *, result: bool = False, **request: Any) -> tuple[int, str]:
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
                **({"RESULT": str(tmp_path / "result"), "IMAGE_DIGEST": "sha256:" + "d" * 64} if result else {}),
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


RESULT = {"plan": "1" * 64}


def test_what_was_found_is_left_as_a_result(smoke, tmp_path):
    train = 'cd "$ROOT/code" && SM_MODEL_DIR="$ROOT/model" SM_NUM_GPUS=0 ' + f"{sys.executable} train.py"
    found = {"facts": {"nccl": {"version": "2.9"}}, "os": {"ID": "debian"}, "packages": {"a": "1"}, "distributions": {}}
    fits = [expected("nccl", "version", "2.9")]
    code, said = smoke(found, train, job=smoke_training(""), expect=fits, result=True, **RESULT)
    assert code == 0, said
    left = (tmp_path / "result").read_text()
    result = read_result(left, "here")
    assert (result.image, result.plan, result.failed) == ("sha256:" + "d" * 64, "1" * 64, ())
    assert result.passed == ("1 facts are as planned", "a training job runs")
    assert result.content == content_of(found) != content_of({**found, "packages": {"a": "2"}})
    smoke(found, expect=[expected("nccl", "version", "3")], result=True, **RESULT)
    assert read_result((tmp_path / "result").read_text(), "here").failed == (
        "nccl: version should be 3, the image has 2.9",
    )


def test_a_result_fits_into_the_message_of_a_container(smoke, tmp_path):
    """Kubernetes, "Customizing the termination message": the kubelet truncates at 4096 bytes."""
    awful = [expected(f"x{number}", "fact", '\u00e4\n"\\\u0001' * 60) for number in range(40)]
    assert smoke({"facts": {}}, expect=awful, result=True, **RESULT)[0] == 1
    text = (tmp_path / "result").read_text()
    assert len(text.encode()) < 4096
    assert read_result(text, "here").failed[-1] == "and 32 more"


def test_a_result_that_was_changed_is_refused(smoke, tmp_path):
    smoke({"facts": {}}, expect=[expected("nccl", "version", "3")], result=True, **RESULT)
    text = (tmp_path / "result").read_text()
    read_result(text, "here")
    changed = {**json.loads(text), "failed": []}
    for wrong, why in (
        (json.dumps(changed), "changed after"),
        (text[:-30], "not the result of a job"),
        ("None\n", "not the result of a job"),
        ("", "not the result of a job"),
    ):
        with pytest.raises(ProofFailed, match=f"^here: .*{why}"):
            read_result(wrong, "here")


def test_the_program_is_one_for_the_oldest_python():
    """The first PyTorch images have 3.6."""
    ast.parse((ROOT / "templates/pipeline/kubernetes/smoke.py").read_text(), feature_version=(3, 6))
