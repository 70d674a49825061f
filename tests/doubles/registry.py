"""The registry behind the emulated ECR: Debian's docker-registry, plain http on a free port of loopback."""

from __future__ import annotations

import http.client
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.doubles.packages import unpacked
from tests.doubles.servers import running

START_SECONDS = 30.0
CONFIGURATION = """\
version: 0.1
log: {{level: warn, accesslog: {{disabled: true}}}}
storage:
  filesystem: {{rootdirectory: {folder}}}
  delete: {{enabled: true}}
http: {{addr: "127.0.0.1:{port}", secret: {secret}}}
"""


def registry_program() -> str:
    """The path of docker-registry: this machine's, or that of Debian's package."""
    return shutil.which("docker-registry") or str(unpacked("docker-registry") / "usr/bin/docker-registry")


@contextmanager
def registry(folder: Path) -> Iterator[int]:
    """A registry without any access control that keeps its files in ``folder``; yields its port on 127.0.0.1."""
    program = registry_program()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    configuration = folder / "registry.yml"
    (folder / "registry").mkdir(parents=True)
    secret = secrets.token_hex()
    configuration.write_text(CONFIGURATION.format(folder=folder / "registry", port=port, secret=secret))
    # It must not outlive a test run that is killed.
    argv = ["setpriv", "--pdeathsig", "KILL", "--", program, "serve", str(configuration)]
    # No variable of a developer's (REGISTRY_STORAGE_...) changes the configuration; no collector is asked for traces.
    environment = {"PATH": os.environ.get("PATH", ""), "OTEL_TRACES_EXPORTER": "none"}
    log_file = folder / "registry.log"
    with running(argv, log_file, env=environment) as process:
        _answers(process, port, log_file)
        yield port


def _answers(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while True:
        assert process.poll() is None, log.read_text()[-2000:]
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/v2/")
            if connection.getresponse().status == 200:
                return
        except OSError:
            assert time.monotonic() < end, f"docker-registry does not answer: {log.read_text()[-2000:]}"
            time.sleep(0.05)
        finally:
            connection.close()
