"""Completion: the candidates for a word, and bash's own reply with the script that is printed."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.in_process import call
from trainwright.catalog.catalog import load_catalog
from trainwright.cli.completion import candidates
from trainwright.verbs.find import NAMES, SHELF

ROOT = Path(__file__).resolve().parents[3]


def offered(line: str) -> list[str]:
    """What is offered at the end of a command line."""
    return candidates(shlex.split(line) + [""] * line.endswith((" ", "'")), SHELF) if line else candidates([], SHELF)


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("bu", ["build"]),
        ("help sm", ["smoke"]),
        ("plan --framework tensor", ["tensorflow"]),
        ("plan --framework=tensor", ["--framework=tensorflow"]),
        ("plan --cuda cp", ["cpu"]),
        ("plan pytorch:cu124 --wi", ["--with", "--without", "--with-requirements", "--with-apt", "--with-run"]),
        ("plan --with metis,rm", ["metis,rmm"]),
        ("plan --with rmm,rm", []),
        ("plan --code ", []),
        ("build --no-c", ["--no-cache"]),
        ("build --no-cache --no-c", []),
        ("build --tag a --ta", ["--tag"]),
        ("build --progress ", ["auto", "live", "plain", "json", "none"]),
        ("mirror ", ["pull"]),
        ("completion z", ["zsh"]),
        ("nonsense ", []),
        ("rehearse --instance-type ml.p4de", ["ml.p4de.24xlarge"]),
    ],
)
def test_what_is_offered(line: str, want: list[str]) -> None:
    assert offered(line) == want


def test_the_first_word_is_a_verb() -> None:
    assert offered("") == [*NAMES, "help", "version"]


def test_a_request_is_completed_in_one_word() -> None:
    lines = [entry.line for entry in load_catalog().lines]
    found = offered("plan pytorch:")
    assert "pytorch:cu124" in found
    assert len(set(found)) == len(found)
    for name, _, tag in (each.partition(":") for each in found):
        assert any(line.framework == name and line.goes_by_cuda(tag) for line in lines)


def test_where_any_text_may_follow_nothing_is_printed() -> None:
    """An empty line would be an offer: bash then completes no file."""
    assert call("__complete", "preflight", "exam").stdout == ""


def test_an_image_that_was_built_here_is_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert offered("smoke ") == []
    assert not list(tmp_path.iterdir())
    record = tmp_path / ".trainwright/images/0123/record.json"
    record.parent.mkdir(parents=True)
    record.write_text('{\n "image_id": "sha256:0123",\n "tags": [\n  "team/trainer:1",\n  "team/trainer:2"\n ]\n}\n')
    assert offered("smoke ") == offered("smoke --image ") == ["team/trainer:1"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with an `invoke` whose environment is made."""
    front = tmp_path / "invoke"
    front.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} {ROOT}/tasks.py "$@"\n')
    front.chmod(0o755)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/requirements.txt").touch()
    return tmp_path


def reply(checkout: Path, line: str) -> list[str]:
    """What bash would offer, by its own variables (COMP_LINE, COMP_POINT; bash's manual, Programmable Completion)."""
    script = checkout / "completion.bash"
    script.write_text(call("completion", "bash").stdout)
    asked = f"source {script}; COMP_LINE={shlex.quote(line)}; COMP_POINT={len(line)}; _trainwright ./invoke; "
    done = subprocess.run(
        ["bash", "-c", asked + 'printf "%s\\n" "${COMPREPLY[@]}"; complete -p ./invoke trainwright >&2'],
        cwd=checkout, env=dict(os.environ), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "-F _trainwright ./invoke" in done.stderr and "-F _trainwright trainwright" in done.stderr
    return done.stdout.split()


def test_bash_offers_verbs_flags_and_values(checkout: Path) -> None:
    assert reply(checkout, "./invoke bui") == ["build"]
    assert reply(checkout, "./invoke plan --framework tensor") == ["tensorflow"]
    # Readline holds what is before the colon, or the sign of equality.
    assert "cu124" in reply(checkout, "./invoke plan pytorch:cu12")
    assert reply(checkout, "./invoke plan --base=nv") == ["nvidia"]


def test_a_checkout_without_an_environment_is_not_set_up_by_a_tab(checkout: Path) -> None:
    (checkout / ".venv/requirements.txt").unlink()
    assert reply(checkout, "./invoke bui") == []


def test_an_unknown_shell_is_refused() -> None:
    done = call("completion", "bahs")
    assert done.returncode == 2
    assert "Did you mean bash?" in done.stderr
