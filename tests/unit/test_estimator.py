"""``estimator``: what is known of an image, the numbers of a job, the service's limits, generated text, the verb."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainwright.catalog import load_catalog
from trainwright.distribution import STRATEGIES
from trainwright.errors import RequestError
from trainwright.estimator import rules_distribution
from trainwright.estimator.check import check
from trainwright.estimator.code import WIDTH, Code, call, literal
from trainwright.estimator.compare import twins
from trainwright.estimator.figures import figures, replica_ranks, scaled_rates
from trainwright.estimator.image import ImageFacts, facts_of_labels, facts_of_name, facts_of_plan
from trainwright.estimator.limits import job_key, violations
from trainwright.estimator.registry import ecr_labels
from trainwright.estimator.request import job_name, make_request, raw
from trainwright.estimator.run import estimate, read_words
from trainwright.estimator.show import estimator_text
from trainwright.estimator.subject import Subject
from trainwright.instances import instance
from trainwright.job import Job
from trainwright.publish.references import Place
from trainwright.request import make_request as image_request
from trainwright.resolve import resolve
from trainwright.site import Site

ROOT = Path(__file__).resolve().parents[2]
IMAGE = "123456789012.dkr.ecr.us-west-2.amazonaws.com/team/training:1"
ROLE = "arn:aws:iam::123456789012:role/training"
ON = {"enabled": True}
NOW = datetime(2026, 11, 21, 15, 4, 5, 67_000, tzinfo=UTC)


def facts(framework: str = "pytorch", version: str = "2.6.0", **more: Any) -> ImageFacts:
    return ImageFacts(
        reference=IMAGE,
        origin="labels",
        framework=framework,
        version=version,
        cuda="12.4",
        python="3.11",
        **{"components": None, **more},
    )


def subject(image: ImageFacts | None = None, sdk: Any = 2, **given: Any) -> Subject:
    job = {"image": IMAGE, "role": ROLE, "instance_type": "ml.p4d.24xlarge", **given}
    return Subject(Job.model_validate(job), image or facts(), sdk)


# --- what is known of an image --------------------------------------------------------------------------------------


def test_a_plan_says_of_its_image_what_the_labels_of_the_image_say():
    plan = resolve(image_request(framework="pytorch", cuda="cu113", version="1.10.2"), load_catalog())
    of_plan = facts_of_plan(plan)
    assert of_plan.version_of("smdistributed-modelparallel") == "1.7.0"
    assert of_plan.family == "pytorch"
    assert not of_plan.baked
    of_labels = facts_of_labels("x", plan.labels)
    assert of_labels is not None
    assert of_labels.model_copy(update={"reference": of_plan.reference, "origin": "plan"}) == of_plan


def test_labels_of_others_say_nothing():
    assert facts_of_labels("x", {"maintainer": "somebody"}) is None
    assert facts_of_name("somebody/pytorch-training:2.8.0-gpu-py312") is None
    assert facts_of_name("123456789012.dkr.ecr.us-west-2.amazonaws.com/team/training:1") is None


@pytest.mark.parametrize(
    ("reference", "framework", "version", "cuda"),
    [
        (
            "763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch-training:1.13.1-gpu-py39-cu117-ubuntu20.04-sagemaker",
            "pytorch",
            "1.13.1",
            "11.7",
        ),
        (
            "763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch-trcomp-training:1.13.1-gpu-py39-cu117-ubuntu20.04",
            "pytorch-trcomp",
            "1.13.1",
            "11.7",
        ),
        (
            "763104351884.dkr.ecr.us-west-2.amazonaws.com/tensorflow-training:2.11.0-cpu-py39",
            "tensorflow",
            "2.11.0",
            "cpu",
        ),
    ],
)
def test_images_of_aws_are_known_by_their_names(reference, framework, version, cuda):
    found = facts_of_name(reference)
    assert found is not None
    assert (found.framework, found.version, found.cuda) == (framework, version, cuda)
    assert found.has("openmpi") is None


def test_without_credentials_nothing_is_known_of_a_private_registry(monkeypatch):
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, os.devnull)
    assert ecr_labels(Place("123456789012", "us-west-2", "team/training"), Site(), tag="1") is None


# --- the numbers of a job -------------------------------------------------------------------------------------------


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


@given(
    replicas=st.integers(1, 8),
    pipeline=st.sampled_from([1, 2, 4]),
    tensor=st.sampled_from([1, 2]),
    spread=st.booleans(),
)
def test_every_rank_belongs_to_one_replica(replicas, pipeline, tensor, spread):
    groups = replica_ranks(replicas, pipeline, tensor, spread)
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


# --- the service's limits -------------------------------------------------------------------------------------------


def request(**changes: Any) -> dict[str, Any]:
    return {**make_request(subject(entry_point="train.py"), NOW), **changes}


def test_a_good_request_is_within_the_limits():
    assert violations(request()) == []


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"TrainingJobName": "-begins-with-a-hyphen"}, "TrainingJobName"),
        ({"TrainingJobName": "x" * 64}, "TrainingJobName"),
        ({"RoleArn": "arn:aws:iam::1234:role/x-role-name"}, "RoleArn"),
        ({"HyperParameters": {"a": "one\ntwo"}}, "HyperParameters.a"),
        ({"HyperParameters": {"k" * 257: "1"}}, f"HyperParameters.{'k' * 257}"),
        ({"Environment": {"A": "x" * 513}}, "Environment.A"),
        ({"Environment": {"A": 1}}, "Environment.A"),
        ({"Tags": [{"Key": "a", "Value": "ö/@ x"}, {"Key": "a", "Value": "{}"}]}, "Tags[1].Value"),
        ({"VpcConfig": {"Subnets": ["s"], "SecurityGroupIds": []}}, "VpcConfig.SecurityGroupIds"),
        ({"StoppingCondition": {"MaxRuntimeInSeconds": 0}}, "StoppingCondition.MaxRuntimeInSeconds"),
        ({"ResourceConfig": {"InstanceType": "ml.x", "VolumeSizeInGB": 1}}, "ResourceConfig.InstanceType"),
        ({"OutputDataConfig": {}}, "OutputDataConfig.S3OutputPath"),
        ({"OutputDataConfig": {"S3OutputPath": "bucket"}}, "OutputDataConfig.S3OutputPath"),
    ],
)
def test_a_limit_is_found_where_it_is_broken(changes, where):
    found = violations(request(**changes))
    assert [path for path, _ in found] == [where], found


def test_what_is_missing_counts_only_in_a_complete_request():
    lacking = {key: value for key, value in request().items() if key != "RoleArn"}
    assert violations(lacking, complete=False) == []
    assert [path for path, _ in violations(lacking)] == ["RoleArn"]


def test_members_of_the_request_lead_to_keys_of_the_file():
    assert job_key("HyperParameters.lr") == "hyperparameters.lr"
    assert job_key("ResourceConfig.InstanceGroups[1].InstanceType") == "instance_groups[1].InstanceType"
    assert job_key("ResourceConfig.InstanceType") == "instance_type"
    assert job_key("Unheard.Of") == "Unheard.Of"


@given(name=st.text(st.characters(codec="ascii", categories=["L", "N"], include_characters="-_."), max_size=90))
def test_a_name_of_the_job_is_never_too_long(name):
    for sdk in (2, 3):
        made = job_name(subject(sdk=sdk, name=name or None), NOW)
        assert len(made) <= 63
        assert made.endswith("20261121150405" if sdk == 3 else "2026-11-21-15-04-05-067")


# --- requests and programs ------------------------------------------------------------------------------------------


def test_output_goes_to_the_sdks_bucket_in_the_roles_account():
    made = make_request(subject(entry_point="train.py", source_dir="src"), NOW)
    name = made["TrainingJobName"]
    assert made["OutputDataConfig"] == {"S3OutputPath": "s3://sagemaker-us-west-2-123456789012"}
    archive = f"s3://sagemaker-us-west-2-123456789012/{name}/source/sourcedir.tar.gz"
    assert json.loads(made["HyperParameters"]["sagemaker_submit_directory"]) == archive


@pytest.mark.parametrize(
    ("expected", "image", "given"),
    [
        (False, facts(), {"distribution": {"mpi": ON}, "entry_point": "a.py"}),
        (True, facts(), {"distribution": {"mpi": ON}}),
        (True, facts("other"), {"distribution": {"mpi": ON}, "entry_point": "a.py"}),
        (True, facts(), {"compiler": ON, "entry_point": "a.py"}),
        (True, facts("tensorflow"), {"distribution": {"multi_worker_mirrored_strategy": ON}, "entry_point": "a.py"}),
    ],
)
def test_hyperparameters_are_spelled_out_where_the_sdk_cannot_say_them(expected, image, given):
    assert raw(subject(image, **given)) is expected


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=20), inner, max_size=5),
    max_leaves=25,
)


@given(value=values, indent=st.sampled_from([0, 4, 8]))
def test_source_of_a_value_is_that_value(value, indent):
    source = literal(value, indent)
    assert ast.literal_eval(source) == value
    assert literal(ast.literal_eval(source), indent) == source


@given(arguments=st.dictionaries(st.from_regex(r"[a-z]{1,8}_", fullmatch=True), values, max_size=6))
def test_source_of_a_call_parses_and_leaves_out_what_is_empty(arguments):
    tree = ast.parse(call("f", arguments), mode="eval").body
    assert isinstance(tree, ast.Call)
    there = {each.arg: ast.literal_eval(each.value) for each in tree.keywords}
    assert there == {key: value for key, value in arguments.items() if value not in (None, [], {})}


def test_short_lines_stay_lines():
    assert literal({"a": Code("b.c"), "d": [1, 2]}) == '{"a": b.c, "d": [1, 2]}'
    assert all(len(line) <= WIDTH for line in literal({f"key{n}": n for n in range(60)}).splitlines())


def test_the_twins_keep_everything_but_the_compiler():
    given = {"compiler": {"debug": True}, "distribution": {"pytorchxla": ON}, "environment": {"GPU_NUM_DEVICES": "8"}}
    made = twins(subject(facts("pytorch-trcomp", "1.13.1"), entry_point="a.py", name="bert", **given))
    baseline, compiled = made["baseline"].job, made["compiled"].job
    assert (baseline.name, compiled.name) == ("bert-baseline", "bert-compiled")
    assert baseline.compiler is None
    assert baseline.distribution == {"torch_distributed": ON}
    assert baseline.environment == {}
    assert compiled.compiler is not None
    assert compiled.compiler.debug
    same = set(Job.model_fields) - {"name", "compiler", "distribution", "environment"}
    assert baseline.model_dump(include=same) == compiled.model_dump(include=same)


def test_the_twin_of_an_old_pytorch_trains_over_mpi():
    made = twins(subject(facts("pytorch-trcomp", "1.12.0"), compiler=ON, distribution={"pytorchxla": ON}))
    assert made["baseline"].job.distribution == {"mpi": {"enabled": True, "processes_per_host": 8}}


def test_what_the_compiler_does_not_go_with_is_not_compared():
    with pytest.raises(RequestError):
        twins(subject(distribution={"smdistributed": {"dataparallel": ON}}))


# --- checks as a whole ----------------------------------------------------------------------------------------------


def test_what_only_rehearse_refuses_is_found(monkeypatch):
    def refuse(*_: Any, **__: Any) -> None:
        raise RequestError("no such thing")

    monkeypatch.setattr("trainwright.estimator.check.compile_distribution", refuse)
    job = Job(image=IMAGE, role=ROLE, instance_type="ml.g5.xlarge", entry_point="train.py")
    found = check(Subject(job, facts(), folder=Path(ROOT, "examples", "ddp")))
    assert [(each.code, each.severity) for each in found] == [(rules_distribution.REFUSED.code, "error")]


tables = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 20) | st.text("abc-x =\"'", max_size=8) | st.dates(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*STRATEGIES, "enabled", "processes_per_host", "custom_mpi_options", "modelparallel"])
            | st.sampled_from(["dataparallel", "parameters", "microbatches", "pipeline_parallel_degree", "partitions"])
            | st.text("ab", min_size=1, max_size=2)
            | st.integers(0, 2)
            | st.booleans(),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@settings(deadline=None, max_examples=300)  # the first call reads the model of the API
@given(
    distribution=st.dictionaries(st.sampled_from([*STRATEGIES, "torchxla"]), tables, max_size=4),
    sdk=st.sampled_from([2, 3]),
    kind=st.sampled_from(["ml.p4d.24xlarge", "ml.trn1.32xlarge", "ml.m5.xlarge", "ml.nothing"]),
)
def test_no_distribution_breaks_the_check(distribution, sdk, kind):
    made = subject(sdk=sdk, instance_type=kind, distribution=distribution)
    for each in check(made):
        assert each.message
    assert figures(made).hosts == 1


@pytest.mark.parametrize("sdk", [2, 3])
@pytest.mark.parametrize(
    "distribution",
    [
        {"mpi": {**ON, "custom_mpi_options": 5}},
        {"mpi": {**ON, "custom_mpi_options": "-x 'A=b"}},
        {"mpi": {**ON, "processes_per_host": "8"}},
        {"torch_distributed": ON, "smdistributed": 5},
        {"torch_distributed": ON, "smdistributed": {"modelparallel": 5}},
        {"torch_distributed": ON, "smdistributed": {"modelparallel": {**ON, "parameters": [1]}}},
        {"mpi": ON, "instance_groups": "gpu"},
    ],
)
def test_a_value_of_the_wrong_kind_is_an_error(distribution, sdk):
    found = check(subject(sdk=sdk, instance_count=2, distribution=distribution))
    assert any(each.severity == "error" and each.path.startswith("distribution") for each in found)


def test_flags_override_the_file(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(
        "image: a\nplan: {framework: pytorch, cuda: cu124, python: '3.11'}\nhyperparameters: {lr: 1, epochs: 3}\n"
        "instance_groups: [{name: g, instance_type: ml.m5.xlarge, instance_count: 2}]\nsource_dir: src\n"
    )
    words = {
        "image": "b",
        "plan": {"cuda": "cu121"},
        "hyperparameters": {"lr": 2},
        "instance_type": "ml.g5.xlarge",
        "entry_point": "train.py",
        "spot": False,
        "role": None,
    }
    job, folder = read_words(str(path), words)
    assert folder == tmp_path
    assert (job.image, job.instance_type, job.instance_groups) == ("b", "ml.g5.xlarge", ())
    assert job.hyperparameters == {"lr": 2, "epochs": 3}
    assert job.plan is not None
    assert (job.plan.framework, job.plan.cuda, job.plan.python) == ("pytorch", "cu121", "3.11")
    assert (job.source_dir, job.entry_point) == ("src", "train.py")
    assert read_words(str(path), {"plan": {"framework": "tensorflow"}})[0].plan.cuda is None  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({}, {}),
        ({"image": IMAGE}, {"sdk": 4}),
        ({"image": IMAGE}, {"form": "yaml"}),
        ({"image": IMAGE}, {"sdk": 3, "form": "cli"}),
    ],
)
def test_words_that_mean_nothing_are_refused(given, options):
    with pytest.raises(RequestError) as refused:
        estimate(Job.model_validate(given), Path(), look=lambda _: None, **options)
    assert refused.value.exit_code == 2


def test_warnings_count_under_strict():
    job = Job(image=IMAGE, instance_type="ml.p4d.24xlarge", entry_point="train.py")
    here = Path(ROOT, "examples", "ddp")
    assert estimate(job, here, form=None, look=lambda _: facts()).exit_code == 0
    strict = estimate(job, here, form=None, strict=True, look=lambda _: facts())
    assert (strict.exit_code, strict.generated) == (2, {})
    assert "TW275" in estimator_text(strict)


@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/*/job.yaml")), ids=lambda path: path.parent.name)
def test_the_examples_have_no_errors_and_no_warnings(path):
    job, folder = read_words(str(path), {})
    found = estimate(job, folder, form="hyperparameters", strict=True)
    assert found.exit_code == 0, found.findings
    assert found.generated


def test_every_example_has_a_job():
    assert {path.parent for path in ROOT.glob("examples/*/train.py")} == {
        path.parent for path in ROOT.glob("examples/*/job.yaml")
    }


def test_parameters_of_the_model_parallel_library_may_lie_in_a_file(tmp_path):
    (tmp_path / "smp.json").write_text('{"pipeline_parallel_degree": 2, "microbatches": 4}')
    mpi = {"enabled": True, "processes_per_host": 8}
    distribution = {"smdistributed": {"modelparallel": {**ON, "parameters": "smp.json"}}, "mpi": mpi}
    job = Job(image=IMAGE, instance_type="ml.p3.16xlarge", entry_point="smp.json", distribution=distribution)
    made = estimate(job, tmp_path, form="hyperparameters", look=lambda _: facts())
    assert made.exit_code == 0, made.findings
    parameters = made.generated["job"]["mp_parameters"]
    assert json.loads(parameters) == {"pipeline_parallel_degree": 2, "microbatches": 4}
    (tmp_path / "smp.json").unlink()
    with pytest.raises(RequestError):
        estimate(job, tmp_path, form=None, look=lambda _: facts())


# --- the verb -------------------------------------------------------------------------------------------------------

JOB = """\
plan: {framework: pytorch, cuda: cu124}
entry_point: train.py
source_dir: src
instance_type: ml.p3.16xlarge
instance_count: 2
role: arn:aws:iam::123456789012:role/training
distribution: {torch_distributed: {enabled: true}}
"""


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "invoke", "--search-root", str(ROOT), "estimator", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture
def place(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").touch()
    (tmp_path / "job.yaml").write_text(JOB)
    return tmp_path


def test_a_plan_is_checked_without_image_and_engine(place):
    done = run(place, "--job", "job.yaml", "--check-only", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    schema = json.loads((ROOT / "trainwright/schemas/estimator.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(told)
    assert told["image"]["origin"] == "plan"
    assert told["figures"]["processes"] == 16
    assert told["generated"] == {}


def test_errors_end_with_2_and_nothing_is_generated(place):
    wrong = JOB.replace("torch_distributed: {enabled: true}", "mpi: {enabled: true, process_per_host: 8}")
    (place / "job.yaml").write_text(wrong)
    done = run(place, "--job", "job.yaml", "--image", IMAGE, "--json")
    assert done.returncode == 2
    told = json.loads(done.stdout)
    assert [each["code"] for each in told["findings"] if each["severity"] == "error"] == ["TW200"]
    assert told["generated"] == {}
    # Nor is anything written into a file: `> start.py` stays empty, --output makes none.
    done = run(place, "--job", "job.yaml", "--image", IMAGE)
    assert (done.returncode, done.stdout) == (2, "")
    assert "TW200" in done.stderr
    done = run(place, "--job", "job.yaml", "--image", IMAGE, "--output", "start.py")
    assert done.returncode == 2
    assert not (place / "start.py").exists()


def test_what_is_generated_has_standard_output_for_itself(place):
    done = run(place, "--job", "job.yaml", "--image", IMAGE)
    assert done.returncode == 0, done.stderr
    ast.parse(done.stdout)
    assert "0 errors" in done.stderr
    (place / "request.json").unlink(missing_ok=True)
    done = run(place, "--job", "job.yaml", "--image", IMAGE, "--format", "request", "--output", "request.json")
    assert done.returncode == 0, done.stderr
    assert violations(json.loads((place / "request.json").read_text())) == []


def test_an_unknown_key_of_the_file_is_refused_with_the_nearest(place):
    (place / "job.yaml").write_text(JOB + "instance_typ: x\n")
    done = run(place, "--job", "job.yaml", "--json")
    assert done.returncode == 2
    assert "instance_type" in json.loads(done.stdout)["message"]


# --- the pages ------------------------------------------------------------------------------------------------------


def test_what_the_page_on_the_compiler_names_exists():
    from trainwright.diagnose import load_causes
    from trainwright.estimator.check import CODES as OF_JOBS
    from trainwright.preflight.run import CODES as OF_SCRIPTS
    from trainwright.verbs import namespace

    page = (ROOT / "docs" / "training-compiler.md").read_text()
    assert set(re.findall(r"TW\d{3}", page)) <= set(OF_JOBS) | set(OF_SCRIPTS)
    causes = set(re.findall(r"\(`([a-z-]+)`\)", page))
    assert causes
    assert causes <= {cause.id for cause in load_causes()}
    commands = re.findall(r"\./invoke ((?:[^`\n]|\n(?! ))+)", page.replace("list --framework\n", "list --framework "))
    for command in commands:
        verb, *words = command.split()
        flags = {name for argument in namespace[verb].get_arguments() for name in argument.names}
        assert {word.lstrip("-") for word in words if word.startswith("--")} <= flags, command
    assert len(commands) > 8


def test_every_leaf_of_the_tree_says_what_checks_it():
    page = (ROOT / "docs" / "training-compiler.md").read_text()
    tree = page[page.index("## It learns something else") : page.index("## Not checked")]
    entries = re.split(r"\n(?= *(?:-|\d+\.) )", tree)[1:]
    depth = [len(entry) - len(entry.lstrip()) for entry in entries]
    leaves = [e for n, e in enumerate(entries) if n + 1 == len(entries) or depth[n + 1] <= depth[n]]
    assert len(leaves) > 20
    for leaf in leaves:
        assert re.search(r"TW\d{3}|\./invoke", leaf), leaf


def test_the_page_on_jobs_names_every_key_and_range_of_codes():
    from trainwright.estimator.check import CODES as OF_JOBS

    page = (ROOT / "docs" / "estimator.md").read_text()
    keys = {field.alias or name for name, field in Job.model_fields.items()}
    assert keys <= set(re.findall(r"`(\w+)`", page))
    numbers = {int(code[2:]) for code in OF_JOBS}
    named = set()
    for first, last in re.findall(r"\| TW(\d+)(?: to TW|, TW)(\d+) \|", page):
        named |= set(range(int(first), int(last) + 1))
    assert numbers <= named
    assert {int(each) for each in re.findall(r"TW(\d{3})", page)} <= numbers
