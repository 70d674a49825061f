"""Jobs and the exact findings of a rule for each: how many, at which keys, with which severity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster_jobs import TORCH, cluster_subject
from tests.support.rule_jobs import (
    BAKED,
    COMPILER,
    DATA,
    DLC,
    GROUPS,
    ISOLATED,
    MPI,
    NEWER,
    OLDER,
    ON,
    OWN,
    P3,
    P4,
    REFERENCE,
    SECOND,
    SECOND_OF_AWS,
    TENSORFLOW,
    dist,
    found,
    grouped,
    image,
    old,
    smp,
    source_folder,
    tensorflow,
    without,
)
from trainwright.estimator.check import check
from trainwright.estimator.image import ImageFacts

folder = pytest.fixture(scope="module")(source_folder)

SMP = "distribution.smdistributed.modelparallel.parameters"
OPTIONS = "distribution.mpi.custom_mpi_options"
FOUR, P5, P3DN, TRN = "ml.p3.8xlarge", "ml.p5.48xlarge", "ml.p3dn.24xlarge", "ml.trn1.32xlarge"
COMPILED = {"instance_type": FOUR, "compiler": ON}
NOBODY = {"entry_point": None, "source_dir": None}
ACCUMULATED = {"global": 512, "per_replica": 8}  # on 16 GPUs
UNHEARD = {"instance_type": "ml.q1.large", "instance_count": 2}  # of no table
ONE_GROUP = {"instance_type": None, "instance_groups": GROUPS[:1]}
SEVEN = "smdistributed-modelparallel"


def library(version: str) -> ImageFacts:
    return without(SEVEN, **{SEVEN: f"{version} (aws)"})


def mpi(options: str, **more: Any) -> dict[str, Any]:
    return dist({"mpi": {**MPI, "custom_mpi_options": options}}, **more)


def only_here(**changes: Any) -> dict[str, Any]:
    return {"instance_type": "ml.m5.xlarge", **changes}


Row = tuple[str, dict[str, Any], ImageFacts | None, int, list[str]]
# The rule, the change to a valid job, the image, the SDK, and the key and severity of each finding.
COMPILERS: list[Row] = [
    # XLA's launcher sets GPU_NUM_DEVICES; without it, PyTorch needs it from the job, and TensorFlow does not.
    ("TW258", {**COMPILED, "distribution": {"pytorchxla": ON}}, COMPILER, 2, []),
    ("TW258", COMPILED, COMPILER, 2, ["environment: note"]),
    ("TW258", COMPILED, tensorflow("2.9.1"), 2, []),
    ("TW258", {**COMPILED, "environment": {"GPU_NUM_DEVICES": "4"}}, COMPILER, 2, []),
    (
        "TW256",
        {"compiler": {"enabled": False}, "distribution": {"pytorchxla": ON}},
        COMPILER,
        2,
        ["distribution.pytorchxla: error"],
    ),
    ("TW257", COMPILED, tensorflow("2.9.1"), 2, []),
    ("TW257", {**COMPILED, "distribution": {"mpi": MPI}}, COMPILER, 2, []),
    (
        "TW254",
        {**COMPILED, "distribution": {"pytorchxla": ON, "instance_groups": ["a"]}},
        COMPILER,
        2,
        ["instance_groups: error"],
    ),
]
SDK_3: list[Row] = [
    ("TW282", {"entry_point": "train"}, image(), 3, ["entry_point: error"]),
    ("TW283", dist({"torch_distributed": ON}), image(), 3, []),
    ("TW280", grouped({"mpi": MPI, "instance_groups": ["gpu"]}), image(), 3, []),
    ("TW280", dist(smp(partitions=2)), image(), 3, ["distribution: error"]),
    # SDK 3's drivers do without SageMaker's toolkit.
    ("TW243", dist({"mpi": MPI}), without("sagemaker-toolkit"), 3, []),
    ("TW243", dist({"torch_distributed": ON}), without("sagemaker-toolkit"), 3, []),
    ("TW243", dist({"torch_distributed": ON}), without("sagemaker-toolkit"), 2, ["image: error"]),
    ("TW244", dist({"torch_distributed": ON}), image(framework="jax"), 3, []),
    ("TW246", NOBODY, BAKED, 3, ["entry_point: error"]),
]
LAUNCHES: list[Row] = [
    ("TW232", mpi("-verbose --mca pml"), image(), 2, [f"{OPTIONS}: error"]),
    ("TW235", mpi("-x A=b -x FI_PROVIDER=efa -verbose", instance_type=P3), image(), 2, [f"{OPTIONS}: error"]),
    ("TW235", mpi("-x FI_PROVIDER=efa -verbose", instance_type=P3), image(), 2, [f"{OPTIONS}: error"]),
    # TW201 reports that true is not a number; a disabled option starts nothing.
    ("TW231", dist({"mpi": {**MPI, "processes_per_host": True}}), image(), 2, []),
    ("TW230", dist({"mpi": {"enabled": False, "processes_per_host": 16}}), image(), 2, []),
    ("TW234", mpi("-verbose -np 17 -verbose"), image(), 2, [f"{OPTIONS}: error"]),
    ("TW234", mpi("-np 17 -verbose"), image(), 2, [f"{OPTIONS}: error"]),
    ("TW324", mpi("-x A=b -x C=d -verbose -x E"), image(), 2, []),
    ("TW324", mpi("-x"), image(), 2, [f"{OPTIONS}: error"]),
    ("TW324", mpi("-x -verbose"), image(), 2, [f"{OPTIONS}: error"]),
    ("TW324", mpi("-x A=b c -verbose"), image(), 2, [f"{OPTIONS}: error"]),
    (
        "TW237",
        mpi("-x FI_EFA_USE_DEVICE_RDMA=1", instance_type="ml.g4dn.12xlarge"),
        image(),
        2,
        [f"{OPTIONS}: warning"],
    ),
    ("TW238", dist(DATA), without("aws-ofi-nccl"), 2, ["instance_type: warning"]),
    (
        "TW238",
        {"instance_type": P3DN, "instance_count": 2, "compiler": ON, "distribution": {"pytorchxla": ON}},
        without("aws-ofi-nccl"),
        2,
        ["instance_type: warning"],
    ),
    # NCCL is for NVIDIA's GPUs.
    ("TW238", dist({"torch_distributed": ON}, instance_type=TRN), without("aws-ofi-nccl"), 2, []),
    ("TW236", dist({"mpi": MPI}, instance_type="ml.c5n.18xlarge"), image(cuda="cpu"), 2, []),
    ("TW239", dist({"mpi": MPI}, instance_type="ml.c5n.18xlarge"), image(cuda="cpu"), 2, []),
]
IMAGES: list[Row] = [
    ("TW243", dist({"mpi": MPI}), without("mpi4py").replace(origin="plan"), 2, ["plan: error"]),
    ("TW294", {"image": DLC.partition(":")[0] + "@sha256:" + "0a" * 32}, image(), 2, []),
    # A registry in the VPC does not make a name of ECR's right.
    ("TW241", {**OWN, "image": REFERENCE.replace("team", "Team")}, image(), 2, ["image: error"]),
    # The plan's base image of AWS holds TensorFlow's library, which nobody else can install.
    ("TW243", dist(smp(partitions=2)), library("1.7.0").replace(framework="tensorflow"), 2, ["image: error"]),
    (
        "TW243",
        dist(smp(partitions=2)),
        without(SEVEN, **{SEVEN: "1.7.0 (base)"}).replace(framework="tensorflow"),
        2,
        [],
    ),
    ("TW245", dist(DATA), without("openmpi", openmpi="5.0.11 (source)"), 2, ["image: error"]),
    ("TW245", dist({"mpi": MPI}), without("openmpi"), 2, []),
    ("TW250", {"instance_type": P5}, image(cuda="cpu"), 2, []),
    ("TW250", {"instance_type": P5}, image(components=None), 2, ["instance_type: warning"]),
]
DISTRIBUTIONS: list[Row] = [
    (
        "TW200",
        dist({"smdistributed": {"dataparallel": {**ON, "mpi_options": ""}}}),
        image(),
        2,
        ["distribution.smdistributed.dataparallel.mpi_options: error"],
    ),
    (
        "TW209",
        {**COMPILED, "distribution": {"pytorchxla": ON}, "entry_point": "run.sh"},
        COMPILER,
        2,
        ["entry_point: error"],
    ),
    ("TW315", grouped({}), old("jax", "0.4.1"), 2, []),
    ("TW315", grouped({}), old("pytorch", "1.9.1"), 2, ["instance_groups: error"]),
    # A heterogeneous cluster has several groups.
    ("TW315", ONE_GROUP, old("pytorch", "1.9.1"), 2, []),
    ("TW315", {}, old("pytorch", "1.9.1"), 2, []),
    ("TW212", {}, TENSORFLOW, 2, []),
    # At the key that is in the job: both are the data parallel library.
    ("TW205", dist({"mpi": MPI, "pytorchddp": ON}), image(), 2, ["distribution.pytorchddp: error"]),
    ("TW205", dist({"torch_distributed": ON, "pytorchddp": ON}), image(), 2, ["distribution.pytorchddp: error"]),
    ("TW205", dist({"mpi": MPI, **DATA}), image(), 2, ["distribution.smdistributed: error"]),
    ("TW207", grouped({"horovod": ON}), image(), 2, []),
    ("TW207", grouped({}), image(), 2, []),
    # fw_utils.py: a single group is taken where none is listed.
    ("TW207", {**ONE_GROUP, "distribution": {"mpi": MPI, "instance_groups": []}}, image(), 2, []),
    (
        "TW208",
        {
            "instance_type": None,
            "instance_groups": [{"name": "a", "instance_type": TRN, "instance_count": 2}],
            "distribution": {"torch_distributed": ON, "instance_groups": ["a"]},
        },
        image(),
        2,
        [],
    ),
    ("TW210", {"instance_type": P5, "distribution": {"mpi": MPI}}, image(), 2, []),
    ("TW210", {"image": REFERENCE.replace(":1", ":2.0.1-gpu-py310-cu121")}, image(), 2, []),
    ("TW210", {"image": None, "distribution": DATA}, None, 2, []),
    ("TW211", {"instance_count": 2, "distribution": {"parameter_server": ON}}, TENSORFLOW, 2, []),
    ("TW214", grouped({"parameter_server": ON}), TENSORFLOW, 2, []),
    ("TW213", only_here(distribution=DATA), image(), 2, ["instance_type: warning"]),
    ("TW213", only_here(distribution={"pytorchxla": ON}, compiler=ON), COMPILER, 2, ["instance_type: warning"]),
]
JOBS: list[Row] = [
    ("TW264", NOBODY, None, 2, []),
    # Gradients that are accumulated make a larger batch of the same samples.
    ("TW272", dist(TORCH, batch=ACCUMULATED), image(), 2, ["batch.global: warning"]),
    ("TW272", dist(TORCH, batch=ACCUMULATED, hyperparameters={"accum_steps": 4}), image(), 2, []),
    ("TW272", dist(TORCH, batch=ACCUMULATED, hyperparameters={"accum_steps": 2}), image(), 2, ["batch.global: error"]),
    ("TW272", dist(TORCH, batch=ACCUMULATED | {"global": 500}), image(), 2, ["batch.global: error"]),
    # A plan in the job file names no code, whatever is in the image.
    ("TW264", NOBODY, image(origin="plan"), 2, []),
    ("TW341", NOBODY, image(origin="plan"), 2, ["entry_point: warning"]),
    ("TW341", {**NOBODY, "image": None}, image(origin="plan"), 2, []),
    ("TW341", NOBODY, image(), 2, []),
    ("TW341", NOBODY, BAKED, 2, []),
    ("TW260", {"source_dir": None, "entry_point": "s3://bucket/train.py"}, image(), 2, ["entry_point: error"]),
    ("TW260", {"source_dir": "s3://bucket/code.tar.gz"}, image(), 2, []),
    ("TW263", {**grouped({}), "instance_count": 2}, image(), 2, ["instance_count: error"]),
    ("TW263", {**grouped({}), "instance_groups": [*GROUPS, GROUPS[0]]}, image(), 2, ["instance_groups: error"]),
    ("TW275", {"instance_type": P4, "distribution": {"instance_groups": ["gpu"]}}, image(), 2, []),
    ("TW275", grouped({}), image(), 2, []),
    ("TW275", UNHEARD, image(), 2, []),
    ("TW264", {**OWN, "image": None, "region": None}, image(), 2, ["image: error", "region: error"]),
    *(
        ("TW267", {"environment": {"SAGEMAKER_CONTAINER_LOG_LEVEL": level}}, image(), 2, told)
        for level, told in (
            ("-1", []),
            *((word, ["environment.SAGEMAKER_CONTAINER_LOG_LEVEL: error"]) for word in ("--5", "2-", "")),
        )
    ),
    # The SDKs' own channels.
    ("TW271", {**ISOLATED, "inputs": {"code": "s3://b/k"}}, image(), 2, ["inputs.code: error"]),
    ("TW271", {**ISOLATED, "inputs": {"sm_drivers": "s3://b/k"}}, image(), 2, []),
    ("TW271", {"inputs": {"sm_drivers": "s3://b/k"}}, image(), 3, ["inputs.sm_drivers: error"]),
]
MODEL_PARALLEL: list[Row] = [
    ("TW222", dist(smp({}, pipeline_parallel_degree=2)), image(), 2, []),
    # The version is unknown, and the parameters are not only those of version 2.
    ("TW220", dist(smp(partitions=2, my_own=1)), None, 2, []),
    ("TW220", dist(smp(tensor_parallel_degree=2, ddp=True)), None, 2, []),
    ("TW220", dist(smp({}, hybrid_shard_degree=2)), SECOND, 2, ["distribution: error"]),
    # AWS's release notes: gone from 1.11 on.
    (
        "TW224",
        dist(smp(partitions=2, deterministic_server=True)),
        library("1.11"),
        2,
        [f"{SMP}.deterministic_server: warning"],
    ),
    # TW223 reports it for the name that 1.6 introduced.
    ("TW225", dist(smp(pipeline_parallel_degree=2)), OLDER, 2, []),
    ("TW223", dist(smp(pipeline_parallel_degree=2)), OLDER, 2, [f"{SMP}.pipeline_parallel_degree: error"]),
    ("TW223", dist(smp(partitions=2)), image(), 2, [f"{SMP}.partitions: note"]),
    ("TW223", dist(smp(partitions=2)), library("1.6.0"), 2, [f"{SMP}.partitions: note"]),
    ("TW223", dist(smp(pipeline_parallel_degree=2)), library("1.6.0"), 2, []),
    ("TW223", dist(smp(partitions=2, pipeline_parallel_degree=2)), image(), 2, []),
    ("TW223", dist(smp({"torch_distributed": ON}, partitions=2)), SECOND, 2, []),
    ("TW223", dist(smp(partitions=2)), TENSORFLOW, 2, []),
    ("TW225", dist(smp({"torch_distributed": ON}, hybrid_shard_degree=2)), SECOND_OF_AWS, 2, []),
    ("TW297", dist(smp(sharded_data_parallel_degree=2, tensor_parallel_degree=2, ddp=True)), None, 2, []),
    *(
        ("TW226", dist(smp(None, **{degree: 2}, auto_partition=False, default_partition=number)), image(), 2, told)
        for degree, number, told in (
            ("pipeline_parallel_degree", 1, []),
            *(("pipeline_parallel_degree", wrong, [f"{SMP}.default_partition: error"]) for wrong in (2, -1, "0")),
            ("partitions", 1, []),
            ("microbatches", 1, [f"{SMP}.default_partition: error"]),  # of a single part
        )
    ),
    ("TW226", dist(smp(partitions=2, ddp_dist_backend="nccl")), image(), 2, [f"{SMP}.ddp_dist_backend: error"]),
    ("TW226", dist(smp(partitions=2, ddp=True, ddp_dist_backend="nccl", ddp_port=1)), image(), 2, []),
    ("TW226", dist(smp(partitions=2, ddp=True, horovod=True)), image(), 2, [f"{SMP}.horovod: error"]),
    ("TW226", dist(smp(partitions=2, ddp=False, horovod=True)), image(), 2, []),
    ("TW226", dist(smp(partitions=2, ddp=True, horovod=False)), image(), 2, []),
    # 16 processes
    ("TW227", dist(smp(tensor_parallel_degree=3, ddp=True)), image(), 2, [f"{SMP}: error"]),
    ("TW227", dist(smp(sharded_data_parallel_degree=3, ddp=True)), NEWER, 2, [f"{SMP}: error"]),
    ("TW227", dist(smp({"torch_distributed": ON}, hybrid_shard_degree=3)), SECOND, 2, [f"{SMP}: error"]),
    ("TW227", {**UNHEARD, "distribution": smp({"mpi": ON}, pipeline_parallel_degree=3)}, image(), 2, []),
    (
        "TW227",
        {**UNHEARD, "distribution": smp({"torch_distributed": ON}, context_parallel_degree=3)},
        SECOND,
        2,
        [],
    ),
]


@pytest.mark.parametrize(
    ("code", "changes", "facts", "sdk", "told"),
    [*COMPILERS, *SDK_3, *LAUNCHES, *IMAGES, *DISTRIBUTIONS, *JOBS, *MODEL_PARALLEL],
)
def test_what_a_rule_says_of_a_job(
    folder: Path, code: str, changes: dict[str, Any], facts: ImageFacts | None, sdk: int, told: list[str]
) -> None:
    findings = [each for each in found(folder, changes, facts, sdk) if each.code == code]
    assert [f"{each.path}: {each.severity}" for each in findings] == told


def test_a_cluster_starts_packages_and_needs_no_toolkit(tmp_path: Path) -> None:
    """torchrun is called by its resource or script, with the file of the job."""
    subject = cluster_subject(tmp_path, "pytorchjob", without("sagemaker-toolkit"), distribution=TORCH)
    (tmp_path / str(subject.job.source_dir) / "setup.py").touch()
    assert not {"TW209", "TW243"} & {each.code for each in check(subject)}
