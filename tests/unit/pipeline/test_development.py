"""Files that open an image in an editor or in Compose: their published formats, and that no training job starts."""

from __future__ import annotations

import json
import re
from importlib import resources

import jsonschema
import pytest
import yaml

from tests.support.in_process import call

pytestmark = pytest.mark.usefixtures("own_places")
CPU = "trainwright/pytorch:2.13.0-cpu-py311-debian12"
CUDA = "trainwright/pytorch:2.6.0-cu124-py311-debian12"
# devcontainers/spec, schemas/devContainer.base.schema.json of commit 08c3f97f: what imageContainer, nonComposeBase and
# devContainerCommon have of types; other keys are errors.
KEYS = {"name": str, "image": str, "overrideCommand": bool, "init": bool, "runArgs": list, "workspaceFolder": str}
KEYS |= {"workspaceMount": str, "customizations": dict, "hostRequirements": dict}


def printed(*words: str) -> str:
    done = call("render", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("request_", "image"), [("pytorch:cpu", CPU), ("pytorch:cu124", CUDA)])
def test_a_dev_container_holds_the_project_and_runs_nothing_of_the_image(request_, image):
    document = json.loads(printed(request_, "--devcontainer"))
    assert {key: type(value) for key, value in document.items()} == {key: KEYS[key] for key in document}
    assert document["image"] == image
    # devcontainers/cli, singleContainer.ts: only with false are the image's entry point and command started.
    assert document["overrideCommand"] is True
    mount = dict(part.split("=", 1) for part in document["workspaceMount"].split(","))
    assert mount == {"source": "${localWorkspaceFolder}", "target": document["workspaceFolder"], "type": "bind"}
    # The schema's values: true, false, "optional".
    assert document.get("hostRequirements") == ({"gpu": "optional"} if image == CUDA else None)
    (shared,) = document["runArgs"]
    assert re.fullmatch(r"--shm-size=[1-9][0-9]*gb", shared)


@pytest.mark.parametrize(("request_", "image"), [("pytorch:cpu", CPU), ("pytorch:cu124", CUDA)])
def test_a_compose_file_keeps_to_the_published_schema(request_, image):
    document = yaml.safe_load(printed(request_, "--compose"))
    schema = resources.files("check_jsonschema").joinpath("builtin_schemas/vendor/compose-spec.json")
    found = json.loads(schema.read_text())
    jsonschema.validators.validator_for(found)(found).validate(document)
    training = document["services"]["training"]
    assert (training["image"], training["entrypoint"], training["pull_policy"]) == (image, [], "never")
    assert training["volumes"] == [{"type": "bind", "source": ".", "target": training["working_dir"]}]
    assert set(document["services"]) == ({"training", "gpu"} if image == CUDA else {"training"})


def test_the_gpu_is_a_service_that_starts_only_when_it_is_named():
    gpu = yaml.safe_load(printed("pytorch:cu124", "--compose"))["services"]["gpu"]
    assert gpu["extends"] == {"service": "training"}
    assert gpu["profiles"] == ["gpu"]
    (device,) = gpu["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}


def test_json_says_where_the_text_belongs():
    document = json.loads(printed("pytorch:cpu", "--devcontainer", "--json"))
    assert document["file"] == ".devcontainer/devcontainer.json"
    assert document["text"] == printed("pytorch:cpu", "--devcontainer")
    assert json.loads(printed("pytorch:cpu", "--compose", "--json"))["file"] == "compose.yaml"


def test_how_to_build_it_goes_to_standard_error():
    done = call("render", "pytorch:cpu", "--compose")
    assert "./invoke build --framework pytorch --cuda cpu" in done.stderr
    assert "./invoke build" not in done.stdout


@pytest.mark.parametrize(
    "words", [("--devcontainer", "--compose"), ("--compose", "--output", "x"), ("--devcontainer", "--output", "x")]
)
def test_one_output_at_a_time(words):
    done = call("render", "pytorch:cpu", *words)
    assert done.returncode == 2
    assert "exclude each other" in done.stderr
