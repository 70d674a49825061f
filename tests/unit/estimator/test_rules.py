"""Every rule about a job: a job that it speaks of, and good jobs of which none speaks."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from trainwright.core.findings import Finding
from trainwright.estimator.check import CODES, check
from trainwright.estimator.image import ImageFacts
from trainwright.estimator.subject import Subject
from trainwright.sagemaker.job import Job

REFERENCE = "123456789012.dkr.ecr.us-west-2.amazonaws.com/team/training:1"
ON = {"enabled": True}
P3, P4, G5 = "ml.p3.16xlarge", "ml.p4d.24xlarge", "ml.g5.xlarge"
MPI = {"enabled": True, "processes_per_host": 8}
TWO = {"instance_type": P4, "instance_count": 2}
PARTS = ("sagemaker-toolkit", "ssh", "mpi4py", "pytorch", "aws-ofi-nccl", "smdistributed-dataparallel")
GROUPS = [
    {"name": "gpu", "instance_type": P3, "instance_count": 2},
    {"name": "data", "instance_type": "ml.m5.xlarge", "instance_count": 1},
]


def image(**changes: Any) -> ImageFacts:
    components = {**dict.fromkeys(PARTS, "1 (test)"), "openmpi": "4.1.4 (debian)"}
    components["smdistributed-modelparallel"] = "1.7.0 (aws)"
    facts = {
        "reference": REFERENCE,
        "origin": "labels",
        "framework": "pytorch",
        "version": "1.10.2",
        "cuda": "11.3",
        "python": "3.8",
        "components": components,
    }
    return ImageFacts(**{**facts, **changes})


def without(*names: str, **versions: str) -> ImageFacts:
    components = {k: v for k, v in (image().components or {}).items() if k not in names}
    return image(components={**components, **versions})


TENSORFLOW = image(framework="tensorflow", version="2.8.4")
COMPILER = image(framework="pytorch-trcomp", version="1.13.1", cuda="11.7")
BAKED = image(entry_point="train.py")


def smp(launcher: dict[str, Any] | None = None, **parameters: Any) -> dict[str, Any]:
    launch = {"mpi": MPI} if launcher is None else launcher
    return {"smdistributed": {"modelparallel": {"enabled": True, "parameters": parameters}}, **launch}


def dist(value: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**TWO, "distribution": value, **more}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("job")
    (made / "src").mkdir()
    (made / "src" / "train.py").touch()
    (made / "src" / "run.sh").touch()
    return made


def found(folder: Path, changes: dict[str, Any], facts: ImageFacts | None, sdk: int = 2) -> list[Finding]:
    given = {
        "image": REFERENCE,
        "role": "arn:aws:iam::123456789012:role/training",
        "entry_point": "train.py",
        "source_dir": "src",
        "instance_type": G5,
        **changes,
    }
    job = Job.model_validate({key: value for key, value in given.items() if value is not None})
    return check(Subject(job, facts, 3 if sdk == 3 else 2, folder, True))


# code, path, what is changed in a good job, image, SDK
CASES: list[tuple[str, str, dict[str, Any], ImageFacts | None, int]] = [
    ("TW200", "distribution.torchxla", dist({"torchxla": ON}), image(), 2),
    (
        "TW200",
        "distribution.mpi.process_per_host",
        dist({"mpi": {"enabled": True, "process_per_host": 8}}),
        image(),
        2,
    ),
    ("TW200", "distribution.mpi.process_count", dist({"mpi": {**MPI, "process_count": 8}}), image(), 2),
    ("TW200", "distribution.smdistributed.data", dist({"smdistributed": {"data": ON}}), image(), 2),
    ("TW201", "distribution.mpi.enabled", dist({"mpi": {**MPI, "enabled": "true"}}), image(), 2),
    ("TW201", "distribution.mpi.processes_per_host", dist({"mpi": {**MPI, "processes_per_host": "8"}}), image(), 2),
    (
        "TW201",
        "distribution.instance_groups",
        {"instance_type": None, "instance_groups": GROUPS, "distribution": {"mpi": MPI, "instance_groups": [1]}},
        image(),
        2,
    ),
    ("TW202", "distribution.parameter_server", dist({"parameter_server": ON}), image(), 2),
    ("TW202", "distribution.torch_distributed", dist({"torch_distributed": ON}), TENSORFLOW, 2),
    ("TW203", "distribution.mpi.enabled", dist({"mpi": {"processes_per_host": 8}}), image(), 2),
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
    ("TW205", "distribution.smdistributed", dist({"mpi": MPI, "smdistributed": {"dataparallel": ON}}), image(), 2),
    ("TW206", "distribution.pytorchddp", dist({"pytorchddp": ON, "smdistributed": {"dataparallel": ON}}), image(), 2),
    (
        "TW206",
        "distribution.multi_worker_mirrored_strategy",
        dist({"multi_worker_mirrored_strategy": ON, "parameter_server": ON}),
        TENSORFLOW,
        2,
    ),
    (
        "TW207",
        "distribution.instance_groups",
        {"instance_type": None, "instance_groups": GROUPS, "distribution": {"mpi": MPI}},
        image(),
        2,
    ),
    (
        "TW207",
        "distribution.instance_groups",
        {"instance_type": None, "instance_groups": GROUPS, "distribution": {"mpi": MPI, "instance_groups": ["cpu"]}},
        image(),
        2,
    ),
    ("TW207", "distribution.instance_groups", dist({"mpi": MPI, "instance_groups": ["gpu"]}), image(), 2),
    (
        "TW207",
        "distribution.instance_groups",
        {
            "instance_type": None,
            "instance_groups": GROUPS,
            "distribution": {"torch_distributed": ON, "instance_groups": ["gpu"]},
        },
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
        without("smdistributed-modelparallel", **{"smdistributed-modelparallel": "1.5.0 (aws)"}),
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
    (
        "TW226",
        "distribution.smdistributed.modelparallel.parameters.auto_partition",
        dist(smp(pipeline_parallel_degree=2, auto_partition=False)),
        image(),
        2,
    ),
    ("TW227", "distribution.smdistributed.modelparallel.parameters", dist(smp(pipeline_parallel_degree=3)), image(), 2),
    (
        "TW228",
        "distribution.smdistributed.modelparallel.parameters.default_partition",
        dist(smp(pipeline_parallel_degree=2, auto_partition=False, default_partition=0)),
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
    ("TW240", "image", {}, None, 2),
    ("TW241", "image", {"image": "team/training:1"}, image(), 2),
    ("TW241", "image", {"image": "public.ecr.aws/deep-learning-containers/pytorch:2"}, image(), 2),
    ("TW242", "region", {"region": "eu-central-1"}, image(), 2),
    ("TW243", "image", dist({"mpi": MPI}), without("mpi4py"), 2),
    ("TW243", "image", dist({"smdistributed": {"dataparallel": ON}}), without("smdistributed-dataparallel"), 2),
    ("TW243", "image", dist(smp(pipeline_parallel_degree=2)), without("smdistributed-modelparallel"), 2),
    ("TW243", "image", dist(smp(pipeline_parallel_degree=2)), TENSORFLOW, 2),
    ("TW244", "image", dist({"torch_distributed": ON}), image(framework="jax"), 2),
    ("TW245", "image", dist({"mpi": MPI}), without("openmpi", openmpi="5.0.11 (source)"), 2),
    ("TW246", "source_dir", {}, BAKED, 2),
    ("TW246", "entry_point", {"source_dir": None, "entry_point": "src/train.py"}, image(entry_point="src/train.py"), 2),
    ("TW247", "entry_point", {"source_dir": None, "entry_point": "src/train.py"}, BAKED, 2),
    ("TW248", "instance_type", {"instance_type": "ml.trn1.2xlarge"}, image(), 2),
    ("TW248", "instance_type", {"instance_type": "ml.p6e-gb200.36xlarge"}, image(), 2),
    ("TW249", "instance_type", {}, image(cuda="cpu"), 2),
    ("TW249", "instance_type", {"instance_type": "ml.m5.xlarge"}, image(), 2),
    ("TW250", "instance_type", {"instance_type": "ml.p5.48xlarge"}, image(), 2),
    ("TW250", "instance_type", {"instance_type": P3}, image(cuda="13.0"), 2),
    ("TW251", "compiler", {"instance_type": "ml.p3.2xlarge", "compiler": ON}, COMPILER, 2),
    ("TW252", "instance_type", {"instance_type": "ml.g6.xlarge", "compiler": ON}, COMPILER, 2),
    ("TW253", "image", {"instance_type": "ml.p3.2xlarge", "compiler": ON}, image(), 2),
    ("TW254", "distribution.smdistributed", dist({"smdistributed": {"dataparallel": ON}}, compiler=ON), COMPILER, 2),
    ("TW254", "distribution.mpi", dist({"mpi": MPI}, compiler=ON), COMPILER, 2),
    (
        "TW254",
        "instance_groups",
        {"instance_type": None, "instance_groups": GROUPS[:1], "compiler": ON},
        COMPILER,
        2,
    ),
    ("TW255", "compiler", {"instance_type": "ml.p3.2xlarge", "compiler": ON}, COMPILER, 2),
    ("TW256", "distribution.pytorchxla", dist({"pytorchxla": ON}), COMPILER, 2),
    ("TW257", "distribution", {"instance_type": "ml.p3.8xlarge", "compiler": ON}, COMPILER, 2),
    (
        "TW258",
        "environment.GPU_NUM_DEVICES",
        {"instance_type": "ml.p3.8xlarge", "compiler": ON, "environment": {"GPU_NUM_DEVICES": "8"}},
        COMPILER,
        2,
    ),
    (
        "TW259",
        "instance_type",
        {"instance_type": P3, "instance_count": 2, "compiler": ON, "distribution": {"pytorchxla": ON}},
        COMPILER,
        2,
    ),
    ("TW260", "entry_point", {"entry_point": "/opt/ml/code/train.py"}, image(), 2),
    ("TW260", "entry_point", {"source_dir": None, "entry_point": "src/my train.py"}, image(), 2),
    ("TW260", "entry_point", {"entry_point": "../train.py"}, image(), 2),
    ("TW260", "entry_point", {"entry_point": "s3://bucket/train.py"}, image(), 2),
    ("TW260", "source_dir", {"source_dir": "s3://bucket/code"}, image(), 2),
    ("TW261", "entry_point", {"entry_point": "tran.py"}, image(), 2),
    ("TW261", "source_dir", {"source_dir": "sources"}, image(), 2),
    ("TW262", "instance_type", {"instance_type": "ml.p4d.24xlage"}, image(), 2),
    ("TW262", "instance_type", {"instance_type": "local_gpu"}, image(), 2),
    ("TW263", "instance_type", {"instance_type": None}, image(), 2),
    ("TW263", "instance_type", {"instance_groups": GROUPS}, image(), 2),
    ("TW264", "role", {"role": None}, image(), 2),
    ("TW264", "image", {"image": None}, image(), 2),
    ("TW264", "entry_point", {"entry_point": None, "source_dir": None}, image(), 2),
    ("TW265", "hyperparameters.sagemaker_program", {"hyperparameters": {"sagemaker_program": "a.py"}}, image(), 2),
    ("TW265", "hyperparameters.mp_parameters", {"hyperparameters": {"mp_parameters": {}}}, image(), 2),
    ("TW266", "hyperparameters.learning rate", {"hyperparameters": {"learning rate": 1}}, image(), 2),
    (
        "TW267",
        "environment.SAGEMAKER_CONTAINER_LOG_LEVEL",
        {"environment": {"SAGEMAKER_CONTAINER_LOG_LEVEL": "INFO"}},
        image(),
        2,
    ),
    ("TW267", "environment.SAGEMAKER_PROGRAM", {"environment": {"SAGEMAKER_PROGRAM": "other.py"}}, image(), 2),
    ("TW268", "max_wait", {"max_wait": 100}, image(), 2),
    ("TW268", "max_wait", {"spot": True, "max_run": 200, "max_wait": 100}, image(), 2),
    ("TW269", "checkpoint", {"spot": True}, image(), 2),
    ("TW270", "inputs.train", {"inputs": {"train": "file:///data"}}, image(), 2),
    ("TW270", "inputs.train", {"inputs": {"train": {"s3_dta": "s3://b/k"}}}, image(), 2),
    ("TW270", "inputs.train", {"inputs": {"train": {"s3_data": "s3://b/k", "input_mode": "Fast"}}}, image(), 2),
    ("TW270", "inputs.train", {"inputs": {"train": 3}}, image(), 2),
    ("TW271", "inputs.code", {"inputs": {"code": "s3://b/k"}}, image(), 3),
    ("TW272", "batch.global", dist({"torch_distributed": ON}, batch={"global": 64, "per_replica": 8}), image(), 2),
    ("TW272", "batch.global", dist({"torch_distributed": ON}, batch={"global": 100}), image(), 2),
    ("TW272", "batch.micro", dist({"torch_distributed": ON}, batch={"per_replica": 8, "micro": 3}), image(), 2),
    ("TW273", "model.parameters", dist({"torch_distributed": ON}, model={"parameters": 7e9}), image(), 2),
    (
        "TW274",
        "instance_type",
        {
            "instance_type": "ml.p3.2xlarge",
            "instance_count": 8,
            "distribution": {"mpi": {"enabled": True, "processes_per_host": 1}},
        },
        image(),
        2,
    ),
    ("TW275", "distribution", {"instance_type": P4}, image(), 2),
    ("TW276", "hyperparameters.x", {"hyperparameters": {"x": None}}, image(), 2),
    (
        "TW276",
        "environment.SAGEMAKER_SUBMIT_DIRECTORY",
        {"environment": {"SAGEMAKER_SUBMIT_DIRECTORY": "/opt/ml/code"}},
        image(),
        2,
    ),
    ("TW277", "instance_type", {"distribution": {"smdistributed": {"dataparallel": ON}}}, image(), 2),
    ("TW278", "hyperparameters.since", {"hyperparameters": {"since": date(2026, 11, 21)}}, image(), 2),
    ("TW278", "distribution.mpi", dist({"mpi": {**MPI, "custom_mpi_options": date(2026, 1, 1)}}), image(), 2),
    ("TW200", "distribution.mpi.True", dist({"mpi": {**MPI, True: True}}), image(), 2),
    ("TW280", "distribution", dist({"smdistributed": {"dataparallel": ON}}), image(), 3),
    ("TW280", "distribution", dist(smp(pipeline_parallel_degree=2)), image(), 3),
    ("TW281", "compiler", {"instance_type": "ml.p3.2xlarge", "compiler": ON}, COMPILER, 3),
    ("TW282", "source_dir", {"source_dir": None, "entry_point": "src/train.py"}, image(), 3),
    ("TW283", "distribution.mpi", dist({"mpi": MPI}), image(), 3),
    (
        "TW284",
        "distribution.instance_groups",
        {"instance_type": None, "instance_groups": GROUPS, "distribution": {"mpi": MPI, "instance_groups": ["gpu"]}},
        image(),
        3,
    ),
    ("TW290", "role", {"role": "training"}, image(), 2),
    ("TW290", "name", {"name": "my_job"}, image(), 2),
    ("TW290", "environment.LONG", {"environment": {"LONG": "x" * 513}}, image(), 2),
    ("TW290", "hyperparameters", {"hyperparameters": {f"h{n}": n for n in range(100)}}, image(), 2),
    ("TW290", "subnets", {"subnets": [f"subnet-{n}" for n in range(17)], "security_group_ids": ["sg-1"]}, image(), 2),
    ("TW290", "image", {"image": REFERENCE + "x" * 200}, image(), 2),
    ("TW291", "hyperparameters.text", {"hyperparameters": {"text": "x" * 2499}}, image(), 2),
]
# Nothing in CASES: what stands in a job's way without any other rule knowing it is covered in test_estimator_check.py.
ELSEWHERE = {"TW219"}


def test_every_code_has_a_case():
    assert {case[0] for case in CASES} | ELSEWHERE == set(CODES)


@pytest.mark.parametrize(("code", "path", "changes", "facts", "sdk"), CASES)
def test_a_rule_speaks_at_the_key(folder, code, path, changes, facts, sdk):
    findings = found(folder, changes, facts, sdk)
    assert (code, path) in {(each.code, each.path) for each in findings}, findings
    assert all(each.remedy and each.source for each in findings)


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
        without("smdistributed-modelparallel", **{"smdistributed-modelparallel": "2.4.0 (aws)"}),
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
    "code in the image": ({"source_dir": None, "entry_point": None}, BAKED),
}


@pytest.mark.parametrize("name", list(GOOD))
def test_a_good_job_has_no_errors_and_no_warnings(folder, name):
    findings = [each for each in found(folder, *GOOD[name]) if each.severity != "note"]
    assert findings == []


@pytest.mark.parametrize("name", list(GOOD))
def test_sdk_3_refuses_nothing_of_what_it_can_say(folder, name):
    changes, facts = GOOD[name]
    refused = {each.code for each in found(folder, changes, facts, 3) if each.severity == "error"}
    cannot = {"TW280", "TW281", "TW282", "TW284", "TW246"}
    assert refused <= cannot
    assert bool(refused) == (
        name
        not in {"one process", "processes on a CPU", "torchrun", "torchrun on one host", "model parallel 2", "spot"}
    )
