"""What ``estimator`` generates: requests within the limits of the service, source of programs, twins."""

from __future__ import annotations

import ast
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.estimator_jobs import NOW, ON, facts, subject
from tests.support.rule_jobs import smp
from trainwright.core.errors import RequestError
from trainwright.estimator.compare import twins
from trainwright.estimator.create_training_job import job_name, make_request, raw
from trainwright.estimator.python_source import WIDTH, PythonSource, call, literal
from trainwright.estimator.service_limits import job_key, violations

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


def registry(function: str) -> dict[str, Any]:
    provider = {"TrainingRepositoryCredentialsProviderArn": f"arn:{function}"}
    config = {"TrainingRepositoryAccessMode": "Vpc", "TrainingRepositoryAuthConfig": provider}
    algorithm = request()["AlgorithmSpecification"]
    return {"AlgorithmSpecification": {**algorithm, "TrainingImageConfig": config}}


@pytest.mark.parametrize(
    ("function", "accepted"),
    [
        ("aws:lambda:us-west-2:123456789012:function:credentials", True),
        ("aws-cn:lambda:cn-north-1:123456789012:function:a:1", True),
        ("aws:lambda:us_west_2:123456789012:function:credentials", False),
        ("aws:lambda:üs-west-2:123456789012:function:credentials", False),
        ("aws:iam::123456789012:role/credentials", False),
    ],
)
def test_the_function_that_has_a_registrys_credentials(function, accepted):
    """The pattern has a class that Python does not know: ``[\\p{Alnum}\\-]``, of ASCII alone."""
    key = "registry.credentials_provider"
    assert [job_key(path) for path, _ in violations(request(**registry(function)))] == ([] if accepted else [key])


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
        (True, facts(), {"distribution": smp(placement_strategy="DPT"), "entry_point": "a.py"}),
        (False, facts(), {"distribution": smp(placement_strategy="spread"), "entry_point": "a.py"}),
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
    assert literal({"a": PythonSource("b.c"), "d": [1, 2]}) == '{"a": b.c, "d": [1, 2]}'
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
    differing = {key: getattr(baseline, key) for key in ("name", "compiler", "distribution", "environment")}
    assert compiled.replace(**differing) == baseline


def test_the_twin_of_an_old_pytorch_trains_over_mpi():
    made = twins(subject(facts("pytorch-trcomp", "1.12.0"), compiler=ON, distribution={"pytorchxla": ON}))
    assert made["baseline"].job.distribution == {"mpi": {"enabled": True, "processes_per_host": 8}}


def test_what_the_compiler_does_not_go_with_is_not_compared():
    with pytest.raises(RequestError):
        twins(subject(distribution={"smdistributed": {"dataparallel": ON}}))
