"""What a user asks to have rehearsed: the words of the command line, its launcher, and what the image adds to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.rehearsal_jobs import GROUPED, MIXED, job
from trainwright.core.errors import RehearsalFailed, RequestError
from trainwright.rehearse import opt_ml
from trainwright.rehearse.hosts import JobImage
from trainwright.rehearse.rehearsal import launch_of, of_image


def test_a_word_a_text_and_a_file_give_a_distribution(tmp_path: Path) -> None:
    (tmp_path / "d.json").write_text('{"mpi": {"enabled": true}}')
    for given_ in ("mpi", '{"mpi": {"enabled": true}}', str(tmp_path / "d.json")):
        assert job(distribution=given_).distribution == {"mpi": {"enabled": True}}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"image": ""}, "--image"),
        ({"entry_point": "", "source_dir": "src"}, "--source-dir: only with --entry-point"),
        ({"entry_point": "", "distribution": "mpi", "sdk": 3}, "--distribution, --sdk 3: only with --entry-point"),
        ({"entry_point": "", "launch_only": True}, "--launch-only: only with --entry-point"),
        ({"sdk": 1}, "--sdk 1"),
        ({"distribution": "torchdistributed"}, "torch_distributed"),
        ({"hyperparameters": "[1]"}, "--hyperparameters"),
        ({"hyperparameters": "{"}, "not readable as JSON"),
        ({"inputs": ["training"]}, "--input training"),
        ({"stop_after": "soon"}, "--stop-after soon"),
        ({"instance_groups": "[]"}, "list of groups"),
        ({"instance_groups": '[{"name": "a", "instance_typ": "ml.m5.xlarge", "instance_count": 1}]'}, "instance_type"),
        (
            {"instance_groups": '[{"name": "a", "instance_type": "ml.m5.xlarge", "instance_count": 0}]'},
            "instance_count",
        ),
        ({"instance_groups": MIXED.replace('"data"', '"train"')}, "twice"),
        ({"instance_groups": MIXED, "hosts": 2}, "--hosts"),
        ({"instance_groups": MIXED, "sdk": 3}, "SDK 3"),
        ({"instance_groups": MIXED, "distribution": "mpi"}, "one of the 2 groups"),
        ({"instance_groups": MIXED, "distribution": GROUPED.replace("train", "trian")}, "train"),
        ({"distribution": GROUPED}, "--instance-groups"),
    ],
)
def test_a_wrong_word_is_named(words: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError) as refused:
        job(**words)
    assert said in refused.value.message + refused.value.remedy


@pytest.mark.parametrize(
    ("words", "launcher", "count"),
    [
        ({}, "process", 1),
        ({"distribution": "torch_distributed"}, "torchrun", 1),
        ({"distribution": "torch_distributed", "instance_type": "ml.p4d.24xlarge"}, "torchrun", 8),
        ({"distribution": "torch_distributed", "processes_per_host": 3}, "torchrun", 3),
        ({"distribution": '{"mpi": {"enabled": true, "processes_per_host": 5}}'}, "mpi", 5),
        ({"distribution": "mpi", "sdk": 3, "processes_per_host": 2}, "mpi", 2),
        ({"distribution": "torch_distributed", "sdk": 3, "instance_type": "ml.g5.12xlarge"}, "torchrun", 4),
    ],
)
def test_the_launcher_and_its_processes(words: dict[str, Any], launcher: str, count: int) -> None:
    launch = launch_of(job(**words))
    assert (launch.launcher, launch.processes_per_host) == (launcher, count)


def test_more_processes_than_gpus_is_a_failure_of_the_job() -> None:
    with pytest.raises(RehearsalFailed) as refused:
        launch_of(job(distribution="mpi", processes_per_host=16, instance_type="ml.p4d.24xlarge"))
    assert refused.value.exit_code == 9
    assert "8 GPU" in refused.value.message


def test_processes_without_a_launcher_are_refused() -> None:
    with pytest.raises(RequestError, match="one process per host"):
        launch_of(job(processes_per_host=2))


@pytest.mark.parametrize(
    ("labels", "environment", "framework", "smp"),
    [
        ({}, {}, "pytorch", None),
        ({"framework": "tensorflow"}, {}, "tensorflow", None),
        ({"framework": "huggingface-tensorflow"}, {}, "tensorflow", None),
        ({}, {"SAGEMAKER_TRAINING_MODULE": "sagemaker_tensorflow_container.training:main"}, "tensorflow", None),
        ({"framework": "pytorch", "component.smdistributed-modelparallel": "1.7.0 (aws)"}, {}, "pytorch", "1.7.0"),
    ],
)
def test_an_image_says_its_framework_and_what_it_has_of_smp(labels, environment, framework, smp) -> None:
    named = {f"io.trainwright.{name}": value for name, value in labels.items()}
    image = JobImage("ref", "sha256:1", named, "/bin", environment, (), (), (), 0)
    told = of_image(job(), image)
    assert (told.framework, told.smp_version) == (framework, smp)


def test_without_an_entry_point_the_image_s_own_program_runs(tmp_path: Path) -> None:
    """As SDK 2.257.6 does it for ``Estimator(image_uri)``: no code, no ``sagemaker_`` keys, values as text."""
    wanted = replace(job(entry_point=""), hyperparameters={"lr": 0.1, "shuffle": True, "name": "a b"})
    image = JobImage("ref", "sha256:1", {}, "/bin", {"SAGEMAKER_PROGRAM": "main.py"}, (), (), ("main.py",), 0)
    told = of_image(wanted, image)
    assert (told.entry_point, told.baked) == ("main.py", True)
    assert opt_ml.hyperparameters(told, "main.py", None) == {"lr": "0.1", "shuffle": "True", "name": "a b"}
    opt_ml.write_control(told, "process", tmp_path / "control")
    assert not (tmp_path / "control" / opt_ml.ARCHIVE).exists()


def test_an_image_without_a_program_needs_an_entry_point() -> None:
    image = JobImage("ref", "sha256:1", {}, "/bin", {}, (), (), (), 0)
    with pytest.raises(RequestError, match="needs --entry-point: ref names no program"):
        of_image(job(entry_point=""), image)


def test_an_image_for_a_cluster_is_started_as_a_cluster_does() -> None:
    labels = {"io.trainwright.for": "ec2", "io.trainwright.entry-point": "main.py"}
    image = JobImage("ref", "sha256:1", labels, "/bin", {}, (), (), ("main.py",), 0)
    with pytest.raises(RequestError) as refused:
        of_image(job(), image)
    assert "ref is for ec2" in refused.value.message
    assert "--start pytorchjob" in str(refused.value.remedy)
    told = of_image(replace(job(entry_point=""), start="slurm"), image)
    assert (told.entry_point, told.baked) == ("main.py", True)


def test_parameters_that_the_smp_of_the_image_does_not_know_are_refused() -> None:
    smp = {"enabled": True, "parameters": {"pipeline_parallel_degree": 2}}
    mpi = {"enabled": True, "processes_per_host": 8}
    wanted = replace(job(), distribution={"smdistributed": {"modelparallel": smp}, "mpi": mpi})
    assert "mp_parameters" in opt_ml.hyperparameters(replace(wanted, smp_version="1.7.0"), "train.py", 8)
    with pytest.raises(RequestError, match="has no parameter pipeline_parallel_degree"):
        opt_ml.hyperparameters(replace(wanted, smp_version="1.5.0"), "train.py", 8)


def test_a_launcher_of_tensorflow_is_no_mistake_in_an_image_of_tensorflow() -> None:
    wanted = job(distribution="parameter_server", hosts=2)
    image = JobImage("ref", "sha256:1", {"io.trainwright.framework": "tensorflow"}, "/bin", {}, (), (), (), 0)
    assert launch_of(of_image(wanted, image)).launcher == "parameter-server"
