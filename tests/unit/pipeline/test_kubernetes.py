"""Jobs of Kubernetes: their published schema, and every script executed."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.doubles import kubectl
from tests.support.in_process import call
from tests.support.kube_manifests import CACHE, CPU, DIGEST, REGISTRY, SCHEMA, VALUES, filled
from tests.support.pipeline_source import FRONT_DOOR, made_source
from trainwright.catalog.catalog import load_catalog
from trainwright.cli.parser import check_command_line, with_flags
from trainwright.pipeline.bake import bake_document, target_name
from trainwright.pipeline.images import choose
from trainwright.pipeline.kubernetes import resource_name
from trainwright.site.site import Site
from trainwright.verbs.namespace import namespace

CATALOG = load_catalog()
ROOT = Path(__file__).resolve().parents[3]
FIRST, SECOND = "pytorch-2.13.0-cu130-debian", "pytorch-2.15.0-cu132-debian"
# The container of BuildKit: notes how it is called, and writes the file of its client, with the exporter's keys; or the
# results of a proof.
BUILDCTL = """#!/bin/sh
proof=
for word in "$@"; do case $word in type=local,dest=*) proof=${word#type=local,dest=} ;; esac; done
{ for word in "$@"; do printf '%s\\n' "$word"; done; echo; } > "$KUBE_STATE/buildctl${proof:+-proof}.$JOB"
printf '%s' "$BUILDKITD_FLAGS" > "$KUBE_STATE/flags"
cp "$DOCKER_CONFIG/config.json" "$KUBE_STATE/config.$JOB"
if [ "${KUBE_FAILING:-none}" = "$JOB" ]; then
  echo "error: did not complete" >&2
  exit 1
fi
if [ -n "$proof" ]; then
  mkdir -p "$proof" && head -c 30000 /dev/urandom > "$proof/smoke.xml"
  cp "$proof/smoke.xml" "$KUBE_STATE/smoke.$JOB"
  if [ "${KUBE_WRONG:-none}" = "$JOB" ]; then echo "metis: version should be 6" > "$proof/said"; exit 0; fi
  echo "as planned" > "$proof/said" && : > "$proof/passed"
  exit 0
fi
while [ "$1" != --metadata-file ]; do shift; done
cat > "$2" <<END
{
  "containerimage.config.digest": "sha256:ccc",
  "containerimage.digest": "DIGEST"
}
END
"""


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A checkout, and a cluster: the front door makes contexts, and kubectl runs Jobs on this machine."""
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path / "state"))
    folder = made_source(tmp_path / "source")
    (tmp_path / "cluster").mkdir()
    bake = tmp_path / "bake.json"
    plans = [image.plan for image in choose("pytorch:cpu,pytorch:cu130,pytorch:cu132", CATALOG, Site())]
    of_site = {"pip": "secrets/debian-12/pip", "ca": str(tmp_path / "ca.pem")}
    secrets = {target_name(plan): of_site for plan in plans}
    (tmp_path / "ca.pem").write_text("certificate\n")
    bake.write_text(json.dumps(bake_document(plans, secrets=secrets)))
    (folder / "Dockerfile").write_text(
        "FROM scratch AS base\nRUN a\nFROM base AS metis\nRUN b\nFROM base AS final\nRUN c\n"
    )
    make_contexts = f"""
if [ "$1" = pipeline ]; then
  while [ "$1" != --output ]; do shift; done
  for target in {" ".join(map(target_name, plans))}; do
    mkdir -p "$2/contexts/$target/apt" && cp Dockerfile "$2/contexts/$target/"
  done
  mkdir -p "$2/secrets/debian-12" && echo index > "$2/secrets/debian-12/pip" && cp {bake} "$2/docker-bake.json"
fi
"""
    (folder / "invoke").write_text(FRONT_DOOR + make_contexts)
    (folder / "bin/kubectl").write_text(f'#!/bin/sh\nexec {sys.executable} {kubectl.__file__} "$@"\n')
    (folder / "bin/buildctl-daemonless.sh").write_text(BUILDCTL.replace("DIGEST", DIGEST))
    (folder / ".venv/bin/python").unlink()  # a link leads out of the environment
    (folder / ".venv/bin/python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    for name in ("bin/kubectl", "bin/buildctl-daemonless.sh", ".venv/bin/python"):
        (folder / name).chmod(0o755)
    return folder


def made(source: Path, *words: str) -> dict[str, Any]:
    """The manifests, filled in as a run does it, by file."""
    done = call("pipeline", "--format", "kubernetes", *words, "--json", cwd=source)
    assert done.returncode == 0, done.stderr
    files = json.loads(done.stdout)["files"]
    assert files[0] == "kubernetes/run.sh"
    return {Path(name).name: filled((source / name).read_text()) for name in files[1:]}


def ran(source: Path, **variables: str) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]], list[str]]:
    """A run; the Jobs that were created, each valid, in their order; the calls of kubectl."""
    cluster = source.parent / "cluster"
    running = start(source, **variables)
    try:
        out, error = running.communicate(timeout=120)
    finally:
        end(running)
    done = subprocess.CompletedProcess(running.args, running.returncode, out, error)
    jobs = [json.loads(path.read_text()) for path in sorted(cluster.glob("*.json"), key=lambda path: path.stem[-5:])]
    for job in jobs:
        jsonschema.Draft202012Validator(SCHEMA).validate(job["manifest"])
    called = cluster / "called"
    return done, jobs, called.read_text().splitlines() if called.exists() else []


def start(source: Path, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["sh", "kubernetes/run.sh"],
        cwd=source,
        env=environment(source, **variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def end(running: subprocess.Popen[str]) -> None:
    """End a run with the shells that it started, as a failed test leaves them."""
    with suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    running.communicate()


def environment(source: Path, **variables: str) -> dict[str, str]:
    own = {"PATH": f"{source}/bin:/usr/bin:/bin", "CALLED": str(source / "called"), "TMPDIR": str(source.parent)}
    own |= {"KUBE_STATE": str(source.parent / "cluster"), "PYTHONPATH": str(ROOT)}
    return {**own, **VALUES, **variables}


def words_of(source: Path, job: str) -> list[str]:
    """How BuildKit's client was called for a Job."""
    return (source.parent / "cluster" / f"buildctl.{job}").read_text().splitlines()[:-1]


def pairs(words: list[str], flag: str) -> list[str]:
    return [value for name, value in pairwise(words) if name == flag]


def test_an_image_is_built_pushed_by_its_digest_and_tested_by_it(source):
    made(source, "--images", "pytorch:cpu")
    done, jobs, _ = ran(source)
    assert done.returncode == 0, done.stderr
    address = f"{REGISTRY}/trainwright/pytorch@{DIGEST}"
    assert done.stdout.splitlines()[-1] == f"{CPU}: {address}"
    assert (source / f"reports/kubernetes/{CPU}.address").read_text() == f"{address}\n"
    build, smoke = (job["manifest"]["spec"]["template"]["spec"] for job in jobs)
    assert [each["name"] for each in (*build["initContainers"], *build["containers"])] == [
        "context",
        "login",
        "buildkit",
    ]
    assert smoke["containers"][0]["image"] == address
    words = words_of(source, CPU)
    assert words[0] == "build"
    assert pairs(words, "--frontend") == ["dockerfile.v0"]
    assert {"target=final", "filename=Dockerfile"} <= set(pairs(words, "--opt"))
    assert pairs(words, "--output") == [
        f"type=image,name={REGISTRY}/trainwright/pytorch,push=true,push-by-digest=true,name-canonical=true"
    ]
    assert not pairs(words, "--import-cache")
    (plan,) = [image.plan for image in choose("pytorch:cpu", CATALOG, Site())]
    labels = dict(word.removeprefix("label:").split("=", 1) for word in pairs(words, "--opt") if word[:6] == "label:")
    assert labels == plan.labels
    # What the client reads is there, also what was elsewhere on this machine.
    local = dict(word.split("=", 1) for word in pairs(words, "--local"))
    assert (Path(local["dockerfile"]) / "Dockerfile").read_text() == (source / "Dockerfile").read_text()
    secrets = dict(word.removeprefix("id=").split(",src=") for word in pairs(words, "--secret"))
    workspace = Path(local["context"]).parents[1]
    assert all(re.match(r"/workspace/secrets/\w", path) for path in secrets.values())
    read = {name: (workspace / path.removeprefix("/workspace/")).read_text() for name, path in secrets.items()}
    assert read == {"pip": "index\n", "ca": "certificate\n"}


def test_an_image_is_proven_in_its_build_and_the_results_come_home(source):
    made(source, "--images", "pytorch:cpu")
    done, _, _ = ran(source, CACHE=CACHE)
    assert done.returncode == 0, done.stderr
    cluster, reports = source.parent / "cluster", source / "reports/kubernetes"
    words = (cluster / f"buildctl-proof.{CPU}").read_text().splitlines()
    assert pairs(words, "--opt")[-1] == "target=proof", "the last one counts"
    assert pairs(words, "--import-cache") and not pairs(words, "--export-cache")
    assert (reports / f"{CPU}.proof/smoke.xml").read_bytes() == (cluster / f"smoke.{CPU}").read_bytes()
    assert (reports / f"{CPU}.proof/passed").exists()
    log = (reports / f"{CPU}.log").read_text()
    assert "as planned" in log and "proof: " not in log


def test_an_image_that_is_not_what_its_plan_says_is_not_pushed(source):
    made(source, "--images", "pytorch:cpu")
    done, jobs, _ = ran(source, KUBE_WRONG=CPU)
    assert done.returncode == 1
    assert "metis: version should be 6" in done.stderr
    assert len(jobs) == 1, "no smoke test of what was not pushed"
    assert not (source.parent / "cluster" / f"buildctl.{CPU}").exists()
    kept = source / f"reports/kubernetes/{CPU}.proof"
    assert (kept / "said").exists() and not (kept / "passed").exists()


def test_buildkit_has_the_login_of_the_role(source):
    made(source, "--images", "pytorch:cpu")
    ran(source)
    config = json.loads((source.parent / f"cluster/config.{CPU}").read_text())
    assert {host: base64.b64decode(each["auth"]) for host, each in config["auths"].items()} == {REGISTRY: b"AWS:token"}
    assert "aws ecr get-login-password --region eu-west-1" in (source / "called").read_text().splitlines()


def test_rootless_buildkit_is_run_as_its_authors_do(source):
    """moby/buildkit, examples/kubernetes/job.rootless.yaml (73ed6825c4b7, 2026-08-21)."""
    spec = made(source, "--images", "pytorch:cpu")[f"{CPU}.build.yaml"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "seccompProfile": {"type": "Unconfined"},
        "appArmorProfile": {"type": "Unconfined"},
    }
    assert {"runAsUser": 1000, "runAsGroup": 1000}.items() <= spec["securityContext"].items()
    assert {"name": "BUILDKITD_FLAGS", "value": "--oci-worker-no-process-sandbox"} in container["env"]
    mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
    assert {"name": mounts["/home/user/.local/share/buildkit"], "emptyDir": {}} in spec["volumes"]
    assert set(container["resources"]["requests"]) == {"cpu", "memory", "ephemeral-storage"}
    assert "privileged" not in json.dumps(spec)
    assert spec["serviceAccountName"] == "trainwright"
    assert spec["automountServiceAccountToken"] is False


def test_stages_that_images_share_are_built_first_into_the_cache(source):
    files = made(source, "--images", "pytorch:cu130,pytorch:cu132")
    (shared,) = [name.partition(".")[0] for name in files if name.startswith("shared")]
    for name in ("base", "metis"):
        assert name in (source / "kubernetes/run.sh").read_text()
    script = source / "kubernetes/run.sh"
    script.write_text(re.sub(r"base,\S+metis", "base,metis", script.read_text()))  # those of the Dockerfile here
    done, jobs, _ = ran(source, CACHE=CACHE)
    assert done.returncode == 0, done.stderr
    started = [job["manifest"]["metadata"]["generateName"] for job in jobs]
    assert started[0] == f"{shared.replace('_', '-')}-"
    assert len(jobs) == 5
    words = words_of(source, shared)
    export = "mode=max,image-manifest=true,oci-mediatypes=true,ignore-error=true"
    assert pairs(words, "--export-cache") == [f"type=registry,ref={CACHE}:{shared},{export}"]
    assert pairs(words, "--import-cache") == [f"type=registry,ref={CACHE}:{shared}"]
    assert not pairs(words, "--output")
    assert "filename=Dockerfile.stages" in pairs(words, "--opt")
    context = Path(dict(word.split("=", 1) for word in pairs(words, "--local"))["dockerfile"])
    # An empty last stage that needs all of them: each export replaces the cache of its tag.
    last = (context / "Dockerfile.stages").read_text().rpartition("FROM")[2]
    assert "from=base" in last and "from=metis" in last
    for name, tag in ((FIRST, "pytorch-2.13.0-cu130"), (SECOND, "pytorch-2.15.0-cu132")):
        words = words_of(source, name)
        own, groups = pairs(words, "--import-cache")
        assert own.startswith(f"type=registry,ref={CACHE}:{tag}")
        assert groups == f"type=registry,ref={CACHE}:{shared}"
        assert pairs(words, "--export-cache") == [f"{own},{export}"]


def test_without_a_cache_nothing_is_shared(source):
    made(source, "--images", "pytorch:cu130,pytorch:cu132")
    done, jobs, _ = ran(source)
    assert done.returncode == 0, done.stderr
    assert len(jobs) == 4
    assert "shared" not in json.dumps([job["manifest"]["metadata"] for job in jobs])


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


def test_packages_of_the_day_are_installed_anew(source):
    made(source, "--images", "pytorch:cpu")
    ran(source, REFRESH="2026-11-25")
    context = Path(dict(word.split("=", 1) for word in pairs(words_of(source, CPU), "--local"))["context"])
    assert (context / "apt/refresh").read_text() == "2026-11-25\n"  # as write_context has it


def test_the_command_is_one_that_the_program_takes(source):
    made(source, "--images", "pytorch:cpu")
    ran(source)
    for line in (source / "called").read_text().splitlines():
        if line.startswith("invoke "):
            check_command_line(with_flags(line.split()[1:], namespace.to_contexts()), namespace.to_contexts())


def test_gpus_are_asked_for_by_images_with_cuda_alone(source):
    files = made(source, "--images", "pytorch:cu130,pytorch:cpu", "--gpus", "2")
    limits = {
        name: job["spec"]["template"]["spec"]["containers"][0]["resources"].get("limits")
        for name, job in files.items()
        if name.endswith(".smoke.yaml")
    }
    assert limits == {f"{FIRST}.smoke.yaml": {"nvidia.com/gpu": "2"}, f"{CPU}.smoke.yaml": None}
    assert not any("nvidia" in json.dumps(job) for name, job in files.items() if name.endswith(".build.yaml"))
    files = made(source, "--images", "pytorch:cu130")
    assert (
        "nvidia.com/gpu" not in files[f"{FIRST}.smoke.yaml"]["spec"]["template"]["spec"]["containers"][0]["resources"]
    )


@pytest.mark.parametrize("words", [("--format", "gitlab", "--gpus", "1"), ("--format", "kubernetes", "--gpus", "-1")])
def test_gpus_that_mean_nothing_are_refused(source, words):
    done = call("pipeline", "--images", "pytorch:cpu", *words, cwd=source)
    assert done.returncode == 2
    assert "--gpus" in done.stderr


def test_what_the_smoke_test_gets_is_the_program_and_the_plan(source):
    """After what Kubernetes makes of a command."""
    job = made(source, "--images", "pytorch:cpu")[f"{CPU}.smoke.yaml"]
    python, flag, program, probe, request = (
        kubectl.expanded(word, {}) for word in job["spec"]["template"]["spec"]["containers"][0]["command"]
    )
    assert (python, flag) == ("python3", "-c")
    assert program == (ROOT / "templates/pipeline/kubernetes/smoke.py").read_text()
    assert probe == (ROOT / "templates/probe/probe.py").read_text()
    (plan,) = [image.plan.as_json() for image in choose("pytorch:cpu", CATALOG, Site())]
    asked = json.loads(request)
    assert (asked["probes"], asked["expect"]) == (plan["probes"], plan["expect"])
    assert (asked["module"], bool(asked["job"]), asked["gpus"]) == ("torch", True, 0)
    # execve: no argument is longer than 32 pages (MAX_ARG_STRLEN).
    assert max(len(word.encode()) for word in (program, probe, request)) < 32 * 4096


def test_the_scripts_are_shell_of_any_kind(source):
    files = made(source, "--images", "pytorch:cu130,pytorch:cu132")
    specs = [job["spec"]["template"]["spec"] for job in files.values()]
    containers = [each for spec in specs for each in (*spec.get("initContainers", ()), *spec["containers"])]
    commands = [container["command"] for container in containers if container["command"][0] == "sh"]
    scripts = [(source / "kubernetes/run.sh").read_text(), *(kubectl.expanded(words[2], {}) for words in commands)]
    assert len(scripts) == 1 + 3 * 3
    for shell in ("bash", "dash"):
        for script in scripts:
            done = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, check=False)
            assert not done.returncode, (shell, script, done.stderr)


def test_a_folder_of_ones_own_is_named_and_a_change_is_found(source):
    shutil.copytree(ROOT / "images/pytorch/cpu", source / "it's mine/images/pytorch/cpu")
    words = ("--format", "kubernetes", "--images", "pytorch:cpu", "--catalog", "it's mine", "--output", "deploy/jobs")
    assert call("pipeline", *words, "--check", cwd=source).returncode == 2
    assert call("pipeline", *words, cwd=source).returncode == 0
    assert call("pipeline", *words, "--check", cwd=source).returncode == 0
    script = source / "deploy/jobs/run.sh"
    (line,) = re.findall(r"^export TRAINWRIGHT_CATALOG=.*$", script.read_text(), re.MULTILINE)
    said = subprocess.run(
        ["sh", "-c", f'{line}; printf %s "$TRAINWRIGHT_CATALOG"'], capture_output=True, text=True, check=True
    )
    assert said.stdout == "it's mine"
    script.write_text("echo mine\n")
    refused = call("pipeline", *words, cwd=source)
    assert refused.returncode == 2
    assert script.read_text() == "echo mine\n"
