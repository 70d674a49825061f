"""``diagnose --job``: the job's own failure reason and the log streams of its hosts, as AWS answers.

The answers have the shapes of botocore's models of the two APIs: its Stubber refuses others, and calls that differ.
"""

from __future__ import annotations

from datetime import UTC, datetime

import boto3
import pytest
from botocore.stub import ANY, Stubber

from tests.support.in_process import call
from trainwright.core.errors import RegistryRefused, RequestError
from trainwright.diagnose import account
from trainwright.diagnose.account import GROUP, diagnose_job
from trainwright.site.site import load_site

NAME, REGION = "bert-2026-11-22", "eu-west-1"
NOW = datetime(2026, 11, 22, tzinfo=UTC)
STREAMS = [f"{NAME}/algo-1-1763800000", f"{NAME}/algo-2-1763800000"]


def described(status="Failed", secondary="Failed", reason=None):
    answer = {
        "TrainingJobName": NAME,
        "TrainingJobArn": f"arn:aws:sagemaker:{REGION}:111122223333:training-job/{NAME}",
        "ModelArtifacts": {"S3ModelArtifacts": f"s3://bucket/{NAME}/output/model.tar.gz"},
        "TrainingJobStatus": status,
        "SecondaryStatus": secondary,
        "AlgorithmSpecification": {"TrainingInputMode": "File"},
        "ResourceConfig": {"VolumeSizeInGB": 30},
        "StoppingCondition": {"MaxRuntimeInSeconds": 86400},
        "CreationTime": NOW,
    }
    return answer | ({"FailureReason": reason} if reason else {})


def events(*lines, start=1763800000000, token="f/1"):
    made = [{"timestamp": start + n, "message": line, "ingestionTime": start + n} for n, line in enumerate(lines)]
    return {"events": made, "nextForwardToken": token, "nextBackwardToken": "b/1"}


@pytest.fixture
def aws(monkeypatch):
    """Stubbed clients of both services."""
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": REGION}
    clients = {name: boto3.client(name, **keys) for name in ("sagemaker", "logs")}
    stubs = {name: Stubber(client) for name, client in clients.items()}
    monkeypatch.setattr(account, "aws_client", lambda service, *_: clients[service])
    for stub in stubs.values():
        stub.activate()
    yield stubs
    for stub in stubs.values():
        stub.assert_no_pending_responses()


def give(aws, job, streams=(), *pages):
    aws["sagemaker"].add_response("describe_training_job", job, {"TrainingJobName": NAME})
    aws["logs"].add_response(
        "describe_log_streams",
        {"logStreams": [{"logStreamName": stream} for stream in streams]},
        {"logGroupName": GROUP, "logStreamNamePrefix": f"{NAME}/"},
    )
    for stream, answer, token in pages:
        asked = {"logGroupName": GROUP, "logStreamName": stream, "startFromHead": True}
        aws["logs"].add_response("get_log_events", answer, asked | ({"nextToken": token} if token else {}))


def test_the_rank_that_died_first_is_told_from_those_that_lost_it(aws):
    """algo-1 is read first, but algo-2 failed first: the times decide."""
    reason = "AlgorithmError: ExecuteUserScriptError:\nExitCode 1"
    one = events("[rank0]:ncclRemoteError: A call failed", "RuntimeError: CUDA error: out of memory", start=2000)
    two = events("[rank9]:ModuleNotFoundError: No module named 'apex'", start=1000)
    give(
        aws,
        described(reason=reason),
        STREAMS,
        *((STREAMS[0], one, None), (STREAMS[0], events(), "f/1")),
        *((STREAMS[1], two, None), (STREAMS[1], events(), "f/1")),
    )
    found = diagnose_job(NAME, REGION, load_site())
    assert [cause.id for cause in found.causes][:2] == ["no-module", "gpu-memory"]
    assert found.causes[0].evidence[0].log == "algo-2-1763800000"
    assert found.first == "rank 9 on algo-2"
    assert {cause.id for cause in found.causes if cause.certainty == "consequence"} == {"peer-gone", "script-failed"}
    assert found.log == f"training job {NAME} in {REGION}: Failed"


def test_pages_are_read_to_the_end(aws):
    give(
        aws,
        described(),
        STREAMS[:1],
        (STREAMS[0], events("step 1", token="f/1"), None),
        (STREAMS[0], events("CUDA out of memory", token="f/2"), "f/1"),
        (STREAMS[0], events(token="f/2"), "f/2"),
    )
    assert [cause.id for cause in diagnose_job(NAME, REGION, load_site()).causes] == ["gpu-memory"]


def test_the_services_own_reason_is_a_cause(aws):
    give(aws, described(reason="CapacityError: Unable to provision requested ML compute capacity. Please retry."))
    assert [cause.id for cause in diagnose_job(NAME, REGION, load_site()).causes] == ["capacity"]


def test_a_job_that_took_too_long(aws):
    give(aws, described("Stopped", "MaxRuntimeExceeded"))
    assert [cause.id for cause in diagnose_job(NAME, REGION, load_site()).causes] == ["max-runtime"]


def test_a_job_that_completed_shows_nothing(aws):
    pages = (STREAMS[0], events("done"), None), (STREAMS[0], events(), "f/1")
    give(aws, described("Completed", "Completed"), STREAMS[:1], *pages)
    found = diagnose_job(NAME, REGION, load_site())
    assert found.unknown and not found.causes


def test_an_arn_names_job_and_region(aws):
    give(aws, described("Stopped", "MaxRuntimeExceeded"))
    assert diagnose_job(described()["TrainingJobArn"], None, load_site()).log.endswith(f"{NAME} in {REGION}: Stopped")


def test_no_such_job(aws):
    aws["sagemaker"].add_client_error("describe_training_job", "ValidationException", "Requested resource not found.")
    with pytest.raises(RequestError, match=f"no training job {NAME} in {REGION}"):
        diagnose_job(NAME, REGION, load_site())


def test_a_missing_permission_is_named(aws):
    aws["sagemaker"].add_response("describe_training_job", described(), {"TrainingJobName": ANY})
    aws["logs"].add_client_error("describe_log_streams", "AccessDeniedException", "no")
    with pytest.raises(RegistryRefused) as refused:
        diagnose_job(NAME, REGION, load_site())
    assert "logs:DescribeLogStreams" in refused.value.remedy


@pytest.mark.parametrize("job", ["a b", "-a", "a" * 64, "arn:aws:sagemaker:eu-west-1:1:training-job/a", ""])
def test_what_is_no_name_of_a_job_is_refused_before_any_call(job):
    with pytest.raises(RequestError, match="not the name of a training job"):
        diagnose_job(job, REGION, load_site())


def test_the_verb_needs_the_region(monkeypatch):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    done = call("diagnose", "--job", NAME)
    assert done.returncode == 2
    assert "no region" in done.stderr
    assert call("diagnose", "log", "--region", REGION).returncode == 2
