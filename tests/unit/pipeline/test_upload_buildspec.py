"""The buildspec that is sent, run phase by phase: which commands, what each failure leaves, what comes home.

In place of the program stands a script that notes how it is called; tests/e2e/test_pipeline.py has the real one.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.doubles.codebuild import Build
from tests.doubles.codebuild_service import Told, really
from trainwright.catalog.catalog import load_catalog
from trainwright.pipeline import upload
from trainwright.pipeline.upload import write_upload
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.site.site import Site
from trainwright.user.files import FoundFile

pytestmark = pytest.mark.usefixtures("own_places")
# Notes its words; ends with $FAIL if its verb is $FAILS; prints what the verb's document has that the buildspec reads.
PROGRAM = """#!/bin/sh
echo "$*" >> "$CALLS"
case $1 in
plan) echo '{"base": {"image": null}}' ;;
build) mkdir -p .trainwright/images/ab && echo '{}' > .trainwright/images/ab/record.json && echo '{"built": 1}' ;;
smoke) echo '{}'; echo '<testsuites/>' > "$5" ;;
push) echo '{"images": [{"uri": "host/images@sha256:cd"}]}' ;;
esac
[ "$1" != "$FAILS" ] || exit "$FAIL"
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Told, Build, list[str]]]:
    """Send a request and run what was sent; what CodeBuild says of it, what came of it, how the program was called."""
    script = tmp_path / "invoke"
    script.write_text(PROGRAM)
    door = {"invoke": FoundFile("invoke", script, len(PROGRAM), executable=True)}
    monkeypatch.setattr(upload, "program_files", lambda: door)
    request = make_request(framework="pytorch", cuda="cpu")
    monkeypatch.chdir(tmp_path)
    sent = write_upload(tmp_path / "upload.zip", request, resolve(request, load_catalog()), Site())
    calls = tmp_path / "calls"

    def lend(folder: Path) -> None:
        (folder / "program").mkdir()
        (folder / "program" / ".venv").symlink_to(sys.prefix)

    def once(**variables: str) -> tuple[Told, Build, list[str]]:
        calls.write_text("")
        builds: list[Build] = []
        variables = {"CALLS": str(calls), "FAILS": "", "FAIL": "0", "REPOSITORY": "mine/images", **variables}
        told = really(prepare=lend, builds=builds)(sent.path.read_bytes(), variables)
        assert zipfile.is_zipfile(sent.path)
        return told, builds[0], calls.read_text().splitlines()

    return once


def test_its_steps_and_what_comes_home(run: Callable[..., tuple[Told, Build, list[str]]]) -> None:
    told, build, calls = run(REQUEST="--allow-unproven", OPTIONS="--no-cache --refresh 2026-11-25")
    assert (told.status, set(build.phases.values())) == ("SUCCEEDED", {"succeeded"}), build.log
    assert [line.split()[0] for line in calls] == ["doctor", "plan", "build", "smoke", "push"]
    assert calls[1] == "plan --allow-unproven --json"
    assert calls[2].startswith("build --allow-unproven --no-cache --refresh 2026-11-25 --tag ")
    assert "--repository mine/images" in calls[4]
    assert told.exported == {"IMAGE_URI": "host/images@sha256:cd", "IMAGE_DIGEST": "sha256:cd"}
    assert isinstance(told.record, dict)
    names = {"plan.json", "build.json", "smoke.json", "smoke.xml", "push.json", "images/ab/record.json"}
    assert set(told.record) == names


@pytest.mark.parametrize(
    ("verb", "code", "phase", "after"),
    [
        ("doctor", 4, "INSTALL", []),
        ("plan", 2, "PRE_BUILD", ["plan.json"]),
        ("build", 5, "BUILD", ["build.json", "plan.json"]),
        ("smoke", 6, "BUILD", ["build.json", "plan.json", "smoke.json"]),
        ("push", 7, "POST_BUILD", ["build.json", "plan.json", "push.json", "smoke.json"]),
    ],
)
def test_a_step_that_fails_ends_it_with_its_exit_code(
    run: Callable[..., tuple[Told, Build, list[str]]], verb: str, code: int, phase: str, after: list[str]
) -> None:
    told, build, calls = run(FAILS=verb, FAIL=str(code))
    assert told.status == "FAILED"
    assert calls[-1].split()[0] == verb
    (failed,) = [(name, says) for name, status, says in told.phases if status == "FAILED"]
    assert failed[0] == phase
    assert failed[1].endswith(f"exit status {code}")
    assert told.exported == {}
    found = sorted(name for name in told.record or {} if isinstance(name, str) and name.endswith(".json"))
    # What the program said of its failure is in the record, and in the log as well.
    assert [name for name in found if "/" not in name] == after
    if verb == "build":
        assert '{"built": 1}' in build.log
    if verb in ("build", "smoke", "push"):
        assert "images/ab/record.json" in found


def test_a_cache_gets_a_builder(run: Callable[..., tuple[Told, Build, list[str]]], tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("aws", "docker"):
        # No builder is there before.
        script = '#!/bin/sh\necho "${0##*/} $*" >> "$CALLS"\n[ "$*" != "buildx inspect trainwright" ]\n'
        (tools / name).write_text(script)
        (tools / name).chmod(0o755)
    image = f"host.example/buildkit@sha256:{'ab' * 32}"
    told, _, calls = run(CACHE="host.example/cache", BUILDKIT_IMAGE=image, PATH=f"{tools}:/usr/bin:/bin")
    assert told.status == "SUCCEEDED"
    assert "aws ecr get-login-password" in calls
    assert "docker login --username AWS --password-stdin host.example" in calls
    (create,) = (line for line in calls if line.startswith("docker buildx create --name trainwright"))
    assert create.endswith(f"--driver-opt image={image}")
    assert any("--builder trainwright --cache host.example/cache" in line for line in calls if line.startswith("build"))
