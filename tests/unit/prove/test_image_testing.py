"""The shell that stays open in a container, and the data of the plugin; the container is this machine."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainwright.prove.image_testing import DATA_VARIABLE, ContainerHost, ShellBackend, load_data
from trainwright.prove.shells import ContainerDied, ContainerShell, Shell, StepShell

DATA = {"docker": "d", "container": "c", "image": "i", "gpus": False, "select": "", "only": [], "plan": {}, "probe": {}}


def client(folder: Path, body: str) -> str:
    """A docker whose ``exec -i ID /bin/sh`` does something on this machine."""
    path = folder / "docker"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path / "state"))


@pytest.fixture
def in_container(tmp_path: Path) -> Iterator[ContainerShell]:
    with ContainerShell(client(tmp_path, f'echo $$ > {tmp_path}/pid; shift 3; exec "$@"'), "container") as opened:
        yield opened


@pytest.fixture(params=["container", "step"])
def shell(request: pytest.FixtureRequest) -> Shell:
    """Each of the two places in which tests run: they cannot tell which it is."""
    if request.param == "container":
        opened: ContainerShell = request.getfixturevalue("in_container")
        return opened
    return StepShell({"PATH": os.environ["PATH"]})


def test_status_output_and_errors(shell: Shell) -> None:
    assert shell.run("echo out; echo err >&2; exit 7") == (7, b"out\n", b"err\n")
    assert shell.run("true") == (0, b"", b"")
    assert shell.run("printf 'no line end'") == (0, b"no line end", b"")


def test_any_bytes_pass(shell: Shell) -> None:
    assert shell.run(r"printf '\000\377\n\n'")[1] == b"\x00\xff\n\n"
    assert len(shell.run("head -c 3000000 /dev/zero")[1]) == 3_000_000


def test_quotes_and_lines_in_a_command(shell: Shell) -> None:
    assert shell.run('echo "it\'s"\necho \'two "lines"\'')[1] == b'it\'s\ntwo "lines"\n'


def test_a_command_longer_than_a_pipe_holds(shell: Shell) -> None:
    assert shell.run("printf %s " + "x" * 100_000)[1] == b"x" * 100_000


def test_standard_input_is_empty(shell: Shell) -> None:
    assert shell.run("cat") == (0, b"", b"")


def test_commands_do_not_touch_each_other(shell: Shell) -> None:
    shell.run("cd /usr; X=1; exit 3")
    assert shell.run("echo $X")[1] == b"\n"


def test_a_process_left_in_the_background_holds_nothing_up(shell: Shell) -> None:
    started = time.monotonic()
    assert shell.run("sleep 5 & echo on")[1] == b"on\n"
    assert time.monotonic() - started < 4


def test_a_command_without_end(shell: Shell) -> None:
    assert shell.run("sleep 60", seconds=0.3)[0] == 124
    assert shell.run("echo still here")[1] == b"still here\n"


def test_death_of_the_container_is_a_clear_error(in_container: ContainerShell, tmp_path: Path) -> None:
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    for _ in range(2):  # and stays one
        with pytest.raises(ContainerDied, match="container container exited"):
            in_container.run("echo")


def test_no_container_at_all(tmp_path: Path) -> None:
    refusing = client(tmp_path, "echo 'Error: No such container' >&2; exit 1")
    with pytest.raises(ContainerDied, match="No such container"), ContainerShell(refusing, "gone"):
        pass


def test_testinfra_over_the_shell(shell: Shell, tmp_path: Path) -> None:
    backend = ShellBackend(shell, "container")
    host = ContainerHost(backend)
    backend.set_host(host)
    (tmp_path / "file with spaces").write_text("zwölf")
    assert host.run("echo %s", "a b; c").stdout == "a b; c\n"
    assert host.file(str(tmp_path / "file with spaces")).content_string == "zwölf"
    assert host.check_output("echo a; echo b") == "a\nb"
    with pytest.raises(pytest.fail.Exception, match="exit status 3 of echo why; exit 3: why"):
        host.check_output("echo why; exit %s", "3")
    assert host.run("sleep 9", timeout=0.2).rc == 124


def test_data(tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    path.write_text(json.dumps(DATA))
    assert load_data({DATA_VARIABLE: str(path)}) == DATA


@pytest.mark.parametrize(
    ("text", "said"),
    [(None, "No such file"), ("{", "Expecting"), ("[]", "no container"), ('{"docker": "d"}', "no container")],
)
def test_data_that_cannot_be_used(tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / "data.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(pytest.UsageError, match=said):
        load_data({DATA_VARIABLE: str(path)})


def test_no_data() -> None:
    with pytest.raises(pytest.UsageError, match="invoke smoke"):
        load_data({})


def plan_of(framework: str, *components: tuple[str, str]) -> dict[str, object]:
    return {"framework": framework, "components": [{"name": n, "version": v} for n, v in components]}


def run_fixtures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: dict[str, object], test: str) -> int:
    """Runs one test under the plugin; its exit status."""
    (tmp_path / "data.json").write_text(json.dumps({**DATA, "plan": plan}))
    name = f"{tmp_path.name}.py"  # one of its own, as modules stay
    (tmp_path / name).write_text(test)
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path / "data.json"))
    monkeypatch.chdir(tmp_path)
    own = ["-p", "trainwright.prove.image_testing", "--import-mode=importlib", "--rootdir", str(tmp_path)]
    return pytest.main(
        ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:faulthandler", "-c", os.devnull, *own, name]
    )


@pytest.mark.parametrize(
    ("plan", "name"),
    [
        (plan_of("pytorch", ("python", "3.8"), ("pytorch", "1.10.2")), "pytorch"),
        (plan_of("huggingface-tensorflow", ("tensorflow", "2.6.3"), ("huggingface", "4.17.0")), "tensorflow"),
        (plan_of("pytorch-trcomp", ("pytorch", "1.12.0"), ("torch-xla", "1.12")), "pytorch"),
    ],
)
def test_the_framework_is_a_component_whatever_the_line_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: dict[str, object], name: str
) -> None:
    assert run_fixtures(tmp_path, monkeypatch, plan, f"def test(framework): assert framework['name'] == {name!r}") == 0


@pytest.mark.parametrize(("version", "there"), [("1.9.1", False), ("1.10.0", True), ("2.13.0+cpu", True)])
def test_torchrun_is_asked_for_where_pytorch_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, there: bool
) -> None:
    plan = plan_of("pytorch", ("pytorch", version))
    status = run_fixtures(tmp_path, monkeypatch, plan, "def test(torchrun): assert torchrun == 'to fail'")
    assert (status == 1) == there  # a test that is skipped does not fail
