"""Pipelines install what signatures and SOCI indexes need, where they are told to, and nothing otherwise."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.doubles.codebuild import run_build
from tests.support.pipeline_source import TOOL, made_source
from trainwright.cli.parser import check_command_line, with_flags
from trainwright.core.extras import EXTRAS
from trainwright.verbs.namespace import namespace

ROOT = Path(__file__).resolve().parents[3]
PUSH, TAGS = "buildspec.yml", "buildspec-tags.yml"


def called(tmp_path: Path, buildspec: str, phase: str, **variables: str) -> list[list[str]]:
    """The calls of the commands of a phase, with a Python that installs nothing."""
    source = made_source(tmp_path / "source")
    (source / "reports").mkdir()
    shutil.copy(ROOT / buildspec, source)
    if phase != "post_build":  # there Python reads what was pushed
        (source / ".venv/bin/python").unlink()
        (source / ".venv/bin/python").write_text(TOOL)
        (source / ".venv/bin/python").chmod(0o755)
    environment = {"PATH": f"{source}/bin:{os.environ['PATH']}", "CALLED": str(source / "called"), **variables}
    built = run_build(source, buildspec, environment=environment, phases=(phase,), timeout=30)
    assert built.succeeded, built.log
    return [shlex.split(line) for line in (source / "called").read_text().splitlines()]


@pytest.mark.parametrize(
    ("buildspec", "phase", "variables", "extras"),
    [
        (PUSH, "install", {}, []),
        (PUSH, "install", {"SIGNING": "yes"}, ["signing"]),
        (PUSH, "install", {"SOCI": "yes"}, ["soci"]),
        (PUSH, "install", {"SIGNING": "yes", "SOCI": "yes"}, ["signing", "soci"]),
        (TAGS, "build", {"LINES": "a"}, []),
        (TAGS, "build", {"LINES": "a", "SIGNING": "yes", "SOCI": "yes"}, ["signing"]),
    ],
)
def test_the_packages_of_the_extras_that_are_asked_for(tmp_path, buildspec, phase, variables, extras):
    calls = called(tmp_path, buildspec, phase, **variables)
    installed = [call[5:] for call in calls if call[:4] == ["python", "-m", "pip", "install"]]
    wanted = [package for extra in extras for package in EXTRAS[extra].split()]
    assert installed == ([["--constraint", "requirements-dev.txt", *wanted]] if extras else [])
    pinned = (ROOT / "requirements-dev.txt").read_text()
    for package in wanted:
        assert re.search(rf"^{package}==\S+ --hash=sha256:", pinned, re.MULTILINE)
    front, python = (next((n for n, call in enumerate(calls) if call[0] == who), 99) for who in ("invoke", "python"))
    assert front < python, "the front door makes the environment"


@pytest.mark.parametrize(
    ("variable", "flag"), [("SOCI", "--soci"), ("WAIT_FOR_REPLICAS", "--wait-for-replicas"), ("OTHER", "")]
)
def test_a_push_makes_an_index_and_waits_for_copies_if_it_is_told_to(tmp_path, variable, flag):
    calls = called(tmp_path, PUSH, "post_build", **{variable: "yes"})
    (push,) = [call for call in calls if call[:2] == ["invoke", "push"]]
    assert {"--soci", "--wait-for-replicas"} & set(push) == {flag} - {""}
    check_command_line(with_flags(push[1:], namespace.to_contexts()), namespace.to_contexts())
