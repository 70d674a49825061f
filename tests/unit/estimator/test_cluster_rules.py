"""What a job may not have, or loses, where a cluster starts it instead of SageMaker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.cluster_jobs import EFS, FSX, IMAGE, TORCH, cluster_subject
from tests.support.estimator_jobs import ON, facts
from trainwright.core.findings import Finding
from trainwright.estimator.check import check
from trainwright.estimator.not_carried import CARRIED, CHECKED, NOT_CARRIED, REFUSED, omissions
from trainwright.estimator.subject import CLUSTERS, Cluster
from trainwright.sagemaker.job import Job

MPI = {"mpi": {"enabled": True, "processes_per_host": 8}}
GROUPS = [{"name": "a", "instance_type": "ml.p5.48xlarge", "instance_count": 2}]
TUNER = {"metric": "loss", "goal": "Minimize", "ranges": {"lr": {"min": 0.1, "max": 1.0}}, "max_jobs": 2}
SMP = {"smdistributed": {"modelparallel": {"enabled": True, "parameters": {"tensor_parallel_degree": 2}}}}
# Code, key, what is changed in a good job, the cluster.
CASES: list[tuple[str, str, dict[str, Any], Cluster]] = [
    ("TW300", "distribution", {"distribution": MPI}, "pytorchjob"),
    ("TW300", "distribution", {"distribution": {"smdistributed": {"dataparallel": ON}}}, "slurm"),
    ("TW300", "distribution", {"distribution": {}}, "slurm"),
    ("TW300", "entry_point", {"distribution": {}, "instance_count": 1, "entry_point": "run.sh"}, "hyperpod"),
    ("TW301", "tuner", {"tuner": TUNER, "metrics": {"loss": "loss=(.*)"}}, "pytorchjob"),
    ("TW301", "instance_groups", {"instance_type": None, "instance_groups": GROUPS}, "slurm"),
    ("TW301", "compiler", {"compiler": ON}, "hyperpod"),
    ("TW301", "distribution.smdistributed.modelparallel", {"distribution": TORCH | SMP}, "pytorchjob"),
    ("TW301", "instance_type", {"instance_type": "ml.trn1.32xlarge"}, "pytorchjob"),
    ("TW302", "spot", {"spot": True}, "slurm"),
    ("TW302", "keep_alive", {"keep_alive": 60}, "pytorchjob"),
    ("TW302", "output", {"output": None}, "pytorchjob"),
    ("TW302", "retries", {"retries": 1}, "slurm"),
    ("TW302", "checkpoint.s3_uri", {"checkpoint": {"s3_uri": "s3://b/c"}}, "slurm"),
    ("TW302", "hyperparameters.learning-rate", {"hyperparameters": {"learning-rate": 1}}, "pytorchjob"),
    ("TW302", "inputs.my-data", {"inputs": {"my-data": "s3://b/k"}}, "pytorchjob"),
    ("TW303", "inputs.a.input_mode", {"inputs": {"a": {"s3_data": "s3://b/k", "input_mode": "Pipe"}}}, "pytorchjob"),
    ("TW303", "inputs.a.compression", {"inputs": {"a": {"s3_data": "s3://b/k", "compression": "Gzip"}}}, "slurm"),
    (
        "TW303",
        "inputs.a.distribution",
        {"inputs": {"a": {"s3_data": "s3://b/k", "distribution": "ShardedByS3Key"}}},
        "hyperpod",
    ),
    (
        "TW303",
        "inputs.a.s3_data_type",
        {"inputs": {"a": {"s3_data": "s3://b/k", "s3_data_type": "ManifestFile"}}},
        "pytorchjob",
    ),
    ("TW304", "instance_type", {"instance_type": "ml.p3.16xlarge"}, "pytorchjob"),
    ("TW306", "source_dir", {"source_dir": "s3://bucket/code.tar.gz"}, "slurm"),
    ("TW307", "image", {"image": IMAGE.partition("@")[0]}, "pytorchjob"),
    ("TW308", "image", {}, "hyperpod"),
    ("TW309", "inputs.model", {"inputs": {"model": "s3://b/k"}}, "pytorchjob"),
    ("TW309", "inputs.A_b", {"inputs": {"a-b": "s3://b/k", "A_b": "s3://b/l"}}, "slurm"),
    ("TW309", "inputs.-a", {"inputs": {"-a": "s3://b/k"}}, "pytorchjob"),
    ("TW309", "environment.A-B", {"environment": {"A-B": "1"}}, "slurm"),
    ("TW309", "environment.IMAGE", {"environment": {"IMAGE": "x"}}, "slurm"),
    ("TW309", "environment.PATH", {"environment": {"PATH": "/x"}}, "slurm"),
    ("TW309", "region", {"image": f"registry.example/a@sha256:{'a' * 64}", "inputs": {"a": FSX}}, "pytorchjob"),
    ("TW264", "image", {"image": None}, "pytorchjob"),
]


# The nearest right job: the same change where it is in order, or a smaller one.
NEIGHBOURS: list[tuple[str, dict[str, Any], Cluster]] = [
    ("TW300", {"distribution": {}, "instance_count": 1}, "slurm"),
    ("TW300", {"distribution": {}, "instance_count": 1, "entry_point": "run.sh"}, "pytorchjob"),
    ("TW301", {"distribution": TORCH | {"smdistributed": {"modelparallel": {"enabled": False}}}}, "pytorchjob"),
    ("TW301", {"compiler": {"enabled": False}}, "pytorchjob"),
    ("TW302", {"retries": 1, "checkpoint": {"s3_uri": "s3://b/c"}}, "pytorchjob"),
    ("TW302", {"hyperparameters": {"learning_rate": 1}, "inputs": {"1st": "s3://b/k"}}, "pytorchjob"),
    ("TW302", {"batch": {"per_replica": 8}, "silence": {"TW240": "why"}, "max_run": 60}, "hyperpod"),
    ("TW303", {"inputs": {"a": {"s3_data": "s3://b/k", "compression": "None", "input_mode": "File"}}}, "pytorchjob"),
    ("TW304", {"instance_type": "ml.p3.16xlarge", "instance_count": 1}, "pytorchjob"),
    ("TW304", {"instance_type": "ml.c5.xlarge"}, "slurm"),
    ("TW305", {}, "pytorchjob"),
    ("TW306", {"entry_point": "run.sh"}, "pytorchjob"),
    ("TW307", {"image": IMAGE.replace("@", ":1@")}, "pytorchjob"),
    ("TW308", {}, "pytorchjob"),
    ("TW309", {"inputs": {"models": "s3://b/k", "a.b": "s3://b/k", "A_c": "s3://b/l"}}, "pytorchjob"),
    ("TW309", {"image": f"registry.example/a@sha256:{'a' * 64}", "inputs": {"a": FSX}}, "slurm"),
    ("TW309", {"environment": {"PATH": "/x", "IMAGE": "x"}}, "pytorchjob"),
    ("TW309", {"image": f"registry.example/a@sha256:{'a' * 64}", "inputs": {"a": EFS}}, "pytorchjob"),
]


def found(folder: Any, changes: dict[str, Any], cluster: Cluster) -> list[Finding]:
    (folder / "src").mkdir(exist_ok=True)
    (folder / "src" / "run.sh").touch()
    return check(cluster_subject(folder, cluster, **changes))


@pytest.mark.parametrize(("code", "path", "changes", "cluster"), CASES)
def test_a_rule_speaks_at_the_key(tmp_path, code, path, changes, cluster):
    findings = found(tmp_path, changes, cluster)
    assert (code, path) in {(each.code, each.path) for each in findings}, findings
    assert all(each.remedy and each.source for each in findings)


@pytest.mark.parametrize(("code", "changes", "cluster"), NEIGHBOURS)
def test_a_rule_is_silent_on_the_right_neighbour(tmp_path, code, changes, cluster):
    assert code not in {each.code for each in found(tmp_path, changes, cluster)}


MWMS = {"distribution": {"multi_worker_mirrored_strategy": ON}}
ALONE = {"distribution": {}, "instance_count": 1}


# Kubeflow's documentation: "TFJob ... Kubernetes custom resource to run TensorFlow training jobs", with TF_CONFIG.
@pytest.mark.parametrize(
    ("changes", "cluster", "path"),
    [
        (MWMS, "pytorchjob", "distribution"),
        ({"distribution": MPI}, "slurm", "distribution"),
        ({"distribution": {}}, "pytorchjob", "distribution"),
        ({"distribution": {}}, "slurm", "distribution"),
        (ALONE, "hyperpod", "image"),
    ],
)
def test_what_a_cluster_cannot_start_of_tensorflow_has_a_remedy_of_its_own(tmp_path, changes, cluster, path):
    findings = check(cluster_subject(tmp_path, cluster, facts("tensorflow", "2.19.0"), **changes))
    (told,) = [each for each in findings if each.code == "TW300"]
    assert told.path == path
    assert not [each for each in findings if "torch_distributed" in f"{each.message} {each.remedy}"]
    assert "TFJob" in told.remedy or "TF_CONFIG" in told.remedy
    assert "--format python" in told.remedy


@pytest.mark.parametrize("cluster", ["pytorchjob", "slurm"])
def test_one_host_of_tensorflow_runs_there_with_a_strategy_of_its_own(tmp_path, cluster):
    findings = check(cluster_subject(tmp_path, cluster, facts("tensorflow", "2.19.0"), **ALONE))
    (told,) = [each for each in findings if each.code in ("TW300", "TW275")]
    assert told.remedy.startswith("tf.distribute.MirroredStrategy")


def test_a_job_that_is_only_checked_needs_no_image(tmp_path):
    subject = cluster_subject(tmp_path, "hyperpod", image=None)
    assert "TW264" in {each.code for each in check(subject)}
    told = {each.code for each in check(replace(subject, generates=False))}
    assert "TW308" in told and not told & {"TW264", "TW307"}


# HyperPod's operator needs its agent in every image, which no label shows.
@pytest.mark.parametrize(("cluster", "codes"), [("pytorchjob", []), ("slurm", ["TW302"]), ("hyperpod", ["TW308"])])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"inputs": {"train": {"s3_data": "s3://b/k", "input_mode": "FastFile"}, "fsx": FSX}},
        {"instance_count": 1, "distribution": {}, "instance_type": "ml.g5.xlarge"},
        # What only SageMaker wants: an image in ECR, in the job's region; a role; FI_PROVIDER by hand.
        {"image": f"registry.example/a@sha256:{'a' * 64}", "region": "eu-central-1"},
        {"instance_type": "ml.g6.48xlarge"},
    ],
)
def test_the_rules_are_silent_on_a_good_job(tmp_path, cluster, codes, changes):
    ignored = {"region"} if cluster == "slurm" else set()
    assert [each.code for each in found(tmp_path, changes, cluster) if each.path not in ignored] == codes


def test_nothing_of_this_is_said_of_sagemakers_own_jobs(tmp_path):
    job = replace(cluster_subject(tmp_path, "pytorchjob", spot=True, inputs={"model": "s3://b/k"}), cluster=None)
    assert not [each for each in check(job) if each.code.startswith("TW30")]


def test_every_key_of_the_job_file_is_carried_checked_refused_or_said_to_be_missing():
    tables = (CARRIED, CHECKED, REFUSED, set(NOT_CARRIED))
    keys = set(Job.__struct_encode_fields__)
    assert set().union(*tables) == keys
    assert sum(map(len, tables)) == len(keys)


GIVEN: dict[str, Any] = {
    "spot": True,
    "max_wait": 90000,
    "keep_alive": 60,
    "encrypt_traffic": True,
    "network_isolation": True,
    "tensorboard": {"s3_uri": "s3://b/t"},
    "debugger": {"s3_uri": "s3://b/d"},
    "profiler": {"s3_uri": "s3://b/p"},
    "registry": {"access_mode": "Vpc"},
    "role": "arn:aws:iam::123456789012:role/training",
    "subnets": ["subnet-1"],
    "security_group_ids": ["sg-1"],
    "volume_gb": 100,
    "volume_kms_key": "key",
    "output_kms_key": "key",
    "disable_output_compression": True,
    "training_plan": "arn",
    "placement": {"multiple_jobs": True},
    "remote_debug": True,
    "session_tags": True,
    "tags": {"a": "b"},
    "metrics": {"loss": "x"},
}


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_every_setting_without_a_counterpart_is_named(tmp_path, cluster):
    assert set(GIVEN) == set(NOT_CARRIED)
    named = [each.key for each in omissions(cluster_subject(tmp_path, cluster, **GIVEN), cluster)]
    assert sorted(named) == sorted([*GIVEN, *(["output"] if cluster == "slurm" else [])])


def test_requirements_that_the_toolkit_would_install(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "requirements.txt").write_text("lightning\n")
    findings = found(tmp_path, {}, "pytorchjob")
    assert [each.path for each in findings if "requirements.txt" in each.message] == ["source_dir"]


@pytest.mark.parametrize(("size", "codes"), [(2**20, []), (2**20 + 1, ["TW306"])])
def test_code_that_is_too_large_for_a_configmap(tmp_path, size, codes):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_bytes(b"#" * size)
    assert [each.code for each in found(tmp_path, {}, "pytorchjob")] == codes
    assert "TW306" not in [each.code for each in found(tmp_path, {}, "slurm")]


def test_credentials_do_not_enter_a_manifest(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / ".netrc").touch()
    (finding,) = (each for each in found(tmp_path, {}, "pytorchjob") if each.code == "TW306")
    assert ".netrc" in finding.message


def test_pyxis_cannot_mount_a_folder_with_a_comma(tmp_path):
    (tmp_path / "a,b").mkdir()
    (tmp_path / "a,b" / "train.py").touch()
    assert "TW306" in [each.code for each in found(tmp_path, {"source_dir": "a,b"}, "slurm")]
    assert "TW306" not in [each.code for each in found(tmp_path, {"source_dir": "a,b"}, "pytorchjob")]


def test_variables_that_only_the_platform_sets(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("import os\nos.environ['SM_RESOURCE_CONFIG'], os.environ['SM_HOSTS']\n")
    (finding,) = (each for each in found(tmp_path, {}, "pytorchjob") if each.code == "TW305")
    assert finding.message == "train.py names SM_RESOURCE_CONFIG"
    given = {"environment": {"SM_RESOURCE_CONFIG": "{}"}}
    assert "TW305" not in [each.code for each in found(tmp_path, given, "pytorchjob")]


# hyperpod-elastic-agent 1.1.3: Requires-Dist: torch<2.12.0,>=2.4.0
@pytest.mark.parametrize(
    ("version", "taken"), [("2.3.1", False), ("2.4.0", True), ("2.11.1", True), ("2.12.0", False), ("2.13.0", False)]
)
def test_the_agent_takes_some_versions_of_pytorch(tmp_path, version, taken):
    image = facts(version=version, components={"pytorch": version, "aws-ofi-nccl": "1"})
    (finding,) = (each for each in check(cluster_subject(tmp_path, "hyperpod", known=image)) if each.code == "TW308")
    assert ("does not take" not in finding.message) == taken
