"""A BuildKit that is not the engine's own, behind buildx's ``remote`` driver.

BuildKit's own image is in no package registry. Debian's next release has an engine with the containerd image store, and
the BuildKit of that has every exporter of the real one; it is started beside this machine's engine, and a proxy on a
socket speaks plain gRPC to it, as buildkitd would.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.doubles.bridge import bridge
from tests.doubles.packages import unpacked
from tests.doubles.servers import running
from trainwright.engine.engine import find_client

RELEASE = "trixie"
NAME = "trainwright-test-farm"
BRIDGE = f"tw{{}}{os.getpid()}"  # two runs of the tests side by side; 15 characters at most
# What an engine answers with when a connection becomes one to its BuildKit (moby, /grpc).
_UPGRADE = b"POST /grpc HTTP/1.1\r\nHost: engine\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"


@dataclass(frozen=True)
class RemoteBuilder:
    """A running builder: its name for buildx, the client configuration that knows it, its engine's address."""

    name: str
    configuration: Path
    endpoint: str

    def kill(self) -> None:
        """End its engine in the middle of what it does, as a machine that is switched off."""
        group = int((Path(self.endpoint.removeprefix("unix://")).parent / "pid").read_text())
        os.killpg(group, signal.SIGKILL)

    def forget(self) -> None:
        """Empty its cache, as on a new machine."""
        client = find_client().path
        subprocess.run([client, "-H", self.endpoint, "builder", "prune", "--all", "--force"], check=True,
                       capture_output=True)  # fmt: skip


def buildx_configuration(folder: Path) -> Path:
    """A client configuration with the buildx plugin of Debian's next release."""
    plugins = folder / "cli-plugins"
    plugins.mkdir(parents=True)
    (plugin,) = unpacked("docker-buildx", release=RELEASE).rglob("cli-plugins/docker-buildx")
    (plugins / "docker-buildx").symlink_to(plugin)
    return folder


@contextmanager
def remote_builder(folder: Path, configuration: Path, number: int = 1) -> Iterator[RemoteBuilder]:
    """Start it; everything of it is gone on the way out.

    Args:
        folder: for its sockets and data; a short path, as that of a socket has 107 characters at most.
        configuration: of :func:`buildx_configuration`; ``DOCKER_CONFIG`` has to name it.
        number: of several at a time.
    """
    endpoint, proxied = folder / "engine", folder / "buildkit"
    buildx = [find_client().path, "buildx"]
    name, own_bridge = NAME if number == 1 else f"{NAME}-{number}", BRIDGE.format(number)
    create = [*buildx, "create", "--name", name, "--driver", "remote", f"unix://{proxied}"]
    try:
        with bridge(own_bridge), _engine(folder, endpoint, own_bridge), _proxy(proxied, endpoint):
            environment = {**os.environ, "DOCKER_CONFIG": str(configuration)}
            subprocess.run(create, check=True, capture_output=True, env=environment)
            yield RemoteBuilder(name, configuration, f"unix://{endpoint}")
    finally:
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for mount in sorted((m for m in mounts if m.startswith(str(folder))), reverse=True):
            subprocess.run(["umount", "-l", mount], check=False)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _engine(folder: Path, endpoint: Path, own_bridge: str) -> Iterator[None]:
    programs = folder / "bin"
    programs.mkdir(parents=True)
    for package in ("docker.io", "containerd"):
        for path in unpacked(package, release=RELEASE).glob("usr/*bin/*"):
            (programs / path.name).symlink_to(path)
    (folder / "daemon.json").write_text('{"features": {"containerd-snapshotter": true}}')
    argv = [str(programs / "dockerd"), "--config-file", f"{folder}/daemon.json", "-H", f"unix://{endpoint}"]
    argv += ["--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec", "-p", f"{folder}/pid"]
    argv += [f"--bridge={own_bridge}", "--iptables=false", "--ip6tables=false"]
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}:/usr/sbin"}
    log = folder / "log"
    with running(argv, log, grace=30, env=environment, start_new_session=True) as process:
        _wait(process, endpoint, log)
        yield


def _wait(process: subprocess.Popen[bytes], endpoint: Path, log: Path) -> None:
    for _ in range(300):
        assert process.poll() is None, log.read_text()[-2000:]
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            probe.connect(str(endpoint))
            return
        time.sleep(0.1)
    raise AssertionError(f"the second engine does not answer: {log.read_text()[-2000:]}")


@contextmanager
def _proxy(place: Path, endpoint: Path) -> Iterator[None]:
    """A socket whose connections are ones to the BuildKit of an engine."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place))
        server.listen()

        def accept() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return  # closed: the end
                threading.Thread(target=_join, args=(client, endpoint), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(5)


def _join(client: socket.socket, endpoint: Path) -> None:
    with client, socket.socket(socket.AF_UNIX) as engine:
        head = b""
        try:
            engine.connect(str(endpoint))
            engine.sendall(_UPGRADE)
            while not head.endswith(b"\r\n\r\n"):
                if not (more := engine.recv(1)):
                    return
                head += more
        except OSError:
            return  # it was killed
        back = threading.Thread(target=_copy, args=(engine, client), daemon=True)
        back.start()
        _copy(client, engine)
        back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
