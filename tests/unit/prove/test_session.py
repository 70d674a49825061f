"""A command in an image: what the client is called with, and whose exit code the user gets."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.in_process import call
from trainwright.core.errors import EngineError, RequestError
from trainwright.engine.engine import Client, Engine
from trainwright.prove.session import enter

# A docker client that knows one image; a container of it is a process of this machine.
DOCKER = """#!{python}
import json, os, sys
words = sys.argv[1:]
with open({journal!r}, "a") as out:
    out.write(json.dumps(words) + "\\n")
if words[0] == "image":
    sys.exit(0 if words[-1] == "team/trainer" else 1)
at = words.index("--entrypoint")
os.execvp(words[at + 1], [words[at + 1], *words[at + 3:]])
"""


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    program = tmp_path / "docker"
    program.write_text(DOCKER.format(python=sys.executable, journal=str(tmp_path / "journal")))
    program.chmod(0o755)
    return Engine(Client(str(program), "buildx", "27.0.0", "rawjson"), "27.0.0", dict(os.environ))


def called(tmp_path: Path) -> list[str]:
    """The words of the last ``docker run``."""
    words: list[str] = json.loads((tmp_path / "journal").read_text().splitlines()[-1])
    assert words[0] == "run"
    return words


def run(engine: Engine, folder: Path, *command: str, **more: object) -> int:
    asked = {"environment": {}, "network": None, "terminal": False} | more
    return enter(engine, "team/trainer", command, folder, **asked)  # type: ignore[arg-type]


def value(words: list[str], flag: str) -> str:
    return words[words.index(flag) + 1]


def test_the_command_runs_in_place_of_the_images_own_program(engine: Engine, tmp_path: Path) -> None:
    assert run(engine, tmp_path, "sh", "-c", "exit 7") == 7
    words = called(tmp_path)
    assert words[words.index("--entrypoint") :] == ["--entrypoint", "sh", "team/trainer", "-c", "exit 7"]
    assert {"--rm", "--init", "--interactive"} <= set(words)
    assert not {"--tty", "--gpus", "--network"} & set(words)
    assert value(words, "--workdir") == "/workspace"


def test_a_name_with_a_comma_and_quotes_is_one_field_of_the_mount(engine: Engine, tmp_path: Path) -> None:
    """The client reads the value of --mount as a line of CSV (docker/cli, opts/mount.go)."""
    folder = tmp_path / 'a, "b"'
    assert run(engine, folder, "true") == 0
    (fields,) = csv.reader([value(called(tmp_path), "--mount")])
    assert fields == ["type=bind", f"source={folder}", "target=/workspace"]


def test_gpus_a_terminal_variables_and_a_network(tmp_path: Path, engine: Engine) -> None:
    able = Engine(engine.client, "27.0.0", engine.cli_env, gpus=True)
    assert run(able, tmp_path, "true", environment={"A": "b c"}, network="none", terminal=True) == 0
    words = called(tmp_path)
    assert value(words, "--gpus") == "all"
    assert value(words, "--network") == "none"
    assert "--tty" in words
    assert "A=b c" in words


def test_files_belong_to_the_user(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1234)
    monkeypatch.setattr(os, "getgid", lambda: 99)
    run(engine, tmp_path, "true")
    assert value(called(tmp_path), "--user") == "1234:99"
    monkeypatch.setattr(os, "getuid", lambda: 0)
    run(engine, tmp_path, "true")
    assert "--user" not in called(tmp_path)


def test_an_image_that_is_missing_is_refused(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no such image"):
        enter(engine, "team/other", ["true"], tmp_path, environment={}, network=None, terminal=False)


def test_an_engine_elsewhere_has_no_folder_of_this_machine(engine: Engine, tmp_path: Path) -> None:
    far = Engine(engine.client, "27.0.0", engine.cli_env, endpoint="ssh://builder")
    with pytest.raises(EngineError, match="ssh://builder cannot mount"):
        run(far, tmp_path, "true")
    assert not (tmp_path / "journal").exists()


@pytest.fixture
def connected(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    monkeypatch.setattr("trainwright.engine.engine.connect", lambda **_: engine)
    return engine


def test_run_takes_every_word_behind_the_dashes(connected: Engine, tmp_path: Path) -> None:
    done = call(
        "run", "--image", "team/trainer", "--env", "A=1", "--", "sh", "-c", "exit 3", "--help", "", cwd=tmp_path
    )
    assert done.returncode == 3, done.stderr
    words = called(tmp_path)
    assert words[words.index("--entrypoint") + 1 :] == ["sh", "team/trainer", "-c", "exit 3", "--help", ""]
    assert "A=1" in words


def test_a_shell_is_bash_in_the_image_that_is_named(connected: Engine, tmp_path: Path) -> None:
    assert call("shell", "team/trainer", "--network", "none", cwd=tmp_path).returncode == 0
    words = called(tmp_path)
    assert words[words.index("--entrypoint") + 1 :] == ["bash", "team/trainer"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run"], "the command is missing"),
        (["run", "--image", "team/trainer", "--"], "the command is missing"),
        (["run", "--", "true"], "none was built here yet"),
        (["run", "--env", "A", "--image", "team/trainer", "--", "true"], "--env A: not NAME=VALUE"),
        (["shell"], "none was built here yet"),
        (["plan", "--", "true"], "--: nothing may follow it"),
    ],
)
def test_what_is_missing_is_named(connected: Engine, tmp_path: Path, words: list[str], said: str) -> None:
    done = call(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr


def test_the_command_has_our_own_standard_streams() -> None:
    code = "from trainwright.core.runner import attached; import sys; sys.exit(attached(['sh', '-c', 'cat; exit 5']))"
    done = subprocess.run([sys.executable, "-c", code], input="text", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (5, "text")
