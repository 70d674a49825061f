"""A machine of stand-in programs for the engine's set-up: root on Debian, no systemd, no container, no terminal."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from trainwright.engine import consent, engine, engine_packages, setup

# `docker info --format '{{json .}}'`, shortened.
ANSWER = (
    '{"ServerVersion": "27.1", "Runtimes": {"runc": {}}, "DockerRootDir": "/d", "ClientInfo": {"Context": "default"}}'
)
SILENT = '{"ServerErrors": ["Cannot connect to the Docker daemon"], "ClientInfo": {"Context": "default"}}'

# What docker 20.10.24 of Debian 12 answers to `docker context show`, with exit status 1, and 28.2.2 with 0.
CONTEXT_HELP = "\nUsage:  docker context COMMAND\n\nManage contexts\n\nCommands:\n  create      Create a context"

SETTINGS = (
    *("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "TRAINWRIGHT_DOCKER", "TRAINWRIGHT_ENGINE_SETUP"),
    *("CI", "CODEBUILD_BUILD_ID", "container"),
)
TOOLS = ("sh", "cat", "cp", "grep", "rm", "sleep", "touch")


class BareMachine:
    """Programs, files and settings of a machine; ``calls`` holds how its programs were called."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.patch = monkeypatch
        self.said: list[str] = []
        self.bin = folder / "bin"
        self.bin.mkdir()
        for tool in TOOLS:
            path = shutil.which(tool)
            assert path is not None
            (self.bin / tool).symlink_to(path)
        for name in SETTINGS:
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("TRAINWRIGHT_STATE", str(folder / "state"))
        monkeypatch.setenv("HOME", str(folder))
        monkeypatch.setenv("PATH", str(self.bin))
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        monkeypatch.setattr(engine, "USUAL_PLACES", ())
        monkeypatch.setattr(consent, "SYSTEM_FOLDERS", str(self.bin))
        monkeypatch.setattr(consent, "CONTAINER_MARKS", (folder / ".dockerenv",))
        monkeypatch.setattr(engine_packages, "SNAP", folder / "snap-docker")
        monkeypatch.setattr(engine_packages, "APT_LISTS", folder / "lists")
        for name in ("PID_FILE", "SOCKET", "DATA_ROOT", "IP_FORWARD", "SYSTEMD"):
            monkeypatch.setattr(setup, name, folder / name.lower())
        monkeypatch.setattr(setup, "POLL_SECONDS", 0.02)
        self.packages()
        (folder / "lists").mkdir()
        (folder / "lists" / "mirror_Packages").touch()

    def program(self, name: str, script: str) -> Path:
        """A stand-in on PATH that notes how it was called."""
        path = self.bin / name
        path.write_text(f"#!/bin/sh\nprintf '%s\\n' \"{name} $*\" >>{self.folder}/calls\n{script}\n")
        path.chmod(0o755)
        return path

    def docker(self, folder: str, version: str, buildx: str = "", info: str = ANSWER, context: str = "default") -> Path:
        """A docker client in a folder of its own at the end of PATH; once ``up`` exists, its engine answers."""
        path = self.folder / folder / "docker"
        path.parent.mkdir()
        lacks_plugin = "" if buildx else f"[ -e '{self.folder}/plugin' ] || exit 1;"
        status = int("ServerErrors" in info)
        path.write_text(
            "#!/bin/sh\n"
            'case "$1 $2" in\n'
            f"'--version '*) echo 'Docker version {version}, build abc' ;;\n"
            f"'buildx version') {lacks_plugin} echo 'github.com/docker/buildx {buildx or 'v0.30.1'} abc' ;;\n"
            f"info*) if [ -e '{self.folder}/up' ]; then echo '{ANSWER}'; else echo '{info}'; exit {status}; fi ;;\n"
            f"'context show') [ -n '{context}' ] || {{ echo '{CONTEXT_HELP}'; exit 1; }}; echo '{context}' ;;\n"
            "'context inspect') echo tcp://far:2376 ;;\n"
            '*) echo "unexpected: $*" >&2; exit 99 ;;\n'
            "esac\n"
        )
        path.chmod(0o755)
        self.patch.setenv("PATH", f"{os.environ['PATH']}:{path.parent}")
        return path

    def packages(self, *names: str) -> None:
        """What dpkg holds as installed; the answers are those of dpkg-query 1.21 of Debian 12, its exit status too."""
        states = {"docker-ce": "not-installed", "podman-docker": "config-files"} | dict.fromkeys(names, "installed")
        rows = " ".join(f"{name}) echo {name} {state} ;;" for name, state in states.items())
        unknown = '*) echo "dpkg-query: no packages found matching $name" >&2 ;;'
        self.program("dpkg-query", f"shift 3; for name; do case $name in {rows} {unknown} esac; done; exit 1")

    def apt(self, simulated: str = "", *, install: str = "") -> None:
        """An apt-get; ``simulated`` is what ``-s`` prints, ``install`` a shell command that the installation runs."""
        (self.folder / "simulated").write_text(simulated)
        self.program(
            "apt-get",
            f'case " $* " in *" -s "*) cat {self.folder}/simulated;; *" install "*) {install or ":"} ;; esac',
        )
        self.program("apt-cache", "exit 0")

    @property
    def calls(self) -> list[str]:
        """How the stand-ins were called, but for questions to dpkg and apt-cache."""
        noted = self.folder / "calls"
        lines = noted.read_text().splitlines() if noted.exists() else []
        return [line for line in lines if not line.startswith(("dpkg-query", "apt-cache"))]

    @property
    def changes(self) -> list[str]:
        """The calls that change a machine."""
        return [call for call in self.calls if not (call.startswith("apt-get") and " -s " in call)]

    @property
    def text(self) -> str:
        """What was said."""
        return "\n".join(self.said)

    def answers(self) -> bool:
        """Whether the stand-in engine is up."""
        return (self.folder / "up").exists()

    def start(self, wait_s: float = 20.0) -> None:
        """Start the stand-in engine."""
        setup.start(self.said.append, answers=self.answers, wait_s=wait_s)

    def connect(self) -> engine.Engine:
        """Look for an engine and set one up."""
        return engine.connect(say=self.said.append)


Docker = Callable[..., Path]


def consenting_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BareMachine:
    """A bare machine whose user agreed to the installation of an engine."""
    made = BareMachine(tmp_path, monkeypatch)
    monkeypatch.setenv("TRAINWRIGHT_ENGINE_SETUP", "auto")
    return made
