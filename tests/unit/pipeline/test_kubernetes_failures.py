"""Jobs of Kubernetes that fail, are lost or refused."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest

from tests.support.kube_manifests import CACHE, CPU, REGISTRY
from tests.support.kube_runs import FIRST, SECOND, end, made, made_cluster, ran, start
from trainwright.pipeline.kubernetes import resource_name


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout, and a cluster."""
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path / "state"))
    return made_cluster(tmp_path)


def test_an_image_that_is_not_what_its_plan_says_is_not_pushed(source):
    made(source, "--images", "pytorch:cpu")
    done, jobs, _ = ran(source, KUBE_WRONG=CPU)
    assert done.returncode == 1
    assert "metis: version should be 6" in done.stderr
    assert len(jobs) == 1, "no smoke test of what was not pushed"
    assert not (source.parent / "cluster" / f"buildctl.{CPU}").exists()
    kept = source / f"reports/kubernetes/{CPU}.proof"
    assert (kept / "said").exists() and not (kept / "passed").exists()


def test_an_image_that_fails_does_not_stop_the_others(source):
    made(source, "--images", "pytorch:cu130,pytorch:cu132")
    done, jobs, _ = ran(source, KUBE_FAILING=FIRST)
    assert done.returncode == 1
    assert f"not built, or not as planned: {FIRST}\n" in done.stderr
    assert "error: did not complete" in done.stderr
    assert "did not complete" in (source / f"reports/kubernetes/{FIRST}.log").read_text()
    assert f"{SECOND}: {REGISTRY}" in done.stdout
    assert FIRST not in done.stdout
    assert len(jobs) == 3, "what was not built is not tested"


def test_an_image_that_is_not_as_planned_has_no_address(source):
    made(source, "--images", "pytorch:cpu")
    done, _, _ = ran(source, KUBE_FAILING=resource_name(f"{CPU}-smoke"))
    assert done.returncode == 1
    assert not done.stdout
    assert not list((source / "reports/kubernetes").glob("*.address"))
    # What the job has found is attached all the same.
    assert "invoke smoke --image" in (source / "called").read_text()


def test_stages_that_fail_stop_no_image(source):
    files = made(source, "--images", "pytorch:cu130,pytorch:cu132")
    (shared,) = [name.partition(".")[0] for name in files if name.startswith("shared")]
    script = source / "kubernetes/run.sh"
    script.write_text(re.sub(r"base,\S+metis", "base,metis", script.read_text()))
    done, _, _ = ran(source, CACHE=CACHE, KUBE_FAILING=shared)
    assert done.returncode == 0, done.stderr
    assert f"{shared}: each image builds these stages itself" in done.stderr


def test_a_pod_that_is_lost_gets_the_context_again(source):
    files = made(source, "--images", "pytorch:cpu")
    done, _, called = ran(source, KUBE_LOST=resource_name(CPU))
    assert done.returncode == 0, done.stderr
    assert [line.split()[2][-4:] for line in called if line.startswith("exec")] == ["pod1", "pod2"]
    spec = files[f"{CPU}.build.yaml"]["spec"]
    # "Pod failure policy": a disruption does not count, an exit status ends the Job.
    assert [rule["action"] for rule in spec["podFailurePolicy"]["rules"]] == ["Ignore", "FailJob"]
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
    assert (spec["backoffLimit"], spec["ttlSecondsAfterFinished"], spec["activeDeadlineSeconds"]) == (2, 86400, 7200)


def test_a_cluster_that_does_not_answer_for_a_while_is_asked_again(source):
    made(source, "--images", "pytorch:cpu")
    done, _, _ = ran(source, KUBE_AWAY="7")
    assert done.returncode == 0, done.stderr


def test_a_cluster_that_does_not_answer_is_given_up(source):
    made(source, "--images", "pytorch:cpu")
    done, _, _ = ran(source, KUBE_AWAY="100000", PATIENCE="5")
    assert done.returncode == 1
    assert "the cluster does not answer" in done.stderr


def test_a_context_that_cannot_be_sent_is_given_up(source):
    made(source, "--images", "pytorch:cpu")
    (source / "bin/tar").write_text("#!/bin/sh\nexit 1\n")
    (source / "bin/tar").chmod(0o755)
    done, _, _ = ran(source, POLL="0.001")
    assert done.returncode == 1
    assert "the context cannot be sent" in done.stderr


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"REGISTRY": ""}, "REGISTRY"),
        ({"BUILDKIT_IMAGE": "moby/buildkit:rootless"}, "not named by its digest"),
        ({"AWS_CLI_IMAGE": "amazon/aws-cli"}, "not named by its digest"),
        ({"CACHE": "a|b"}, "a character that no such name has"),
        ({"BUILD_CPU": "4\nx"}, "a character that no such name has"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_made(source, variables, said):
    made(source, "--images", "pytorch:cpu")
    done, jobs, called = ran(source, **variables)
    assert done.returncode == 2
    assert said in done.stderr
    assert not jobs and not called
    assert not (source / "called").exists()


def test_an_interrupted_run_takes_its_jobs_with_it(source):
    made(source, "--images", "pytorch:cpu")
    called = source.parent / "cluster/called"
    running = start(source, KUBE_AWAY="100000")
    try:
        until = time.monotonic() + 60
        while not (called.exists() and "get job/" in called.read_text()):
            assert time.monotonic() < until
            time.sleep(0.05)
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 130
    finally:
        end(running)
    assert re.search(r"^delete job --selector trainwright/run=\S+ --wait=false$", called.read_text(), re.MULTILINE)
    assert not list(source.parent.glob("tmp.*")), "contexts and secrets do not stay"
