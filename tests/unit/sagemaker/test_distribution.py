"""``distribution``: what SDK 2 makes of it, what is refused that the SDK lets through, which launcher follows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.core.errors import RequestError
from trainwright.sagemaker.distribution import (
    PROCESSES,
    STRATEGIES,
    compile_distribution,
    framework_of,
    launcher_named,
    launcher_of,
    needs_framework_module,
    processes_per_host,
    ranks_per_host,
)

P4D = "ml.p4d.24xlarge"
ON: dict[str, Any] = {"enabled": True}
TORCHRUN = {"torch_distributed": ON}
SMP = {"partitions": 2, "microbatches": 4}


def compiled(distribution: Any, framework: str = "pytorch", **more: Any) -> dict[str, Any]:
    told = compile_distribution(distribution, framework=framework, **{"instance_type": P4D, **more})
    return {name: json.loads(value) for name, value in told.items()}


def modelparallel(parameters: dict[str, Any], **launcher: Any) -> dict[str, Any]:
    return {"smdistributed": {"modelparallel": {"enabled": True, "parameters": parameters}}, **launcher}


def test_a_strategy_that_does_not_say_enabled_is_off() -> None:
    """As ``_distribution_configuration`` of sagemaker 2.257.7 (estimator.py) reads it: ``.get("enabled", False)``."""
    given = {"multi_worker_mirrored_strategy": {}}
    assert compiled(given, framework="tensorflow") == {"sagemaker_multi_worker_mirrored_strategy_enabled": False}


# What sagemaker 2.257.7 gave for ``PyTorch(image_uri=…, instance_type="ml.p4d.24xlarge", distribution=…)``.
@pytest.mark.parametrize(
    ("distribution", "hyperparameters", "launcher"),
    [
        (None, {}, "process"),
        ({}, {}, "process"),
        (
            {"smdistributed": {"dataparallel": {"enabled": True, "custom_mpi_options": "-x A=1"}}},
            {
                "sagemaker_distributed_dataparallel_enabled": True,
                "sagemaker_instance_type": P4D,
                "sagemaker_distributed_dataparallel_custom_mpi_options": "-x A=1",
            },
            "smddp",
        ),
        (
            {"pytorchddp": ON},
            {
                "sagemaker_distributed_dataparallel_enabled": True,
                "sagemaker_instance_type": P4D,
                "sagemaker_distributed_dataparallel_custom_mpi_options": "",
            },
            "smddp",
        ),
        (
            modelparallel(SMP, mpi={"enabled": True, "processes_per_host": 8, "custom_mpi_options": "-x B"}),
            {
                "sagemaker_mpi_enabled": True,
                "sagemaker_mpi_num_of_processes_per_host": 8,
                "sagemaker_mpi_custom_mpi_options": "-x B",
                "mp_parameters": SMP,
                "sagemaker_distributed_dataparallel_enabled": False,
                "sagemaker_instance_type": P4D,
            },
            "mpi",
        ),
        (
            modelparallel({"hybrid_shard_degree": 2}, **TORCHRUN),
            {
                "sagemaker_torch_distributed_enabled": True,
                "mp_parameters": {"hybrid_shard_degree": 2},
                "sagemaker_distributed_dataparallel_enabled": False,
                "sagemaker_instance_type": P4D,
            },
            "torchrun",
        ),
        ({"mpi": ON}, {"sagemaker_mpi_enabled": True, "sagemaker_mpi_custom_mpi_options": ""}, "mpi"),
        (
            {"mpi": {"enabled": False, "processes_per_host": 2}},
            {"sagemaker_mpi_enabled": False, PROCESSES: 2, "sagemaker_mpi_custom_mpi_options": ""},
            "process",
        ),
        (TORCHRUN, {"sagemaker_torch_distributed_enabled": True, "sagemaker_instance_type": P4D}, "torchrun"),
        ({"pytorchxla": ON}, {"sagemaker_pytorch_xla_multi_worker_enabled": True}, "xla"),
        (
            {"mpi": ON, "instance_groups": ["gpu"]},
            {
                "sagemaker_distribution_instance_groups": ["gpu"],
                "sagemaker_mpi_enabled": True,
                "sagemaker_mpi_custom_mpi_options": "",
            },
            "mpi",
        ),
    ],
)
def test_hyperparameters_are_those_of_the_sdk(distribution, hyperparameters, launcher):
    assert compiled(distribution) == hyperparameters
    assert launcher_of(distribution) == launcher


@pytest.mark.parametrize(
    ("strategy", "name", "launcher"),
    [
        ("parameter_server", "sagemaker_parameter_server_enabled", "parameter-server"),
        ("multi_worker_mirrored_strategy", "sagemaker_multi_worker_mirrored_strategy_enabled", "mwms"),
    ],
)
def test_tensorflow_has_strategies_of_its_own(strategy, name, launcher):
    assert compiled({strategy: ON}, "tensorflow") == {name: True}
    assert launcher_of({strategy: ON}, "tensorflow") == launcher
    with pytest.raises(RequestError, match=f"{strategy} is for tensorflow"):
        compiled({strategy: ON})
    with pytest.raises(RequestError, match="torch_distributed is for pytorch"):
        compiled(TORCHRUN, "tensorflow")


def test_parameter_servers_are_for_more_than_one_host():
    assert launcher_of({"parameter_server": ON}, "tensorflow", hosts=1) == "process"


def test_only_mpi_is_known_without_a_framework_module():
    assert [needs_framework_module(one) for one in ("process", "mpi", "torchrun", "smddp")] == [
        False,
        False,
        True,
        True,
    ]


def test_the_number_of_processes_is_written_for_every_launcher():
    assert compiled(TORCHRUN, processes_per_host=2)[PROCESSES] == 2
    assert compiled({"mpi": {"enabled": True, "processes_per_host": 8}}, processes_per_host=4)[PROCESSES] == 4
    assert processes_per_host({"mpi": {"enabled": True, "processes_per_host": 8}}) == 8
    assert processes_per_host(TORCHRUN) is None
    assert processes_per_host(None) is None


@pytest.mark.parametrize(
    ("distribution", "meant"),
    [
        ({"torchxla": ON}, "pytorchxla"),
        ({"mpi": {"enabled": True, "process_per_host": 8}}, "processes_per_host"),
        ({"mpi": {"enabled": True, "process_count": 8}}, "processes_per_host"),
        ({"torchrun": ON}, "torch_distributed"),
        ({"smddp": ON}, "smdistributed"),
        ({"smdistributed": {"dataparalel": ON}}, "dataparallel"),
        ({"torch_distributed": {"enable": True}}, "enabled"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_one(distribution, meant):
    with pytest.raises(RequestError, match="unknown key") as refused:
        compiled(distribution)
    assert meant in refused.value.remedy


@pytest.mark.parametrize(
    ("distribution", "words"),
    [
        ({"mpi": {"enabled": "yes"}}, "enabled must be true or false"),
        ({"mpi": {"enabled": True, "processes_per_host": "8"}}, "a whole number"),
        ({"mpi": {"enabled": True, "processes_per_host": True}}, "a whole number"),
        ({"mpi": {"enabled": True, "processes_per_host": 0}}, "must be at least 1"),
        ({"mpi": {"enabled": True, "custom_mpi_options": ["-x", "A"]}}, "a string of mpirun options"),
        ({"mpi": True}, "a table"),
        ({"torch_distributed": ON, "mpi": ON}, "the SDK drops mpi"),
        ({"mpi": ON, "smdistributed": {"dataparallel": ON}}, "the container takes mpi"),
        ({"torch_distributed": ON, "smdistributed": {"dataparallel": ON}}, "the container takes torchrun"),
        ({"pytorchddp": ON, "smdistributed": {"dataparallel": ON}}, "both pytorchddp and smdistributed"),
        ({"smdistributed": {}}, "exactly one of dataparallel and modelparallel"),
        ({"smdistributed": {"dataparallel": ON, "modelparallel": ON}}, "exactly one of dataparallel and modelparallel"),
        (modelparallel(SMP), "needs a launcher"),
        (modelparallel({}, mpi={"enabled": True, "processes_per_host": 8}), "enabled without parameters"),
        (modelparallel(SMP, mpi=ON), "one process per GPU"),
        ({"torch_distributed": ON, "instance_groups": ["gpu"]}, "needs mpi or smdistributed.dataparallel"),
        ({"mpi": ON, "instance_groups": [1]}, "a list of names"),
    ],
)
def test_what_would_do_something_else_than_it_says_is_refused(distribution, words):
    with pytest.raises(RequestError, match=words):
        compiled(distribution)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"partitions": 0}, "partitions must be a whole number, at least 1"),
        ({"tensor_parallel_degree": "2"}, "tensor_parallel_degree must be a whole number"),
        ({"pipeline": "fast"}, "pipeline must be "),
        ({"ddp": 1}, "ddp must be true or false"),
        ({"memory_weight": 2}, "a number from 0 to 1"),
        ({"auto_partition": False, "partitions": 2}, "needs default_partition"),
        ({"auto_partition": False, "default_partition": 2, "partitions": 2}, "less than the number of partitions"),
        ({"ddp_port": 1234}, "ddp_port needs ddp"),
        ({"ddp": True, "horovod": True}, "one of them"),
    ],
)
def test_parameters_of_model_parallelism_are_checked(parameters, words):
    with pytest.raises(RequestError, match=words):
        compiled(modelparallel(parameters, mpi={"enabled": True, "processes_per_host": 8}))


def test_the_library_in_the_image_decides_the_names_of_the_degree():
    mpi = {"enabled": True, "processes_per_host": 8}
    for name, version in (("partitions", "1.5.0"), ("partitions", "1.10.0"), ("pipeline_parallel_degree", "1.10.0")):
        assert compiled(modelparallel({name: 2}, mpi=mpi), smp_version=version)["mp_parameters"] == {name: 2}
    with pytest.raises(RequestError, match="has no parameter pipeline_parallel_degree") as refused:
        compiled(modelparallel({"pipeline_parallel_degree": 2}, mpi=mpi), smp_version="1.5.0")
    assert "partitions" in refused.value.remedy


def test_trainium_knows_torchrun_alone():
    assert compiled(TORCHRUN, instance_type="ml.trn1.32xlarge")["sagemaker_torch_distributed_enabled"] is True
    with pytest.raises(RequestError, match="Trainium supports only torch_distributed, not mpi"):
        compiled({"mpi": ON}, instance_type="ml.trn1.32xlarge")


def test_p5_needs_torchrun_for_smdistributed():
    with pytest.raises(RequestError, match=r"rejects smdistributed on ml\.p5\.48xlarge"):
        compiled({"smdistributed": {"dataparallel": ON}}, instance_type="ml.p5.48xlarge")


def test_torchrun_starts_python_programs_only():
    with pytest.raises(RequestError, match=r"not train\.sh"):
        compiled(TORCHRUN, entry_point="train.sh")
    assert compiled(TORCHRUN, entry_point="train.py") == compiled(TORCHRUN)
    assert compiled({"mpi": ON}, entry_point="train.sh") == compiled({"mpi": ON})


def test_groups_of_instances_are_for_either_launcher_that_knows_them():
    for distribution in ({"mpi": ON}, {"smdistributed": {"dataparallel": ON}}):
        made = compiled({**distribution, "instance_groups": ["gpu"]})
        assert made["sagemaker_distribution_instance_groups"] == ["gpu"]


def test_a_group_of_instances_is_no_strategy_to_trainium():
    with pytest.raises(RequestError, match="instance_groups needs mpi"):
        compiled({**TORCHRUN, "instance_groups": ["trn"]}, instance_type="ml.trn1.32xlarge")


def test_an_unknown_key_inside_is_named_with_its_path():
    with pytest.raises(RequestError, match=r"distribution\.smdistributed\.dataparallel"):
        compiled({"smdistributed": {"dataparallel": {**ON, "custom_mpi_option": "-x A"}}})


leaves = st.sampled_from((None, True, False, 0, 3, "text", [], {}))
inner = st.dictionaries(st.sampled_from(("enabled", "custom_mpi_options", "parameters", "x")), leaves, max_size=2)
values = leaves | inner | st.dictionaries(st.sampled_from(("enabled", "dataparallel", "modelparallel")), leaves | inner)


@given(st.dictionaries(st.sampled_from((*STRATEGIES, "torchxla")), values, max_size=3))
def test_whatever_is_given_is_compiled_or_refused(distribution):
    """No other error, and every value is a JSON text."""
    try:
        told = compile_distribution(distribution, framework="pytorch", instance_type="ml.m5.xlarge")
    except RequestError:
        return
    assert all(json.loads(value) is not None for value in told.values())
    assert launcher_of(distribution) in ("process", "mpi", "torchrun", "smddp", "xla")


TABLES = st.dictionaries(
    st.sampled_from([*STRATEGIES, "torchxla"]),
    st.one_of(
        st.none(),
        st.text(max_size=3),
        st.dictionaries(
            st.sampled_from(["enabled", "processes_per_host", "dataparallel", "modelparallel"]),
            st.one_of(st.booleans(), st.integers(-1, 9), st.just({"enabled": True})),
        ),
    ),
    max_size=4,
)


@given(TABLES)
def test_a_launcher_is_named_for_anything_and_is_the_one_of_what_holds_together(distribution: Any) -> None:
    named = launcher_named(distribution)
    told = set()
    for framework in ("pytorch", "tensorflow"):
        try:
            told.add(launcher_of(distribution, framework))
        except RequestError:
            continue
    assert not told or named in told


@pytest.mark.parametrize(
    ("launcher", "asked", "count"),
    [("process", 4, 1), ("mwms", None, 1), ("mpi", 4, 4), ("mpi", None, 8), ("torchrun", None, 8), ("torchrun", 2, 2)],
)
def test_ranks_of_a_host(launcher: Any, asked: int | None, count: int) -> None:
    assert ranks_per_host(launcher, asked, 8) == count


@pytest.mark.parametrize(
    ("distribution", "launcher"),
    [
        ({}, "process"),
        ({"pytorchddp": ON}, "smddp"),
        ({"pytorchddp": {"enabled": False}}, "process"),
        ({"smdistributed": {"dataparallel": ON}}, "smddp"),
        ({"smdistributed": "yes"}, "process"),
        ({"parameter_server": ON}, "parameter-server"),
        ({"multi_worker_mirrored_strategy": ON}, "mwms"),
        ({"mpi": ON, "nonsense": 3}, "mpi"),
        # Only what is enabled selects a framework.
        ({"parameter_server": {"enabled": False}, "torch_distributed": ON}, "torchrun"),
    ],
)
def test_a_launcher_is_named_also_where_the_rest_is_wrong(distribution, launcher):
    assert launcher_named(distribution) == launcher


@pytest.mark.parametrize(
    ("distribution", "framework"),
    [
        (None, None),
        ({}, None),
        ({"mpi": ON}, None),
        ({"mpi": ON, "torch_distributed": ON}, "pytorch"),
        ({"parameter_server": ON}, "tensorflow"),
    ],
)
def test_a_strategy_of_one_framework_alone_names_it(distribution, framework):
    assert framework_of(distribution) == framework


def test_mirrored_workers_exclude_parameter_servers():
    with pytest.raises(RequestError, match="cannot be combined"):
        compiled({"multi_worker_mirrored_strategy": ON, "parameter_server": ON}, framework="tensorflow")
    compiled({"multi_worker_mirrored_strategy": ON}, framework="tensorflow")
    compiled({"multi_worker_mirrored_strategy": {"enabled": False}, "parameter_server": ON}, framework="tensorflow")
