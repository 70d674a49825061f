"""How an engine is installed and started: what may be, what is said of it, and what never happens."""

from __future__ import annotations

import io
import os
import socket
import sys

import pytest

from tests.support.bare_machine import SILENT, BareMachine, consenting_machine
from tests.support.consent_table import CONSENT, NAMES
from trainwright.core.errors import EngineError, RequestError
from trainwright.doctor import doctor
from trainwright.engine import consent, setup

# `apt-get -s install` of Debian 12 (apt 2.6.1), its lines of fewer packages.
SIMULATED = """\
Reading package lists...
Building dependency tree...
Reading state information...
The following packages will be upgraded:
  login
1 upgraded, 2 newly installed, 0 to remove and 104 not upgraded.
Inst login [1:4.13+dfsg1-1+deb12u1] (1:4.13+dfsg1-1+deb12u2 Debian:12.15/oldstable [amd64])
Conf login (1:4.13+dfsg1-1+deb12u2 Debian:12.15/oldstable [amd64])
Inst containerd (1.6.20~ds1-1+deb12u3 Debian:12.15/oldstable [amd64])
Inst docker.io (20.10.24+dfsg1-1+deb12u1+b6 Debian:12.15/oldstable [amd64])
Conf docker.io (20.10.24+dfsg1-1+deb12u1+b6 Debian:12.15/oldstable [amd64])
"""
# `apt-get -s --no-remove install podman-docker` of the same where docker.io is installed; exit status 100.
REMOVES = """\
Recommended packages:
  netavark buildah fuse-overlayfs slirp4netns uidmap docker-compose
The following packages will be REMOVED:
  docker.io containerd
The following NEW packages will be installed:
  podman
"""
DISABLED = "E: Packages need to be removed but remove is disabled."

machine = pytest.fixture(consenting_machine)


def brings(machine: BareMachine) -> str:
    """The shell command of an installation that brings Debian's client and engine."""
    start = f"touch {machine.folder}/up"
    ready = machine.docker("later", "20.10.24", info=SILENT)
    ready.rename(ready.with_name("waiting"))
    dockerd = machine.folder / "dockerd.new"
    dockerd.write_text(f'#!/bin/sh\necho "dockerd $*" >>{machine.folder}/calls\n{start}\n')
    dockerd.chmod(0o755)
    return f"cp {ready.with_name('waiting')} {ready}; cp {dockerd} {machine.bin}/dockerd"


def terminal(machine: BareMachine, answer: str) -> None:
    """Standard input and error are a terminal, and ``answer`` is typed."""

    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    machine.patch.delenv("TRAINWRIGHT_ENGINE_SETUP")
    machine.patch.setattr(sys, "stdin", Screen(f"{answer}\n"))
    machine.patch.setattr(sys, "stderr", Screen())


def test_an_engine_is_installed_and_started_on_a_machine_without(machine: BareMachine) -> None:
    machine.apt(SIMULATED, install=brings(machine))
    assert machine.connect().server_version == "27.1"
    install, start = machine.changes
    assert install.startswith("apt-get ")
    assert "--no-remove" in install.split()
    assert install.endswith("--no-install-recommends docker.io iptables ca-certificates mmdebstrap")
    assert start == "dockerd "


def test_it_says_what_changes_and_how_to_undo_it(machine: BareMachine) -> None:
    machine.apt(SIMULATED, install=brings(machine))
    machine.connect()
    does, undo = machine.text.split("To undo it:")
    assert "installed by apt-get: containerd docker.io" in does
    assert "upgraded by apt-get: login" in does
    for word in ("keeps running", "FORWARD", "DROP", "ip_forward", str(setup.SOCKET), "rights of root"):
        assert word in does
    assert str(machine.folder / "state" / "engine.log") in does
    assert f'kill "$(cat {setup.PID_FILE})"' in undo
    assert "apt-get remove containerd docker.io" in undo
    assert "purge" not in undo  # of docker.io deletes /var/lib/docker
    assert "iptables -P FORWARD ACCEPT; sysctl -w net.ipv4.ip_forward=0" in undo
    assert f"rm -rf {setup.DATA_ROOT}" in undo


def test_what_was_so_before_is_not_undone(machine: BareMachine) -> None:
    """dockerd leaves the policy of FORWARD alone where ip_forward was on; images of an older engine are somebody's."""
    setup.IP_FORWARD.write_text("1\n")
    setup.DATA_ROOT.mkdir()
    machine.docker("a", "20.10.24", info=SILENT)
    machine.program("dockerd", f"touch {machine.folder}/up")
    machine.connect()
    for word in ("DROP", "sysctl", "rm -rf", "apt-get"):
        assert word not in machine.text


@pytest.mark.parametrize(
    ("installed", "offered"),
    [
        (("docker-ce", "docker-ce-cli", "containerd.io"), "docker-buildx-plugin"),
        (("docker-ce-cli",), "docker-buildx-plugin"),
        (("moby-engine", "moby-cli"), "moby-buildx"),
        (("docker.io", "docker-cli"), "docker-buildx"),
    ],
)
def test_beside_an_engine_only_the_missing_plugin_is_installed(
    machine: BareMachine, installed: tuple[str, ...], offered: str
) -> None:
    machine.packages(*installed)
    machine.program("dockerd", "exit 1")
    machine.docker("a", "28.2.2")
    machine.apt(SIMULATED, install=f"touch {machine.folder}/plugin {machine.folder}/up")
    assert machine.connect().client.buildkit == "buildx"
    (install,) = machine.changes
    assert install.endswith(f"--no-remove --no-install-recommends {offered}")


@pytest.mark.parametrize(
    ("installed", "client", "dockerd", "offered"),
    [
        (("containerd.io",), "", False, "docker-ce docker-ce-cli docker-buildx-plugin"),
        (("docker-ce-cli",), "28.2.2", False, "docker-ce docker-ce-cli docker-buildx-plugin"),
        (("docker-ce-cli",), "20.10.24", False, "--no-install-recommends docker-ce"),
        (("podman-docker", "podman"), "", False, "apt-get remove podman-docker"),
        (("podman-docker",), "20.10.24", False, "apt-get remove podman-docker"),
        ((), "28.2.2", True, "~/.docker/cli-plugins/docker-buildx"),
    ],
)
def test_debians_engine_is_never_put_beside_another(
    machine: BareMachine, installed: tuple[str, ...], client: str, dockerd: bool, offered: str
) -> None:
    machine.packages(*installed)
    machine.apt(SIMULATED)
    if client:
        machine.docker("a", client, info=SILENT)
    if dockerd:
        machine.program("dockerd", "exit 1")
    with pytest.raises(EngineError) as failure:
        machine.connect()
    assert machine.changes == []
    assert offered in failure.value.remedy
    assert "docker.io" not in failure.value.remedy
    assert "docker.io would" in failure.value.message
    # doctor looks at the same, and says so.
    machine.patch.setattr(doctor, "CHECKS", [check for check in doctor.CHECKS if check.name == "engine"])
    told = doctor.examine(doctor.Machine())
    assert [(found.message, found.remedy) for found in told] == [(failure.value.message, failure.value.remedy)]


@pytest.mark.parametrize(("client", "command"), [("20.10.24", "snap start docker"), ("28.2.2", "snap refresh docker")])
def test_a_snaps_engine_is_left_to_snap(machine: BareMachine, client: str, command: str) -> None:
    (machine.folder / "snap-docker").touch()
    machine.apt(SIMULATED)
    machine.docker("a", client, info=SILENT)
    with pytest.raises(EngineError) as failure:
        machine.connect()
    assert machine.changes == []
    assert any(line.endswith(command) for line in failure.value.remedy.splitlines())


def test_the_engine_of_a_containers_host_is_no_obstacle(machine: BareMachine) -> None:
    """A socket that is mounted into a container answers, and no dockerd is in any package."""
    with socket.socket(socket.AF_UNIX) as host:
        host.bind(str(setup.SOCKET))
        host.listen()
        machine.apt(SIMULATED, install=f"{brings(machine)}; touch {machine.folder}/up")
        machine.docker("a", "28.2.2")
        assert machine.connect().client.version == "20.10.24"
    assert "dockerd" not in machine.text
    assert not any(call.startswith("dockerd") for call in machine.calls)


@pytest.mark.parametrize("simulated", [True, False], ids=["foreseen", "on the way"])
def test_what_would_remove_a_package_is_not_done(machine: BareMachine, simulated: bool) -> None:
    (machine.folder / "removes").write_text(REMOVES)
    refuses = f"cat {machine.folder}/removes; echo '{DISABLED}' >&2; exit 100"
    machine.apt(SIMULATED, install=refuses)
    if simulated:
        machine.program("apt-get", refuses)
    with pytest.raises(EngineError) as failure:
        machine.connect()
    assert "would remove docker.io containerd" in failure.value.message
    assert sum(" install " in call for call in machine.changes) == (0 if simulated else 1)
    assert all("--no-remove" in call for call in machine.calls if " install " in call)


@pytest.mark.parametrize(
    ("environ", "mode"),
    [
        ({}, "never"),
        ({"CI": "false"}, "never"),
        ({"CI": "0"}, "never"),
        ({"CI": ""}, "never"),
        ({"CI": "true"}, "auto"),
        ({"CI": "woodpecker"}, "auto"),
        ({"CODEBUILD_BUILD_ID": "p:1"}, "auto"),
        ({"container": "oci"}, "auto"),
        ({"container": "oci", "TRAINWRIGHT_ENGINE_SETUP": ""}, "auto"),
        ({"CI": "true", "TRAINWRIGHT_ENGINE_SETUP": "ask"}, "never"),
        ({"CI": "true", "TRAINWRIGHT_ENGINE_SETUP": "never"}, "never"),
        ({"TRAINWRIGHT_ENGINE_SETUP": "auto"}, "auto"),
    ],
)
def test_who_is_asked_without_a_terminal(machine: BareMachine, environ: dict[str, str], mode: str) -> None:
    machine.patch.delenv("TRAINWRIGHT_ENGINE_SETUP")
    for name, value in environ.items():
        machine.patch.setenv(name, value)
    machine.patch.setattr(sys, "stdin", io.StringIO())
    assert consent.permission()[0] == mode
    machine.docker("a", "20.10.24", info=SILENT)
    machine.program("dockerd", f"touch {machine.folder}/up")
    if mode == "auto":
        machine.connect()
        return
    with pytest.raises(EngineError, match="TRAINWRIGHT_ENGINE_SETUP") as failure:
        machine.connect()
    assert failure.value.exit_code == 4
    assert "dockerd" in failure.value.remedy
    assert machine.changes == []


@CONSENT
def test_consent_follows_the_table(machine: BareMachine, environ: dict[str, str], terminal: bool, mode: str) -> None:
    for name in NAMES:
        machine.patch.delenv(name, raising=False)
    for name, value in environ.items():
        machine.patch.setenv(name, value)
    for stream in ("stdin", "stderr"):
        screen = io.StringIO()
        screen.isatty = lambda: terminal  # type: ignore[method-assign]
        machine.patch.setattr(sys, stream, screen)
    if mode == "invalid":
        with pytest.raises(RequestError, match="is invalid: auto, ask or never"):
            consent.permission()
    else:
        assert consent.permission()[0] == mode


def test_a_container_goes_ahead(machine: BareMachine) -> None:
    machine.patch.delenv("TRAINWRIGHT_ENGINE_SETUP")
    (machine.folder / ".dockerenv").touch()
    assert consent.permission()[0] == "auto"


def test_no_standard_input_at_all_is_no_terminal(machine: BareMachine) -> None:
    machine.patch.setenv("TRAINWRIGHT_ENGINE_SETUP", "ask")
    machine.patch.setattr(sys, "stdin", None)
    assert consent.permission()[0] == "never"


@pytest.mark.parametrize("answer", ["y", "Yes", "n", "", "yes please"])
def test_on_a_terminal_one_question_stands_before_all_changes(machine: BareMachine, answer: str) -> None:
    machine.apt(SIMULATED, install=brings(machine))
    terminal(machine, answer)
    if answer in ("y", "Yes"):
        machine.connect()
        assert len(machine.changes) == 2
    else:
        with pytest.raises(EngineError) as failure:
            machine.connect()
        assert machine.changes == []
        assert failure.value.exit_code == 4
        assert "apt-get install" in failure.value.remedy
    shown = sys.stderr
    assert isinstance(shown, io.StringIO)
    assert shown.getvalue().count("[y/N]") == 1
    assert "installed by apt-get: containerd docker.io" in machine.text


def test_a_wrong_setting_names_the_right_ones(machine: BareMachine) -> None:
    machine.patch.setenv("TRAINWRIGHT_ENGINE_SETUP", "atuo")
    with pytest.raises(RequestError, match="auto"):
        consent.permission()


def test_a_missing_tool_is_installed_after_one_failed_try(machine: BareMachine) -> None:
    tool = machine.folder / "bin" / "sometool"
    machine.program(
        "apt-get",
        f"case $* in *update) touch {machine.folder}/fresh ;; *install*) [ -e {machine.folder}/fresh ] || exit 100\n"
        f"[ $(grep -c ' install ' {machine.folder}/calls) -gt 2 ] || exit 100\n"
        f"cp /bin/true {tool} ;; esac",
    )
    assert setup.ensure_tool("sometool", machine.said.append) == str(tool)
    assert sum(" install " in call for call in machine.changes) == 2
    assert any("apt-get update" in line for line in machine.said)
    assert any("sometool" in line and "apt-get" in line for line in machine.said)


def test_a_tool_that_is_there_is_not_installed(machine: BareMachine) -> None:
    machine.program("apt-get", "exit 1")
    machine.program("sometool", "")
    setup.ensure_tool("sometool", machine.said.append)
    assert (machine.calls, machine.said) == ([], [])


@pytest.mark.parametrize("why", ["never", "not root", "no apt"])
def test_without_leave_the_remedy_is_the_command(
    machine: BareMachine, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    machine.program("apt-get", "exit 0")
    if why == "never":
        monkeypatch.setenv("TRAINWRIGHT_ENGINE_SETUP", "never")
    elif why == "not root":
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
    else:
        (machine.bin / "apt-get").unlink()
    with pytest.raises(EngineError) as failure:
        setup.ensure_tool("sometool", machine.said.append)
    assert "sometool" in failure.value.remedy
    assert ("sudo apt-get" in failure.value.remedy) == (why == "not root")
    assert machine.calls == []


def test_packages_that_a_release_split_off_are_named_where_it_offers_them(machine: BareMachine) -> None:
    machine.apt(install=brings(machine))
    machine.program(
        "apt-cache",
        "printf 'docker-cli:\\n  Installed: (none)\\n  Candidate: (none)\\n"
        "docker-buildx:\\n  Installed: (none)\\n  Candidate: 0.13.1\\n'",
    )
    machine.connect()
    assert machine.changes[0].endswith("docker.io iptables ca-certificates mmdebstrap docker-buildx")
    assert "--no-install-recommends" in machine.changes[0]


def test_apts_last_words_are_in_the_failure(machine: BareMachine) -> None:
    machine.program("apt-get", "echo 'E: Unable to locate package' >&2; exit 100")
    machine.program("apt-cache", "")
    with pytest.raises(EngineError, match="Unable to locate package") as failure:
        machine.connect()
    assert "docker.io" in failure.value.remedy
