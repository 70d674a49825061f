"""How certain a rule is of what it says: an error, or a warning."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.rule_jobs import (
    IN_S3,
    ISOLATED,
    KEY_ID,
    MPI,
    ON,
    P3,
    P4,
    SECOND,
    TENSORFLOW,
    dist,
    found,
    image,
    smp,
    source_folder,
    tensorflow,
    tuned,
    wheel,
    without,
)
from trainwright.estimator.check import check
from trainwright.estimator.image import ImageFacts
from trainwright.estimator.subject import Subject
from trainwright.sagemaker.job import Job

folder = pytest.fixture(scope="module")(source_folder)

# What is wrong for certain is an error; where a job may run all the same, a warning.
PLAN_WEST = "arn:aws:sagemaker:us-west-2:123456789012:training-plan/plan-1"
SEVERITIES: list[tuple[str, dict[str, Any], ImageFacts | None, str]] = [
    ("TW249", {"instance_type": "ml.p5.48xlarge"}, image(cuda="12.4", gpus=("8.0",)), "error"),
    ("TW249", {"instance_type": "ml.g5.xlarge"}, image(cuda="12.4", gpus=("8.0",)), "warning"),
    ("TW250", {"instance_type": P3}, image(cuda="13.0"), "error"),
    ("TW250", {"instance_type": "ml.p2.xlarge"}, image(cuda="12.1"), "error"),
    ("TW250", {"instance_type": "ml.p5.48xlarge"}, without(pytorch="1.13.1 (wheel)"), "error"),
    ("TW250", {"instance_type": "ml.p6-b200.48xlarge"}, wheel("12.4"), "error"),
    # CUDA 12.8 compiles for B200, whose code runs on B300.
    ("TW250", {"instance_type": "ml.p6-b300.48xlarge"}, wheel("12.8"), "warning"),
    # Code for A10G runs on L4.
    ("TW250", {"instance_type": "ml.g6.xlarge"}, wheel("11.6"), "warning"),
    # AWS compiles its own PyTorch with PTX (aws/deep-learning-containers #1273: a T4 trains with code for V100).
    ("TW250", {"instance_type": "ml.p5.48xlarge"}, without(pytorch="1.12.1 (aws)"), "warning"),
    # TensorFlow's wheels hold PTX of 8.0.
    ("TW250", {"instance_type": "ml.p5.48xlarge"}, tensorflow("2.11.1"), "warning"),
    ("TW213", {"instance_type": "ml.m5.xlarge", "distribution": smp(pipeline_parallel_degree=2)}, image(), "error"),
    ("TW213", {"instance_type": "ml.m5.xlarge", "distribution": {"torch_distributed": ON}}, image(), "warning"),
    ("TW224", dist(smp(pipeline_parallel_degree=2, microbatch=4)), image(), "error"),
    ("TW224", dist(smp({"torch_distributed": ON}, hybrid_sharding_degree=2)), SECOND, "error"),
    ("TW224", dist(smp({"torch_distributed": ON}, pipeline_parallel_degree=2)), SECOND, "error"),
    # A part of the words of tensor_parallel_degree and sm_activation_offloading.
    ("TW224", dist(smp({"torch_distributed": ON}, tensor_parallel=2)), SECOND, "error"),
    ("TW224", dist(smp({"torch_distributed": ON}, activation_offloading=True)), SECOND, "error"),
    ("TW224", dist(smp({"torch_distributed": ON}, parallel=2)), SECOND, "warning"),
    ("TW224", dist(smp(pipeline_parallel_degree=2, memory_limit=1)), image(), "warning"),
    ("TW249", dist({"smdistributed": {"dataparallel": ON}}), image(cuda="cpu"), "error"),
    ("TW249", dist(smp(pipeline_parallel_degree=2)), image(cuda="cpu"), "error"),
    ("TW249", dist({"torch_distributed": ON}), image(cuda="cpu"), "error"),
    # Packages for GPUs may come with requirements.txt.
    ("TW249", dist({"torch_distributed": ON}, source_dir="s3://bucket/code.tar.gz"), image(cuda="cpu"), "warning"),
    ("TW249", dist({"torch_distributed": ON}, source_dir="more"), image(cuda="cpu"), "warning"),
    ("TW249", dist({"mpi": MPI}), image(cuda="cpu"), "warning"),
    ("TW234", dist({"mpi": {**MPI, "custom_mpi_options": "-np 17"}}), image(), "error"),
    ("TW234", dist({"mpi": {**MPI, "custom_mpi_options": "-np 16"}}), image(), "warning"),
    ("TW234", dist({"mpi": {**MPI, "custom_mpi_options": "-np 17 --oversubscribe"}}), image(), "warning"),
    ("TW234", dist({"mpi": {**MPI, "custom_mpi_options": "-npernode 17"}}), image(), "warning"),
    ("TW234", dist({"mpi": {**MPI, "custom_mpi_options": "-x A=b -np"}}), image(), "warning"),
    ("TW235", {"instance_type": P3, "environment": {"FI_PROVIDER": "efa"}}, image(), "warning"),
    ("TW235", {"instance_type": P3, "instance_count": 2, "environment": {"FI_PROVIDER": "efa"}}, image(), "error"),
    ("TW295", {"instance_type": P4, "spot": True, "training_plan": PLAN_WEST}, image(), "warning"),
    ("TW311", {"region": "us-west2", "image": "training:1"}, image(), "error"),
    ("TW311", {"region": "us-west-3", "image": "training:1"}, image(), "warning"),
    ("TW314", {"metrics": {"loss": "loss: ([0-9.]+"}}, image(), "error"),
    ("TW314", {"metrics": {"loss": "loss: [0-9.]+"}}, image(), "warning"),
    ("TW314", {"metrics": {"loss": "loss: (.*?)"}}, image(), "warning"),
    ("TW314", {"metrics": {"loss": "loss: (.+?)"}}, image(), "error"),
    # A search needs its objective; an expression of digits alone may do as a whole.
    ("TW314", tuned() | {"metrics": {"loss": "loss: [0-9.]+"}}, image(), "error"),
    ("TW314", tuned() | {"metrics": {"loss": "loss: (.*?)"}}, image(), "error"),
    ("TW314", tuned() | {"metrics": {"loss": r"[0-9]+\.\d+"}}, image(), "warning"),
    ("TW314", tuned() | {"metrics": {"loss": "loss: ([0-9.]+)", "lr": "lr: [0-9.]+"}}, image(), "warning"),
    ("TW319", {"hyperparameters": {"id": KEY_ID}}, image(), "error"),
    ("TW325", {"environment": {"PATH": "/opt/bin:$PATH"}}, image(), "error"),
    ("TW325", {"environment": {"PYTHONPATH": "/src:$PYTHONPATH"}}, image(), "warning"),
    ("TW319", {"environment": {"AWS_ACCESS_KEY_ID": KEY_ID}}, image(), "warning"),
    ("TW316", {**ISOLATED, "hyperparameters": IN_S3}, TENSORFLOW, "error"),
    # A script for PyTorch may never open it.
    ("TW316", {**ISOLATED, "hyperparameters": IN_S3}, image(), "warning"),
    ("TW316", {**ISOLATED, "hyperparameters": {"model_dir": "https://example.com/m"}}, TENSORFLOW, "warning"),
    ("TW316", {**ISOLATED, "entry_point": None, "source_dir": None, "hyperparameters": IN_S3}, TENSORFLOW, "warning"),
]


@pytest.mark.parametrize(("code", "changes", "facts", "severity"), SEVERITIES)
def test_how_certain_a_rule_is(folder, code, changes, facts, severity):
    assert {each.severity for each in found(folder, changes, facts) if each.code == code} == {severity}


@pytest.mark.parametrize(
    "address", ["ghcr.io/team/training:1", "quay.io/team/training", "123.dkr.ecr.us-west-2.on.aws/x"]
)
def test_another_registry_is_an_error_even_in_a_job_that_is_only_checked(tmp_path, address):
    job = Job(image=address, instance_type="ml.g5.2xlarge")
    assert ("TW241", "error") in {
        (each.code, each.severity) for each in check(Subject(job, image(), 2, tmp_path, False))
    }


@pytest.mark.parametrize("address", ["training:1", "team/training:1", "localhost:5000/team/training:1"])
def test_a_local_image_is_a_note_in_a_job_that_is_only_checked(tmp_path, address):
    for generates, severity in ((False, "note"), (True, "error")):
        job = Job(image=address, instance_type="ml.g5.2xlarge")
        told = [each for each in check(Subject(job, image(), 2, tmp_path, generates)) if each.code == "TW241"]
        assert [each.severity for each in told] == [severity]


def test_a_grid_with_a_range_has_one_finding_and_that_is_about_the_range(folder):
    errors = [each for each in found(folder, tuned(strategy="Grid"), image()) if each.severity == "error"]
    assert [(each.code, each.path) for each in errors] == [("TW216", "tuner.ranges.lr")]


@pytest.mark.parametrize(
    ("variables", "told"), [({}, True), ({"PIP_NO_INDEX": "1"}, False), ({"PIP_FIND_LINKS": "w"}, False)]
)
def test_requirements_in_an_isolated_job(tmp_path, variables, told):
    """The toolkit runs pip install -r; it fails unless the image has all of it, or the folder has wheels."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "requirements.txt").write_text("peft\n")
    for isolated in (True, False):
        job = Job(image="training:1", source_dir="src", network_isolation=isolated, environment=variables)
        found = [each for each in check(Subject(job, image(), 2, tmp_path, False)) if each.code == "TW316"]
        assert [(each.path, each.severity) for each in found] == [("source_dir", "warning")] * (told and isolated)
