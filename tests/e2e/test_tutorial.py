"""The tutorial, command by command, as its reader types it: a machine that is ready, to a finished two-host job; and
what the tour shows of the same commands."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.shown import block, differences
from trainwright.prove.smoke import SmokeDocument
from trainwright.verbs.build import build_text
from trainwright.verbs.documents import BuildDocument
from trainwright.verbs.smoke import smoke_text

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "tutorial.md").read_text()
# A command of the page, continued by backslashes or not.
COMMAND = re.compile(r"^    (?! )((?:.*\\\n +)*.*)$", re.MULTILINE)
# What needs an AWS account, and what undoes everything.
LEFT_OUT = ("./invoke push ", "docker image rm ", "rm -rf ")


@pytest.fixture(scope="module")
def said(
    proven: dict[str, Any],
    environment: dict[str, str],
    docker: Callable[..., str],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, str]:
    """What each command printed, in a folder that has of the checkout what the tutorial uses. The image is that of the
    test run, so nothing is built again."""
    # Outside of a checkout the label of the revision would say "unknown", and the image would be another one.
    label = '{{index .Config.Labels "org.opencontainers.image.revision"}}'
    revision = docker("image", "inspect", "--format", label, proven["kept"])
    own = {key: value for key, value in environment.items() if key != "PYTHONPATH"} | {"TRAINWRIGHT_REVISION": revision}
    folder = tmp_path_factory.mktemp("tutorial")
    (folder / "invoke").symlink_to(ROOT / "invoke")
    shutil.copytree(ROOT / "examples", folder / "examples")
    printed = {}
    for command in COMMAND.findall(PAGE):
        if command.startswith(LEFT_OUT):
            continue
        typed = re.sub(r"\\\n +", "", command)
        done = subprocess.run(
            ["/bin/sh", "-c", typed],
            cwd=folder,
            env=own,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert done.returncode == 0, (typed, done.stdout[-2000:], done.stderr[-2000:])
        printed[" ".join(typed.split()[:2])] = done.stdout
    return printed


def test_every_step_is_on_the_page(said: dict[str, str]) -> None:
    steps = ["doctor", "init", "plan", "build", "rehearse", "preflight", "estimator"]
    assert [name.partition(" ")[2] for name in said if name.startswith("./invoke")] == steps


def test_the_image_is_built_and_tested(said: dict[str, str], proven: dict[str, Any]) -> None:
    assert re.search(
        r"^image .* probe passed, \d+ smoke tests passed, \d+ skipped$", said["./invoke build"], re.MULTILINE
    )
    assert proven["build"]["image_id"][7:19] in said["./invoke build"]


def test_the_job_on_two_hosts_is_finished(said: dict[str, str]) -> None:
    rows = [line for line in said["./invoke rehearse"].splitlines() if line.startswith(("passed", "failed"))]
    assert rows and all(row.startswith("passed") for row in rows)
    assert any(re.match(r"passed +world size +4 = 2 x 2", row) for row in rows)
    assert any(re.match(r"passed +all-reduce +10 on every rank", row) for row in rows)  # 1 + 2 + 3 + 4


def test_the_mistake_is_found_and_the_job_is_well(said: dict[str, str]) -> None:
    assert "TW142" in said["./invoke preflight"]
    assert "0 errors, 0 warnings" in said["./invoke estimator"]


IMAGE = "trainwright/pytorch:2.13.0-cpu-py311-debian12"


def test_the_tour_shows_what_a_build_prints(proven: dict[str, Any]) -> None:
    printed = build_text(msgspec.convert(proven["build"], BuildDocument))
    assert differences(block("tour.md", "build --framework pytorch --cuda cpu"), printed) == []


def test_the_tour_shows_what_the_smoke_tests_print(proven: dict[str, Any]) -> None:
    document = msgspec.convert({**proven["smoke"], "image": IMAGE}, SmokeDocument)
    assert differences(block("tour.md", f"smoke --image {IMAGE}"), smoke_text(document)) == []
    assert differences(block("tour.md", "smoke --verbose"), smoke_text(document, every=True)) == []


def test_the_tour_shows_what_a_rehearsal_prints(said: dict[str, str]) -> None:
    shown = block("tour.md", f"rehearse --image {IMAGE} --entry-point train.py")
    assert differences(shown, said["./invoke rehearse"]) == []
