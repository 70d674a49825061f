"""Which docker is chosen, and what an engine's answer means; all with stand-in programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.bare_machine import SILENT, BareMachine, Docker
from trainwright.core import runner
from trainwright.core.errors import EngineError, RequestError
from trainwright.engine import engine, setup


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BareMachine:
    return BareMachine(tmp_path, monkeypatch)


@pytest.fixture
def fake(machine: BareMachine) -> Docker:
    """Makes stand-in clients, in the order of PATH."""
    return machine.docker


@pytest.mark.parametrize(
    ("version", "buildx", "expected"),
    [
        ("20.10.24+dfsg1", "", ("builtin", "plain")),
        ("18.09.1", "", ("builtin", "plain")),
        ("22.06.0-beta", "", ("builtin", "plain")),
        ("20.10.24", "0.13.1+ds1", ("buildx", "rawjson")),
        ("28.2.2", "v0.13.0", ("buildx", "rawjson")),
        ("28.2.2", "v1.0.0", ("buildx", "rawjson")),
        ("28.2.2", "v0.12.1", ("buildx", "plain")),
        ("20.10.24", "v0.12.1", ("builtin", "plain")),
    ],
)
def test_what_a_client_can_do(fake: Docker, version: str, buildx: str, expected: tuple[str, str]) -> None:
    path = fake("a", version, buildx)
    client = engine.find_client()
    assert (client.path, client.version) == (str(path), version)
    assert (client.buildkit, client.progress) == expected


@pytest.mark.parametrize("version", ["23.0.0", "28.2.2"])
def test_a_client_that_lacks_its_plugin_is_passed_over(fake: Docker, version: str) -> None:
    fake("first", version)
    second = fake("second", "20.10.24")
    able, passed = engine.survey()
    assert [client.path for client in able] == [str(second)]
    assert "buildx" in passed[0].why


def test_rawjson_is_worth_more_than_the_first_place_on_path(fake: Docker) -> None:
    fake("first", "20.10.24")
    second = fake("second", "28.2.2", "v0.20.0")
    assert engine.find_client().path == str(second)


def test_the_first_of_equals_is_taken(fake: Docker) -> None:
    first = fake("first", "20.10.24")
    fake("second", "20.10.25")
    assert engine.find_client().path == str(first)


def test_no_client_names_every_docker_and_the_command(machine: BareMachine) -> None:
    machine.apt()
    modern = machine.docker("first", "28.2.2")
    ancient = machine.docker("second", "17.05.0")
    podman = machine.docker("third", "1")
    podman.write_text("#!/bin/sh\necho podman version 4.3.1\n")
    with pytest.raises(EngineError) as failure:
        engine.find_client()
    for path in (modern, ancient, podman):
        assert str(path) in failure.value.message
    assert "18.09" in failure.value.message
    assert "podman version" in failure.value.message
    assert "--no-remove --no-install-recommends docker.io" in failure.value.remedy
    assert len(failure.value.details["dockers"]) == 3


def test_a_linked_folder_counts_once(fake: Docker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fake("usr", "20.10.24")
    (tmp_path / "linked").symlink_to(path.parent)
    monkeypatch.setenv("PATH", f"{path.parent}:{tmp_path / 'linked'}")
    assert len(engine.survey()[0]) == 1


def test_the_named_docker_is_the_only_one_looked_at(fake: Docker, monkeypatch: pytest.MonkeyPatch) -> None:
    fake("good", "28.2.2", "v0.20.0")
    named = fake("bad", "28.2.2")
    monkeypatch.setenv("TRAINWRIGHT_DOCKER", str(named))
    with pytest.raises(EngineError, match="bad"):
        engine.find_client()
    monkeypatch.setenv("TRAINWRIGHT_DOCKER", "/no/such/docker")
    with pytest.raises(EngineError, match="/no/such/docker"):
        engine.find_client()


def test_an_engine_that_answers_is_used_with_one_question(fake: Docker, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    fake("a", "28.2.2", "v0.20.0")
    monkeypatch.setattr(runner, "observer", lambda done: asked.append(done.argv[1]))
    monkeypatch.setattr(setup, "set_up", lambda *_, **__: pytest.fail("set up although one answers"))
    found = engine.connect()
    assert (found.server_version, found.data_root, found.endpoint) == ("27.1", "/d", engine.DEFAULT_ENDPOINT)
    assert found.cli_env["DOCKER_BUILDKIT"] == "1"
    assert not found.gpus
    assert (sorted(asked[:2]), asked[2:]) == (["--version", "buildx"], ["info"])


@pytest.mark.parametrize(
    "extra", ['"Runtimes": {"nvidia": {}}', '"DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}]']
)
def test_gpus_are_seen(fake: Docker, extra: str) -> None:
    fake("a", "20.10.24", info=f'{{"ServerVersion": "27.1", {extra}}}')
    assert engine.connect().gpus


def test_docker_host_and_contexts_are_the_endpoint(fake: Docker, monkeypatch: pytest.MonkeyPatch) -> None:
    fake("a", "20.10.24", info='{"ServerVersion": "27.1", "ClientInfo": {"Context": "far"}}')
    assert (engine.connect().endpoint, engine.connect().context) == ("tcp://far:2376", "far")
    monkeypatch.setenv("DOCKER_HOST", "unix:///other.sock")
    assert engine.connect().endpoint == "unix:///other.sock"


@pytest.mark.parametrize(
    ("info", "state"),
    [
        (SILENT.replace("default", "far"), "remote"),
        ('{"ServerErrors": ["permission denied while trying to connect"]}', "denied"),
        ('{"ServerErrors": ["client version 1.41 is too old. Minimum is 1.44"]}', "version"),
    ],
)
def test_what_a_set_up_cannot_fix_is_not_set_up(machine: BareMachine, info: str, state: str) -> None:
    machine.docker("a", "20.10.24", info=info)
    machine.program("dockerd", "")
    machine.patch.setenv("TRAINWRIGHT_ENGINE_SETUP", "auto")
    with pytest.raises(EngineError) as failure:
        machine.connect()
    assert failure.value.details["state"] == state
    assert failure.value.remedy
    assert machine.changes == []


def test_membership_in_the_group_is_called_what_it_is(machine: BareMachine) -> None:
    machine.docker("a", "20.10.24", info='{"ServerErrors": ["permission denied while trying to connect"]}')
    with pytest.raises(EngineError) as failure:
        machine.connect()
    assert "usermod -aG docker" in failure.value.remedy
    assert "rights of root" in failure.value.remedy


CONFIG = {"currentContext": "far", "auths": {}}


@pytest.mark.parametrize("client", ["20.10.24", "28.2.2", None], ids=["silent", "without its plugin", "none"])
@pytest.mark.parametrize(
    ("environ", "context", "config", "forget"),
    [
        ({"DOCKER_HOST": "ssh://build@far"}, "default", {}, "unset DOCKER_HOST"),
        ({"DOCKER_HOST": "unix:///var/run/docker.sock"}, "default", {}, "unset DOCKER_HOST"),
        ({"DOCKER_CONTEXT": "far"}, "far", {}, "unset DOCKER_CONTEXT"),
        ({}, "far", CONFIG, "docker context use default"),
        ({"DOCKER_HOST": "", "DOCKER_CONTEXT": ""}, "far", CONFIG, "docker context use default"),
        ({}, "", CONFIG, "docker context use default"),
    ],
)
def test_nothing_is_set_up_where_another_engine_is_named(
    machine: BareMachine, client: str | None, environ: dict[str, str], context: str, config: object, forget: str
) -> None:
    """Packages were once installed for a client without its plugin before DOCKER_HOST was read."""
    machine.apt(install=f"touch {machine.folder}/plugin")
    machine.program("dockerd", f"touch {machine.folder}/up")
    machine.patch.setenv("TRAINWRIGHT_ENGINE_SETUP", "auto")
    if client:
        machine.docker("a", client, info=SILENT, context=context)
    (machine.folder / ".docker").mkdir()
    (machine.folder / ".docker" / "config.json").write_text(json.dumps(config))
    for name, value in environ.items():
        machine.patch.setenv(name, value)
    with pytest.raises(EngineError) as failure:
        machine.connect()
    assert machine.changes == []
    assert forget in failure.value.remedy
    assert failure.value.details["state"] == "remote"


@pytest.mark.parametrize(
    "config", ["", "{", "[]", '"far"', '{"currentContext": 3}', '{"currentContext": ""}', "\xff", "[" * 100_000]
)
def test_a_broken_file_of_the_client_names_no_engine(machine: BareMachine, config: str) -> None:
    folder = machine.folder / "client settings"
    folder.mkdir()
    (folder / "config.json").write_bytes(config.encode("latin-1"))
    machine.patch.setenv("DOCKER_CONFIG", str(folder))
    assert engine.chosen([]) is None


def test_the_default_context_by_name_is_this_machines_engine(machine: BareMachine) -> None:
    machine.patch.setenv("DOCKER_CONTEXT", "default")
    far = machine.docker("a", "28.2.2", context="far")
    assert engine.chosen([str(far)]) is None


def test_a_home_that_is_missing_is_no_trouble(machine: BareMachine) -> None:
    machine.patch.delenv("HOME")
    machine.patch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    assert engine.chosen([]) is None


def test_the_next_client_is_tried_where_the_engine_refuses_the_first(fake: Docker) -> None:
    fake("a", "28.2.2", "v0.20.0", info='{"ServerErrors": ["client version 1.50 is too new. Maximum is 1.41"]}')
    second = fake("b", "20.10.24")
    assert engine.connect().client.path == str(second)


def test_a_silent_engine_is_set_up(machine: BareMachine) -> None:
    machine.docker("a", "20.10.24", info=SILENT)
    machine.program("dockerd", f"touch {machine.folder}/up")
    machine.patch.setenv("TRAINWRIGHT_ENGINE_SETUP", "auto")
    assert machine.connect().server_version == "27.1"
    assert machine.changes == ["dockerd "]


def test_an_answer_from_earlier_is_taken_if_it_is_an_engine(
    machine: BareMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.docker("a", "20.10.24", info=SILENT)
    with engine.looking_ahead() as silent:
        assert isinstance(silent.result(), EngineError)
    Path(machine.folder, "up").touch()
    assert engine.connect(setup=False, ahead=silent).server_version == "27.1"
    with engine.looking_ahead() as ready:
        found = ready.result()
    monkeypatch.setattr(runner, "observer", lambda done: pytest.fail(f"asked again: {done.argv}"))
    assert engine.connect(setup=False, ahead=ready) is found


def test_never_means_never(machine: BareMachine) -> None:
    machine.docker("a", "20.10.24", info=SILENT)
    machine.program("dockerd", f"touch {machine.folder}/up")
    machine.patch.setenv("CI", "true")
    machine.patch.setenv("TRAINWRIGHT_ENGINE_SETUP", "never")
    with pytest.raises(EngineError, match="TRAINWRIGHT_ENGINE_SETUP=never") as failure:
        machine.connect()
    assert "dockerd" in failure.value.remedy
    machine.patch.setenv("TRAINWRIGHT_ENGINE_SETUP", "nevr")
    with pytest.raises(RequestError, match="nevr"):
        machine.connect()
    assert machine.changes == []


def test_a_look_changes_nothing(machine: BareMachine) -> None:
    machine.apt()
    machine.docker("a", "28.2.2")
    setup.PID_FILE.write_text("1")
    machine.patch.setenv("TRAINWRIGHT_ENGINE_SETUP", "auto")
    with pytest.raises(EngineError):
        engine.connect(setup=False)
    assert machine.changes == []
    assert setup.PID_FILE.exists()


def test_nothing_is_installed_for_a_named_docker(machine: BareMachine) -> None:
    machine.apt()
    machine.patch.setenv("TRAINWRIGHT_ENGINE_SETUP", "auto")
    machine.patch.setenv("TRAINWRIGHT_DOCKER", str(machine.docker("a", "28.2.2")))
    with pytest.raises(EngineError):
        machine.connect()
    assert machine.changes == []
