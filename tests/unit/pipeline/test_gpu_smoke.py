"""Smoke tests on a GPU in CodeBuild: which jobs have one, what it runs in the image, and how a build waits for it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import botocore.session
import jmespath
import pytest
from botocore.validate import ParamValidator

from tests.support.in_process import call
from trainwright.core.data_files import parse_yaml
from trainwright.pipeline.buildspec import parse

ROOT = Path(__file__).resolve().parents[3]
URI = "123456789012.dkr.ecr.us-west-2.amazonaws.com/trainwright/pytorch@sha256:" + "a" * 64
FAKE_AWS = """\
#!{python}
import json, os, sys
words = sys.argv[1:]
with open(os.environ["CALLS"], "a") as calls:
    calls.write(json.dumps(words) + "\\n")
if words[1] == "start-build":
    if "refused" in os.environ["STATES"]:
        sys.exit("AccessDeniedException")
    print("trainwright-gpu:1")
elif "exportedEnvironmentVariables" in " ".join(words):
    print(os.environ["RESULT"])
else:
    states = os.environ["STATES"].split(",")
    asked = sum('"builds[0].buildStatus"' in line for line in open(os.environ["CALLS"]))
    print(states[min(asked, len(states)) - 1])
"""


def written(folder: Path, *words: str) -> dict[str, str]:
    done = call("pipeline", "--json", *words, cwd=folder)
    assert done.returncode == 0, done.stderr
    return {name: (folder / name).read_text() for name in json.loads(done.stdout)["files"]}


@pytest.mark.parametrize("kind", ["buildspec", "batch"])
def test_the_jobs_of_images_with_cuda_have_one(tmp_path: Path, kind: str) -> None:
    files = written(tmp_path, "--format", kind, "--images", "pytorch:cu130,pytorch:cpu", "--gpus", "2")
    (spec,) = [name for name in files if name.startswith("gpu-smoke/")]
    (graph,) = [text for name, text in files.items() if "build-graph" in text]
    nodes = parse_yaml(graph, "graph")["batch"]["build-graph"]
    given = {node["identifier"]: node["env"]["variables"].get("GPU_SMOKE") for node in nodes}
    cuda = next(name for name in given if "cu130" in name and not name.startswith("shared"))
    assert {name for name, path in given.items() if path} == {cuda}
    assert given[cuda] == spec
    (node,) = [node for node in nodes if node["identifier"] == cuda]
    assert "type" not in node["env"]  # the image is built on the machine of every other one
    # Without the flag there is nothing of it.
    plain = written(tmp_path, "--format", kind, "--images", "pytorch:cu130,pytorch:cpu", "--output", "plain/a.yml")
    assert not [name for name in plain if "gpu" in name]
    assert "GPU_SMOKE: gpu-smoke" not in plain["plain/a.yml"]


def test_it_runs_the_smoke_test_in_the_image(tmp_path: Path) -> None:
    files = written(tmp_path, "--format", "batch", "--images", "pytorch:cu130", "--gpus", "2")
    (text,) = [text for name, text in files.items() if name.startswith("gpu-smoke/")]
    document = parse(text, "gpu-smoke")
    commands = document["phases"]["build"]["commands"]
    program, probe, request = shlex.split(commands[-1])[2:]
    # Its result comes back as a variable of the build, also if it fails.
    (export,) = document["phases"]["post_build"]["commands"]
    (name,) = document["env"]["exported-variables"]
    (tmp_path / "result").write_text('{"a": "b c"}')
    file = document["env"]["variables"]["RESULT"]
    done = subprocess.run(
        ["sh", "-c", f'{export.replace(file, str(tmp_path / "result"))}; printf %s "${name}"'],
        capture_output=True,
        text=True,
        check=True,
    )
    assert file in export and done.stdout == '{"a": "b c"}'
    assert program == (ROOT / "templates/pipeline/kubernetes/smoke.py").read_text()
    assert probe == (ROOT / "templates/probe/probe.py").read_text()
    asked = json.loads(request)
    assert (asked["module"], asked["gpus"], bool(asked["job"])) == ("torch", 2, True)
    # The shell of the build hands every argument on as it is.
    echo = tmp_path / "python3"
    echo.write_text(f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n")
    echo.chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", commands[-1]],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == ["-c", program, probe, request]


@pytest.fixture
def post_build(tmp_path: Path) -> Callable[..., tuple[int, list[list[str]], str]]:
    """The last command of the phase after a build, beside an AWS command line that answers what is said."""
    spec = parse_yaml((ROOT / "buildspec.yml").read_text(), "buildspec.yml")
    command = spec["phases"]["post_build"]["commands"][-1]
    (tmp_path / "aws").write_text(FAKE_AWS.format(python=sys.executable))
    (tmp_path / "aws").chmod(0o755)
    (tmp_path / "sleep").write_text("#!/bin/sh\n")
    (tmp_path / "sleep").chmod(0o755)
    (tmp_path / "test.yml").write_text("version: 0.2\n")
    (tmp_path / "reports").mkdir()
    (tmp_path / "invoke").write_text('#!/bin/sh\necho "invoke $*"; [ -z "$REFUSED" ]\n')
    (tmp_path / "invoke").chmod(0o755)

    def run(states: str, **variables: str) -> tuple[int, list[list[str]], str]:
        calls = tmp_path / "calls"
        calls.write_text("")
        given = {"GPU_SMOKE": "test.yml", "GPU_PROJECT": "trainwright-gpu", "CODEBUILD_BUILD_SUCCEEDING": "1"}
        given |= {"IMAGE_URI": URI, "IMAGE_DIGEST": URI.partition("@")[2], "RESULT": '{"of": "it"}', "REFUSED": ""}
        environment = {**spec["env"]["variables"], **given, **variables}
        environment |= {"PATH": f"{tmp_path}:{os.environ['PATH']}", "CALLS": str(calls), "STATES": states}
        done = subprocess.run(
            ["sh", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        return done.returncode, [json.loads(line) for line in calls.read_text().splitlines()], done.stdout

    return run


@pytest.mark.parametrize(
    ("states", "succeeds", "asked"),
    [
        ("SUCCEEDED", True, 1),
        ("IN_PROGRESS,IN_PROGRESS,SUCCEEDED", True, 3),
        ("IN_PROGRESS,FAILED", False, 2),
        ("TIMED_OUT", False, 1),
        ("None", False, 1),  # the answer has no such build
        ("refused", False, 0),
    ],
)
def test_a_build_waits_for_it_and_ends_as_it_does(post_build: Any, states: str, succeeds: bool, asked: int) -> None:
    code, calls, _ = post_build(states)
    assert (code == 0) == succeeds
    # Once more for its result.
    assert [words[1] for words in calls] == ["start-build", *["batch-get-builds"] * (asked + bool(asked))]


def test_its_result_is_attached_to_the_image(post_build: Any, tmp_path: Path) -> None:
    code, _, says = post_build("SUCCEEDED")
    assert f"invoke smoke --image {URI} --import reports/gpu-smoke.json" in says
    assert (code, (tmp_path / "reports/gpu-smoke.json").read_text()) == (0, '{"of": "it"}\n')
    assert "invoke smoke" in post_build("FAILED")[2], "a failure as well"
    assert post_build("SUCCEEDED", REFUSED="yes")[0] == 1, "without a result, no test has run"


def test_its_result_is_asked_for_as_codebuild_answers(post_build: Any) -> None:
    """BatchGetBuilds of CodeBuild's service model: a list of names and values in each build."""
    _, calls, _ = post_build("SUCCEEDED")
    query = calls[-1][calls[-1].index("--query") + 1]
    exported = [{"name": "OTHER", "value": "x"}, {"name": "SMOKE_RESULT", "value": "{}"}]
    assert jmespath.search(query, {"builds": [{"exportedEnvironmentVariables": exported}]}) == "{}"
    model = botocore.session.get_session().get_service_model("codebuild").operation_model("BatchGetBuilds")
    build = model.output_shape.members["builds"].member
    assert set(build.members["exportedEnvironmentVariables"].member.members) == set(exported[0])


def test_what_is_started_is_the_image_that_was_pushed(post_build: Any) -> None:
    _, (start, *_), _ = post_build("SUCCEEDED")
    given = dict(zip(start[2::2], start[3::2], strict=True))
    assert given["--image-override"] == URI
    assert given["--buildspec-override"] == "file://test.yml"
    # Every flag is a member of CodeBuild's own request, and each choice one of the service's.
    variable = dict(word.split("=", 1) for word in given.pop("--environment-variables-override").split(","))
    assert variable == {"name": "IMAGE_DIGEST", "value": URI.partition("@")[2]}
    request: dict[str, Any] = {
        "".join(word.capitalize() if n else word for n, word in enumerate(flag[2:].split("-"))): value
        for flag, value in given.items()
        if flag not in ("--query", "--output")
    }
    request["environmentVariablesOverride"] = [variable]
    shape = botocore.session.get_session().get_service_model("codebuild").operation_model("StartBuild").input_shape
    assert set(request) <= set(shape.members)
    assert not ParamValidator().validate(request, shape).has_errors()
    assert request["imagePullCredentialsTypeOverride"] in shape.members["imagePullCredentialsTypeOverride"].enum


@pytest.mark.parametrize(
    ("variables", "code"),
    [({"GPU_SMOKE": ""}, 0), ({"CODEBUILD_BUILD_SUCCEEDING": "0"}, 0), ({"GPU_PROJECT": ""}, 1)],
)
def test_nothing_is_started_without_a_test_an_image_or_a_project(
    post_build: Any, variables: dict[str, str], code: int
) -> None:
    ended, calls, says = post_build("SUCCEEDED", **variables)
    assert (ended, calls) == (code, [])
    assert ("GpuSmoke=yes" in says) == bool(code)


@pytest.mark.parametrize("words", [("--proofs", "--gpus", "1"), ("--format", "github", "--gpus", "1")])
def test_where_there_is_none_the_flag_is_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = call("pipeline", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert "--gpus" in done.stderr
