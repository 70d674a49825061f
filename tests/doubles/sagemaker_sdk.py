"""SageMaker's own Python SDKs, each in an environment of its own, and what their local mode needs and leaves behind."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.doubles.packages import checked, unpacked
from trainwright.core.paths import cache_dir, locked

SDK2 = "sagemaker==2.257.7"
SDK3 = "sagemaker==3.27.0"
NETWORK = "sagemaker-local"  # of local mode; the SDKs leave it
NO_TELEMETRY = "SchemaVersion: '1.0'\nSageMaker: {PythonSDK: {Modules: {TelemetryOptOut: true}}}\n"
Docker = Callable[..., str]


def interpreter_with(requirement: str) -> Path:
    """The interpreter of an environment that holds ``requirement``, made once and kept in the user's cache.

    Made anew for another version of the requirement or of Python. SDK 3 takes 730 MB.
    """
    version = f"{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}"
    folder = cache_dir() / "sagemaker-sdk" / f"{requirement.replace('==', '-')}-py{version}"
    whole = folder / "whole"
    with locked(folder.with_suffix(".lock")):
        if not whole.exists():
            shutil.rmtree(folder, ignore_errors=True)
            uv = str(Path(sys.executable).with_name("uv"))
            checked(uv, "venv", "--quiet", "--python", sys.executable, str(folder))
            checked(uv, "pip", "install", "--quiet", "--python", str(folder / "bin/python"), requirement)
            whole.touch()
    return folder / "bin" / "python"


def programs(folder: Path, client: str) -> Path:
    """A folder for PATH with what local mode calls: the engine's client, and a docker-compose of version 2.

    Compose is this machine's, or that of the Debian release that has version 2. It is not given as a plugin: SDK 2
    looks for "v2" in the plugin's version, which Debian's does not say.

    Args:
        folder: an empty or new one.
        client: path of the engine's client.
    """
    compose = shutil.which("docker-compose") or str(
        unpacked("docker-compose", release="trixie") / "usr/libexec/docker/cli-plugins/docker-compose"
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "docker").symlink_to(client)
    (folder / "docker-compose").symlink_to(compose)
    return folder


@dataclass(frozen=True)
class Sdk:
    """A way to run programs of the SDK's users.

    ``environment`` is added to what such a program needs anyway.
    """

    python: Path
    programs: Path
    environment: Mapping[str, str]

    def run(self, script: str, *words: str, folder: Path, seconds: float = 600) -> str:
        """What ``script`` (its text) says on standard output; it has to end well.

        Args:
            words: its arguments.
            folder: where it runs; its files are kept there.
            seconds: after which it counts as failed.
        """
        (folder / "sdk.py").write_text(script)
        (folder / "sagemaker.yaml").write_text(NO_TELEMETRY)
        foreign = ("AWS_", "SAGEMAKER_", "PYTHONPATH", "VIRTUAL_ENV")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        environment |= {
            "PATH": f"{self.programs}:/usr/bin:/bin",
            "AWS_ACCESS_KEY_ID": "none",
            "AWS_SECRET_ACCESS_KEY": "none",
            "AWS_DEFAULT_REGION": "us-west-2",
            "AWS_EC2_METADATA_DISABLED": "true",
            "DOCKER_CONFIG": str(folder / "docker"),
            "SAGEMAKER_USER_CONFIG_OVERRIDE": str(folder / "sagemaker.yaml"),
            "SAGEMAKER_SUPPRESS_V2_WARNING": "1",
            **self.environment,
        }
        done = subprocess.run(
            [str(self.python), "sdk.py", *words],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )
        assert done.returncode == 0, f"{_of_job(done.stdout + done.stderr)}\n{done.stderr[-4000:]}"
        return done.stdout


def _of_job(said: str) -> str:
    """What the containers of a job said at its end: SDK and Compose put the container's name before each line."""
    lines = [line for line in said.splitlines() if re.search(r"\balgo-\d\S* +\|", line)]
    return "\n".join(lines[-60:]) or said[-8000:]


@contextmanager
def nothing_left(docker: Docker, image: str) -> Iterator[None]:
    """Remove what local mode leaves in the engine: the containers that compose stopped, and its network.

    Args:
        docker: the engine's client.
        image: whose containers are meant.
    """
    networks = docker("network", "ls", "--format", "{{.Name}}").split()
    try:
        yield
    finally:
        made = ["--filter", f"ancestor={image}", "--filter", "label=com.docker.compose.service"]
        for container in docker("ps", "-aq", *made).split():
            docker("rm", "-f", "-v", container)
        if NETWORK not in networks:
            docker("network", "rm", NETWORK, check=False)
