"""The numbers of a job: processes, batches, rates, memory, other instances."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.estimator_jobs import ON, subject
from trainwright.estimator.estimate_text import figures_lines
from trainwright.estimator.figures import figures, replica_ranks, scaled_rates
from trainwright.estimator.subject import Subject
from trainwright.sagemaker.instances import instance
from trainwright.sagemaker.job import Job


def test_the_guides_own_examples():
    # Two ml.p3.8xlarge are a cluster of eight GPUs; 5000 samples in batches of 500 are ten iterations.
    told = figures(
        subject(
            instance_type="ml.p3.8xlarge",
            instance_count=2,
            distribution={"torch_distributed": ON},
            batch={"global": 500, "samples": 5000},
        )
    )
    assert (told.cluster_size, told.processes, told.iterations_per_epoch) == (8, 8, 10)
    assert instance("ml.p3.8xlarge").gpus == 4


@pytest.mark.parametrize(("hosts", "said"), [(1, "1 GPU = 1 x 1"), (2, "2 GPUs = 2 x 1")])
def test_gpus_are_counted(hosts, said):
    lines = figures_lines(figures(subject(instance_type="ml.p3.2xlarge", instance_count=hosts)))
    assert [line.split("cluster size")[1].strip() for line in lines if "cluster size" in line] == [said]


def test_replicas_microbatches_and_rates():
    model = {"enabled": True, "parameters": {"pipeline_parallel_degree": 2, "tensor_parallel_degree": 2}}
    model["parameters"]["microbatches"] = 4  # type: ignore[index]
    told = figures(
        subject(
            instance_count=2,
            distribution={"smdistributed": {"modelparallel": model}, "mpi": {**ON, "processes_per_host": 8}},
            batch={"per_replica": 16, "samples": 1000, "tuned_for": 16},
            hyperparameters={"lr": 0.1},
        )
    )
    assert (told.processes, told.replicas, told.global_batch) == (16, 4, 64)
    assert (told.microbatches, told.microbatch) == (4, 4)
    assert told.iterations_per_epoch == 16  # the last one is not full
    assert told.learning_rate is not None
    assert told.learning_rate.linear == pytest.approx(0.4)
    assert told.learning_rate.square_root == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("order", "replicas"),
    [("DPT", [(0, 1, 2, 3), (4, 5, 6, 7)]), ("PTD", [(0, 2, 4, 6), (1, 3, 5, 7)])],
)
def test_the_ranks_of_the_librarys_page(order, replicas):
    """aws/sagemaker-python-sdk, smd_model_parallel_general.rst: 8 devices, each degree 2; rdp_rank of every rank."""
    assert replica_ranks(2, 2, 2, order) == replicas


@given(
    replicas=st.integers(1, 8),
    pipeline=st.sampled_from([1, 2, 4]),
    tensor=st.sampled_from([1, 2]),
    spread=st.booleans(),
)
def test_every_rank_belongs_to_one_replica(replicas, pipeline, tensor, spread):
    groups = replica_ranks(replicas, pipeline, tensor, "TPD" if spread else "DPT")
    if pipeline * tensor == 1:
        assert groups == []
        return
    assert sorted(rank for group in groups for rank in group) == list(range(replicas * pipeline * tensor))
    assert [len(group) for group in groups] == [pipeline * tensor] * replicas
    step = replicas if spread else 1
    assert all(b - a == step for group in groups for a, b in pairwise(group))


@given(base=st.floats(1e-6, 1.0), factor=st.floats(1, 4096))
def test_rates_grow_with_the_batch(base, factor):
    linear, root = scaled_rates(base, factor)
    assert base <= root * (1 + 1e-9) <= linear * (1 + 2e-9)
    assert root**2 == pytest.approx(base * linear)


@pytest.mark.parametrize(
    ("parameters", "distribution", "shards", "fits"),
    [
        (1e9, {"torch_distributed": ON}, 1, True),
        (7e9, {"torch_distributed": ON}, 1, False),
        (
            7e9,
            {
                "smdistributed": {"modelparallel": {**ON, "parameters": {"pipeline_parallel_degree": 4}}},
                "mpi": {**ON, "processes_per_host": 8},
            },
            4,
            True,
        ),
        (
            70e9,
            {"smdistributed": {"modelparallel": {**ON, "parameters": {"random_seed": 1}}}, "torch_distributed": ON},
            32,
            True,
        ),
    ],
)
def test_a_models_state_against_the_memory_of_a_gpu(parameters, distribution, shards, fits):
    told = figures(subject(instance_count=4, distribution=distribution, model={"parameters": parameters})).memory
    assert told is not None
    assert (told.shards, told.fits) == (shards, fits)
    assert told.gib_per_gpu == pytest.approx(parameters * 16 / shards / 2**30, rel=0.01)


def test_eight_small_instances_are_one_large_one():
    small = subject(
        instance_type="ml.p3.2xlarge", instance_count=8, distribution={"mpi": {**ON, "processes_per_host": 1}}
    )
    best = figures(small).alternatives[0]
    # As the guide has it: one ml.p3dn.24xlarge in place of eight ml.p3.2xlarge.
    assert (best.instance_type, best.instance_count) == ("ml.p3dn.24xlarge", 1)
    for each in figures(small).alternatives:
        assert instance(each.instance_type).gpus * each.instance_count == 8
    assert figures(subject(instance_count=2, distribution={"torch_distributed": ON})).alternatives == ()


def test_nothing_known_is_no_number():
    told = figures(Subject(Job(), None))
    assert (told.cluster_size, told.instance_type, told.global_batch, told.memory) == (None, None, None, None)
    assert told.processes == 1  # without a strategy it is one on each host, whatever the host is
