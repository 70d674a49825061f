"""The buildspec: the files that are made, the verb."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml

from tests.doubles.codebuild import Job, run_batch, run_build
from tests.support.in_process import call
from tests.support.pipeline_source import BASE, made_source
from trainwright.catalog.catalog import load_catalog
from trainwright.catalog.listing import named
from trainwright.cli.parser import check_command_line, with_flags
from trainwright.pipeline.batch import identifier
from trainwright.pipeline.buildspec import check, parse
from trainwright.pipeline.images import choose
from trainwright.pipeline.pipeline import default_files, pipeline
from trainwright.plan.of_line import plan_of
from trainwright.site.site import Site
from trainwright.verbs.namespace import namespace

ROOT = Path(__file__).resolve().parents[3]


def test_what_lies_in_the_repository_is_what_is_made():
    for name, text in default_files(load_catalog()).items():
        assert (ROOT / name).read_text() == text, "./invoke generate writes it anew"
        check(text, name)


@pytest.fixture
def document():
    return yaml.safe_load((ROOT / "buildspec.yml").read_text())


def test_every_step_of_the_proof_comes_before_the_push(document):
    text = "\n".join(c for phase in document["phases"].values() for c in phase["commands"])
    places = [text.index(f"./invoke {verb}") for verb in ("doctor", "plan", "build", "smoke", "rehearse", "push")]
    assert places == sorted(places)


def test_every_variable_that_a_command_reads_is_known(document):
    import re

    others = [yaml.safe_load((ROOT / f"buildspec-{name}.yml").read_text()) for name in ("stages", "tags")]
    for spec in (document, *others):
        text = "\n".join(c for phase in spec["phases"].values() for c in phase.get("commands", ()))
        read = set(re.findall(r"\$\{?([A-Z][A-Z_]+)", text))
        made = set(re.findall(r"(?:export |[ ])([A-Z_]+)=", text))
        # By the first two, Docker's client is told where the project's Docker server is.
        given = {"DOCKER_HOST", "DOCKER_CERT_PATH", *spec["env"]["variables"], *made}
        assert {n for n in read if not n.startswith("CODEBUILD_")} <= given


def test_a_batch_can_run_and_every_job_is_told_what_to_build(document):
    jobs: list[Job] = []
    ended = run_batch(ROOT, lambda job: not jobs.append(job))
    assert set(ended.values()) == {"succeeded"}
    for job in jobs:
        known = set(yaml.safe_load((ROOT / job.buildspec).read_text())["env"]["variables"])
        assert set(job.variables) <= known
    assert jobs.pop().buildspec == "buildspec-tags.yml"
    for job in jobs:
        assert {"FRAMEWORK", "CUDA", "VERSION", "BASE"} <= set(job.variables)
        assert (ROOT / job.variables.get("SOURCE_DIR", "examples/ddp") / "train.py").is_file()


def test_shared_stages_come_first_and_once():
    *graph, last = made("pytorch-*-debian", "batch")["batch"]["build-graph"]
    shared = [node for node in graph if node.get("buildspec") == "buildspec-stages.yml"]
    images = [node for node in graph if node not in shared]
    assert len(images) == len(choose("pytorch-*-debian", load_catalog(), Site()))
    # Each job starts a container engine of its own.
    assert all(node["env"]["privileged-mode"] is True for node in graph)
    assert last["env"]["privileged-mode"] is False
    # One for each release of Debian that several images have.
    assert len(shared) == 2
    names = {node["identifier"]: node["env"]["variables"]["SHARED"] for node in shared}
    sharing = [node for node in images if "depend-on" in node]
    assert len(images) - len(sharing) <= 1
    for node in sharing:
        (first,) = node["depend-on"]
        assert node["env"]["variables"]["SHARED"] == names[first]
    assert {node["depend-on"][0] for node in sharing} == set(names)
    assert all("metis" in node["env"]["variables"]["STAGES"].split(",") for node in shared)


def test_the_last_job_moves_the_tags_when_every_image_is_there_and_not_before(tmp_path):
    words = "pytorch:cu130,pytorch:cpu,tensorflow:cpu"
    document = made(words, "batch")
    *images, last = document["batch"]["build-graph"]
    names = [image.name for image in choose(words, load_catalog(), Site())]
    assert last["depend-on"] == [node["identifier"] for node in images] == [identifier(name) for name in names]
    assert last["env"]["variables"] == {"LINES": ",".join(names)}
    assert [node["env"]["variables"]["LEAVE_TAGS"] for node in images] == ["yes"] * 3
    (tmp_path / "out.yml").write_text(yaml.safe_dump(document))
    for failing in ("", *last["depend-on"]):
        ended = run_batch(tmp_path, lambda job, failing=failing: job.identifier != failing, "out.yml")
        assert ended[last["identifier"]] == ("skipped" if failing else "succeeded")


@pytest.mark.parametrize(
    ("variables", "leaves"),
    [
        ({}, False),
        ({"LEAVE_TAGS": "yes"}, True),
        ({"LEAVE_TAGS": "yes", "EACH": "yes"}, False),
        ({"EACH": "yes"}, False),
    ],
)
def test_a_job_of_a_batch_leaves_the_moving_tags_to_the_last_one(tmp_path, variables, leaves):
    """A single build moves those of its image, and so does each job of a batch that is told to."""
    source = made_source(tmp_path / "source")
    (source / "reports").mkdir()
    shutil.copy(ROOT / "buildspec.yml", source)
    path = {"PATH": f"{source}/bin:{os.environ['PATH']}", "CALLED": str(source / "called")}
    built = run_build(source, environment={**path, **variables, "TAG": "x"}, phases=("post_build",), timeout=30)
    assert built.succeeded, built.log
    (called,) = [line for line in (source / "called").read_text().splitlines() if line.startswith("invoke push")]
    assert ("--leave-tags" in called.split()) == leaves
    check_command_line(with_flags(called.split()[1:], namespace.to_contexts()), namespace.to_contexts())


@pytest.mark.parametrize(
    ("variables", "flags"),
    [
        ({}, "--repository-prefix trainwright"),
        ({"REPOSITORY": "team/images"}, "--repository team/images"),
        ({"WITH": "compiler", "WITHOUT": "metis"}, "--repository-prefix trainwright --with compiler --without metis"),
    ],
)
def test_the_last_job_asks_the_registry_alone(tmp_path, variables, flags):
    source = made_source(tmp_path / "source")
    shutil.copy(ROOT / "buildspec-tags.yml", source)
    environment = {"PATH": f"{source}/bin:/usr/bin:/bin", "CALLED": str(source / "called"), "LINES": "a,b", **variables}
    built = run_build(source, "buildspec-tags.yml", environment=environment, timeout=30)
    assert built.succeeded, built.log
    called = (source / "called").read_text().splitlines()
    assert called == [f"invoke tags advance a,b {flags}"], "no engine, and no tool of AWS"
    check_command_line(with_flags(called[0].split()[1:], namespace.to_contexts()), namespace.to_contexts())
    failed = run_build(source, "buildspec-tags.yml", environment={**environment, "FAILING": "tags"}, timeout=30)
    assert not failed.succeeded


def test_a_group_within_a_group_depends_on_it():
    graph = made("pytorch-1.*-cu113-nvidia", "batch")["batch"]["build-graph"]
    nodes = {node["identifier"]: node for node in graph}
    inner = [node for node in graph if "STAGES" in node["env"]["variables"] and "depend-on" in node]
    assert inner
    for node in inner:
        (parent,) = node["depend-on"]
        assert node["env"]["variables"]["PARENT"] == nodes[parent]["env"]["variables"]["SHARED"]
        around = set(nodes[parent]["env"]["variables"]["STAGES"].split(","))
        assert around < set(node["env"]["variables"]["STAGES"].split(","))


def made(words: str, kind: str) -> dict:
    """The document that a format gives, written into a folder of its own."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        before = Path.cwd()
        os.chdir(folder)
        try:
            pipeline(words, load_catalog(), kind=kind, output="out.yml", catalog_folder=None, check=False, say=print)
            return yaml.safe_load(Path("out.yml").read_text())
        finally:
            os.chdir(before)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """The verb in a folder of its own."""
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path / "state"))
    return lambda *words: call("pipeline", *words, cwd=tmp_path)


def test_the_verb_writes_and_checks(tmp_path, run):
    assert run("--check").returncode == 2
    written = run("--json")
    assert written.returncode == 0, written.stderr
    document = json.loads(written.stdout)
    assert document["files"] == [
        "buildspec.yml",
        *(f"buildspec-{name}.yml" for name in ("stages", "tags", "nightly")),
    ]
    assert (tmp_path / "buildspec.yml").read_text() == (ROOT / "buildspec.yml").read_text()
    assert run("--check").returncode == 0
    with (tmp_path / "buildspec-stages.yml").open("a") as file:
        file.write("# by hand\n")
    stale = run("--check")
    assert stale.returncode == 2
    assert "by hand" in stale.stderr
    assert (tmp_path / "buildspec-stages.yml").read_text().endswith("# by hand\n"), "--check writes nothing"


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (("--format", "buildpsec"), "buildspec"),
        (("--format", "bake", "--check"), "--format bake"),
        (("--images", "pytroch"), "pytorch"),
        (("--output", "/tmp/b.yml"), "working folder"),
        (("--output", "../b.yml"), "working folder"),
    ],
)
def test_bad_words_end_with_2_and_write_nothing(tmp_path, run, words, near):
    done = run(*words)
    assert done.returncode == 2
    assert near in done.stderr
    assert not list(tmp_path.rglob("*.yml"))


def test_a_catalog_of_ones_own_is_named_in_the_buildspec(tmp_path, run):
    shutil.copytree(ROOT / "images" / "pytorch" / "cpu", tmp_path / "mine" / "images" / "pytorch" / "cpu")
    done = run("--catalog", "mine", "--images", "pytorch:cpu")
    assert done.returncode == 0, done.stderr
    spec = yaml.safe_load((tmp_path / "buildspec.yml").read_text())
    assert spec["env"]["variables"]["TRAINWRIGHT_CATALOG"] == "mine"
    assert [node["identifier"] for node in spec["batch"]["build-graph"]] == ["pytorch_2_13_0_cpu_debian", "moving_tags"]
    last = yaml.safe_load((tmp_path / "buildspec-tags.yml").read_text())
    assert last["env"]["variables"]["TRAINWRIGHT_CATALOG"] == "mine"


def test_the_document_has_its_schema(run):
    shape = json.loads((ROOT / "trainwright/schemas/pipeline.schema.json").read_text())
    document = json.loads(run("--json", "--images", "pytorch:cpu").stdout)
    jsonschema.Draft202012Validator(shape).validate(document)


FRONT_DOOR = """#!/bin/sh
echo "$@" >> called
case "$1" in
  plan) case "$*" in *--json*) echo '{"base": {"image": null}}' ;; esac ;;
  prove) mkdir -p proofs-made/pytorch && echo '{}' > "proofs-made/$2.json"; [ "$2" != pytorch/cu124 ] ;;
esac
"""


def test_each_job_of_a_batch_of_proofs_brings_its_proof_home(tmp_path, monkeypatch):
    """The phases as CodeBuild runs them, with a front door that notes how it is called; one line fails."""
    monkeypatch.chdir(tmp_path)
    made = call("pipeline", "--proofs", "--images", "pytorch/cpu,pytorch:cu124", "--json")
    assert json.loads(made.stdout)["files"] == ["buildspec-proofs.yml"]
    (tmp_path / "invoke").write_text(FRONT_DOOR)
    (tmp_path / "invoke").chmod(0o755)
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").symlink_to(sys.executable)
    homes: dict[str, tuple[bool, list[str]]] = {}

    def run(job: Job) -> bool:
        shutil.rmtree(tmp_path / "proofs-made", ignore_errors=True)
        built = run_build(tmp_path, job.buildspec or "buildspec-proofs.yml", environment=job.variables, timeout=30)
        homes[job.variables["LINE"]] = built.succeeded, list(built.artifacts)
        return built.succeeded

    run_batch(tmp_path, run, "buildspec-proofs.yml")
    known = {
        f"pytorch/{entry.name}" for entry in load_catalog().lines_of("pytorch") if entry.line.goes_by_cuda("cu124")
    }
    assert set(homes) == {"pytorch/cpu", *known}
    assert homes["pytorch/cpu"] == (True, ["pytorch/cpu.json"])
    assert homes["pytorch/cu124"] == (False, ["pytorch/cu124.json"]), "also the proof of a line that failed"
    called = (tmp_path / "called").read_text()
    assert "push" not in called and "prove pytorch/cpu --output proofs-made --progress plain\n" in called


# Each shares its version, CUDA and base with another line, which a request with these three alone takes.
@pytest.mark.parametrize(
    "line", ["pytorch/1.10.2-cu113-2022-09", "pytorch/1.10.2-cu113", "pytorch/cpu-py313", "pytorch/cu126"]
)
def test_a_job_of_a_batch_of_proofs_plans_its_own_line(tmp_path, monkeypatch, line):
    monkeypatch.chdir(tmp_path)
    call("pipeline", "--proofs", "--images", line)
    (tmp_path / "invoke").write_text(FRONT_DOOR)
    (tmp_path / "invoke").chmod(0o755)
    (job,) = parse((tmp_path / "buildspec-proofs.yml").read_text(), "x")["batch"]["build-graph"]
    run_build(tmp_path, "buildspec-proofs.yml", environment=job["env"]["variables"], timeout=30)
    planned = next(row for row in (tmp_path / "called").read_text().splitlines() if row.startswith("plan "))
    catalog = load_catalog()
    (entry,) = named(catalog, [line])
    assert json.loads(call(*planned.split(), "--json").stdout)["id"] == plan_of(entry, catalog).id


@pytest.mark.parametrize("failing", ["", "docker"])
def test_bases_come_from_the_mirrors_that_the_site_has_in_ecr(tmp_path, failing):
    source = made_source(tmp_path / "source")
    shutil.copy(ROOT / "buildspec.yml", source)
    cache = "111122223333.dkr.ecr.eu-west-1.amazonaws.com"
    (source / "trainwright.toml").write_text(
        f'[registries]\n"docker.io" = "{cache}/docker-hub"\n"quay.io" = "mirror.example/quay"\n'
    )
    path = {"PATH": f"{source}/bin:{os.environ['PATH']}", "CALLED": str(source / "called"), "FAILING": failing}
    built = run_build(source, environment=path, phases=("pre_build",), timeout=30)
    assert built.succeeded == (not failing), built.log
    called = (source / "called").read_text().splitlines()
    for host, region in ((BASE.partition("/")[0], "us-west-2"), (cache, "eu-west-1")):
        assert f"aws ecr get-login-password --region {region}" in called
        assert f"docker login --username AWS --password-stdin {host} with token" in called
    assert not any("mirror.example" in line for line in called)


CLIENT = """#!/bin/sh
echo "$0 $* [host=$DOCKER_HOST context=$DOCKER_CONTEXT]" | sed "s,.*/bin/,," >> called
case "$*" in "context show") echo lent ;; "buildx inspect trainwright") grep -q "buildx create" called ;; esac
"""
CERTIFICATES = "ca=/c/ca.pem,cert=/c/cert.pem,key=/c/key.pem"


@pytest.mark.parametrize(
    ("variables", "context", "server"),
    [
        ({}, "", "lent"),
        ({"DOCKER_HOST": "tcp://server:9876"}, "host=tcp://server:9876", "docker-server"),
        (
            {"DOCKER_HOST": "tcp://server:9876", "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": "/c"},
            f"host=tcp://server:9876,{CERTIFICATES}",
            "docker-server",
        ),
    ],
)
@pytest.mark.parametrize("name", ["buildspec.yml", "buildspec-stages.yml"])
def test_a_docker_server_has_buildkit_and_everything_else_is_on_this_machine(
    tmp_path, name, variables, context, server
):
    shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "bin").mkdir()
    for tool in ("bin/docker", "bin/aws", "invoke"):
        (tmp_path / tool).write_text(CLIENT if tool != "invoke" else CLIENT.replace(".*/bin/", r".*\./"))
        (tmp_path / tool).chmod(0o755)
    image = "1.dkr.ecr.us-west-2.amazonaws.com/docker-hub/moby/buildkit@sha256:aa"
    given = {"DOCKER_SERVER": "yes", "CACHE": "1.dkr.ecr.us-west-2.amazonaws.com/x/cache", "BUILDKIT_IMAGE": image}
    path = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    built = run_build(tmp_path, name, environment={**path, **given, **variables}, phases=("install",), timeout=30)
    assert built.succeeded, built.log
    called = (tmp_path / "called").read_text().splitlines()
    place = [line.startswith("docker buildx create") for line in called].index(True)
    there = f"[host={variables.get('DOCKER_HOST', '')} context=]"
    create = f"--name trainwright --driver docker-container --driver-opt image={image} --bootstrap {server}"
    assert called[place] == f"docker buildx create {create} {there}"
    made = [line for line in called if line.startswith("docker context create")]
    assert made == ([f"docker context create docker-server --docker {context} {there}"] if context else [])
    assert all(line.endswith(there) for line in called[:place])
    # From here on, nothing goes to the server, and the builder is not made again.
    assert len([line for line in called if line.startswith("docker buildx create")]) == 1
    assert any(line.startswith("invoke doctor --fix") for line in called[place:])
    assert all(line.endswith("[host= context=default]") for line in called[place + 1 :])


def test_stages_that_fail_stop_no_image(tmp_path, monkeypatch):
    """Each image then builds them itself, so their job ends well, and its batch, whatever else in it fails."""
    monkeypatch.chdir(tmp_path)
    assert call("pipeline", "--images", "pytorch:cu130,pytorch:cu132", cwd=tmp_path).returncode == 0
    door = '#!/bin/sh\necho "$@" >> called\ncase "$*" in *--json*) echo \'{"base": {"image": null}}\' ;; esac\n'
    (tmp_path / "invoke").write_text(f'{door}[ "$1" != build ]\n')
    (tmp_path / "invoke").chmod(0o755)
    (tmp_path / "bin").mkdir()
    for tool in ("aws", "docker"):
        (tmp_path / "bin" / tool).symlink_to("/bin/true")
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").symlink_to(sys.executable)
    path = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "CACHE": "host/cache"}
    built = run_build(
        tmp_path, "buildspec-stages.yml", environment={**path, "STAGES": "base", "SHARED": "s"}, timeout=30
    )
    assert "--stages base" in (tmp_path / "called").read_text()
    assert built.succeeded, built.log
    assert "each image builds them itself" in built.log
    ended = run_batch(tmp_path, lambda job: "STAGES" not in job.variables, "buildspec.yml")
    assert ended["batch"] == "succeeded"


def test_lines_of_proofs_are_named_as_for_prove(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "no image line matches" in call("pipeline", "--proofs", "--images", "pytorch/cpus").stderr
    assert "--proofs --format bake" in call("pipeline", "--proofs", "--format", "bake").stderr
    done = call("pipeline", "--proofs", "--json")
    supported = {f"{e.line.framework}/{e.name}" for e in load_catalog().lines if e.line.status == "supported"}
    assert {row["name"] for row in json.loads(done.stdout)["images"]} == supported
    document = parse((tmp_path / "buildspec-proofs.yml").read_text(), "x")
    assert {each["env"]["variables"]["LINE"] for each in document["batch"]["build-graph"]} == supported
    assert call("pipeline", "--proofs", "--check").returncode == 0
