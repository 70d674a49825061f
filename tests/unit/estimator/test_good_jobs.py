"""Good jobs, of which no rule speaks."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.rule_jobs import (
    BAKED,
    COMPILER,
    FSX,
    GROUPS,
    MPI,
    NEWER,
    ON,
    OWN,
    P3,
    SECOND,
    dist,
    found,
    image,
    smp,
    source_folder,
    tuned,
    without,
)
from trainwright.estimator.image import ImageFacts

folder = pytest.fixture(scope="module")(source_folder)


GOOD: dict[str, tuple[dict[str, Any], ImageFacts]] = {
    "one process": ({}, image()),
    "processes on a CPU": (
        {"instance_type": "ml.m5.xlarge", "distribution": {"mpi": {**MPI, "processes_per_host": 2}}},
        image(cuda="cpu"),
    ),
    "torchrun": (dist({"torch_distributed": ON}), image()),
    "torchrun on one host": ({"instance_type": "ml.g5.48xlarge", "distribution": {"torch_distributed": ON}}, image()),
    "dataparallel": (dist({"smdistributed": {"dataparallel": ON}}), image()),
    # The guide's job, with the option that it still gives taken out.
    "the guide's model-parallel job": (
        {
            "instance_type": P3,
            "distribution": smp(
                {"mpi": {**MPI, "custom_mpi_options": "-verbose -x orte_base_help_aggregate=0"}},
                microbatches=4,
                placement_strategy="spread",
                pipeline="interleaved",
                optimize="speed",
                pipeline_parallel_degree=2,
                ddp=True,
            ),
        },
        image(),
    ),
    "the guide's options for EFA": (
        dist(
            smp(
                {
                    "mpi": {
                        **MPI,
                        "custom_mpi_options": "-x FI_EFA_USE_DEVICE_RDMA=1 -x FI_PROVIDER=efa -x RDMAV_FORK_SAFE=1",
                    }
                },
                pipeline_parallel_degree=2,
                microbatches=4,
                ddp=True,
            )
        ),
        image(),
    ),
    "model parallel 2": (
        dist(smp({"torch_distributed": ON}, hybrid_shard_degree=0, tensor_parallel_degree=2)),
        SECOND,
    ),
    "groups": (
        {
            "instance_type": None,
            "instance_groups": GROUPS,
            "distribution": {"mpi": MPI, "instance_groups": ["gpu"]},
            "inputs": {"train": {"s3_data": "s3://bucket/train", "instance_groups": ["data"]}},
        },
        image(),
    ),
    "spot": ({"spot": True, "max_run": 60, "max_wait": 60, "checkpoint": {"s3_uri": "s3://bucket/c"}}, image()),
    "the guide's compiled job": (
        {
            "instance_type": "ml.p3dn.24xlarge",
            "instance_count": 2,
            "compiler": ON,
            "distribution": {"pytorchxla": ON},
        },
        COMPILER,
    ),
    "one compiled GPU": (
        {"instance_type": "ml.p3.2xlarge", "compiler": ON, "environment": {"GPU_NUM_DEVICES": "1"}},
        COMPILER,
    ),
    "mirrored": (dist({"multi_worker_mirrored_strategy": ON}), image(framework="tensorflow", version="2.11.1")),
    "FSx": ({"inputs": {"train": FSX}, "subnets": ["subnet-1"], "security_group_ids": ["sg-1"]}, image()),
    "a training plan": (
        {
            "instance_type": "ml.p4d.24xlarge",
            "distribution": {"torch_distributed": ON},
            "training_plan": "arn:aws:sagemaker:us-west-2:123456789012:training-plan/plan-1",
        },
        image(),
    ),
    "a registry in the VPC": (OWN, image()),
    "every option": (
        {
            "instance_type": P3,
            "distribution": {"torch_distributed": ON},
            "volume_kms_key": "1234abcd-12ab-34cd-56ef-1234567890ab",
            "output_kms_key": "alias/models",
            "encrypt_traffic": True,
            "keep_alive": 21600,
            "retries": 30,
            "tensorboard": {"s3_uri": "s3://bucket/tensorboard"},
            "remote_debug": True,
            "session_tags": True,
            "max_run": 28 * 86400,
            "volume_gb": 16384,
        },
        image(),
    ),
    "debugger": ({"debugger": {"s3_uri": "s3://bucket/t"}, "profiler": {"s3_uri": "s3://bucket/p"}}, image()),
    "dataparallel of a library before 2.1 on p3": (
        {"instance_type": P3, "distribution": {"smdistributed": {"dataparallel": ON}}},
        without("smdistributed-dataparallel", **{"smdistributed-dataparallel": "2.0.2 (aws)"}),
    ),
    "a strategy turned off on one GPU": ({"distribution": {"torch_distributed": {"enabled": False}}}, image()),
    "the guide's sharded job": (dist(smp(sharded_data_parallel_degree=2, ddp=True, bf16=True)), NEWER),
    "tensor parallelism alone": (
        dist(smp(tensor_parallel_degree=2, ddp=True)),
        image(),
    ),
    "sharded data parallelism": (
        dist(
            smp(
                pipeline_parallel_degree=1,
                sharded_data_parallel_degree=16,
                ddp=True,
                fp16=True,
                sdp_gradient_clipping=1.0,
            )
        ),
        NEWER,
    ),
    "every parameter of version 1": (
        dist(
            smp(
                pipeline_parallel_degree=2,
                microbatches=4,
                active_microbatches=4,
                pipeline="simple",
                optimize="memory",
                placement_strategy="cluster",
                memory_weight=0.5,
                ddp=True,
                ddp_port=12345,
                ddp_dist_backend="nccl",
                deterministic_server=False,
                offload_activations=True,
                activation_loading_horizon=4,
                shard_optimizer_state=True,
                prescaled_batch=False,
                skip_tracing=True,
            )
        ),
        image(),
    ),
    "code in the image": ({"source_dir": None, "entry_point": None}, BAKED),
    "tuner": (tuned(), image()),
    "tuner with a launcher": (dist({"torch_distributed": ON}, **tuned()), image()),
}

SAID_BY_SDK_3 = {
    "tuner",
    "one process",
    "processes on a CPU",
    "torchrun",
    "torchrun on one host",
    "model parallel 2",
    "spot",
    "FSx",
    "a registry in the VPC",
    "every option",
    "a training plan",
    "a strategy turned off on one GPU",
}


@pytest.mark.parametrize("name", list(GOOD))
def test_a_good_job_has_no_errors_and_no_warnings(folder, name):
    findings = [each for each in found(folder, *GOOD[name]) if each.severity != "note"]
    assert findings == []


@pytest.mark.parametrize("name", list(GOOD))
def test_sdk_3_refuses_nothing_of_what_it_can_say(folder, name):
    changes, facts = GOOD[name]
    refused = {each.code for each in found(folder, changes, facts, 3) if each.severity == "error"}
    cannot = {"TW218", "TW280", "TW281", "TW282", "TW284", "TW285", "TW246"}
    assert refused <= cannot
    assert bool(refused) == (name not in SAID_BY_SDK_3)
