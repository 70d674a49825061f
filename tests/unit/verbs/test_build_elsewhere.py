"""``build --on codebuild`` against an emulated CodeBuild: what is asked of it, what comes home, what can go wrong."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.codebuild_front import codebuild_service
from tests.doubles.codebuild_service import BUCKET, CodeBuildService, Told
from tests.support.build_records import record_of
from tests.support.documents import validated
from tests.support.in_process import call
from trainwright.catalog.catalog import load_catalog
from trainwright.pipeline import codebuild, follow, upload
from trainwright.plan.plan import Plan
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.push.documents import PushDocument, PushedImage, PushedTag

pytestmark = pytest.mark.usefixtures("own_places")
LINE = ("build", "pytorch:cpu", "--on", "codebuild")
IMAGE, DIGEST = f"sha256:{'ab' * 32}", f"sha256:{'cd' * 32}"
URI = f"123456789012.dkr.ecr.us-west-2.amazonaws.com/trainwright-upload/images@{DIGEST}"
FAILED = "COMMAND_EXECUTION_ERROR: Error while executing command: ../program/invoke smoke. Reason: exit status 6"


@cache
def plan(cuda: str = "cpu") -> Plan:
    return resolve(make_request(framework="pytorch", cuda=cuda), load_catalog())


def record(of: Plan, *, digest: str = DIGEST, smoke: bool = True) -> dict[str, bytes]:
    """The files that a build which ended well sends home."""
    image = PushedImage(
        image="trainwright/candidate:upload",
        image_id=IMAGE,
        plan=of.id,
        uri=URI,
        digest=digest,
        account="123456789012",
        region="us-west-2",
        repository="trainwright-upload/images",
        proven=True,
        cuda="cpu",
        entry_point=None,
        tags=(PushedTag(tag="2.13.0-cpu", kind="moving", state="made", says=""),),
        sent_bytes=1,
        layers_sent=1,
        layers_present=0,
        seconds=1.0,
        sbom="sbom.json",
        sbom_digest=DIGEST,
        proof={"plan": DIGEST},
        record="record.json",
    )
    pushed = PushDocument(schema="trainwright/push/1", images=(image,), notices=())
    built = record_of(of, IMAGE, smoke=smoke)
    return {
        "push.json": json.dumps(pushed.as_json()).encode(),
        f"images/{IMAGE[7:23]}/record.json": json.dumps(built.as_json()).encode(),
    }


def good(**more: Any) -> Told:
    return Told(exported={"IMAGE_DIGEST": DIGEST, "IMAGE_URI": URI}, **{"record": record(plan()), **more})


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[CodeBuildService]:
    """An emulated CodeBuild that this process asks, with a build that ends well."""
    door = {name: file for name, file in upload.program_files().items() if "/" not in name}
    monkeypatch.setattr(upload, "program_files", lambda: door)
    monkeypatch.setattr(follow, "PAUSE", 0.01)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    with codebuild_service(told=good()) as running:
        for name, value in running.environment.items():
            monkeypatch.setenv(name, value)
        yield running


def home(tmp_path: Path, service: CodeBuildService) -> Path:
    (build,) = service.builds
    return tmp_path / "state" / "remote" / build.partition(":")[2]


def said(done: subprocess.CompletedProcess[str], code: int) -> str:
    assert done.returncode == code, done.stderr
    return done.stderr


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


def test_a_lost_connection_is_waited_for(service: CodeBuildService) -> None:
    service.told = good(looks=4)
    service.cut["BatchGetBuilds"] = 12
    done = call(*LINE)
    assert done.returncode == 0, done.stderr
    assert "the build goes on" in done.stderr
    assert "AWS answers again" in done.stderr


def test_one_that_stays_lost_ends_and_says_how_to_go_on(
    service: CodeBuildService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "PATIENCE", 0.0)
    service.cut["BatchGetBuilds"] = 99
    done = call(*LINE, "--json")
    (build,) = service.builds
    failure = validated(done.stdout)
    assert failure["exit_code"] == 7
    assert f"./invoke build --on codebuild --follow {build} --region us-west-2" in failure["remedy"]
    assert not service.asked("StopBuild")


@pytest.mark.parametrize("operation", ["BatchGetBuilds", "GetLogEvents"])
def test_an_expired_token_ends_and_says_how_to_go_on(service: CodeBuildService, operation: str) -> None:
    service.told = good(log=["one"])
    service.fail(operation, "ExpiredTokenException", times=9)
    done = call(*LINE, "--json")
    (build,) = service.builds
    failure = validated(done.stdout)
    assert (failure["exit_code"], failure["cause"]) == (7, "ExpiredTokenException")
    assert "aws sso login" in failure["remedy"]
    assert f"--follow {build}" in failure["remedy"]


def test_a_build_can_be_followed_again(service: CodeBuildService, tmp_path: Path) -> None:
    service.told = good(log=["one", "two"])
    service.fail("BatchGetBuilds", "ExpiredTokenException")
    assert call(*LINE).returncode == 7
    (build,) = service.builds
    done = call("build", "--on", "codebuild", "--follow", build, "--json")
    document = validated(done.stdout)
    assert (document["build"], document["digest"], document["sent"]) == (build, DIGEST, 0)
    assert (home(tmp_path, service) / "build.log").read_text() == "one\ntwo\n"
    assert len(service.asked("StartBuild")) == 1


def test_a_build_that_is_not_there_cannot_be_followed(service: CodeBuildService) -> None:
    lost = call("build", "--on", "codebuild", "--follow", "trainwright-upload:00000000-0000")
    assert "no such build" in said(lost, 2)


def test_a_log_that_may_not_be_read_does_not_end_it(service: CodeBuildService) -> None:
    service.told = good(log=["one"])
    service.fail("GetLogEvents", "AccessDeniedException", times=99)
    done = call(*LINE)
    assert done.returncode == 0, done.stderr
    assert "logs:GetLogEvents" in done.stderr
    assert len(service.asked("GetLogEvents")) == 1


@pytest.mark.parametrize("after", [1, 3], ids=["while it waits in the queue", "while there is a log"])
def test_ctrl_c_stops_the_build(service: CodeBuildService, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    service.told = good(log=["one"], looks=99)
    _interrupted(monkeypatch, after=after)
    done = call(*LINE, "--json")
    (build,) = service.builds
    failure = validated(done.stdout)
    assert (failure["exit_code"], failure["stopped"]) == (5, True)
    assert [asked["id"] for asked in service.asked("StopBuild")] == [build]
    assert service.builds[build].status == "STOPPED"


def test_ctrl_c_where_the_build_cannot_be_stopped_says_so(
    service: CodeBuildService, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.told = good(looks=99)
    _interrupted(monkeypatch, after=1)
    service.fail("StopBuild", "AccessDeniedException", times=9)
    failure = validated(call(*LINE, "--json").stdout)
    (build,) = service.builds
    assert (failure["exit_code"], failure["stopped"]) == (5, False)
    assert f"aws codebuild stop-build --region us-west-2 --id {build}" in failure["remedy"]


def _interrupted(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Ctrl-C while it waits for the next look."""
    count = [0]

    def sleep(_: float) -> None:
        count[0] += 1
        if count[0] == after:
            raise KeyboardInterrupt

    monkeypatch.setattr(follow.time, "sleep", sleep)


# ---- how it ends ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "code"), [("request", 2), ("engine", 4), ("build", 5), ("proof", 6), ("registry", 7), ("source", 8)]
)
def test_a_failed_phase_is_the_failure_of_the_program_in_it(
    service: CodeBuildService, tmp_path: Path, kind: str, code: int
) -> None:
    inside = {
        "schema": "trainwright/failure/1",
        "error": kind,
        "message": "what went wrong there",
        "remedy": "what to do",
        "exit_code": code,
    }
    says = (
        f"COMMAND_EXECUTION_ERROR: Error while executing command: ../program/invoke build. Reason: exit status {code}"
    )
    service.told = Told(
        "FAILED",
        [("INSTALL", "SUCCEEDED", ""), ("BUILD", "FAILED", says)],
        log=[f"line {number}" for number in range(40)],
        record={"plan.json": b"{}", "build.json": json.dumps(inside).encode()},
    )
    done = call(*LINE, "--json", "--progress", "none")
    failure = validated(done.stdout)
    assert (done.returncode, failure["exit_code"], failure["error"]) == (code, code, kind)
    assert failure["phase"] == "BUILD"
    assert "what went wrong there" in failure["message"]
    assert failure["remedy"].startswith("what to do")
    assert failure["last_lines"] == [f"line {number}" for number in range(20, 40)]
    assert failure["record"] == str(home(tmp_path, service))


def test_a_phase_that_failed_without_a_record_tells_the_exit_status(service: CodeBuildService) -> None:
    service.told = Told("FAILED", [("BUILD", "FAILED", FAILED)], log=["the last words"])
    done = call(*LINE)
    assert done.returncode == 6
    assert "exit status 6" in done.stderr
    assert done.stderr.count("the last words") == 2  # as it came, and with the failure


def test_a_phase_that_failed_by_itself_is_a_failed_build(service: CodeBuildService) -> None:
    service.told = Told("FAILED", [("DOWNLOAD_SOURCE", "FAILED", "CLIENT_ERROR: AccessDenied for primary source")])
    done = call(*LINE)
    assert "DOWNLOAD_SOURCE" in said(done, 5)
    assert "AccessDenied for primary source" in done.stderr


@pytest.mark.parametrize(
    ("status", "says"), [("TIMED_OUT", "BuildTimeout"), ("STOPPED", "stopped"), ("FAULT", "CodeBuild itself")]
)
def test_other_ends(service: CodeBuildService, status: str, says: str) -> None:
    service.told = Told(status, [("BUILD", status, "BUILD_TIMED_OUT: Build has timed out.")], log=["was here"])
    done = call(*LINE)
    assert says in said(done, 5)
    assert "Build has timed out." in done.stderr


@pytest.mark.parametrize(
    ("files", "exported", "says"),
    [
        (record(plan("cu124")), DIGEST, "plan: "),
        (record(plan()), f"sha256:{'ef' * 32}", "digest: "),
        (record(plan(), smoke=False), DIGEST, "smoke tests"),
        ({**record(plan()), "push.json": b"{}"}, DIGEST, "push.json"),
        ({"push.json": record(plan())["push.json"]}, DIGEST, "record.json"),
        (None, DIGEST, "push.json"),
    ],
    ids=["another plan", "another digest", "no smoke tests", "no push", "no record", "nothing"],
)
def test_what_comes_home_is_held_against_what_was_asked_for(
    service: CodeBuildService, files: dict[str, bytes] | None, exported: str, says: str
) -> None:
    service.told = Told(exported={"IMAGE_DIGEST": exported}, record=files)
    assert says in said(call(*LINE), 6)


@pytest.mark.parametrize(
    "files",
    [b"no zip", {"../../escaped": b"x"}, {"/tmp/escaped": b"x"}, {"a\\b": b"x"}, {"a\x1b[31m": b"x"}],
    ids=["no zip", "up", "absolute", "backslash", "control character"],
)
def test_a_hostile_record_is_not_unpacked(service: CodeBuildService, tmp_path: Path, files: Any) -> None:
    service.told = good(record=files)
    assert "not the record of a build" in said(call(*LINE), 7)
    assert [path.name for path in home(tmp_path, service).iterdir()] == ["build.log"]
    assert not (tmp_path / "escaped").exists()


def test_a_record_of_gigabytes_is_not_fetched(service: CodeBuildService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codebuild, "LARGEST_RECORD", 10)
    said(call(*LINE), 7)


def test_a_log_cannot_drive_the_terminal(service: CodeBuildService) -> None:
    service.told = good(log=["\x1b]0;owned\x07 \x1b[2J", "https://user:hunter22@example.com/simple"])
    done = call(*LINE)
    assert "\x1b" not in done.stderr
    assert "hunter22" not in done.stderr


def test_a_name_that_no_project_can_have_is_not_asked_for(service: CodeBuildService) -> None:
    assert "not the name of a CodeBuild project" in said(call(*LINE, "--project", "no/name"), 2)
    assert service.calls == []
