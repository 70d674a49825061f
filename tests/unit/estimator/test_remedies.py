"""What a finding tells a user to write instead, where that depends on the job."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.rule_jobs import (
    COMPILER,
    DATA,
    FSX,
    GROUPS,
    MPI,
    NEWER,
    ON,
    TENSORFLOW,
    TWO,
    dist,
    found,
    grouped,
    image,
    old,
    smp,
    source_folder,
    without,
)
from trainwright.estimator.image import ImageFacts
from trainwright.estimator.rules_sdk3 import driver_of
from trainwright.estimator.subject import Subject
from trainwright.sagemaker.job import Job

folder = pytest.fixture(scope="module")(source_folder)

G6 = {**TWO, "instance_type": "ml.g6.48xlarge"}
SHARDED = smp(pipeline_parallel_degree=2, sharded_data_parallel_degree=2, ddp=True, shard_optimizer_state=True)


@pytest.mark.parametrize(
    ("code", "changes", "facts", "remedies"),
    [
        # EFA: mpirun passes on what -x names (its manual page), torchrun's processes inherit the environment.
        (
            "TW236",
            {**G6, "distribution": {"mpi": MPI}},
            image(cuda="12.4"),
            ['custom_mpi_options: "-x FI_PROVIDER=efa -x NCCL_PROTO=simple -x RDMAV_FORK_SAFE=1"'],
        ),
        (
            "TW236",
            {**G6, "distribution": {"torch_distributed": ON}},
            image(cuda="12.4"),
            ['environment: {"FI_PROVIDER": "efa", "NCCL_PROTO": "simple"}'],
        ),
        (
            "TW297",
            dist(SHARDED),
            NEWER,
            [
                "pipeline_parallel_degree: 1, or remove sharded_data_parallel_degree",
                "shard_optimizer_state: false, or remove sharded_data_parallel_degree",
            ],
        ),
        (
            "TW207",
            dist({"mpi": MPI, "instance_groups": ["gpu"]}),
            image(),
            ["The job has an instance_type and no groups."],
        ),
        ("TW207", grouped({"mpi": MPI, "instance_groups": ["gpus"]}), image(), ["Did you mean gpu?"]),
        ("TW230", dist({"mpi": {**MPI, "processes_per_host": 9}}), image(), ["processes_per_host: 8"]),
        ("TW231", dist({"mpi": {**MPI, "processes_per_host": 7}}), image(), ["processes_per_host: 8"]),
        ("TW230", dist({"mpi": {**MPI, "processes_per_host": 0}}), image(), ["Use 1 or more."]),
        ("TW222", dist(smp({"mpi": ON}, pipeline_parallel_degree=2)), image(), ["processes_per_host: 8"]),
        (
            "TW222",
            {"instance_type": "ml.q1.large", "distribution": smp({"mpi": ON}, pipeline_parallel_degree=2)},
            image(),
            ["Set processes_per_host to the number of GPUs of the instance type."],
        ),
        (
            "TW297",
            dist(smp(sharded_data_parallel_degree=2, tensor_parallel_degree=2, ddp=True)),
            without("smdistributed-modelparallel", **{"smdistributed-modelparallel": "1.11.0 (aws)"}),
            ["tensor_parallel_degree: 1, or remove sharded_data_parallel_degree"],
        ),
        (
            "TW258",
            {"instance_type": "ml.p3.8xlarge", "compiler": ON},
            COMPILER,
            ['environment: {GPU_NUM_DEVICES: "4"}'],
        ),
        # TensorFlow's guide: MirroredStrategy is for the GPUs of one host, MultiWorkerMirroredStrategy for several.
        (
            "TW275",
            {"instance_type": "ml.p3.8xlarge"},
            TENSORFLOW,
            [
                "tf.distribute.MirroredStrategy in the script trains on all GPUs of a host with one process. If code "
                "that is not here does this, accept it with `silence`."
            ],
        ),
        (
            "TW275",
            {"instance_type": "ml.p3.8xlarge", "instance_count": 2},
            TENSORFLOW,
            [
                'distribution: {"multi_worker_mirrored_strategy": {"enabled": true}}, with TensorFlow 2.9 or newer, if '
                "the script supports it."
            ],
        ),
        (
            "TW275",
            {"instance_type": "ml.p3.8xlarge"},
            image(),
            [
                'distribution: {"torch_distributed": {"enabled": true}}, if the script supports it. '
                'torch.nn.DataParallel or device_map="auto" in the script trains on all GPUs of a host with one '
                "process. If code that is not here does this, accept it with `silence`."
            ],
        ),
        (
            "TW262",
            {"instance_type": "local_gpu"},
            image(),
            ["./invoke rehearse runs a job on this machine."],
        ),
    ],
)
def test_the_remedy_is_for_this_job(
    folder: Any, code: str, changes: dict[str, Any], facts: ImageFacts, remedies: list[str]
) -> None:
    assert [each.remedy for each in found(folder, changes, facts) if each.code == code] == remedies


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({}, "subnets"),
        ({"security_group_ids": ["sg-1"]}, "subnets"),
        ({"subnets": ["subnet-1"]}, "security_group_ids"),
    ],
)
def test_what_a_file_system_lacks_is_named(folder: Any, given: dict[str, Any], missing: str) -> None:
    told = [
        each.message for each in found(folder, {"inputs": {"train": FSX}, **given}, image()) if each.code == "TW293"
    ]
    assert told == [f"{missing} is missing"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (5, "train is neither an S3 address nor a record"),
        ("bucket/data", "train: 'bucket/data' is not an S3 address (s3://bucket/prefix)"),
        ({"s3_data": "s3://b/k", "input_mod": "File"}, "train: unknown key 'input_mod'"),
        ({"file_system_id": "fs-0123456789abcdef0", "file_system_type": "FSxLustre"}, "train.directory_path: "),
        ({"directory_path": "/abcd1234/train"}, "train.file_system_id: "),
        ({**FSX, "input_mode": "File"}, "train: unknown key 'input_mode'"),
        ({"s3_dta": "s3://b/k"}, "train: unknown key 's3_dta'. Did you mean s3_data "),
    ],
)
def test_a_wrong_channel_is_named_with_its_place(folder: Any, given: Any, message: str) -> None:
    told = [each.message for each in found(folder, {"inputs": {"train": given}}, image()) if each.code == "TW270"]
    assert [each[: len(message)] for each in told] == [message]


ON_GPU = {"s3_data": "s3://bucket/a", "instance_groups": ["gpu"]}
WRAPPED = {"s3_data": "s3://bucket/a", "record_wrapping": "RecordIO"}
CLUSTER = {"instance_type": "ml.trn1.32xlarge", "instance_count": 2}


@pytest.mark.parametrize(
    ("code", "changes", "facts", "named"),
    [
        ("TW261", {"entry_point": "tran.py"}, image(), "Did you mean train.py?"),
        ("TW200", dist({"mwms": ON}), image(), "Did you mean multi_worker_mirrored_strategy?"),
        ("TW200", dist({"mpi": {**MPI, "nproc_per_node": 8}}), image(), "Did you mean processes_per_host?"),
        ("TW230", dist({"mpi": {**MPI, "processes_per_host": 9}}), image(), "has 8 GPUs"),
        ("TW230", {**CLUSTER, "distribution": {"mpi": {**MPI, "processes_per_host": 33}}}, image(), "has 32 Neuron"),
        ("TW243", dist({"mpi": MPI}), without("mpi4py"), "mpi needs mpi4py, which is not in the image"),
        ("TW243", dist({"mpi": MPI}), without("mpi4py").replace(evidence="A.gpu"), "mpi needs mpi4py, which A.gpu"),
        ("TW243", dist(smp(partitions=2)), without("smdistributed-modelparallel"), "model parallelism needs smd"),
        ("TW243", {}, without("sagemaker-toolkit", cluster="1 (ec2)"), "the image is for ec2"),
        ("TW241", {"image": "public.ecr.aws/a/b:1"}, image(), "public gallery"),
        (
            "TW295",
            {**grouped({}), "network_isolation": True, "inputs": {"a": ON_GPU}},
            image(),
            "a with instance_groups, code without",
        ),
        ("TW295", {"inputs": {"a": WRAPPED}}, image(), "with input_mode File:"),
        ("TW295", {"inputs": {"a": {**WRAPPED, "input_mode": "FastFile"}}}, image(), "with input_mode FastFile:"),
        ("TW315", grouped({}), old("pytorch", "1.9.1"), "instance groups need 1.10"),
        ("TW324", dist({"mpi": {**MPI, "custom_mpi_options": "-v -x A=b c -w"}}), image(), "'-x A=b c'"),
        (
            "TW227",
            dist(smp(pipeline_parallel_degree=2, tensor_parallel_degree=3, ddp=True)),
            image(),
            "2 (pipeline_parallel_degree) x 3 (tensor_parallel_degree) does not divide 16 processes",
        ),
        (
            "TW227",
            dist(smp(pipeline_parallel_degree=1, tensor_parallel_degree=3, ddp=True)),
            image(),
            "^3 (tensor_parallel_degree) does not divide",
        ),
    ],
)
def test_what_is_wrong_is_named(folder: Any, code: str, changes: dict[str, Any], facts: ImageFacts, named: str) -> None:
    (told,) = [f"^{each.message}" for each in found(folder, changes, facts) if each.code == code]
    assert named in told


@pytest.mark.parametrize(
    ("address", "offered"),
    [("registry.example.com/team/training:1", True), ("public.ecr.aws/team/training:1", False)],
)
def test_a_registry_in_the_vpc_is_offered_where_it_may_be_one(folder: Any, address: str, offered: bool) -> None:
    (told,) = [each.remedy for each in found(folder, {"image": address}, image()) if each.code == "TW241"]
    assert ("registry: {access_mode: Vpc}" in told) == offered


@pytest.mark.parametrize(
    ("given", "what"),
    [({"spot": True}, "spot"), ({"instance_type": None, "instance_groups": GROUPS}, "instance_groups")],
)
def test_what_a_warm_pool_cannot_have_is_named(folder: Any, given: dict[str, Any], what: str) -> None:
    told = [each.message for each in found(folder, {"keep_alive": 60, **given}, image()) if each.code == "TW295"]
    assert told == [f"keep_alive with {what}: a warm pool cannot have it"]


@pytest.mark.parametrize(
    ("hosts", "distribution", "options"),
    [
        # mpi_driver.py of sagemaker-train 1.27.0 starts the processes of one host where nothing names their number.
        (2, {"mpi": MPI}, ["-np", "16"]),
        (2, {"mpi": {**MPI, "custom_mpi_options": "-x A=b"}}, ["-np", "16", "-x", "A=b"]),
        (2, {"mpi": {**MPI, "custom_mpi_options": "-x A=b -np 4"}}, ["-x", "A=b", "-np", "4"]),
        (1, {"mpi": {**MPI, "custom_mpi_options": "-x A=b"}}, ["-x", "A=b"]),
        (1, {"mpi": MPI}, None),
    ],
)
def test_a_driver_of_mpi_has_the_ranks_of_all_hosts(
    folder: Any, hosts: int, distribution: dict[str, Any], options: list[str] | None
) -> None:
    job = Job(entry_point="train.py", **TWO | {"instance_count": hosts}, distribution=distribution)
    fields = driver_of(Subject(job, image(), 3, folder, True)).fields
    assert fields == {"process_count_per_node": 8, "mpi_additional_options": options}


def test_torchrun_counts_its_ranks_itself(folder: Any) -> None:
    job = Job(entry_point="train.py", **TWO, distribution={"torch_distributed": ON})
    fields = driver_of(Subject(job, image(), 3, folder, True)).fields or {}
    assert "mpi_additional_options" not in fields


@pytest.mark.parametrize(
    ("libraries", "says"),
    [({}, "neither dataparallel nor modelparallel"), ({**DATA["smdistributed"], "modelparallel": ON}, "both")],
)
def test_of_two_libraries_it_is_said_whether_none_or_both_are_there(folder, libraries, says):
    told = [each.message for each in found(folder, dist({"smdistributed": libraries}), image())]
    assert any(message.startswith(f"smdistributed has {says}") for message in told), told
