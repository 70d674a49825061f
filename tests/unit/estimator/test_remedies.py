"""What a finding tells a user to write instead, where that depends on the job."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.rule_jobs import (
    DATA,
    FSX,
    GROUPS,
    MPI,
    NEWER,
    ON,
    TWO,
    dist,
    found,
    grouped,
    image,
    smp,
    source_folder,
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
    ],
)
def test_a_wrong_channel_is_named_with_its_place(folder: Any, given: Any, message: str) -> None:
    told = [each.message for each in found(folder, {"inputs": {"train": given}}, image()) if each.code == "TW270"]
    assert [each[: len(message)] for each in told] == [message]


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
