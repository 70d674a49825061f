"""The workflow of GitHub Actions: its published schema, and every step executed."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from importlib import resources
from pathlib import Path

import jsonschema
import pytest
import yaml

from tests.doubles.actions import RanJob, run_workflow
from tests.support.in_process import call
from tests.support.pipeline_source import BASE, URI, made_source
from trainwright.catalog.catalog import load_catalog
from trainwright.cli.parser import check_command_line, with_flags
from trainwright.core.errors import RequestError
from trainwright.pipeline.images import choose
from trainwright.pipeline.matrix import image_rows, levels
from trainwright.pipeline.pipeline import default_files, shared_groups
from trainwright.site.site import Site
from trainwright.verbs.namespace import namespace

CATALOG = load_catalog()
ROOT = Path(__file__).resolve().parents[3]
FILE = ".github/workflows/trainwright.yml"


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A checkout whose front door and tools note how they are called."""
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path / "state"))
    return made_source(tmp_path / "source")


def made(source: Path, *words: str) -> dict:
    done = call("pipeline", "--format", "github", *words, "--json", cwd=source)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["files"] == [FILE]
    document = yaml.safe_load((source / FILE).read_text())
    schema = json.loads(
        resources.files("check_jsonschema").joinpath("builtin_schemas/vendor/github-workflows.json").read_text()
    )
    # YAML 1.1 reads the key as a truth value, which GitHub does not.
    jsonschema.Draft7Validator(schema).validate({("on" if key is True else key): document[key] for key in document})
    return document


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """The workflow of one image."""
    return made(tmp_path_factory.mktemp("one"), "--images", "pytorch:cpu")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """The workflow of two images that share stages."""
    return made(tmp_path_factory.mktemp("two"), "--images", "pytorch:cu130,pytorch:cu132")


def ran(source: Path, document: dict, failing: str = "", **variables: str) -> tuple[dict[str, list[RanJob]], list[str]]:
    """The jobs of a run, and each call of the front door and of a tool."""
    environment = {"PATH": f"{source}/bin:/usr/bin:/bin", "CALLED": str(source / "called"), "FAILING": failing}
    (source / "called").unlink(missing_ok=True)
    folder = Path(tempfile.mkdtemp(dir=source.parent))
    jobs = run_workflow(source, document, variables=variables, environment=environment, folder=folder)
    return jobs, (source / "called").read_text().splitlines()


def test_a_run_builds_proves_and_pushes_without_a_key(source, one):
    role = {"AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/images", "AWS_REGION": "eu-west-1"}
    jobs, called = ran(source, one, **role, TAG="nightly")
    (job,) = jobs["image"]
    assert job.outcome == "success", job.log
    assert job.name == "pytorch-2.13.0-cpu-debian"
    request = "--framework pytorch --cuda cpu --version 2.13.0 --base debian"
    assert called == [
        "invoke doctor --fix",
        f"invoke plan {request}",
        f"invoke plan {request} --json",
        "aws ecr get-login-password --region us-west-2",
        f"docker login --username AWS --password-stdin {BASE.partition('/')[0]} with token",
        f"invoke build {request} --tag trainwright/candidate:pipeline --progress plain",
        "invoke smoke --image trainwright/candidate:pipeline --junit reports/smoke.xml",
        "invoke rehearse --image trainwright/candidate:pipeline --source-dir examples/ddp --entry-point train.py "
        "--hosts 2 --distribution torch_distributed --junit reports/rehearse.xml",
        "invoke push --image trainwright/candidate:pipeline --repository trainwright/pytorch --tag nightly-4711-0 "
        "--leave-tags --next-revision --progress plain --json",
        "invoke report trainwright/candidate:pipeline --format markdown",
        "invoke tags advance pytorch-2.13.0-cpu-debian --repository-prefix trainwright",
    ]
    assert job.summary == f"Pushed `{URI}`\n\n| a report |\n"
    taken = [step.inputs for step in job.steps if step.name.startswith("aws-actions/configure-aws-credentials@")]
    assert taken == [{"role-to-assume": role["AWS_ROLE_ARN"], "aws-region": "eu-west-1"}] * 2
    # A token of the run instead of a key: the only permission that writes, and no secret is read.
    text = json.dumps({str(key): value for key, value in one.items()})
    assert "secrets." not in text and "access-key" not in text
    assert one["permissions"] == {}
    assert one["jobs"]["image"]["permissions"] == {"contents": "read", "id-token": "write"}
    assert one["jobs"]["tags"]["permissions"] == one["jobs"]["image"]["permissions"]


def test_every_command_is_one_that_the_program_takes(source, two):
    _, called = ran(source, two, CACHE="host/cache")
    words = [line.split()[1:] for line in called if line.startswith("invoke ")]
    assert {"build", "report", "push", "tags"} <= {each[0] for each in words}
    for each in words:
        check_command_line(with_flags(each, namespace.to_contexts()), namespace.to_contexts())


@pytest.mark.parametrize(
    ("failing", "after"),
    [
        ("doctor", []),
        ("build", []),
        ("smoke", ["report"]),
        ("rehearse", ["report"]),
        ("push", ["report"]),
        ("docker", []),
    ],
)
def test_a_failure_ends_the_job_and_what_is_known_is_kept(source, one, failing, after):
    jobs, called = ran(source, one, failing)
    (job,) = jobs["image"]
    assert job.outcome == "failure"
    verbs = [line.split()[1] for line in called if line.startswith("invoke ")]
    assert verbs[verbs.index(failing) + 1 if failing in verbs else len(verbs) :] == after
    assert "push" not in verbs or failing == "push"
    assert "Pushed" not in job.summary
    assert job.steps[-1].outcome == "success", "the reports are kept"


def test_shared_stages_come_first_where_there_is_a_cache(source, two):
    jobs, called = ran(source, two)
    assert [job.outcome for job in jobs["stages-1"]] == ["skipped"]
    assert [job.outcome for job in jobs["image"]] == ["success", "success"]
    assert [job.outcome for job in jobs["tags"]] == ["success"], "without a cache as well"
    assert not [line for line in called if "--stages" in line or "--cache" in line]
    jobs, called = ran(source, two, CACHE="host/cache")
    (stages,) = jobs["stages-1"]
    builds = [line for line in called if line.startswith("invoke build")]
    shared = stages.name
    assert re.search(rf"--stages \S*metis\S* .*--cache host/cache:{shared}$", builds[0])
    assert all(line.endswith(f"--cache host/cache --cache host/cache:{shared}") for line in builds[1:])
    assert len(builds) == 3
    assert two["jobs"]["stages-1"]["continue-on-error"] is True


def test_the_tags_move_when_every_image_is_there_and_not_before(source, two):
    _, called = ran(source, two, REPOSITORY="team/images")
    names = [row["NAME"] for row in two["jobs"]["image"]["strategy"]["matrix"]["include"]]
    assert called[-1] == f"invoke tags advance {','.join(names)} --repository team/images"
    assert [" --leave-tags " in line for line in called if line.startswith("invoke push")] == [True, True]
    door = (source / "invoke").read_text()
    (source / "invoke").write_text(door + f'case "$*" in "push "*) [ "$NAME" != {names[1]} ] ;; esac\n')
    jobs, called = ran(source, two)
    assert [job.outcome for job in jobs["image"]] == ["success", "failure"]
    assert [job.outcome for job in jobs["tags"]] == ["skipped"]
    assert not [line for line in called if line.startswith("invoke tags")]


def test_a_group_within_a_group_is_of_the_next_level():
    images = choose("pytorch-1.*-cu113-nvidia", CATALOG, Site())
    shared = shared_groups(images, CATALOG)
    first, second, *_ = levels(images, shared)
    assert (first.needs, second.needs) == ("", first.name)
    assert {row["PARENT"] for row in first.rows} == {""}
    assert {row["PARENT"] for row in second.rows} <= {row["SHARED"] for row in first.rows}
    assert sorted(row["SHARED"] for level in levels(images, shared) for row in level.rows) == sorted(
        group.name for group in shared
    )


def test_more_images_than_a_matrix_takes_are_refused():
    images = choose("pytorch-*-debian", CATALOG, Site())
    with pytest.raises(RequestError, match=f"at most {len(images) - 1} "):
        image_rows(images, [], most=len(images) - 1)
    assert len(image_rows(images, [], most=len(images))) == len(images) > 5


def test_the_commands_are_those_of_the_buildspec(one):
    """One fact in one place: what CodeBuild runs, GitHub runs."""
    spec = yaml.safe_load(default_files(CATALOG)["buildspec.yml"])
    phases = [command.strip() for phase in spec["phases"].values() for command in phase["commands"]]
    steps = [s["run"].strip() for s in one["jobs"]["image"]["steps"] if "run" in s]
    assert {"./invoke doctor --fix", "./invoke plan $REQUEST"} < set(steps)
    assert len(set(steps) & set(phases)) == 8


def test_a_catalog_of_ones_own_is_named_and_a_change_is_found(source, one):
    shutil.copytree(ROOT / "images/pytorch/cpu", source / "mine/images/pytorch/cpu")
    words = ("--images", "pytorch:cpu", "--catalog", "mine")
    missing = call("pipeline", "--format", "github", *words, "--check", cwd=source)
    assert missing.returncode == 2 and FILE in missing.stderr
    assert made(source, *words)["env"]["TRAINWRIGHT_CATALOG"] == "mine"
    assert "TRAINWRIGHT_CATALOG" not in one["env"]
    assert call("pipeline", "--format", "github", *words, "--check", cwd=source).returncode == 0
