"""The runner for buildspecs does as CodeBuild's documents say; the tests of the pipeline rest on it."""

from __future__ import annotations

import subprocess
import textwrap
import time
from pathlib import Path

import pytest

from tests.doubles.codebuild import Job, run_batch, run_build
from trainwright.core.errors import RequestError


@pytest.fixture
def build(tmp_path: Path):
    """Run the phases of a text; the commands write words into a file ``said``."""

    def run(text: str, **environment: str):
        (tmp_path / "said").unlink(missing_ok=True)
        (tmp_path / "buildspec.yml").write_text("version: 0.2\n" + textwrap.dedent(text))
        found = run_build(tmp_path, environment=environment, timeout=30)
        said = tmp_path / "said"
        return found, said.read_text().split() if said.exists() else []

    return run


def test_one_shell_keeps_folder_variables_and_functions(build):
    found, said = build("""
        phases:
          install: {commands: [mkdir -p sub, cd sub, word=kept]}
          build: {commands: ['echo "$word" "${PWD##*/}" >> ../said']}
    """)
    assert found.succeeded
    assert said == ["kept", "sub"]


def test_a_phase_ends_with_the_first_command_that_fails(build):
    found, said = build("""
        phases:
          build:
            commands: [echo one >> said, "false", echo two >> said]
            finally: [echo finally >> said]
          post_build: {commands: ['echo post $CODEBUILD_BUILD_SUCCEEDING >> said']}
    """)
    assert not found.succeeded
    assert said == ["one", "finally", "post", "0"]
    assert found.phases == {"build": "failed", "post_build": "succeeded"}
    assert found.commands[1] == ("false", 1)


def test_a_compound_command_fails_with_its_last_status(build):
    found, said = build("""
        phases:
          build:
            commands:
              - |
                false
                echo went on >> said
    """)
    assert found.succeeded
    assert said == ["went", "on"]


@pytest.mark.parametrize("phase", ["install", "pre_build"])
def test_an_early_failure_ends_the_build(build, phase):
    found, said = build(f"""
        phases:
          {phase}: {{commands: [exit-code-127-it-is-not-there]}}
          build: {{commands: [echo build >> said]}}
          post_build: {{commands: [echo post >> said]}}
    """)
    assert not found.succeeded
    assert said == []
    assert found.phases == {phase: "failed"}


def test_on_failure(build):
    early, said = build("""
        phases:
          pre_build: {on-failure: CONTINUE, commands: ["false"]}
          build: {on-failure: ABORT, commands: [echo build >> said, "false"]}
          post_build: {commands: [echo post >> said]}
    """)
    assert said == ["build"]
    assert not early.succeeded
    retried, said = build("""
        phases:
          build: {on-failure: RETRY-2, commands: [echo try >> said, 'test "$(wc -l < said)" = 3']}
    """)
    assert retried.succeeded
    assert said == ["try"] * 3
    _, said = build("phases: {build: {on-failure: RETRY-1, commands: [echo try >> said, 'false']}}")
    assert said == ["try"] * 2


def test_variables_of_the_project_win(build):
    text = """
        env: {variables: {WORD: spec, OTHER: spec}}
        phases: {build: {commands: ['echo $WORD $OTHER $CI >> said']}}
    """
    _, said = build(text, WORD="project")
    assert said == ["project", "spec", "true"]


def test_exported_variables_are_those_that_were_exported(build):
    found, _ = build("""
        env: {exported-variables: [URI, PLAIN, NEVER]}
        phases: {build: {commands: ['export URI="a=b c"', PLAIN=1, export OTHER=2]}}
    """)
    assert found.exported == {"URI": "a=b c"}


def test_reports_are_collected_after_a_failure_and_have_to_be_junit(build):
    text = """
        phases:
          build: {commands: [mkdir -p r/deep, 'echo "<testsuites/>" > r/deep/a.xml', 'echo text > r/b.txt', "false"]}
        reports:
          one: {files: ['**/*.xml'], base-directory: r, file-format: JUNITXML}
          none: {files: [missing.xml], base-directory: r}
    """
    found, _ = build(text)
    assert [path.name for path in found.reports["one"]] == ["a.xml"]
    assert found.reports["none"] == ()


def test_quotes_and_lines_reach_the_shell_as_they_stand(build):
    found, said = build(r"""
        phases:
          build:
            commands:
              - |
                if [ "it's" = 'it'"'"'s' ]; then
                  printf '%s\n' "a\\b" >> said
                fi
    """)
    assert found.succeeded
    assert said == ["a\\b"]


def test_a_build_that_hangs_is_ended_with_its_children(tmp_path):
    (tmp_path / "b.yml").write_text("version: 0.2\nphases: {build: {commands: ['sleep 60 & echo $! > pid; wait']}}")
    with pytest.raises(subprocess.TimeoutExpired):
        run_build(tmp_path, "b.yml", timeout=1)
    status = Path("/proc", (tmp_path / "pid").read_text().strip(), "stat")
    end = time.monotonic() + 10
    # Where nobody waits for orphans, a dead one keeps its entry.
    while status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < end
        time.sleep(0.05)


def test_no_buildspec_is_refused_before_anything_runs(tmp_path):
    (tmp_path / "buildspec.yml").write_text("version: 0.2\nphases: {biuld: {commands: [touch x]}}")
    with pytest.raises(RequestError):
        run_build(tmp_path)
    assert not (tmp_path / "x").exists()


GRAPH = """
version: 0.2
batch:
  fast-fail: {fast}
  build-graph:
    - {{identifier: last, depend-on: [left, right], env: {{variables: {{WHO: last}}}}}}
    - {{identifier: left, depend-on: [first]}}
    - {{identifier: right, depend-on: [first], buildspec: other.yml}}
    - {{identifier: first}}
    - {{identifier: alone, ignore-failure: true}}
"""


@pytest.fixture
def batch(tmp_path: Path):
    def run(*failing: str, fast: bool = False):
        (tmp_path / "buildspec.yml").write_text(GRAPH.format(fast="true" if fast else "false"))
        jobs: list[Job] = []

        def one(job: Job) -> bool:
            jobs.append(job)
            return job.identifier not in failing

        return run_batch(tmp_path, one, environment={"WHO": "project", "REPOSITORY": "team"}), jobs

    return run


def test_a_batch_runs_in_the_order_of_its_graph(batch):
    ended, jobs = batch()
    order = [job.identifier for job in jobs]
    assert set(ended.values()) == {"succeeded"}
    assert order.index("first") < order.index("left") < order.index("last")
    assert order.index("right") < order.index("last")
    by_name = {job.identifier: job for job in jobs}
    assert by_name["right"].buildspec == "other.yml"
    assert by_name["last"].variables == {"WHO": "last", "REPOSITORY": "team"}
    assert by_name["left"].variables["WHO"] == "project"


def test_what_depends_on_a_failure_is_skipped(batch):
    ended, jobs = batch("left")
    assert ended["last"] == "skipped"
    assert ended["right"] == ended["alone"] == "succeeded"
    assert ended["batch"] == "failed"
    assert "last" not in [job.identifier for job in jobs]


def test_a_failure_may_be_ignored(batch):
    assert batch("alone")[0]["batch"] == "succeeded"


def test_fast_fail_starts_nothing_more(batch):
    ended, jobs = batch("first", fast=True)
    after = [job.identifier for job in jobs][[job.identifier for job in jobs].index("first") + 1 :]
    assert after == []
    assert ended["batch"] == "failed"
