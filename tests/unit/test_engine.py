"""Which docker is chosen, what an engine's answer means, and how one is set up; all with stand-in programs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from trainwright import engine, engine_setup, runner
from trainwright.errors import EngineError, RequestError

ANSWER = (
    '{"ServerVersion": "27.1", "Runtimes": {"runc": {}}, "DockerRootDir": "/d", "ClientInfo": {"Context": "default"}}'
)
SILENT = '{"ServerErrors": ["Cannot connect to the Docker daemon"], "ClientInfo": {"Context": "default"}}'

Fake = Callable[..., Path]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Makes stand-in programs in folders that are all of PATH for the search for docker."""
    monkeypatch.setattr(engine, "USUAL_PLACES", ())
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", "")
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "TRAINWRIGHT_DOCKER", "TRAINWRIGHT_ENGINE_SETUP"):
        monkeypatch.delenv(name, raising=False)

    def make(folder: str, version: str, buildx: str = "", info: str = ANSWER, status: int = 0) -> Path:
        path = tmp_path / folder / "docker"
        path.parent.mkdir()
        plugin = f"echo 'github.com/docker/buildx {buildx} abc'" if buildx else "exit 1"
        path.write_text(
            "#!/bin/sh\n"
            'case "$1 $2" in\n'
            f"'--version '*) echo 'Docker version {version}, build abc' ;;\n"
            f"'buildx version') {plugin} ;;\n"
            f"info*) if [ -e '{tmp_path}/up' ]; then echo '{ANSWER}'; else echo '{info}'; exit {status}; fi ;;\n"
            "'context inspect') echo tcp://far:2376 ;;\n"
            '*) echo "unexpected: $*" >&2; exit 99 ;;\n'
            "esac\n"
        )
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{path.parent}".strip(":"))
        return path

    return make


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
def test_what_a_client_can_do(fake: Fake, version: str, buildx: str, expected: tuple[str, str]) -> None:
    path = fake("a", version, buildx)
    client = engine.find_client()
    assert (client.path, client.version) == (str(path), version)
    assert (client.buildkit, client.progress) == expected


@pytest.mark.parametrize("version", ["23.0.0", "28.2.2"])
def test_a_client_that_lacks_its_plugin_is_passed_over(fake: Fake, version: str) -> None:
    fake("first", version)
    second = fake("second", "20.10.24")
    able, passed = engine.survey()
    assert [client.path for client in able] == [str(second)]
    assert "buildx" in passed[0].why


def test_rawjson_is_worth_more_than_the_first_place_on_path(fake: Fake) -> None:
    fake("first", "20.10.24")
    second = fake("second", "28.2.2", "v0.20.0")
    assert engine.find_client().path == str(second)


def test_the_first_of_equals_is_taken(fake: Fake) -> None:
    first = fake("first", "20.10.24")
    fake("second", "20.10.25")
    assert engine.find_client().path == str(first)


def test_no_client_names_every_docker_and_the_command(fake: Fake, tmp_path: Path) -> None:
    modern = fake("first", "28.2.2")
    ancient = fake("second", "17.05.0")
    podman = fake("third", "1")
    podman.write_text("#!/bin/sh\necho podman version 4.3.1\n")
    with pytest.raises(EngineError) as failure:
        engine.find_client()
    for path in (modern, ancient, podman):
        assert str(path) in failure.value.message
    assert "18.09" in failure.value.message
    assert "podman version" in failure.value.message
    assert "docker.io" in failure.value.remedy
    assert len(failure.value.details["dockers"]) == 3


def test_a_linked_folder_counts_once(fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fake("usr", "20.10.24")
    (tmp_path / "bin").symlink_to(path.parent)
    monkeypatch.setenv("PATH", f"{path.parent}:{tmp_path / 'bin'}")
    assert len(engine.survey()[0]) == 1


def test_the_named_docker_is_the_only_one_looked_at(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake("good", "28.2.2", "v0.20.0")
    named = fake("bad", "28.2.2")
    monkeypatch.setenv("TRAINWRIGHT_DOCKER", str(named))
    with pytest.raises(EngineError, match="bad"):
        engine.find_client()
    monkeypatch.setenv("TRAINWRIGHT_DOCKER", "/no/such/docker")
    with pytest.raises(EngineError, match="/no/such/docker"):
        engine.find_client()


def test_an_engine_that_answers_is_used_with_one_question(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    fake("a", "28.2.2", "v0.20.0")
    monkeypatch.setattr(runner, "observer", lambda done: asked.append(done.argv[1]))
    monkeypatch.setattr(engine_setup, "set_up", lambda *_, **__: pytest.fail("set up although one answers"))
    found = engine.connect()
    assert (found.server_version, found.data_root, found.endpoint) == ("27.1", "/d", engine.DEFAULT_ENDPOINT)
    assert found.cli_env["DOCKER_BUILDKIT"] == "1"
    assert not found.gpus
    assert asked == ["--version", "buildx", "info"]


@pytest.mark.parametrize(
    "extra", ['"Runtimes": {"nvidia": {}}', '"DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}]']
)
def test_gpus_are_seen(fake: Fake, extra: str) -> None:
    fake("a", "20.10.24", info=f'{{"ServerVersion": "27.1", {extra}}}')
    assert engine.connect().gpus


def test_docker_host_and_contexts_are_the_endpoint(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake("a", "20.10.24", info='{"ServerVersion": "27.1", "ClientInfo": {"Context": "far"}}')
    assert (engine.connect().endpoint, engine.connect().context) == ("tcp://far:2376", "far")
    monkeypatch.setenv("DOCKER_HOST", "unix:///other.sock")
    assert engine.connect().endpoint == "unix:///other.sock"


@pytest.mark.parametrize(
    ("info", "environ", "state"),
    [
        (SILENT, {"DOCKER_HOST": "tcp://far:2375"}, "remote"),
        (SILENT.replace("default", "far"), {}, "remote"),
        ('{"ServerErrors": ["permission denied while trying to connect"]}', {}, "denied"),
        ('{"ServerErrors": ["client version 1.41 is too old. Minimum is 1.44"]}', {}, "version"),
    ],
)
def test_what_a_set_up_cannot_mend_is_not_set_up(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, info: str, environ: dict[str, str], state: str
) -> None:
    fake("a", "20.10.24", info=info)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(engine_setup, "forbidden", lambda **_: "")
    monkeypatch.setattr(engine_setup, "set_up", lambda *_, **__: pytest.fail("tried a set-up"))
    with pytest.raises(EngineError) as failure:
        engine.connect()
    assert failure.value.details["state"] == state
    assert failure.value.remedy


def test_the_next_client_is_tried_where_the_engine_refuses_the_first(fake: Fake) -> None:
    fake(
        "a", "28.2.2", "v0.20.0", info='{"ServerErrors": ["client version 1.50 is too new. Maximum is 1.41"]}', status=1
    )
    second = fake("b", "20.10.24")
    assert engine.connect().client.path == str(second)


def test_a_silent_engine_is_set_up(fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake("a", "20.10.24", info=SILENT)
    before_and_after: list[bool] = []

    def start(_: engine.Say, *, answers: Callable[[], bool]) -> None:
        before_and_after.append(answers())
        (tmp_path / "up").touch()
        before_and_after.append(answers())

    monkeypatch.setattr(engine_setup, "forbidden", lambda **_: "")
    monkeypatch.setattr(engine_setup, "set_up", start)
    assert engine.connect().server_version == "27.1"
    assert before_and_after == [False, True]


def test_never_means_never(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake("a", "20.10.24", info=SILENT)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(engine_setup, "set_up", lambda *_, **__: pytest.fail("set up"))
    monkeypatch.setenv("TRAINWRIGHT_ENGINE_SETUP", "never")
    with pytest.raises(EngineError, match="TRAINWRIGHT_ENGINE_SETUP=never") as failure:
        engine.connect()
    assert "dockerd" in failure.value.remedy or "systemctl" in failure.value.remedy
    monkeypatch.setenv("TRAINWRIGHT_ENGINE_SETUP", "nevr")
    with pytest.raises(RequestError, match="nevr"):
        engine.connect()


def test_without_any_docker_packages_are_installed_only_with_leave(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake("a", "28.2.2")
    installed: list[bool] = []
    monkeypatch.setattr(engine_setup, "forbidden", lambda **_: "")

    def install(_: engine.Say) -> None:
        installed.append(True)
        fake("b", "20.10.24")

    monkeypatch.setattr(engine_setup, "install_engine", install)
    with pytest.raises(EngineError):
        engine.connect(setup=False)
    assert not installed
    assert engine.connect(say=lambda _: None).client.version == "20.10.24"


class Setup:
    """A machine of stand-ins for :mod:`engine_setup`: root, Debian, no systemd."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.said: list[str] = []
        (folder / "bin").mkdir()
        monkeypatch.setenv("TRAINWRIGHT_STATE", str(folder / "state"))
        monkeypatch.delenv("TRAINWRIGHT_ENGINE_SETUP", raising=False)
        monkeypatch.setenv("PATH", f"{folder / 'bin'}:/usr/bin:/bin")
        monkeypatch.setattr(engine_setup, "SYSTEM_FOLDERS", str(folder / "bin"))
        monkeypatch.setattr(engine_setup, "SYSTEMD", folder / "no-systemd")
        monkeypatch.setattr(engine_setup, "PID_FILE", folder / "docker.pid")
        monkeypatch.setattr(engine_setup, "POLL_SECONDS", 0.02)
        monkeypatch.setattr(os, "geteuid", lambda: 0)

    def program(self, name: str, script: str) -> None:
        """A stand-in on PATH that notes how it was called."""
        path = self.folder / "bin" / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >>{self.folder}/calls\n{script}\n')
        path.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        """How the stand-ins were called."""
        noted = self.folder / "calls"
        return noted.read_text().splitlines() if noted.exists() else []

    def answers(self) -> bool:
        """Whether the stand-in engine is up."""
        return (self.folder / "up").exists()

    def start(self, wait_s: float = 20.0) -> None:
        """Start the stand-in engine."""
        engine_setup.start(self.said.append, answers=self.answers, wait_s=wait_s)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setup:
    return Setup(tmp_path, monkeypatch)


def test_the_engine_is_started_in_the_background_and_waited_for(machine: Setup) -> None:
    machine.program("dockerd", f"sleep 0.2; touch {machine.folder}/up")
    machine.start()
    assert machine.calls == ["dockerd "]
    assert "engine.log" in machine.said[0]
    assert "answers" in machine.said[-1]


def test_a_dead_engine_shows_its_last_lines_and_advice_by_the_fatal_one(machine: Setup) -> None:
    log = machine.folder / "state" / "engine.log"
    log.parent.mkdir()
    log.write_text("failed to start daemon: something of last week\n")
    warning = "level=warning msg=Your kernel does not support cgroup blkio weight"
    fatal = "failed to start daemon: failed to create NAT chain DOCKER: iptables failed"
    machine.program("dockerd", f"echo '{warning}'; echo 'level=info noise'; echo '{fatal}'; exit 1")
    with pytest.raises(EngineError) as failure:
        machine.start()
    assert failure.value.message.startswith("the container engine ended at once")
    assert fatal in failure.value.message
    assert "noise" not in failure.value.message
    assert "last week" not in failure.value.message
    assert "iptables" in failure.value.remedy


def test_an_engine_that_never_answers_is_given_up(machine: Setup) -> None:
    machine.program("dockerd", "exec sleep 3")
    with pytest.raises(EngineError, match="does not answer after"):
        machine.start(wait_s=0.2)


def test_an_engine_that_is_starting_is_waited_for(machine: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.program("dockerd", "exit 1")
    monkeypatch.setattr(engine_setup, "_starting", os.getpid)
    asked = iter([False, False, True])
    engine_setup.start(machine.said.append, answers=lambda: next(asked))
    assert machine.calls == []
    assert str(os.getpid()) in machine.said[0]


def test_a_pid_file_with_another_programs_number_is_removed(machine: Setup) -> None:
    engine_setup.PID_FILE.write_text(str(os.getpid()))
    machine.program("dockerd", f"test -e {engine_setup.PID_FILE} || touch {machine.folder}/up")
    machine.start()
    assert not engine_setup.PID_FILE.exists()


def test_systemd_is_used_where_it_runs(machine: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_setup, "SYSTEMD", machine.folder)
    machine.program("dockerd", "exit 1")
    machine.program("systemctl", f"touch {machine.folder}/up")
    machine.start()
    assert machine.calls == ["systemctl start docker"]


def test_a_failed_unit_shows_its_journal(machine: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_setup, "SYSTEMD", machine.folder)
    machine.program("systemctl", "echo masked >&2; exit 1")
    machine.program("journalctl", "echo 'failed to start daemon: no space left on device'")
    with pytest.raises(EngineError, match="masked") as failure:
        machine.start()
    assert "no space left" in failure.value.message
    assert "room" in failure.value.remedy


def test_a_missing_tool_is_installed_after_one_failed_try(machine: Setup) -> None:
    tool = machine.folder / "bin" / "sometool"
    machine.program(
        "apt-get",
        f"case $* in *update) touch {machine.folder}/fresh ;; *install*) [ -e {machine.folder}/fresh ] || exit 100\n"
        f"[ $(grep -c install {machine.folder}/calls) -gt 1 ] || exit 100\n"
        f"cp /bin/true {tool} ;; esac",
    )
    assert engine_setup.ensure_tool("sometool", machine.said.append) == str(tool)
    assert sum("install" in call for call in machine.calls) == 2
    assert any("apt-get update" in line for line in machine.said)
    assert any("sometool" in line and "apt-get" in line for line in machine.said)


def test_a_tool_that_is_there_is_not_installed(machine: Setup) -> None:
    machine.program("apt-get", "exit 1")
    machine.program("sometool", "")
    engine_setup.ensure_tool("sometool", machine.said.append)
    assert (machine.calls, machine.said) == ([], [])


@pytest.mark.parametrize("why", ["never", "not root", "no apt"])
def test_without_leave_the_remedy_is_the_command(machine: Setup, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    machine.program("apt-get", "exit 0")
    if why == "never":
        monkeypatch.setenv("TRAINWRIGHT_ENGINE_SETUP", "never")
    elif why == "not root":
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
    else:
        (machine.folder / "bin" / "apt-get").unlink()
        monkeypatch.setenv("PATH", str(machine.folder / "bin"))
    with pytest.raises(EngineError) as failure:
        engine_setup.ensure_tool("sometool", machine.said.append)
    assert "sometool" in failure.value.remedy
    assert ("sudo apt-get" in failure.value.remedy) == (why == "not root")
    assert machine.calls == []


def test_packages_that_a_release_split_off_are_named_where_it_offers_them(machine: Setup) -> None:
    machine.program("apt-get", "exit 0")
    machine.program(
        "apt-cache",
        "printf 'docker-cli:\\n  Installed: (none)\\n  Candidate: (none)\\n"
        "docker-buildx:\\n  Installed: (none)\\n  Candidate: 0.13.1\\n'",
    )
    engine_setup.install_engine(machine.said.append)
    install = next(call for call in machine.calls if "install" in call)
    assert install.endswith("docker.io iptables ca-certificates mmdebstrap docker-buildx")
    assert "--no-install-recommends" in install


def test_apts_last_words_are_in_the_failure(machine: Setup) -> None:
    machine.program("apt-get", "echo 'E: Unable to locate package' >&2; exit 100")
    machine.program("apt-cache", "")
    with pytest.raises(EngineError, match="Unable to locate package") as failure:
        engine_setup.install_engine(machine.said.append)
    assert "docker.io" in failure.value.remedy
