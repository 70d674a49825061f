"""Jobs of Kubernetes: what is built, and every script executed."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.doubles import kubectl
from tests.support.in_process import call
from tests.support.kube_manifests import CACHE, CPU, DIGEST, REGISTRY, VALUES
from tests.support.kube_runs import CATALOG, FIRST, ROOT, SECOND, made, made_cluster, pairs, ran, words_of
from trainwright.cli.parser import check_command_line, with_flags
from trainwright.pipeline.images import choose
from trainwright.site.site import Site
from trainwright.verbs.namespace import namespace


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout, and a cluster."""
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path / "state"))
    return made_cluster(tmp_path)


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


def test_what_was_found_in_an_image_is_attached_to_it(source):
    """Kubernetes, "Determine the Reason for Pod Failure": a container's message is what it wrote to that file."""
    spec = made(source, "--images", "pytorch:cpu")[f"{CPU}.smoke.yaml"]["spec"]["template"]["spec"]
    environment = {each["name"]: each["value"] for each in spec["containers"][0]["env"]}
    assert environment == {"IMAGE_DIGEST": DIGEST, "RESULT": "/dev/termination-log"}
    done, _, _ = ran(source, KUBE_SMOKE='{"result": "of this job"}')
    assert done.returncode == 0, done.stderr
    reports = source / "reports/kubernetes"
    assert (reports / f"{CPU}.smoke.json").read_text() == '{"result": "of this job"}\n'
    (asked,) = [line for line in (source / "called").read_text().splitlines() if line.startswith("invoke smoke")]
    address, folder = f"{REGISTRY}/trainwright/pytorch@{DIGEST}", f"reports/kubernetes/{CPU}"
    assert asked == f"invoke smoke --image {address} --import {folder}.smoke.json --import {folder}.proof"
    # With the builder's results go the questions, as they were here.
    proof = reports / f"{CPU}.proof"
    assert (proof / "asked/proof/plan.json").read_text().startswith("plan of ")
    assert (proof / "asked/proof/request.json").exists() and (proof / "results.json").exists() is False
    built = json.loads((proof / "build.json").read_text())
    assert built["buildkit"] == VALUES["BUILDKIT_IMAGE"] and built["seconds"] >= 0


def test_what_cannot_be_attached_is_not_proven(source):
    made(source, "--images", "pytorch:cpu")
    done, _, _ = ran(source, FAILING="smoke")
    assert (done.returncode, done.stdout) == (1, "")
    done, _, _ = ran(source, FAILING="smoke", ATTACH="no")
    assert done.returncode == 0, done.stderr


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
    for name, tag in ((FIRST, "pytorch-2.14.1-cu130"), (SECOND, "pytorch-2.15.0-cu132")):
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
