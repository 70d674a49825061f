"""action.yml: its published schema, and every step executed, in the workflow that docs/pipeline.md shows."""

from __future__ import annotations

import json
import re
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.doubles.actions import Action, RanJob, run_workflow
from trainwright.cli.parser import check_command_line, with_flags
from trainwright.pipeline.github import ACTIONS
from trainwright.verbs.namespace import namespace

ROOT = Path(__file__).resolve().parents[3]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
PAGE = (ROOT / "docs/pipeline.md").read_text()
(SHOWN,) = re.findall(r"```yaml\n(name: image\n.*?)```", PAGE, re.DOTALL)
OURS = "TEAM/trainwright@COMMIT"
DIGEST = "sha256:" + "a" * 64
URI = f"123456789012.dkr.ecr.eu-west-1.amazonaws.com/team/training@{DIGEST}"
IMAGE_ID = "sha256:" + "c" * 64
TAG = "trainwright/pytorch:2.13.0-cpu-py311-debian12"
# What the front door answers, and which verb fails.
FRONT_DOOR = f"""#!/bin/sh
printf '%s\\n' "$*" >> "$CALLED"
echo "$TRAINWRIGHT_REVISION $TRAINWRIGHT_SOURCE $PWD" >> "$CALLED.more"
case "$1" in
  build) echo '{{"tags": ["{TAG}"], "image_id": "{IMAGE_ID}", "plan": "{"b" * 64}", "record": "/r/record.json"}}' ;;
  push) echo '{{"images": [{{"uri": "{URI}", "digest": "{DIGEST}"}}]}}' ;;
  report) echo "| a report |" ;;
esac
[ "$1" != "${{FAILING:-}}" ]
"""


def schema(name: str) -> Any:
    found = resources.files("check_jsonschema").joinpath(f"builtin_schemas/vendor/{name}.json")
    return json.loads(found.read_text())


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The checkout of the action, and beside it that of the project; the front door notes how it is called."""
    action = tmp_path / "action"
    (action / ".venv/bin").mkdir(parents=True)
    (action / ".venv/bin/python").symlink_to(sys.executable)
    (action / "invoke").write_text(FRONT_DOOR)
    (action / "invoke").chmod(0o755)
    (tmp_path / "project/deep").mkdir(parents=True)
    return tmp_path


def ran(checkout: Path, failing: str = "", **inputs: str | None) -> tuple[RanJob, list[str]]:
    """The job of the workflow with other inputs (None: without one), and each call of the front door."""
    workflow = yaml.safe_load(SHOWN)
    step = next(each for each in workflow["jobs"]["image"]["steps"] if each.get("uses") == OURS)
    given = step["with"] | {name.replace("_", "-"): value for name, value in inputs.items()}
    step["with"] = {name: value for name, value in given.items() if value is not None}
    called = checkout / "called"
    jobs = run_workflow(
        checkout / "project",
        workflow,
        variables={},
        environment={"PATH": "/usr/bin:/bin", "CALLED": str(called), "FAILING": failing},
        folder=checkout / "runner",
        actions={OURS: Action(ACTION, checkout / "action")},
    )
    (job,) = jobs["image"]
    return job, called.read_text().splitlines()


def test_both_keep_to_the_schemas_that_github_publishes():
    jsonschema.Draft7Validator(schema("github-actions")).validate(ACTION)
    workflow = yaml.safe_load(SHOWN)
    # YAML 1.1 reads the key as a truth value, which GitHub does not.
    document = {("on" if key is True else key): workflow[key] for key in workflow}
    jsonschema.Draft7Validator(schema("github-workflows")).validate(document)


def test_every_step_has_a_shell_and_no_script_holds_an_expression():
    """An input in the text of a script would be a command: it comes in a variable."""
    for step in ACTION["runs"]["steps"]:
        assert step["shell"].endswith("bash --noprofile --norc -eo pipefail {0}")
        assert "${{" not in step["run"]


def test_the_page_names_what_there_is():
    example = yaml.safe_load(SHOWN)["jobs"]["image"]["steps"]
    used = next(each for each in example if each.get("uses") == OURS)
    assert set(used["with"]) <= set(ACTION["inputs"])
    rows = {name for line in PAGE.splitlines() if line.startswith("| `") for name in re.findall("`([a-z-]+)`", line)}
    assert {*ACTION["inputs"], *ACTION["outputs"]} <= rows
    others = {each["uses"] for each in example if "uses" in each} - {OURS}
    assert others <= {f"{name}@{commit}" for name, (commit, _) in ACTIONS.items()}
    assert len(others) == 2


def test_an_image_is_built_proven_and_pushed(checkout):
    job, called = ran(checkout)
    assert job.outcome == "success", job.log
    reports = checkout / "runner/image-0/temp/trainwright"
    assert called == [
        "doctor --fix",
        "build --framework pytorch --cuda cpu --with-requirements requirements.txt --progress plain --json",
        f"smoke --image {IMAGE_ID} --junit {reports}/smoke.xml",
        f"rehearse --image {IMAGE_ID} --entry-point train.py --source-dir src --hosts 2 --junit {reports}/rehearse.xml",
        f"push --image {IMAGE_ID} --repository team/training --create --progress plain --json",
        f"report {IMAGE_ID} --format markdown",
    ]
    assert URI in job.log  # the last step of the workflow shows the output
    assert job.summary == "| a report |\n"
    assert json.loads((reports / "push.json").read_text())["images"][0]["digest"] == DIGEST
    built = (checkout / "called.more").read_text().splitlines()[1]
    assert built == f"{'0' * 40} https://github.com/team/images {checkout}/project"


def test_every_command_is_one_that_the_program_takes(checkout):
    _, called = ran(checkout)
    for line in called:
        words = with_flags(line.split(), namespace.to_contexts())
        check_command_line(words, namespace.to_contexts())


def test_without_inputs_the_project_file_decides_and_nothing_is_pushed(checkout):
    without = dict.fromkeys(("framework", "cuda", "args", "entry_point", "rehearse_args", "repository", "push_args"))
    job, called = ran(checkout, **without, working_directory="deep")
    assert job.outcome == "success", job.log
    assert [line.split()[0] for line in called] == ["doctor", "build", "smoke", "report"]
    assert called[1] == "build --progress plain --json"
    assert f"{TAG}\n" in job.log
    assert {line.split()[-1] for line in (checkout / "called.more").read_text().splitlines()} == {
        f"{checkout}/project/deep"
    }


def test_the_outputs_of_the_action(checkout):
    _, _ = ran(checkout)
    workflow = yaml.safe_load(SHOWN)
    last = workflow["jobs"]["image"]["steps"][-1]
    last["env"] = {
        name.upper().replace("-", "_"): f"${{{{ steps.image.outputs.{name} }}}}" for name in ACTION["outputs"]
    }
    last["run"] = f"env | grep -E '^({'|'.join(last['env'])})='"
    jobs = run_workflow(
        checkout / "project",
        workflow,
        variables={},
        environment={"PATH": "/usr/bin:/bin", "CALLED": str(checkout / "called")},
        folder=checkout / "again",
        actions={OURS: Action(ACTION, checkout / "action")},
    )
    found = dict(line.split("=", 1) for line in jobs["image"][0].log.splitlines() if re.match(r"[A-Z_]+=", line))
    assert found == {
        "IMAGE": URI,
        "IMAGE_ID": IMAGE_ID,
        "DIGEST": DIGEST,
        "PLAN": "b" * 64,
        "RECORD": "/r/record.json",
        "REPORTS": str(checkout / "again/image-0/temp/trainwright"),
    }


@pytest.mark.parametrize(
    ("failing", "after"),
    [("doctor", []), ("build", []), ("smoke", ["report"]), ("rehearse", ["report"]), ("push", ["report"])],
)
def test_a_failure_ends_the_action_and_the_job(checkout, failing, after):
    job, called = ran(checkout, failing)
    assert job.outcome == "failure"
    verbs = [line.split()[0] for line in called]
    assert verbs[verbs.index(failing) + 1 :] == after
    assert job.steps[-1].outcome == "skipped"
    assert ("push" in verbs) == (failing == "push")


@pytest.mark.parametrize("value", ["cpu; touch planted", "$(touch planted)", "`touch planted`", "cpu && touch planted"])
def test_no_input_is_a_command(checkout, value):
    names = ("framework", "cuda", "version", "args", "entry_point", "rehearse_args", "repository", "push_args")
    ran(checkout, **dict.fromkeys(names, value))
    assert not list(checkout.rglob("planted"))


def test_blanks_separate_flags_and_stars_stay(checkout):
    (checkout / "project/a.py").write_text("")
    _, called = ran(checkout, args="--with a,b --tag *")
    assert called[1].endswith("--cuda cpu --with a,b --tag * --progress plain --json")
