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
from tests.doubles.sdk_requests import BUCKET, REGION, ROLE, Sdk, emulated_api, sdk, variables
from tests.support.sdk_jobs import CHANNELS, COMPILER, EVERYTHING, IMAGE, JOBS_2, JOBS_3, MPI, P4D, PYTORCH, SPOT
from trainwright.estimator.create_training_job import make_request
from trainwright.estimator.estimate import estimate, generate
from trainwright.estimator.image import ImageFacts
from trainwright.estimator.subject import Subject
from trainwright.sagemaker.distribution import compile_distribution
from trainwright.sagemaker.job import Job

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
