"""Every rule about a job's distribution and its launcher: a job that it speaks of."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.rule_jobs import (
    DATA,
    MPI,
    NEWER,
    OLDER,
    ON,
    P3,
    REFERENCE,
    SECOND,
    SECOND_OF_AWS,
    TENSORFLOW,
    dist,
    found,
    grouped,
    image,
    smp,
    source_folder,
    spoken_at,
    without,
)
from trainwright.estimator.image import ImageFacts

folder = pytest.fixture(scope="module")(source_folder)

# Of one of AWS's images that is not in the table, the repository says the framework.
UNLISTED = "763104351884.dkr.ecr.us-west-2.amazonaws.com/tensorflow-training:9.9.0-gpu-py312"
SMP = "distribution.smdistributed.modelparallel.parameters"

# code, path, what is changed in a good job, image, SDK
CASES: list[tuple[str, str, dict[str, Any], ImageFacts | None, int]] = [
    ("TW200", "distribution.torchxla", dist({"torchxla": ON}), image(), 2),
    ("TW200", "distribution.mpi.process_per_host", dist({"mpi": {"enabled": True, "process_per_host": 8}}), image(), 2),
    ("TW200", "distribution.mpi.process_count", dist({"mpi": {**MPI, "process_count": 8}}), image(), 2),
    ("TW200", "distribution.smdistributed.data", dist({"smdistributed": {"data": ON}}), image(), 2),
    ("TW201", "distribution.mpi.enabled", dist({"mpi": {**MPI, "enabled": "true"}}), image(), 2),
    ("TW201", "distribution.mpi.processes_per_host", dist({"mpi": {**MPI, "processes_per_host": "8"}}), image(), 2),
    ("TW201", "distribution.instance_groups", grouped({"mpi": MPI, "instance_groups": [1]}), image(), 2),
    ("TW202", "distribution.parameter_server", dist({"parameter_server": ON}), image(), 2),
    ("TW202", "distribution.torch_distributed", dist({"torch_distributed": ON}), TENSORFLOW, 2),
    ("TW202", "distribution.pytorchddp", dist({"pytorchddp": ON}, image=UNLISTED), None, 2),
    ("TW203", "distribution.mpi.enabled", dist({"mpi": {"processes_per_host": 8}}), image(), 2),
    ("TW203", "distribution.torch_distributed.enabled", dist({"torch_distributed": {}}), image(), 2),
    (
        "TW203",
        "distribution.smdistributed.dataparallel.enabled",
        dist({"smdistributed": {"dataparallel": {}}}),
        image(),
        2,
    ),
    ("TW204", "distribution.smdistributed", dist({"smdistributed": {}}), image(), 2),
    (
        "TW204",
        "distribution.smdistributed",
        dist(
            {
                **smp(microbatches=1, pipeline_parallel_degree=2),
                "smdistributed": {
                    "dataparallel": ON,
                    "modelparallel": {"enabled": True, "parameters": {"microbatches": 1}},
                },
            }
        ),
        image(),
        2,
    ),
    ("TW205", "distribution.mpi", dist({"mpi": MPI, "torch_distributed": ON}), image(), 2),
    ("TW205", "distribution.mpi", dist({"mpi": MPI, "parameter_server": ON}), TENSORFLOW, 2),
    ("TW205", "distribution.smdistributed", dist({**DATA, "parameter_server": ON}), TENSORFLOW, 2),
    ("TW205", "distribution.mpi", dist({"mpi": MPI, "multi_worker_mirrored_strategy": ON}), TENSORFLOW, 2),
    ("TW205", "distribution.smdistributed", dist({"mpi": MPI, "smdistributed": {"dataparallel": ON}}), image(), 2),
    (
        "TW205",
        "distribution.smdistributed",
        dist({"torch_distributed": ON, "smdistributed": {"dataparallel": ON}}),
        image(),
        2,
    ),
    ("TW206", "distribution.pytorchddp", dist({"pytorchddp": ON, "smdistributed": {"dataparallel": ON}}), image(), 2),
    (
        "TW206",
        "distribution.multi_worker_mirrored_strategy",
        dist({"multi_worker_mirrored_strategy": ON, "smdistributed": {"dataparallel": ON}}),
        TENSORFLOW,
        2,
    ),
    *(
        (
            "TW233",
            "distribution.mpi.custom_mpi_options",
            dist({"mpi": {**MPI, "custom_mpi_options": words}}),
            image(),
            2,
        )
        for words in ('-x A="b"', "-x A='b'")
    ),
    (
        "TW206",
        "distribution.multi_worker_mirrored_strategy",
        dist({"multi_worker_mirrored_strategy": ON, "parameter_server": ON}),
        TENSORFLOW,
        2,
    ),
    ("TW207", "distribution.instance_groups", grouped({"mpi": MPI}), image(), 2),
    ("TW207", "distribution.instance_groups", grouped({"mpi": MPI, "instance_groups": ["cpu"]}), image(), 2),
    ("TW207", "distribution.instance_groups", dist({"mpi": MPI, "instance_groups": ["gpu"]}), image(), 2),
    ("TW207", "distribution.instance_groups", grouped({"mpi": MPI, "instance_groups": ["gpu", "data"]}), image(), 2),
    ("TW207", "distribution.instance_groups", grouped({"mpi": MPI, "instance_groups": []}), image(), 2),
    (
        "TW207",
        "distribution.instance_groups",
        grouped({"torch_distributed": ON, "instance_groups": ["gpu"]}),
        image(),
        2,
    ),
    ("TW208", "distribution", {"instance_type": "ml.trn1.32xlarge", "distribution": {"mpi": MPI}}, image(), 2),
    ("TW209", "entry_point", dist({"torch_distributed": ON}, entry_point="run.sh"), image(), 2),
    (
        "TW210",
        "instance_type",
        {"instance_type": "ml.p5.48xlarge", "distribution": smp(pipeline_parallel_degree=2)},
        image(),
        2,
    ),
    (
        "TW210",
        "image",
        dist(smp(pipeline_parallel_degree=2), image=REFERENCE.replace(":1", ":2.0.1-gpu-py310-cu121-ubuntu20.04")),
        image(),
        2,
    ),
    (
        "TW211",
        "instance_type",
        {"instance_type": P3, "instance_count": 2, "distribution": {"parameter_server": ON}},
        TENSORFLOW,
        2,
    ),
    (
        "TW211",
        "instance_type",
        {"instance_type": "ml.g7.12xlarge", "instance_count": 2, "distribution": {"parameter_server": ON}},
        TENSORFLOW,
        2,
    ),
    (
        "TW212",
        "distribution.multi_worker_mirrored_strategy",
        dist({"multi_worker_mirrored_strategy": ON}),
        TENSORFLOW,
        2,
    ),
    (
        "TW213",
        "instance_type",
        {"instance_type": "ml.m5.xlarge", "distribution": {"torch_distributed": ON}},
        image(),
        2,
    ),
    ("TW214", "instance_count", {"distribution": {"parameter_server": ON}}, TENSORFLOW, 2),
    ("TW220", "distribution", dist(smp({}, pipeline_parallel_degree=2)), image(), 2),
    ("TW221", "distribution.smdistributed.modelparallel.parameters", dist(smp()), image(), 2),
    ("TW222", "distribution.mpi.processes_per_host", dist(smp({"mpi": ON}, pipeline_parallel_degree=2)), image(), 2),
    ("TW223", "distribution.smdistributed.modelparallel.parameters.partitions", dist(smp(partitions=2)), image(), 2),
    (
        "TW223",
        "distribution.smdistributed.modelparallel.parameters.pipeline_parallel_degree",
        dist(smp(pipeline_parallel_degree=2)),
        OLDER,
        2,
    ),
    (
        "TW224",
        "distribution.smdistributed.modelparallel.parameters.microbatch",
        dist(smp(pipeline_parallel_degree=2, microbatch=4)),
        image(),
        2,
    ),
    (
        "TW225",
        "distribution.smdistributed.modelparallel.parameters.sharded_data_parallel_degree",
        dist(smp(sharded_data_parallel_degree=2)),
        image(),
        2,
    ),
    (
        "TW226",
        "distribution.smdistributed.modelparallel.parameters.pipeline_parallel_degree",
        dist(smp(pipeline_parallel_degree=0)),
        image(),
        2,
    ),
    (
        "TW226",
        "distribution.smdistributed.modelparallel.parameters.tensor_parallel_degree",
        dist(smp(tensor_parallel_degree="2")),
        image(),
        2,
    ),
    ("TW226", f"{SMP}.ddp", dist(smp(pipeline_parallel_degree=2, ddp="true")), image(), 2),
    ("TW226", f"{SMP}.microbatches", dist(smp(pipeline_parallel_degree=2, microbatches=True)), image(), 2),
    ("TW226", f"{SMP}.memory_weight", dist(smp(pipeline_parallel_degree=2, memory_weight=1.5)), image(), 2),
    ("TW226", f"{SMP}.pipeline", dist(smp(pipeline_parallel_degree=2, pipeline="fast")), image(), 2),
    (
        "TW226",
        "distribution.smdistributed.modelparallel.parameters.auto_partition",
        dist(smp(pipeline_parallel_degree=2, auto_partition=False)),
        image(),
        2,
    ),
    ("TW227", "distribution.smdistributed.modelparallel.parameters", dist(smp(pipeline_parallel_degree=3)), image(), 2),
    (
        "TW227",
        "distribution.smdistributed.modelparallel.parameters.context_parallel_degree",
        dist(smp({"torch_distributed": ON}, context_parallel_degree=6)),
        SECOND,
        2,
    ),
    (
        "TW227",
        "distribution.smdistributed.modelparallel.parameters.expert_parallel_degree",
        dist(smp({"torch_distributed": ON}, expert_parallel_degree=32)),
        SECOND,
        2,
    ),
    (
        "TW228",
        "distribution.smdistributed.modelparallel.parameters.default_partition",
        dist(smp(pipeline_parallel_degree=2, auto_partition=False, default_partition=0)),
        image(),
        2,
    ),
    (
        "TW228",
        "distribution.smdistributed.modelparallel.parameters.placement_strategy",
        dist(smp(pipeline_parallel_degree=2, placement_strategy="PTD")),
        image(),
        2,
    ),
    (
        "TW226",
        "distribution.smdistributed.modelparallel.parameters.placement_strategy",
        dist(smp(partitions=2, placement_strategy="DPT")),
        TENSORFLOW,
        2,
    ),
    (
        "TW226",
        "distribution.smdistributed.modelparallel.parameters.placement_strategy",
        dist(smp(pipeline_parallel_degree=2, placement_strategy="DPP")),
        image(),
        2,
    ),
    (
        "TW229",
        "batch.per_replica",
        dist(smp(pipeline_parallel_degree=2, microbatches=4), batch={"per_replica": 10}),
        image(),
        2,
    ),
    ("TW230", "distribution.mpi.processes_per_host", dist({"mpi": {**MPI, "processes_per_host": 16}}), image(), 2),
    ("TW230", "distribution.mpi.processes_per_host", dist({"mpi": {**MPI, "processes_per_host": 0}}), image(), 2),
    ("TW231", "distribution.mpi.processes_per_host", dist({"mpi": {**MPI, "processes_per_host": 4}}), image(), 2),
    (
        "TW232",
        "distribution.mpi.custom_mpi_options",
        dist({"mpi": {**MPI, "custom_mpi_options": "-verbose --mca btl_vader_single_copy_mechanism none"}}),
        image(),
        2,
    ),
    (
        "TW232",
        "distribution.mpi.custom_mpi_options",
        dist({"mpi": {**MPI, "custom_mpi_options": "-mca a 1 -mca a 1"}}),
        image(),
        2,
    ),
    (
        "TW232",
        "distribution.smdistributed.dataparallel.custom_mpi_options",
        dist({"smdistributed": {"dataparallel": {**ON, "custom_mpi_options": "-mca plm_rsh_num_concurrent 4"}}}),
        image(),
        2,
    ),
    (
        "TW232",
        "distribution.mpi.custom_mpi_options",
        dist({"mpi": {**MPI, "custom_mpi_options": "-mca plm_rsh_num_concurrent 4"}}),
        image(),
        3,
    ),
    (
        "TW233",
        "distribution.mpi.custom_mpi_options",
        dist({"mpi": {**MPI, "custom_mpi_options": "-x 'A=b c'"}}),
        image(),
        2,
    ),
    (
        "TW234",
        "distribution.mpi.custom_mpi_options",
        dist({"mpi": {**MPI, "custom_mpi_options": "-np 16"}}),
        image(),
        2,
    ),
    (
        "TW235",
        "environment.FI_PROVIDER",
        {"instance_type": P3, "distribution": {"mpi": MPI}, "environment": {"FI_PROVIDER": "efa"}},
        image(),
        2,
    ),
    (
        "TW235",
        "distribution.mpi.custom_mpi_options",
        {"instance_type": P3, "distribution": {"mpi": {**MPI, "custom_mpi_options": "-x FI_PROVIDER=efa"}}},
        image(),
        2,
    ),
    (
        "TW236",
        "instance_type",
        {"instance_type": "ml.g6.48xlarge", "instance_count": 2, "distribution": {"torch_distributed": ON}},
        image(cuda="12.4"),
        2,
    ),
    (
        "TW237",
        "distribution.mpi.custom_mpi_options",
        {
            "instance_type": "ml.p3dn.24xlarge",
            "instance_count": 2,
            "distribution": {"mpi": {**MPI, "custom_mpi_options": "-x FI_EFA_USE_DEVICE_RDMA=1"}},
        },
        image(),
        2,
    ),
    ("TW238", "instance_type", dist({"torch_distributed": ON}), without("aws-ofi-nccl"), 2),
    ("TW239", "distribution.mpi.custom_mpi_options", dist({"mpi": MPI}), image(), 2),
    ("TW200", "distribution.mpi.True", dist({"mpi": {**MPI, True: True}}), image(), 2),
    ("TW220", "distribution", dist(smp(hybrid_shard_degree=2)), SECOND, 2),
    ("TW220", "distribution", dist(smp(hybrid_shard_degree=2)), SECOND_OF_AWS, 2),
    ("TW220", "distribution", dist(smp(tensor_parallel_degree=2)), SECOND_OF_AWS, 2),
    ("TW220", "distribution", dist(smp(hybrid_shard_degree=2)), None, 2),
    ("TW225", f"{SMP}.hybrid_shard_degree", dist(smp(hybrid_shard_degree=2)), NEWER, 2),
    ("TW296", f"{SMP}.partitions", dist(smp(microbatches=4)), OLDER, 2),
    ("TW224", f"{SMP}.deterministic_server", dist(smp(partitions=2, deterministic_server=True)), NEWER, 2),
    ("TW226", f"{SMP}.sdp_gradient_clipping", dist(smp(partitions=1, sdp_gradient_clipping=1)), NEWER, 2),
    ("TW226", f"{SMP}.sdp_max_live_parameters", dist(smp(partitions=1, sdp_max_live_parameters=1e9)), NEWER, 2),
    ("TW226", f"{SMP}.ddp_port", dist(smp(partitions=2, ddp=False, ddp_port=1)), image(), 2),
    ("TW297", f"{SMP}.partitions", dist(smp(partitions=2, pipeline_parallel_degree=4)), image(), 2),
    ("TW297", f"{SMP}.fp16", dist(smp(partitions=2, ddp=True, bf16=True, fp16=True)), NEWER, 2),
    ("TW297", f"{SMP}.optimize", dist(smp(partitions=2, prescaled_batch=True, optimize="memory")), NEWER, 2),
    ("TW297", f"{SMP}.active_microbatches", dist(smp(partitions=2, active_microbatches=2)), image(), 2),
    (
        "TW297",
        f"{SMP}.tensor_parallel_degree",
        dist(smp(sharded_data_parallel_degree=2, tensor_parallel_degree=2, ddp=True)),
        without("smdistributed-modelparallel", **{"smdistributed-modelparallel": "1.11.0 (aws)"}),
        2,
    ),
    ("TW297", f"{SMP}.ddp", dist(smp(pipeline_parallel_degree=1, tensor_parallel_degree=2)), image(), 2),
    (
        "TW297",
        f"{SMP}.pipeline_parallel_degree",
        dist(smp(pipeline_parallel_degree=2, sharded_data_parallel_degree=2, ddp=True)),
        NEWER,
        2,
    ),
    (
        "TW297",
        f"{SMP}.shard_optimizer_state",
        dist(smp(pipeline_parallel_degree=1, sharded_data_parallel_degree=2, ddp=True, shard_optimizer_state=True)),
        NEWER,
        2,
    ),
    ("TW298", f"{SMP}.horovod", dist(smp(pipeline_parallel_degree=2, horovod=True)), image(), 2),
    ("TW298", f"{SMP}.contiguous", dist(smp(pipeline_parallel_degree=2, contiguous=True)), image(), 2),
    ("TW298", f"{SMP}.ddp", dist(smp(partitions=2, ddp=True)), TENSORFLOW, 2),
    ("TW299", SMP, dist(smp(pipeline_parallel_degree=1, ddp=True)), image(), 2),
]


@pytest.mark.parametrize("facts", [SECOND, SECOND_OF_AWS, None])
def test_the_second_library_under_mpi_is_an_error_with_its_launcher(folder, facts):
    findings = found(folder, dist(smp(hybrid_shard_degree=2)), facts)
    errors = {each.code: each for each in findings if each.severity == "error"}
    assert set(errors) == {"TW220"}
    assert "torch_distributed" in errors["TW220"].message and "torch_distributed" in errors["TW220"].remedy
    assert not [each for each in findings if each.code == "TW224"]


@pytest.mark.parametrize(
    ("parameters", "facts", "severity"),
    [
        ({"horovod": True}, image(), "error"),
        ({"horovod": False}, image(), "warning"),
        ({"contiguous": True}, image(), "warning"),
        ({"ddp": True}, TENSORFLOW, "error"),
    ],
)
def test_the_other_frameworks_data_parallelism_is_an_error(folder, parameters, facts, severity):
    """Without it each replica would train alone."""
    findings = found(folder, dist(smp(partitions=2, **parameters)), facts)
    assert [each.severity for each in findings if each.code == "TW298"] == [severity]


@pytest.mark.parametrize(("code", "path", "changes", "facts", "sdk"), CASES)
def test_a_rule_speaks_at_the_key(folder, code, path, changes, facts, sdk):
    spoken_at(folder, code, path, changes, facts, sdk)
