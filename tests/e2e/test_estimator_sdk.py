"""What ``estimator`` generates, run with the real SDKs: the request that they send is the one that it writes."""

from __future__ import annotations

import json
import re
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.doubles.sagemaker_sdk import SDK2, SDK3, interpreter_with
from tests.doubles.sdk_requests import ACCOUNT, BUCKET, REGION, ROLE, Sdk, emulated_api, sdk, variables
from trainwright.estimator.create_training_job import make_request
from trainwright.estimator.estimate import estimate, generate
from trainwright.estimator.image import ImageFacts
from trainwright.estimator.subject import Subject
from trainwright.sagemaker.distribution import compile_distribution
from trainwright.sagemaker.job import Job

IMAGE = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/team/training:1"
ENABLED = {"enabled": True}
P4D = {"instance_type": "ml.p4d.24xlarge", "instance_count": 2}
P3 = {"instance_type": "ml.p3.16xlarge", "instance_count": 2}
MPI = {"enabled": True, "processes_per_host": 8}
GROUPS = [
    {"name": "gpu", "instance_type": "ml.p3.16xlarge", "instance_count": 2},
    {"name": "data", "instance_type": "ml.m5.xlarge", "instance_count": 1},
]
TOOLKIT = ("sagemaker-toolkit", "openmpi", "ssh", "mpi4py", "aws-ofi-nccl")
LIBRARIES = ("smdistributed-dataparallel", "smdistributed-modelparallel", "torch-xla")


def image(framework: str, version: str, cuda: str, components: dict[str, str], **more: Any) -> ImageFacts:
    versions = {**dict.fromkeys((*TOOLKIT, "pytorch"), "1 (test)"), "openmpi": "4.1.4 (debian)", **components}
    return ImageFacts(
        reference=IMAGE,
        origin="labels",
        framework=framework,
        version=version,
        cuda=cuda,
        python="3.9",
        components=versions,
        **more,
    )


PYTORCH = image("pytorch", "2.6.0", "12.4", {})
LIBRARIED = image("pytorch", "1.10.2", "11.3", dict.fromkeys(LIBRARIES, "1.7.0 (aws)"))
SECOND = image("pytorch", "2.3.0", "12.1", {"smdistributed-modelparallel": "2.4.0 (aws)"})
COMPILER = image("pytorch-trcomp", "1.13.1", "11.7", {"torch-xla": "1.13 (aws)"})
TENSORFLOW = image("tensorflow", "2.11.1", "11.2", {})
BAKED = image("pytorch", "2.6.0", "12.4", {}, entry_point="train.py")
SPOT = {
    "spot": True,
    "max_run": 3600,
    "max_wait": 7200,
    "checkpoint": {"s3_uri": f"s3://{BUCKET}/checkpoints", "local_path": "/opt/ml/checkpoints"},
}
EVERYTHING = {
    "hyperparameters": {"lr": 0.1, "name": "a \"b\" 'c'", "on": True, "deep": {"k": [1, None]}, "text": "ü\\"},
    "environment": {"NCCL_DEBUG": "INFO", "QUOTED": 'it\'s "so"'},
    "tags": {"team": "vision"},
    "metrics": {"loss": r"loss=([0-9.]+)"},
    "subnets": ["subnet-1"],
    "security_group_ids": ["sg-1", "sg-2"],
    "volume_gb": 200,
    "name": "vision-run",
    "output": f"s3://{BUCKET}/a/prefix/",
}
CHANNELS = {
    "train": f"s3://{BUCKET}/train",
    "test": {"s3_data": f"s3://{BUCKET}/test", "distribution": "ShardedByS3Key", "input_mode": "FastFile"},
    "list": {"s3_data": f"s3://{BUCKET}/list", "s3_data_type": "ManifestFile", "content_type": "text/csv"},
}
KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/12345678-1234-1234-1234-123456789012"
FILE_SYSTEMS = {
    "subnets": ["subnet-1"],
    "security_group_ids": ["sg-1"],
    "inputs": {
        "fsx": {
            "file_system_id": "fs-0123456789abcdef0",
            "file_system_type": "FSxLustre",
            "directory_path": "/abcd1234/train",
        },
        "efs": {
            "file_system_id": "fs-0123456789abcdef1",
            "file_system_type": "EFS",
            "directory_path": "/test",
            "file_system_access_mode": "rw",
        },
    },
}
OPTIONS = {
    "volume_kms_key": KEY,
    "output_kms_key": KEY,
    "encrypt_traffic": True,
    "keep_alive": 1800,
    "retries": 3,
    "tensorboard": {"s3_uri": f"s3://{BUCKET}/tensorboard", "local_path": "/opt/ml/output/tensorboard"},
    "remote_debug": True,
    "session_tags": True,
}
PLAN = {
    "training_plan": f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:training-plan/plan-1",
    "placement": {"multiple_jobs": True, "ultra_servers": {"ultra-1": 2}},
}
DEBUGGED = {
    "debugger": {"s3_uri": f"s3://{BUCKET}/tensors", "local_path": "/opt/ml/output/tensors"},
    "profiler": {"s3_uri": f"s3://{BUCKET}/profile", "interval_ms": 500},
}

TUNED = {
    "metrics": {"loss": r"loss=([0-9.]+)", "accuracy": r"accuracy=([0-9.]+)"},
    "hyperparameters": {"lr": 0.1, "epochs": 3, "name": "x"},
    "tuner": {
        "metric": "loss",
        "goal": "Minimize",
        "ranges": {
            "lr": {"min": 0.0001, "max": 0.1, "scaling": "Logarithmic"},
            "batch": {"min": 16, "max": 128},
            "optimizer": {"values": ["sgd", "adam"]},
        },
        "max_jobs": 20,
        "max_parallel_jobs": 4,
        "early_stopping": True,
    },
}
GRID = {
    "metrics": {"loss": r"loss=([0-9.]+)"},
    "tuner": {
        "metric": "loss",
        "goal": "Minimize",
        "strategy": "Grid",
        "ranges": {"a": {"values": ["1", "2"]}, "b": {"values": [3, 4]}},
    },
}
KEPT = {"output_kms_key": KEY, "retries": 3, "tags": {"team": "vision"}, "environment": {"NCCL_DEBUG": "INFO"}}


def smp(**parameters: Any) -> dict[str, Any]:
    return {"modelparallel": {"enabled": True, "parameters": parameters}}


# name: the image, and what differs from one ml.m5.xlarge with a script in a folder.
JOBS_2: dict[str, tuple[ImageFacts | None, dict[str, Any]]] = {
    "plain": (PYTORCH, {"instance_type": "ml.g5.xlarge"}),
    "everything": (PYTORCH, {"instance_type": "ml.g5.xlarge", **EVERYTHING}),
    "channels": (PYTORCH, {"instance_type": "ml.g5.xlarge", "inputs": CHANNELS}),
    "spot": (PYTORCH, {"instance_type": "ml.g5.xlarge", **SPOT}),
    "isolated": (PYTORCH, {"instance_type": "ml.g5.xlarge", "network_isolation": True, "inputs": CHANNELS}),
    "script alone": (PYTORCH, {"instance_type": "ml.g5.xlarge", "source_dir": None, "entry_point": "src/train.py"}),
    "code in s3": (PYTORCH, {"instance_type": "ml.g5.xlarge", "source_dir": f"s3://{BUCKET}/code/sourcedir.tar.gz"}),
    "mpi": (PYTORCH, {**P4D, "distribution": {"mpi": {**MPI, "custom_mpi_options": "-x RDMAV_FORK_SAFE=1"}}}),
    "torchrun": (PYTORCH, {**P4D, "distribution": {"torch_distributed": ENABLED}}),
    "dataparallel": (LIBRARIED, {**P4D, "distribution": {"smdistributed": {"dataparallel": ENABLED}}}),
    "pytorchddp": (LIBRARIED, {**P4D, "distribution": {"pytorchddp": ENABLED}}),
    "model parallel 1": (
        LIBRARIED,
        {
            **P4D,
            "distribution": {
                "smdistributed": smp(pipeline_parallel_degree=4, microbatches=4, ddp=True, optimize="speed"),
                "mpi": MPI,
            },
        },
    ),
    "default partition": (
        LIBRARIED,
        {
            **P4D,
            "distribution": {
                "smdistributed": smp(
                    pipeline_parallel_degree=2, auto_partition=False, default_partition=1, microbatches=4, ddp=True
                ),
                "mpi": MPI,
            },
        },
    ),
    "model parallel 2": (
        SECOND,
        {
            **P4D,
            "distribution": {
                "torch_distributed": ENABLED,
                "smdistributed": smp(hybrid_shard_degree=2, tensor_parallel_degree=4),
            },
        },
    ),
    "groups": (
        PYTORCH,
        {
            "instance_groups": GROUPS,
            "distribution": {"mpi": MPI, "instance_groups": ["gpu"]},
            "inputs": {"train": {"s3_data": f"s3://{BUCKET}/train", "instance_groups": ["gpu"]}},
        },
    ),
    "groups with dataparallel": (
        LIBRARIED,
        {
            "instance_groups": GROUPS,
            "distribution": {"smdistributed": {"dataparallel": ENABLED}, "instance_groups": ["gpu"]},
        },
    ),
    "options": (PYTORCH, {"instance_type": "ml.p3.2xlarge", **OPTIONS}),
    "options with a launcher": (PYTORCH, {**P3, "distribution": {"torch_distributed": ENABLED}, **OPTIONS}),
    "file systems": (PYTORCH, {"instance_type": "ml.g5.xlarge", **FILE_SYSTEMS}),
    "training plan": (PYTORCH, {**P4D, "distribution": {"torch_distributed": ENABLED}, **PLAN}),
    "debugger": (PYTORCH, {"instance_type": "ml.g5.xlarge", **DEBUGGED}),
    "tuner": (PYTORCH, {"instance_type": "ml.g5.xlarge", "inputs": CHANNELS, **SPOT, **KEPT, **TUNED}),
    "tuner with a launcher": (
        PYTORCH,
        {
            **P3,
            "distribution": {"torch_distributed": ENABLED},
            "volume_kms_key": KEY,
            "encrypt_traffic": True,
            "network_isolation": True,
            "subnets": ["subnet-1"],
            "security_group_ids": ["sg-1"],
            **TUNED,
        },
    ),
    "grid": (PYTORCH, {"instance_type": "ml.g5.xlarge", **GRID}),
    "tuner of tensorflow": (TENSORFLOW, {"instance_type": "ml.g5.xlarge", **TUNED}),
    "tuner of an unknown image": (None, {**P4D, "distribution": {"mpi": MPI}, **TUNED}),
    "compiler": (COMPILER, {"instance_type": "ml.p3.2xlarge", "compiler": {"enabled": True, "debug": True}}),
    "compiler on several": (
        COMPILER,
        {
            "instance_type": "ml.p4d.24xlarge",
            "compiler": {"enabled": True},
            "distribution": {"pytorchxla": ENABLED},
        },
    ),
    "tensorflow": (TENSORFLOW, {"instance_type": "ml.g5.xlarge", "hyperparameters": {"model_dir": "/opt/ml/model/1"}}),
    "parameter server": (
        TENSORFLOW,
        {"instance_type": "ml.g5.xlarge", "instance_count": 2, "distribution": {"parameter_server": ENABLED}},
    ),
    "mirrored": (
        TENSORFLOW,
        {
            "instance_type": "ml.g5.xlarge",
            "instance_count": 2,
            "distribution": {"multi_worker_mirrored_strategy": ENABLED},
        },
    ),
    "unknown image": (None, {**P4D, "distribution": {"mpi": MPI}, "hyperparameters": {"lr": 0.1}}),
    "code in the image": (
        BAKED,
        {
            "instance_type": "ml.g5.xlarge",
            "source_dir": None,
            "entry_point": None,
            "hyperparameters": {"lr": 0.1, "name": "x", "on": True},
        },
    ),
    "options with code in the image": (
        BAKED,
        {"instance_type": "ml.p3.2xlarge", "source_dir": None, "entry_point": None, **OPTIONS, **DEBUGGED},
    ),
}
JOBS_3: dict[str, tuple[ImageFacts | None, dict[str, Any]]] = {
    "plain": (PYTORCH, {"instance_type": "ml.g5.xlarge"}),
    "everything": (PYTORCH, {"instance_type": "ml.g5.xlarge", **EVERYTHING}),
    "channels": (PYTORCH, {"instance_type": "ml.g5.xlarge", "inputs": CHANNELS}),
    "spot": (PYTORCH, {"instance_type": "ml.g5.xlarge", **SPOT}),
    "mpi": (PYTORCH, {**P4D, "distribution": {"mpi": {**MPI, "custom_mpi_options": "-x RDMAV_FORK_SAFE=1"}}}),
    "torchrun": (PYTORCH, {**P4D, "distribution": {"torch_distributed": ENABLED}}),
    "model parallel 2": JOBS_2["model parallel 2"],
    "groups": (PYTORCH, {"instance_groups": GROUPS[:1], "distribution": {"torch_distributed": ENABLED}}),
    "isolated": (PYTORCH, {"instance_type": "ml.g5.xlarge", "network_isolation": True}),
    "unknown image": JOBS_2["unknown image"],
    "options": JOBS_2["options"],
    "options with a launcher": JOBS_2["options with a launcher"],
    "file systems": JOBS_2["file systems"],
    "training plan": JOBS_2["training plan"],
    "tuner": JOBS_2["tuner"],
    "grid": JOBS_2["grid"],
}


NUMBERS = count(1)


def make_job(changes: dict[str, Any]) -> Job:
    given = {
        "image": IMAGE,
        "role": ROLE,
        "entry_point": "train.py",
        "source_dir": "src",
        "output": f"s3://{BUCKET}",
        **changes,
    }
    return Job(**{key: value for key, value in given.items() if value is not None})


@pytest.fixture(scope="module")
def api() -> Iterator[str]:
    with emulated_api() as url:
        yield url


@pytest.fixture(scope="module")
def sdk2(api: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sdk]:
    with sdk(interpreter_with(SDK2), api, tmp_path_factory.mktemp("sdk2")) as worker:
        yield worker


@pytest.fixture(scope="module")
def sdk3(api: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sdk]:
    with sdk(interpreter_with(SDK3), api, tmp_path_factory.mktemp("sdk3")) as worker:
        yield worker


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print('trained')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def anonymous(request: dict[str, Any]) -> dict[str, Any]:
    """The request without the times in its names; that of a tuning job has a second one, in addresses of its code."""
    named = [request[key] for key in ("TrainingJobName", "HyperParameterTuningJobName") if key in request]
    static = request.get("TrainingJobDefinition", {}).get("StaticHyperParameters", {})
    named += [json.loads(static["sagemaker_job_name"])] if "sagemaker_job_name" in static else []
    text = json.dumps(request)
    for name in named:
        text = text.replace(name, f"{name[: name.index('-2')]}-TIME")
    same: dict[str, Any] = json.loads(re.sub(r"/tuning-\d+/", "/tuning-TIME/", text))
    return same


def compared(worker: Sdk, facts: ImageFacts | None, changes: dict[str, Any], version: int, folder: Path) -> None:
    # The name of a tuning job holds the minute alone, and the service accepts it once.
    job = make_job(changes | ({"name": f"tuned-{next(NUMBERS)}"} if "tuner" in changes else {}))
    made = estimate(job, folder, sdk=version, look=lambda _: facts)
    assert made.exit_code == 0, made.findings
    theirs = worker.sends(made.generated["job"], folder)
    ours = make_request(Subject(job, facts, 3 if version == 3 else 2, folder, True), datetime.now(UTC))
    assert anonymous(ours) == anonymous(theirs)
    # Also the number of digits: what AWS limits is the whole name.
    for name in ("TrainingJobName", "HyperParameterTuningJobName"):
        assert len(ours.get(name, "")) == len(theirs.get(name, ""))


@pytest.mark.parametrize("name", list(JOBS_2))
def test_sdk_2_sends_what_is_written(sdk2, code, name):
    compared(sdk2, *JOBS_2[name], 2, code)


@pytest.mark.parametrize("name", list(JOBS_3))
def test_sdk_3_sends_what_is_written(sdk3, code, name):
    compared(sdk3, *JOBS_3[name], 3, code)


def test_the_compared_jobs_differ_in_the_compiler_alone(sdk2, code):
    changes = {"instance_type": "ml.p4d.24xlarge", "hyperparameters": {"lr": 0.1}, "name": "bert"}
    made = estimate(make_job(changes), code, compared=True, look=lambda _: COMPILER)
    assert made.exit_code == 0, made.findings
    sent = {name: anonymous(sdk2.sends(source, code)) for name, source in made.generated.items()}
    assert {name: request["TrainingJobName"] for name, request in sent.items()} == {
        "baseline": "bert-baseline-TIME",
        "compiled": "bert-compiled-TIME",
    }
    launch = {name: request.pop("HyperParameters") for name, request in sent.items()}
    for name, request in sent.items():
        assert json.loads(json.dumps(request).replace(f"bert-{name}", "bert")) == {
            **json.loads(json.dumps(sent["baseline"]).replace("bert-baseline", "bert"))
        }
    assert launch["compiled"]["sagemaker_training_compiler_enabled"] == "true"
    assert launch["compiled"]["sagemaker_pytorch_xla_multi_worker_enabled"] == "true"
    assert not [key for key in launch["baseline"] if "compiler" in key or "xla" in key]
    assert launch["baseline"]["sagemaker_torch_distributed_enabled"] == "true"


def test_the_script_for_the_aws_command_line_starts_the_job(api, code):
    import boto3

    programs = interpreter_with("awscli==1.46.3").parent
    # The emulated API answers with metrics of its own.
    changes = {**P4D, **EVERYTHING, **SPOT, "metrics": None, "distribution": {"mpi": MPI}, "inputs": CHANNELS}
    job = make_job(changes)
    made = estimate(job, code, form="cli", look=lambda _: PYTORCH)
    assert made.exit_code == 0, made.findings
    variables_ = variables(api)
    variables_["PATH"] = f"{programs}:{variables_['PATH']}"
    script = made.generated["job"]
    done = subprocess.run(["sh", "-c", script], env=variables_, cwd=code, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    session = boto3.Session(aws_access_key_id="none", aws_secret_access_key="none", region_name=REGION)
    client = session.client("sagemaker", endpoint_url=api)
    name = json.loads(done.stdout)["TrainingJobArn"].partition("/")[2]
    there = client.describe_training_job(TrainingJobName=name)
    ours = make_request(Subject(job, PYTORCH, 2, code, True))
    there["AlgorithmSpecification"].pop("MetricDefinitions", None)
    same = {key: there[key] for key in ours if key in there}
    assert anonymous({**same}) == anonymous({key: ours[key] for key in same})
    assert {"HyperParameters", "InputDataConfig", "ResourceConfig", "StoppingCondition"} <= set(same)
    archive = json.loads(there["HyperParameters"]["sagemaker_submit_directory"]).removeprefix(f"s3://{BUCKET}/")
    body = session.client("s3", endpoint_url=api).get_object(Bucket=BUCKET, Key=archive)["Body"].read()
    with tarfile.open(fileobj=BytesIO(body)) as packed:
        assert "./train.py" in packed.getnames()


switch = st.fixed_dictionaries({"enabled": st.just(True)})
options = st.sampled_from(["", "-x NCCL_DEBUG=WARN", "--mca plm_rsh_agent ssh"])
mpi = st.fixed_dictionaries(
    {"enabled": st.booleans()}, optional={"processes_per_host": st.integers(1, 16), "custom_mpi_options": options}
)
data = st.fixed_dictionaries({"enabled": st.booleans()}, optional={"custom_mpi_options": options})
parameters = st.fixed_dictionaries(
    {"microbatches": st.integers(1, 8)},
    optional={
        "pipeline_parallel_degree": st.sampled_from([1, 2, 4]),
        "tensor_parallel_degree": st.sampled_from([1, 2]),
        "ddp": st.booleans(),
        "pipeline": st.sampled_from(["simple", "interleaved"]),
        "memory_weight": st.floats(0, 1, allow_nan=False),
    },
)
model = st.fixed_dictionaries({"enabled": st.just(True), "parameters": parameters})
distributions = st.one_of(
    st.fixed_dictionaries({"mpi": mpi}),
    st.fixed_dictionaries({"torch_distributed": switch}),
    st.fixed_dictionaries({"pytorchddp": data}),
    st.fixed_dictionaries({"smdistributed": st.fixed_dictionaries({"dataparallel": data})}),
    st.fixed_dictionaries(
        {
            "smdistributed": st.fixed_dictionaries({"modelparallel": model}),
            "mpi": st.fixed_dictionaries({"enabled": st.just(True), "processes_per_host": st.integers(1, 8)}),
        }
    ),
    st.fixed_dictionaries(
        {"smdistributed": st.fixed_dictionaries({"modelparallel": model}), "torch_distributed": switch}
    ),
)


tensorflow = st.one_of(
    st.fixed_dictionaries({"mpi": mpi}),
    st.fixed_dictionaries({"parameter_server": switch}),
    st.fixed_dictionaries({"smdistributed": st.fixed_dictionaries({"dataparallel": data})}),
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    asked=st.tuples(st.just("pytorch"), distributions) | st.tuples(st.just("tensorflow"), tensorflow),
    kind=st.sampled_from(["ml.p4d.24xlarge", "ml.g5.12xlarge"]),
)
def test_a_distribution_means_what_the_sdk_makes_of_it(sdk2, code, asked, kind):
    framework, distribution = asked
    arguments = {
        "image_uri": IMAGE,
        "role": ROLE,
        "entry_point": "src/train.py",
        "instance_type": kind,
        "instance_count": 2,
        "distribution": distribution,
    }
    if framework == "tensorflow":
        arguments["model_dir"] = "/opt/ml/model"
    sdk2.ask(do="program", source="", folder=str(code))  # the script is relative to this folder
    told = sdk2.ask(do="hyperparameters", framework=framework, arguments=arguments)
    assert "error" not in told, told
    theirs = {k: v for k, v in told["hyperparameters"].items() if k.startswith("sagemaker_") or k == "mp_parameters"}
    ours = compile_distribution(distribution, framework=framework, instance_type=kind)
    # Before a job is started the estimator knows nothing of code, name and region, so these are all there is.
    assert theirs == ours


def test_generated_again_is_generated_the_same(code):
    made = Subject(make_job(JOBS_2["everything"][1]), PYTORCH, 2, code, True)
    assert generate(made, "python") == generate(replace(made), "python")
