"""Other people's suites: what their reports say, which failures are explained, and that nothing is fetched.

``recorded_suite.xml`` is pytest's report of AWS's test_sanity_training.py (aws/deep-learning-containers, 2026-08) on a
plain Debian host, shortened: what AWS's layout has is missing there as well.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from devtools import suites as running
from devtools.checks import ChecksFailed
from devtools.suites import Outcome, Suite, argv, judged, outcomes, run_suites, suites
from trainwright.core.errors import EngineError, RequestError
from trainwright.core.records import MisfitError
from trainwright.core.runner import Completed
from trainwright.engine.engine import Client, Engine

REPORT = Path(__file__).parents[2].joinpath("support", "recorded_suite.xml").read_text()
PRINTED = f"a line of the suite\n{running._MARK}\n{REPORT}"
SANITY = suites()["dlc-sanity"]


def test_every_explanation_has_its_evidence():
    for name, suite in suites().items():
        assert suite.about and suite.root, name
        assert all(each.why and each.evidence for each in suite.expected), name
    with pytest.raises(MisfitError, match="either pytest or commands"):
        Suite(about="x", root=".")


def test_a_report_of_pytest_is_read_with_its_classes():
    rows = {row.test: row for row in outcomes(PRINTED, SANITY)}
    assert len(rows) == REPORT.count("<testcase ")
    assert rows["TestContainerEnv::test_dlc_container_type"].outcome == "failed"
    assert "training" in rows["TestContainerEnv::test_dlc_container_type"].reason
    assert rows["TestContainerEnv::test_pythonunbuffered"].outcome == "passed"
    assert rows["TestCPUImageGuard::test_no_cuda_directory_on_cpu_image"].outcome == "skipped"


def test_what_is_aws_s_layout_is_told_from_what_is_missing():
    rows = {row.test: row for row in judged(outcomes(PRINTED, SANITY), SANITY)}
    assert rows["TestEntrypoint::test_entrypoint_executable"].whose == "layout"
    assert rows["TestSSHConfig::test_root_authorized_keys"].whose in ("choice", "")
    assert rows["TestSageMakerPaths::test_sagemaker_code_exists"].whose == "", "a difference that users feel"
    assert rows["TestContainerEnv::test_pythonunbuffered"].whose == "", "passed"


@pytest.mark.parametrize("output", ["", "Traceback: no pytest", f"{running._MARK}\n", f"x\n{running._MARK}\n  \n"])
def test_a_suite_that_did_not_run_has_no_outcomes(output):
    assert outcomes(output, SANITY) == []


def test_programs_are_judged_by_their_exit_status():
    metis = suites()["metis"]
    printed = f"{running._MARK}\ngraphchk 0\ngpmetis 127\nother 0\n"
    assert outcomes(printed, metis) == [
        Outcome(test="graphchk", outcome="passed"),
        Outcome(test="gpmetis", outcome="failed", reason="exit status 127"),
    ]


def test_a_suite_runs_without_a_network_and_changes_nothing(tmp_path):
    words = argv("docker", "img", SANITY, tmp_path, tmp_path / "packages", variables=["EXPECTED_DEVICE=cpu"])
    assert words[words.index("--network") + 1] == "none"
    assert all(words[n + 1].endswith(":ro") for n, word in enumerate(words) if word == "-v")
    assert {"EXPECTED_CUSTOMER=sagemaker", "EXPECTED_DEVICE=cpu"} <= set(words)
    assert words[-3:-1] == ["img", "-c"]


def run_here(suite: Suite, folder: Path) -> subprocess.CompletedProcess[str]:
    """A suite's shell on this machine; its ``python3`` says where it was started."""
    program = folder / "bin/python3"
    program.parent.mkdir(exist_ok=True)
    program.write_text("#!/bin/sh\npwd >&2\n")
    program.chmod(0o755)
    script = argv("docker", "img", suite, folder, None)[-1]
    path = {"PATH": f"{program.parent}:/usr/bin:/bin"}
    return subprocess.run(["sh", "-c", script], cwd=folder, env=path, capture_output=True, text=True, check=False)


def test_what_comes_before_the_tests_may_change_their_folder(tmp_path):
    done = run_here(Suite(about="x", root=".", before="mkdir copy\ncd copy", pytest=["test"]), tmp_path)
    assert done.stderr.splitlines()[0] == f"{tmp_path}/copy"
    assert running._MARK in done.stdout


def test_tests_whose_preparation_failed_are_not_run(tmp_path):
    suite = Suite(about="x", root=".", before="echo no server; false", pytest=["test"])
    done = run_here(suite, tmp_path)
    assert done.returncode == 1 and done.stderr == "no server\n"
    assert outcomes(done.stdout, suite) == []


@pytest.mark.parametrize("name", list(suites()))
def test_the_shell_of_each_suite_can_be_read(name, tmp_path):
    script = argv("docker", "img", suites()[name], tmp_path, tmp_path)[-1]
    assert subprocess.run(["sh", "-n", "-c", script], check=False).returncode == 0


def test_a_variable_of_the_user_replaces_that_of_the_suite(tmp_path):
    spawned = suites()["torch-distributed"]
    words = argv("docker", "img", spawned, tmp_path, tmp_path, variables=["PYTEST_ADDOPTS=-k barrier"])
    given = [words[n + 1] for n, word in enumerate(words) if word == "-e"]
    assert [each for each in given if each.startswith("PYTEST_ADDOPTS")][-1] == "PYTEST_ADDOPTS=-k barrier"
    assert "BACKEND=gloo" in given


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout and packages, and an engine that prints the recorded report."""
    (tmp_path / SANITY.root).mkdir(parents=True)
    (tmp_path / "packages/pytest").mkdir(parents=True)
    engine = Engine(Client("/bin/false", "builtin", "20.10", "plain"), "20.10")
    monkeypatch.setattr("trainwright.engine.engine.connect", lambda **_: engine)
    monkeypatch.setattr(running, "run", lambda words, **_: Completed(tuple(words), 1, PRINTED, "", 1.0))
    return tmp_path


def test_a_failure_that_nothing_explains_fails_and_is_last(checkout):
    with pytest.raises(ChecksFailed) as failed:
        run_suites("img", [f"dlc-sanity={checkout}"], str(checkout / "packages"), (), say=lambda _: None)
    lines = failed.value.message.splitlines()
    whose = [line.split()[0] for line in lines if "::" in line]
    assert whose[-1] == "UNEXPLAINED" and "layout" in whose
    assert whose == sorted(whose, key=lambda word: (word == "UNEXPLAINED", word))
    assert lines[-1] == f"{whose.count('UNEXPLAINED')} failures are not explained"


def test_where_all_is_explained_it_says_so(checkout, monkeypatch):
    only = Suite(**{**SANITY.as_json(), "expected": [{"test": "*", "whose": "layout", "why": "all", "evidence": "x"}]})
    monkeypatch.setattr(running, "suites", lambda: {"dlc-sanity": only})
    text = run_suites("img", [f"dlc-sanity={checkout}"], str(checkout / "packages"), (), say=lambda _: None)
    assert text.startswith("dlc-sanity: ") and "UNEXPLAINED" not in text


def test_a_suite_that_prints_no_report_is_a_failure(checkout, monkeypatch):
    monkeypatch.setattr(running, "run", lambda words, **_: Completed(tuple(words), 125, "", "no such image", 1.0))
    with pytest.raises(EngineError, match="nothing was run: no such image"):
        run_suites("img", [f"dlc-sanity={checkout}"], str(checkout / "packages"), (), say=lambda _: None)


@pytest.mark.parametrize(
    ("named", "packages", "said"),
    [
        ([], "packages", "needs --suite"),
        (["dlc-sanity"], "packages", "not NAME=FOLDER"),
        (["dlc-santy={}"], "packages", "no such suite. Did you mean dlc-sanity"),
        (["dlc-sanity={}/packages"], "packages", "has no folder test/sanity/scripts"),
        (["dlc-sanity={}"], None, "needs pytest: --packages"),
        (["dlc-sanity={}"], ".", "needs pytest: --packages"),
    ],
)
def test_what_is_missing_is_said_before_anything_runs(checkout, named, packages, said):
    folder = None if packages is None else str(checkout / packages)
    with pytest.raises(RequestError, match=said):
        run_suites("img", [each.format(checkout) for each in named], folder, (), say=lambda _: None)
