"""``--with-apt`` and ``--with-run``: part of the plan and of its id, in steps of their own, last of all."""

from __future__ import annotations

import os

import pytest

from tests.support.in_process import call
from trainwright.build.context import write_context
from trainwright.catalog.catalog import load_catalog
from trainwright.core.errors import Conflict, RequestError
from trainwright.lock.apt_packages import questions
from trainwright.plan import identity
from trainwright.plan.dockerfile import instructions, steps
from trainwright.plan.rendered import render_dockerfile
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.site.site import Site
from trainwright.sources.gather import gather

CATALOG = load_catalog()
pytestmark = pytest.mark.usefixtures("own_places")


def plan_of(**words):
    return resolve(make_request(**{"framework": "pytorch", "cuda": "cpu", **words}), CATALOG)


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "setup.sh"
    path.write_text("#!/bin/sh\necho hello > /opt/hello\n")
    return path


def final_runs(plan):
    rows = steps(render_dockerfile(plan, CATALOG))
    found = [step.instruction for step in rows if step.stage == "final" and step.component == "user"]
    return [instruction for instruction in found if instruction.startswith("RUN")]


def test_packages_and_script_are_in_the_plan_and_its_id(script):
    plan = plan_of(apt=("jq,ffmpeg",), run=str(script))
    assert plan.user.apt == ("ffmpeg", "jq")
    assert plan.user.as_json()["run_sha256"] == plan.user.run_sha256
    ids = {plan.id, plan_of().id, plan_of(apt=("jq",), run=str(script)).id, plan_of(apt=("ffmpeg,jq",)).id}
    assert len(ids) == 4
    moved = script.rename(script.with_name("moved.sh"))
    assert plan_of(apt=("jq", "ffmpeg"), run=str(moved)).id == plan.id
    moved.write_text(moved.read_text() + "echo more\n")
    assert plan_of(apt=("jq", "ffmpeg"), run=str(moved)).id != plan.id


def test_what_is_not_there_is_no_part_of_an_id():
    # The ids of all plans without them, and with them the proofs of lines, stay what they were.
    assert set(identity._carried(plan_of())["user"]) == {"requirements_sha256", "code_sha256", "entry_point"}


def test_each_is_a_step_of_its_own_after_all_others(script):
    apt, run = final_runs(plan_of(apt=("jq=1.6-2.1",), run=str(script)))
    assert apt.split()[-2:] == ["/mnt/apt-install", "jq=1.6-2.1"]
    # One stream keeps the order of what the script writes.
    assert "/mnt/script 2>&1 " in run and run.rstrip().endswith("&& /mnt/settle-step")
    assert "type=secret" not in run, "the script sees no password of this machine"
    # What follows is about the whole image: the loader, the list of packages.
    last = [step for step in steps(render_dockerfile(plan_of(run=str(script)), CATALOG)) if step.stage == "final"]
    assert [step.component for step in last][-3:-1] == ["user", "os"]


def test_without_them_no_instruction_changes(tmp_path):
    (tmp_path / "requirements.txt").write_text("tqdm\n")
    text = "\n".join(instructions(render_dockerfile(plan_of(requirements=str(tmp_path / "requirements.txt")), CATALOG)))
    assert "/mnt/script" not in text and "user/run" not in text
    assert len(final_runs(plan_of(requirements=str(tmp_path / "requirements.txt")))) == 1


def test_a_lock_asks_apt_for_them():
    plan = plan_of(apt=("jq=1.6-2.1~x1", "libsndfile1", "g++"))
    asked = questions(render_dockerfile(plan, CATALOG))["final"]
    assert asked.start == "base"
    assert {"jq=1.6-2.1~x1", "libsndfile1", "g++", "openssh-server"} <= set(asked.packages)


def test_an_aws_container_takes_them(script):
    plan = plan_of(cuda="cu129", version="2.8.0", base="dlc", apt=("jq",), run=str(script))
    apt, run = final_runs(plan)
    assert "/mnt/apt-install jq" in apt and "/mnt/script" in run


@pytest.mark.parametrize("words", [{}, {"base": "dlc", "version": "2.13.0"}], ids=["nvidia", "dlc"])
def test_a_base_without_apt_is_a_conflict_that_says_so(words):
    with pytest.raises(Conflict) as caught:
        plan_of(cuda="cu133", apt=("jq",), **words)
    said = [row["constraint"] for row in caught.value.details["rows"]]
    assert any("--with-apt jq" in row for row in said) and any("no apt" in row for row in said)
    commands = [offer["command"] for offer in caught.value.details["offers"]]
    assert all("--with-apt jq" in command and "cu133" not in command for command in commands)


def test_the_context_has_the_script_and_runs_what_was_planned(script, tmp_path):
    script.chmod(0o600)
    plan = plan_of(run=str(script))
    folder = tmp_path / "context"
    # What the context takes of the base is not what this is about.
    inputs = gather(plan.replace(base=plan.base.replace(image="debian:12")), CATALOG, Site())
    write_context(inputs, folder, say=lambda _: None)
    copied = folder / "user/run/script"
    assert copied.read_text() == script.read_text() and os.access(copied, os.X_OK)
    script.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(RequestError, match="has changed"):
        gather(plan, CATALOG, Site())


def test_the_command_line_the_project_file_and_plan(tmp_path, script):
    words = ("--with-apt", "jq,ffmpeg", "--with-apt", "g++=4:12.2.0-3", "--with-run", "setup.sh")
    said = call("plan", "pytorch:cpu", *words, cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    assert "ffmpeg, g++=4:12.2.0-3, jq" in said.stdout and plan_of(run=str(script)).user.run_sha256 in said.stdout
    assert call("init", "pytorch:cpu", *words, cwd=tmp_path).returncode == 0
    by_project = call("plan", cwd=tmp_path)
    identity = [line for line in said.stdout.splitlines() if line.startswith("plan ")]
    assert identity and identity[0] in by_project.stdout.splitlines()
    request = make_request(framework="pytorch", apt=("jq,ffmpeg",), run=str(script))
    assert f"--with-apt ffmpeg,jq --with-run {script}" in request.flags()
