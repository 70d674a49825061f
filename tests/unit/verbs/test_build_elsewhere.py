"""``build --on codebuild`` against an emulated CodeBuild: what is sent, and where; what is refused before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.doubles.codebuild_service import BUCKET, CodeBuildService
from tests.support.documents import validated
from tests.support.in_process import call
from tests.support.remote_builds import DIGEST, LINE, URI, good, home, plan, said

pytest_plugins = ["tests.support.remote_builds"]
pytestmark = pytest.mark.usefixtures("own_places")


def test_a_build_goes_up_is_followed_and_comes_home(service: CodeBuildService, tmp_path: Path) -> None:
    service.told = good(log=["one", "two", "three", "four"], late=["the last"])
    done = call(*LINE)
    assert done.returncode == 0, done.stderr
    (start,), (put,) = service.asked("StartBuild"), service.asked("PutObject")
    assert start["sourceTypeOverride"] == "S3"
    assert start["sourceLocationOverride"] == f"{put['Bucket']}/{put['Key']}"
    # The version that was written, which nobody can replace before the build reads it.
    assert start["sourceVersion"] == "v1"
    variables = {row["name"]: row["value"] for row in start["environmentVariablesOverride"]}
    assert variables["PLAN"] == plan().id
    assert "REPOSITORY" not in variables
    lines = [line.strip() for line in done.stderr.splitlines()]
    assert [line for line in lines if line.startswith("|")] == ["| one", "| two", "| three", "| four", "| the last"]
    folder = home(tmp_path, service)
    assert (folder / "build.log").read_text().split("\n") == ["one", "two", "three", "four", "the last", ""]
    assert json.loads((folder / "push.json").read_text())["images"][0]["digest"] == DIGEST
    for text in (DIGEST, URI, "2.13.0-cpu", str(folder), plan().id):
        assert text in done.stdout


def test_its_document(service: CodeBuildService, tmp_path: Path) -> None:
    document = validated(call(*LINE, "--json", "--progress", "none").stdout)
    assert document["schema"] == "trainwright/remote-build/1"
    assert (document["digest"], document["uri"], document["plan"]) == (DIGEST, URI, plan().id)
    assert document["tags"] == ["2.13.0-cpu"]
    assert document["record"] == str(home(tmp_path, service))
    assert document["phases"][0] == {"name": "BUILD", "status": "SUCCEEDED", "seconds": 7}


def test_without_progress_the_log_is_kept_and_not_shown(service: CodeBuildService, tmp_path: Path) -> None:
    service.told = good(log=["a line of the log"])
    done = call(*LINE, "--progress", "none")
    assert "a line of the log" not in done.stderr
    assert "a line of the log" in (home(tmp_path, service) / "build.log").read_text()


def test_flags_of_the_build_go_along(service: CodeBuildService) -> None:
    call(*LINE, "--no-cache", "--fresh-base", "--refresh", "2026-11-25", "--push", "mine/images", "--allow-secrets")
    (start,) = service.asked("StartBuild")
    variables = {row["name"]: row["value"] for row in start["environmentVariablesOverride"]}
    assert variables["OPTIONS"] == "--no-cache --fresh-base --refresh 2026-11-25"
    assert (variables["REPOSITORY"], variables["REQUEST"]) == ("mine/images", "--allow-secrets")


def test_another_repository_of_the_project_file_is_not_passed_over_in_silence(service: CodeBuildService) -> None:
    text = '[image]\nframework = "pytorch"\ncuda = "cpu"\n'
    Path("trainwright.toml").write_text(f'{text}repository = "mine/training"\n')
    assert "not to the mine/training of trainwright.toml" in said(call("build", "--on", "codebuild"), 0)
    Path("trainwright.toml").write_text(text)
    assert "trainwright.toml" not in said(call("build", "--on", "codebuild"), 0)


@pytest.mark.parametrize(
    "words",
    [
        ("--images", "pytorch"),
        ("--resume", "run"),
        ("--dry-run",),
        ("--leave-tags",),
        ("--builder", "farm"),
        ("--stages", "tools"),
        ("--tag", "mine:1"),
        ("--cache", "a.example/b"),
        ("--follow", "not-an-id"),
        ("--project", "no/name"),
        ("--region", "mars-1"),
        ("--push", "111111111111.dkr.ecr.us-west-2.amazonaws.com/mine"),
        ("--push", "123456789012.dkr.ecr.eu-west-1.amazonaws.com/mine"),
        ("--locked",),
    ],
    ids=str,
)
def test_what_does_not_go_with_it_is_refused_before_anything_is_sent(
    service: CodeBuildService, words: tuple[str, ...]
) -> None:
    assert words[0] in said(call(*LINE, *words), 2)
    assert not service.asked("PutObject")
    assert not service.asked("StartBuild")


@pytest.mark.parametrize("words", [("--project", "a"), ("--region", "us-west-2"), ("--follow", "a:1")], ids=str)
def test_its_flags_need_it(words: tuple[str, ...]) -> None:
    assert words[0] in said(call("build", "pytorch:cpu", *words), 2)


def test_another_place_is_unknown() -> None:
    assert "codebuild" in said(call("build", "pytorch:cpu", "--on", "codebiuld"), 2)


def test_a_gate_that_cannot_hold_there_is_not_passed_over(service: CodeBuildService, tmp_path: Path) -> None:
    Path("trainwright.toml").write_text('scan_fail_on = "high"\n')
    assert "scan_fail_on" in said(call(*LINE), 2)
    assert not service.asked("StartBuild")


def test_a_conflict_comes_out_here(service: CodeBuildService) -> None:
    done = call("build", "--framework", "pytorch", "--cuda", "cu113", "--version", "2.5", "--on", "codebuild")
    assert done.returncode == 3
    assert service.calls == []


# ---- which project -------------------------------------------------------------------------------------------------


def test_the_project_is_found_among_others(service: CodeBuildService) -> None:
    service.projects |= {f"other-{number}": {"CACHE": "x"} for number in range(5)}
    assert call(*LINE).returncode == 0
    (start,) = service.asked("StartBuild")
    assert start["projectName"] == "trainwright-upload"
    assert len(service.asked("ListProjects")) == 3  # pages


def test_a_named_project_is_not_looked_for(service: CodeBuildService) -> None:
    service.projects["mine"] = service.projects["trainwright-upload"]
    assert call(*LINE, "--project", "mine").returncode == 0
    assert not service.asked("ListProjects")
    assert service.asked("StartBuild")[0]["projectName"] == "mine"


@pytest.mark.parametrize(
    ("projects", "words", "named"),
    [
        ({}, (), "infra/upload.yaml"),
        ({"aa": {"CACHE": "x"}}, (), "infra/upload.yaml"),
        ({"aa": {"CACHE": "x"}}, ("--project", "aa"), "UPLOAD_BUCKET"),
        ({"trainer": {"UPLOAD_BUCKET": BUCKET}}, ("--project", "trainre"), "Did you mean trainer?"),
        ({"aa": {"UPLOAD_BUCKET": BUCKET}, "bb": {"UPLOAD_BUCKET": BUCKET}}, (), "--project aa"),
        ({"aa": {"UPLOAD_BUCKET": BUCKET}}, (), "--push"),
    ],
)
def test_no_project_or_more_than_one(
    service: CodeBuildService, projects: dict[str, dict[str, str]], words: tuple[str, ...], named: str
) -> None:
    service.projects = projects
    assert named in said(call(*LINE, *words), 2)
    assert not service.asked("PutObject")


def test_no_region(service: CodeBuildService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    assert "--region" in said(call(*LINE), 2)


# ---- AWS refuses ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "code", "says"),
    [
        ("ListProjects", "AccessDeniedException", "codebuild:ListProjects"),
        ("BatchGetProjects", "ExpiredTokenException", "aws sso login"),
        ("PutObject", "AccessDenied", "s3:PutObject"),
        ("PutObject", "NoSuchBucket", "infra/upload.yaml"),
        ("PutObject", "ExpiredToken", "aws sso login"),
        ("StartBuild", "AccessDeniedException", "codebuild:StartBuild"),
        ("StartBuild", "AccountLimitExceededException", "quota"),
        ("StartBuild", "InvalidInputException", "infra/upload.yaml"),
        ("StartBuild", "UnrecognizedClientException", "aws configure"),
    ],
)
def test_a_refusal_has_its_remedy(service: CodeBuildService, operation: str, code: str, says: str) -> None:
    service.fail(operation, code, times=9)
    done = call(*LINE, "--json")
    assert done.returncode == 7
    failure = validated(done.stdout)
    assert failure["cause"] == code
    assert says in failure["remedy"]
    if code.startswith("AccessDenied"):
        assert "docs/setup-aws.md" in failure["remedy"]
    assert not service.builds


def test_a_lost_answer_starts_no_second_build(service: CodeBuildService) -> None:
    """botocore asks again; by the token CodeBuild knows that it is the same request (StartBuild, idempotencyToken)."""
    service.cut["StartBuild"] = 1
    assert call(*LINE).returncode == 0
    tokens = [asked["idempotencyToken"] for asked in service.asked("StartBuild")]
    assert len(tokens) == 2
    assert len(set(tokens)) == 1


def test_another_account_s_bucket_gets_nothing(service: CodeBuildService) -> None:
    """Who deletes a bucket gives its name away; ExpectedBucketOwner is the account of the project."""
    said_owner: list[str] = []
    put = service.put_object

    def note(bucket: str, key: str, content: bytes, headers: dict[str, str]) -> str:
        said_owner.append(headers["x-amz-expected-bucket-owner"])
        return put(bucket, key, content, headers)

    service.put_object = note  # type: ignore[method-assign, assignment]
    assert call(*LINE).returncode == 0
    assert said_owner == ["123456789012"]


# ---- while it is followed ------------------------------------------------------------------------------------------


def test_a_name_that_no_project_can_have_is_not_asked_for(service: CodeBuildService) -> None:
    assert "not the name of a CodeBuild project" in said(call(*LINE, "--project", "no/name"), 2)
    assert service.calls == []
