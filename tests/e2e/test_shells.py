"""Completion in the shells themselves: what a Tab gives in fish and zsh (bash: tests/unit/cli/test_completion.py).

They stand with the tests that may install what they need.
"""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.in_process import call
from trainwright.engine.setup import ensure_tool

ROOT = Path(__file__).resolve().parents[2]
# A widget of zsh's line editor that writes down what the line has become.
ZSH = """\
autoload -Uz compinit && compinit -u -D
source completion.zsh
shown() { print -r -- "$BUFFER" >> buffers }
zle -N shown
bindkey '^X' shown
touch ready
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with an `invoke` whose environment is made, and the scripts of the shells."""
    front = tmp_path / "invoke"
    front.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} {ROOT}/tasks.py "$@"\n')
    front.chmod(0o755)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/requirements.txt").touch()
    for shell in ("fish", "zsh"):
        (tmp_path / f"completion.{shell}").write_text(call("completion", shell).stdout)
    return tmp_path


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("./invoke bui", ["build"]),
        ("./invoke plan --framework tensor", ["tensorflow"]),
        ("./invoke plan --base=nv", ["--base=nvidia"]),
        ("./invoke plan --dry", []),
    ],
)
def test_fish(checkout: Path, line: str, offered: list[str]) -> None:
    fish = ensure_tool("fish", lambda _: None)
    ask = f'source completion.fish; complete -C "{line}"'
    done = subprocess.run(
        [fish, "--no-config", "-c", ask],
        cwd=checkout, env={**os.environ, "HOME": str(checkout)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == offered


@pytest.mark.parametrize(
    ("line", "becomes"),
    [
        ("./invoke bui", "./invoke build "),
        ("./invoke plan --framework tensor", "./invoke plan --framework tensorflow "),
        ("./invoke plan pytorch:cu11", "./invoke plan pytorch:cu11"),  # several: zsh lists them
    ],
)
def test_zsh(checkout: Path, line: str, becomes: str) -> None:
    zsh = ensure_tool("zsh", lambda _: None)
    (checkout / ".zshrc").write_text(ZSH)
    ours, theirs = pty.openpty()
    environment = {**os.environ, "ZDOTDIR": str(checkout), "HOME": str(checkout), "TERM": "xterm", "PS1": "% "}
    shell = subprocess.Popen(
        [zsh, "-d", "-i"], cwd=checkout, env=environment,
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    try:
        _wait(checkout / "ready", ours)
        os.write(ours, f"{line}\t\x18".encode())
        _wait(checkout / "buffers", ours)
        assert (checkout / "buffers").read_text() == f"{becomes}\n"
    finally:
        shell.kill()
        shell.wait()
        os.close(ours)


def _wait(file: Path, terminal: int) -> None:
    """Until the shell has written a file; what it prints meanwhile is taken from it, as a terminal does."""
    os.set_blocking(terminal, False)
    printed = b""
    for _ in range(600):
        if file.is_file() and (file.name == "ready" or file.read_text()):
            return
        try:
            printed += os.read(terminal, 65536)
        except BlockingIOError:
            time.sleep(0.1)
    pytest.fail(f"nothing in {file.name}: {printed.decode(errors='replace')}")
