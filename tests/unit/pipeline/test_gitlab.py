"""The pipeline of GitLab CI/CD: its published schema, and every job executed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.doubles.gitlab import InvalidPipeline, RanJob, merged, run_pipeline
from tests.support.in_process import call
from tests.support.pipeline_source import BASE, URI, made_source
from trainwright.catalog.catalog import load_catalog
from trainwright.cli.parser import check_command_line, with_flags
from trainwright.pipeline.gitlab import literal, pipeline_file
from trainwright.pipeline.images import choose
from trainwright.pipeline.pipeline import default_files, shared_groups
from trainwright.site.site import Site
from trainwright.verbs.namespace import namespace

CATALOG = load_catalog()
ROOT = Path(__file__).resolve().parents[3]
FILE = ".gitlab-ci.yml"
# GitLab's own (app/assets/javascripts/editor/schema/ci.json of gitlab-org/gitlab), as check-jsonschema ships it.
SCHEMA = json.loads(
    resources.files("check_jsonschema").joinpath("builtin_schemas/vendor/gitlab-ci.json").read_text(encoding="utf-8")
)
# What never says that the script of a job failed, or that it took too long ("retry:when").
OF_THE_RUNNER = {"runner_system_failure", "api_failure", "scheduler_failure", "data_integrity_failure"}
ROLE = {"AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/images", "AWS_REGION": "eu-west-1"}
LAST = "moving-tags"
CPU, FIRST, SECOND = "pytorch-2.13.0-cpu-debian", "pytorch-2.14.1-cu130-debian", "pytorch-2.15.0-cu132-debian"


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A checkout whose front door and tools note how they are called."""
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path / "state"))
    return made_source(tmp_path / "source")


def validated(text: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(text)
    jsonschema.Draft7Validator(SCHEMA).validate(document)
    return document


def made(source: Path, *words: str) -> dict[str, Any]:
    done = call("pipeline", "--format", "gitlab", *words, "--json", cwd=source)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["files"] == [FILE]
    return validated((source / FILE).read_text())


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The pipeline of one image, which shares nothing."""
    return made(tmp_path_factory.mktemp("one"), "--images", "pytorch:cpu")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The pipeline of two images that share stages."""
    return made(tmp_path_factory.mktemp("two"), "--images", "pytorch:cu130,pytorch:cu132")


def ran(
    source: Path, document: dict[str, Any], failing: str = "", started_by: str = "web", **project: str
) -> tuple[dict[str, RanJob], list[str]]:
    """The jobs of a pipeline, and each call of the front door and of a tool."""
    environment = {"PATH": f"{source}/bin:/usr/bin:/bin", "CALLED": str(source / "called"), "FAILING": failing}
    (source / "called").unlink(missing_ok=True)
    jobs = run_pipeline(source, document, started_by=started_by, project=project, environment=environment)
    called = source / "called"
    return jobs, called.read_text().splitlines() if called.exists() else []


def shared_of(document: dict[str, Any]) -> list[str]:
    return [name for name in document if document[name].get("extends") == ".trainwright-stages"]


def test_a_pipeline_builds_proves_and_pushes_without_a_key(source, one):
    jobs, called = ran(source, one, **ROLE, TAG="nightly")
    assert list(jobs) == [CPU, LAST]
    job = jobs[CPU]
    assert job.outcome == "success", job.log
    request = "--framework pytorch --cuda cpu --version 2.13.0 --base debian"
    image = "trainwright/candidate:4711"
    assert called == [
        "invoke doctor --fix",
        f"invoke plan {request}",
        f"invoke plan {request} --json",
        "aws ecr get-login-password --region us-west-2",
        f"docker login --username AWS --password-stdin {BASE.partition('/')[0]} with token",
        f"invoke build {request} --tag {image} --progress plain",
        f"invoke smoke --image {image} --junit reports/smoke.xml",
        f"invoke rehearse --image {image} --source-dir examples/ddp --entry-point train.py "
        "--hosts 2 --distribution torch_distributed --junit reports/rehearse.xml",
        f"invoke push --image {image} --repository trainwright/pytorch --tag nightly-4711 "
        "--leave-tags --next-revision --progress plain --json",
        f"docker image rm --force {image}",
        f"invoke tags advance {CPU} --repository-prefix trainwright",
    ]
    assert f"pushed {URI}\n" in job.log
    # A token of the job instead of a key.
    whole = merged(one, CPU)
    assert whole["id_tokens"] == {"AWS_ID_TOKEN": {"aud": "sts.amazonaws.com"}}
    assert "ACCESS_KEY" not in json.dumps(one)


def test_aws_finds_the_token_the_role_and_the_region(source, one):
    """What AWS's tools read to take a role with a token (SDKs and Tools Reference Guide, "Assume role provider")."""
    tool = source / "bin/aws"
    names = "AWS_ROLE_ARN AWS_ROLE_SESSION_NAME AWS_DEFAULT_REGION AWS_REGION"
    tool.write_text(
        f'#!/bin/sh\nfor name in {names}; do printenv "$name"; done > told\n'
        'cp -p "$AWS_WEB_IDENTITY_TOKEN_FILE" token\nprintenv AWS_ID_TOKEN >> told\necho password\n'
    )
    jobs, _ = ran(source, one, **ROLE)
    assert jobs[CPU].outcome == "success", jobs[CPU].log
    assert (source / "told").read_text().split() == [ROLE["AWS_ROLE_ARN"], "gitlab-4711", "eu-west-1", "eu-west-1"]
    assert (source / "token").read_text() == "token-for-sts.amazonaws.com"
    assert (source / "token").stat().st_mode & 0o077 == 0
    assert not list(source.parent.rglob("aws-token*")), "the next job of the machine does not find it"


def test_every_command_is_one_that_the_program_takes(source, two):
    _, called = ran(source, two, CACHE="host/cache")
    words = [line.split()[1:] for line in called if line.startswith("invoke ")]
    assert {"build", "push", "smoke", "rehearse", "tags"} <= {each[0] for each in words}
    for each in words:
        check_command_line(with_flags(each, namespace.to_contexts()), namespace.to_contexts())


@pytest.mark.parametrize("failing", ["doctor", "build", "smoke", "rehearse", "push", "docker"])
def test_a_failure_ends_the_job_and_what_is_known_is_kept(source, one, failing):
    (source / "reports").mkdir()
    (source / "reports/smoke.xml").write_text("<testsuites/>")
    record = source / ".trainwright/images/0123/record.json"
    record.parent.mkdir(parents=True)
    record.write_text("{}")
    (record.parent / "build.log").write_text("long")
    jobs, called = ran(source, one, failing)
    job = jobs[CPU]
    assert job.outcome == "failed"
    verbs = [line.split()[1] for line in called if line.startswith("invoke ")]
    assert verbs[verbs.index(failing) + 1 if failing in verbs else len(verbs) :] in ([], ["report"])
    assert "push" not in verbs or failing == "push"
    assert "pushed" not in job.log
    assert job.junit == ("reports/smoke.xml",)
    assert {"reports/smoke.xml", ".trainwright/images/0123/record.json"} <= set(job.artifacts)
    assert ".trainwright/images/0123/build.log" not in job.artifacts


@pytest.mark.parametrize(
    ("started_by", "exists"),
    [
        ("schedule", True),
        ("web", True),
        ("api", True),
        ("trigger", True),
        ("push", False),
        ("merge_request_event", False),
    ],
)
def test_a_push_starts_nothing(source, two, started_by, exists):
    jobs, called = ran(source, two, started_by=started_by, CACHE="host/cache")
    assert bool(jobs) == bool(called) == exists


def test_a_schedule_installs_packages_of_the_day_anew(source, one):
    _, called = ran(source, one, started_by="schedule")
    assert any(" --refresh 2026-11-25" in line for line in called if line.startswith("invoke build"))
    _, called = ran(source, one, started_by="schedule", REFRESH="2026-11-01")
    assert any(" --refresh 2026-11-01" in line for line in called if line.startswith("invoke build"))
    _, called = ran(source, one)
    assert not any("--refresh" in line for line in called)


def test_shared_stages_come_first_where_there_is_a_cache(source, two):
    jobs, called = ran(source, two)
    assert list(jobs) == [FIRST, SECOND, LAST]
    assert {job.outcome for job in jobs.values()} == {"success"}
    assert not [line for line in called if "--stages" in line or "--cache" in line]
    jobs, called = ran(source, two, CACHE="host/cache")
    (shared,) = shared_of(two)
    assert {job.outcome for job in jobs.values()} == {"success"}, [job.log for job in jobs.values()]
    builds = [line for line in called if line.startswith("invoke build")]
    assert len(builds) == 3
    assert re.search(rf"--stages \S*metis\S* .*--cache host/cache:{shared}$", builds[0])
    assert all(line.endswith(f"--cache host/cache --cache host/cache:{shared}") for line in builds[1:])


def test_stages_that_fail_stop_no_image(source, two):
    """Every build fails here; those of images were tried after that of the stages."""
    jobs, called = ran(source, two, "build", CACHE="host/cache")
    (shared,) = shared_of(two)
    assert jobs[shared].outcome == "failed"
    assert jobs[shared].allowed
    assert len([line for line in called if line.startswith("invoke build")]) == 3
    assert {jobs[FIRST].outcome, jobs[SECOND].outcome} == {"failed"}


def test_a_builder_that_is_there_is_used_again(source, two):
    """A runner may keep its machine, and a second builder of one name is refused."""
    _, called = ran(source, two, CACHE="host/cache", BUILDKIT_IMAGE="host/buildkit@sha256:0")
    assert "docker buildx inspect --bootstrap trainwright" in called
    assert not [line for line in called if "buildx create" in line]
    inspect = 'case "$*" in "buildx inspect trainwright") exit 1 ;; esac\n'
    docker = source / "bin/docker"
    docker.write_text(docker.read_text().replace("#!/bin/sh\n", f"#!/bin/sh\n{inspect}"))
    create = "docker buildx create --name trainwright --driver docker-container"
    _, called = ran(source, two, CACHE="host/cache", BUILDKIT_IMAGE="host/buildkit@sha256:0")
    assert [line for line in called if "buildx create" in line] == [
        f"{create} --driver-opt image=host/buildkit@sha256:0"
    ] * 3
    _, called = ran(source, two, CACHE="host/cache")
    assert [line for line in called if "buildx create" in line] == [create] * 3


def test_the_tags_move_when_every_image_is_there_and_not_before(source, two):
    jobs, called = ran(source, two, REPOSITORY="team/images", CACHE="host/cache")
    assert list(jobs)[-1] == LAST and jobs[LAST].outcome == "success", jobs[LAST].log
    assert called[-1] == f"invoke tags advance {FIRST},{SECOND} --repository team/images"
    assert [" --leave-tags " in line for line in called if line.startswith("invoke push")] == [True, True]
    assert not list(source.parent.rglob("aws-token*")), "its token is gone as well"
    door = (source / "invoke").read_text()
    (source / "invoke").write_text(door + f'case "$*" in "push "*) [ "$CI_JOB_NAME" != {SECOND} ] ;; esac\n')
    jobs, called = ran(source, two, CACHE="host/cache")
    assert [jobs[name].outcome for name in (FIRST, SECOND, LAST)] == ["success", "failed", "skipped"]
    assert not [line for line in called if line.startswith("invoke tags")]


def test_stages_that_fail_hold_no_tag_back(source, two):
    door = (source / "invoke").read_text()
    (source / "invoke").write_text(door + 'case "$*" in *--stages*) false ;; esac\n')
    jobs, _ = ran(source, two, CACHE="host/cache")
    assert jobs[shared_of(two)[0]].outcome == "failed"
    assert jobs[LAST].outcome == "success"


def test_only_failures_of_the_runner_are_retried(two):
    for name in [*shared_of(two), FIRST, SECOND, LAST]:
        retry = merged(two, name)["retry"]
        assert set(retry["when"]) <= OF_THE_RUNNER
        assert retry["max"] == 2


def test_two_pipelines_build_one_image_one_after_the_other(source, two):
    jobs, _ = ran(source, two, CACHE="host/cache")
    groups = {name: job.group for name, job in jobs.items() if job.group}
    assert set(groups) == {FIRST, SECOND, LAST}
    assert len(set(groups.values())) == 3, "different images do not wait for each other"
    # GitLab: letters, digits, -, _, /, $, {, }, . and spaces; no / at an end.
    assert all(re.fullmatch(r"[\w.-][\w./ -]*[\w.-]", group) for group in groups.values())
    # A job that may be pushing is not cancelled for a newer pipeline.
    assert merged(two, FIRST)["interruptible"] is False
    assert merged(two, shared_of(two)[0])["interruptible"] is True


def test_many_images_keep_to_the_schema_and_their_order(source):
    images = choose("*", CATALOG, Site())
    groups = shared_groups(images, CATALOG)
    document = validated(pipeline_file(images, groups, command="x", catalog=""))
    jobs, _ = ran_without_commands(source, document)
    assert set(jobs) == {image.name for image in images} | {group.name for group in groups} | {LAST}
    assert {job.outcome for job in jobs.values()} == {"success"}
    order = list(jobs)
    assert order[-1] == LAST and "needs" not in document[LAST], "GitLab takes 50 needs of a job"
    for image in images:
        for need in document[image.name]["needs"]:
            assert order.index(need["job"]) < order.index(image.name)
    parents = {group.name: group.parent for group in groups}
    assert any(parents.values())
    for name in shared_of(document):
        assert [need["job"] for need in document[name]["needs"]] == ([parents[name]] if parents[name] else [])


def ran_without_commands(source: Path, document: dict[str, Any]) -> tuple[dict[str, RanJob], list[str]]:
    quiet = {".trainwright": {**document[".trainwright"], "before_script": []}}
    for name in (".trainwright-image", ".trainwright-stages"):
        quiet[name] = {**document[name], "script": ["true"], "after_script": []}
    quiet[LAST] = {**document[LAST], "before_script": [], "script": ["true"]}
    return ran(source, {**document, **quiet}, CACHE="host/cache")


def test_the_commands_are_those_of_the_buildspec(one):
    """One fact in one place: what CodeBuild runs, GitLab runs."""
    spec = yaml.safe_load(default_files(CATALOG)["buildspec.yml"])
    phases = [command.strip() for phase in spec["phases"].values() for command in phase["commands"]]
    job = merged(one, CPU)
    commands = [each.strip() for each in (*job["before_script"], *job["script"])]
    assert {"./invoke doctor --fix", "./invoke plan $REQUEST"} < set(commands)
    assert len(set(commands) & set(phases)) == 8


def test_the_scripts_are_shell(two):
    for name in [*shared_of(two), FIRST, LAST]:
        job = merged(two, name)
        for part in ("before_script", "script", "after_script"):
            for command in job.get(part, ()):
                done = subprocess.run(["bash", "-n"], input=command, capture_output=True, text=True, check=False)
                assert not done.returncode, (command, done.stderr)


def test_every_variable_that_a_command_reads_is_known(two):
    for each in (merged(two, name) for name in (FIRST, shared_of(two)[0], LAST)):
        text = "\n".join([*each["before_script"], *each["script"], *each.get("after_script", ())])
        read = set(re.findall(r"\$\{?([A-Z][A-Z_]+)", text))
        set_there = set(re.findall(r"(?:^|[ ])([A-Z_]+)=", text, re.MULTILINE))
        known = set(each["variables"]) | set(each["id_tokens"]) | set_there
        assert {name for name in read if not name.startswith("CI_")} <= known


# What YAML can hold on one line; names of folders.
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1) | st.sampled_from(
    ["$HOME", "$$", "a$", "${CI_JOB_ID}", "'", '"', "- a", "a: b", "#", "~", "no", "1.10", "%", "@x", "!x", "&a", "*a"]
)


@given(TEXTS)
def test_a_folder_of_any_name_reaches_the_program(name):
    document = validated(pipeline_file(choose("pytorch:cpu", CATALOG, Site()), [], command="x", catalog=name))
    seen = merged(document, CPU)["variables"]["TRAINWRIGHT_CATALOG"]
    assert isinstance(seen, str)
    assert re.sub(r"\$\$", "$", seen) == name
    assert not re.search(r"(?<!\$)(?:\$\$)*\$(?!\$)", seen), "a dollar that GitLab would take for a reference"


def test_no_catalog_is_no_variable(one):
    assert literal("") == ""
    assert "TRAINWRIGHT_CATALOG" not in merged(one, CPU)["variables"]


def test_a_catalog_of_ones_own_is_named_and_a_change_is_found(source):
    shutil.copytree(ROOT / "images/pytorch/cpu", source / "mine/images/pytorch/cpu")
    words = ("--images", "pytorch:cpu", "--catalog", "mine")
    missing = call("pipeline", "--format", "gitlab", *words, "--check", cwd=source)
    assert missing.returncode == 2 and FILE in missing.stderr
    assert merged(made(source, *words), CPU)["variables"]["TRAINWRIGHT_CATALOG"] == "mine"
    assert call("pipeline", "--format", "gitlab", *words, "--check", cwd=source).returncode == 0


def test_a_pipeline_of_ones_own_is_not_replaced(source):
    (source / FILE).write_text("build: {script: [make]}\n")
    refused = call("pipeline", "--format", "gitlab", "--images", "pytorch:cpu", cwd=source)
    assert refused.returncode == 2
    assert (source / FILE).read_text() == "build: {script: [make]}\n"
    # It can include ours, which has nothing but jobs at the top level.
    call("pipeline", "--format", "gitlab", "--images", "pytorch:cpu", "--output", "ci/images.yml", cwd=source)
    ours = yaml.safe_load((source / "ci/images.yml").read_text())
    assert set(ours) == {
        ".trainwright",
        ".trainwright-image",
        CPU,
        LAST,
    }


def test_the_stand_in_refuses_what_gitlab_refuses(source):
    job = {"script": ["true"], "needs": [{"job": "gone"}]}
    with pytest.raises(InvalidPipeline, match="gone"):
        ran(source, {"job": job})
    assert ran(source, {"job": {**job, "needs": [{"job": "gone", "optional": True}]}})[0]["job"].outcome == "success"
