"""A build in CodeBuild is followed to its end, whatever happens on the way, and what comes home is checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.codebuild_service import CodeBuildService, Told
from tests.support.documents import validated
from tests.support.in_process import call
from tests.support.remote_builds import DIGEST, FAILED, LINE, good, home, plan, record, said
from trainwright.pipeline import codebuild, follow

pytest_plugins = ["tests.support.remote_builds"]
pytestmark = pytest.mark.usefixtures("own_places")


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
