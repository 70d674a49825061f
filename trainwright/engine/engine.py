"""The container engine of this machine: which client builds through BuildKit, and whether an engine answers.

A machine can have several ``docker`` programs, and the first one on PATH cannot always build: clients since version 23
need the buildx plugin, older ones have BuildKit built in. Everything goes through the command-line client; only
:func:`sdk` imports the docker SDK.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trainwright.core import runner
from trainwright.core.errors import EngineError
from trainwright.core.paths import home_dir, setting
from trainwright.core.say import Say
from trainwright.engine import setup as engine_setup

if TYPE_CHECKING:
    import docker


USUAL_PLACES: tuple[str, ...] = ("/usr/bin/docker",)  # checked even if PATH lacks them
DEFAULT_ENDPOINT = "unix:///var/run/docker.sock"
WITHOUT = "./invoke build --on codebuild"  # builds without an engine on this machine
ANSWER_SECONDS = 20.0  # after which an engine counts as not answering
SDK_SECONDS = 3600  # the SDK's 60 s also bound the pause between two events of a slow push

# An image with an attestation is an index, which not every service of AWS accepts.
CLIENT_ENVIRONMENT = {"DOCKER_BUILDKIT": "1", "BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}

BUILTIN_SINCE, BUILTIN_UNTIL = (18, 9), (23, 0)  # clients with BuildKit built in: [since, until)
RAWJSON_SINCE = (0, 13)  # buildx: --progress=rawjson


@dataclass(frozen=True)
class Client:
    """A ``docker`` program that can build through BuildKit.

    Attributes:
        path: the program.
        buildkit: ``buildx`` (the plugin: ``docker buildx build``) or ``builtin`` (``docker build``).
        version: the client's own version, such as ``20.10.24+dfsg1``.
        progress: the best format that ``--progress`` supports.
    """

    path: str
    buildkit: Literal["buildx", "builtin"]
    version: str
    progress: Literal["rawjson", "plain"]


@dataclass(frozen=True)
class PassedOver:
    """A ``docker`` program that cannot build here, and why."""

    path: str
    version: str
    why: str


@dataclass(frozen=True)
class Engine:
    """An engine that answered.

    Attributes:
        client: the client for it.
        server_version: the engine's own version.
        cli_env: variables for every call of the client.
        gpus: whether containers can be given GPUs (an NVIDIA runtime or NVIDIA's CDI devices).
        endpoint: its address, such as ``unix:///var/run/docker.sock``.
        context: the Docker context that names the address, or ``default``.
        data_root: its folder of images and containers, on the engine's machine.
        mirrors: the registry mirrors of its configuration.
        system: of its containers, such as ``linux``; empty if it does not say.
        processor: such as ``x86_64``; empty if it does not say.
    """

    client: Client
    server_version: str
    cli_env: Mapping[str, str] = field(default_factory=lambda: dict(CLIENT_ENVIRONMENT))
    gpus: bool = False
    endpoint: str = DEFAULT_ENDPOINT
    context: str = "default"
    data_root: str = ""
    mirrors: tuple[str, ...] = ()
    system: str = ""
    processor: str = ""

    @property
    def local(self) -> bool:
        """Whether the engine shares this machine's file systems."""
        return self.endpoint.startswith("unix://")


def survey() -> tuple[list[Client], list[PassedOver]]:
    """Every ``docker`` of this machine: those that can build, best first, and those that cannot.

    Best is the first on PATH with a buildx that reports in rawjson, then the first on PATH with any BuildKit.
    ``TRAINWRIGHT_DOCKER`` restricts the search to one program.
    """
    able: list[Client] = []
    passed: list[PassedOver] = []
    programs = list(_programs())
    asked = [[path, *words] for path in programs for words in (("--version",), ("buildx", "version"))]
    with ThreadPoolExecutor(len(asked) or 1) as pool:  # each answer is waited for
        said = list(pool.map(partial(runner.run, timeout=ANSWER_SECONDS), asked))
    for path, version, plugin in zip(programs, said[::2], said[1::2], strict=True):
        found = _examined(path, version, plugin)
        if isinstance(found, Client):
            able.append(found)
        else:
            passed.append(found)
    return sorted(able, key=lambda client: client.progress != "rawjson"), passed


def find_client() -> Client:
    """The ``docker`` program to build with.

    Raises:
        EngineError: no usable client; the message lists every ``docker`` and what it lacks.
    """
    able, passed = survey()
    if not able:
        raise no_client(passed)
    return able[0]


def connect(*, setup: bool = True, say: Say | None = None, ahead: Future[Engine | EngineError] | None = None) -> Engine:
    """The engine to build with: the one that answers, else one that is set up on this machine.

    If ``DOCKER_HOST``, ``DOCKER_CONTEXT`` or the current Docker context names an engine, none is set up.
    ``TRAINWRIGHT_ENGINE_SETUP`` decides whether a set-up goes ahead, asks or refuses.

    Args:
        setup: whether an engine may be installed and started.
        say: progress callback for the set-up; prints to standard error by default.
        ahead: an answer that was asked for earlier; if it is no engine, it is asked for again.

    Raises:
        EngineError: no engine answers; the remedy has the commands that fix it.
    """
    asked = ahead.result() if ahead is not None else None
    answer = asked if isinstance(asked, Engine) else _look()
    if isinstance(answer, Engine):
        return answer
    state = answer.details.get("state")
    if not setup or state not in ("silent", "client") or (state == "client" and setting("TRAINWRIGHT_DOCKER")):
        raise answer
    engine_setup.set_up(
        answer,
        say or (lambda text: print(text, file=sys.stderr, flush=True)),
        client=state == "silent",
        answers=lambda: any(_info(client)[0].get("ServerVersion") for client in survey()[0]),
    )
    answer = _look()
    if isinstance(answer, Engine):
        return answer
    raise answer


@contextmanager
def looking_ahead() -> Iterator[Future[Engine | EngineError]]:
    """Ask for the engine while the body does something else; :func:`connect` takes the answer.

    Clients are slow to start: without this, a build without a change waits for them a fifth of its time.
    """
    with ThreadPoolExecutor(1) as pool:  # nothing of it runs on after the body
        yield pool.submit(_look)


def _look() -> Engine | EngineError:
    """The engine that answers, or why none does (``details["state"]``: client, silent, remote, denied, version)."""
    able, passed = survey()
    return _ask_all(able) if able else no_client(passed)


@dataclass(frozen=True)
class ChosenEngine:
    """An engine that a setting names instead of this machine's own.

    Attributes:
        by: the setting, for messages.
        forget: the command line that undoes it.
    """

    by: str
    forget: str


def chosen(docker: Sequence[str]) -> ChosenEngine | None:
    """The setting that names another engine, in the docker client's order of precedence; ``None`` for the default.

    Args:
        docker: the ``docker`` programs of this machine; the first one that shows its context counts.
    """
    if host := setting("DOCKER_HOST"):
        return ChosenEngine(f"DOCKER_HOST={host}", "unset DOCKER_HOST")
    if context := setting("DOCKER_CONTEXT"):
        return None if context == "default" else ChosenEngine(f"DOCKER_CONTEXT={context}", "unset DOCKER_CONTEXT")
    calls = (runner.run([path, "context", "show"], timeout=ANSWER_SECONDS) for path in docker)
    # docker 20.10 has no `context show` and prints its help instead.
    names = (done.stdout.strip() for done in calls if done.ok and len(done.stdout.split()) == 1)
    return _context(next(names, None) or _configured_context())


def _context(name: str) -> ChosenEngine | None:
    return None if name == "default" else ChosenEngine(f"the Docker context {name}", "docker context use default")


def _configured_context() -> str:
    """``currentContext`` of the docker client's file; ``default`` if the file cannot be read."""
    home = home_dir()
    folder = setting("DOCKER_CONFIG") or (home and home / ".docker")
    try:
        config = json.loads(Path(folder, "config.json").read_text()) if folder else {}
    except (OSError, ValueError, RecursionError):
        return "default"
    name = config.get("currentContext") if isinstance(config, dict) else None
    return name if isinstance(name, str) and name else "default"


def sdk(engine: Engine) -> docker.DockerClient:
    """The docker SDK's client for this engine.

    Raises:
        EngineError: the SDK cannot talk to it.
    """
    import docker
    from docker.context import ContextAPI
    from docker.errors import DockerException

    options: dict[str, Any] = {"timeout": SDK_SECONDS}
    try:
        if setting("DOCKER_HOST"):
            return docker.from_env(**options)
        if engine.context != "default" and (context := ContextAPI.get_context(engine.context)) is not None:
            options["tls"] = context.TLSConfig or False
        return docker.DockerClient(
            base_url=engine.endpoint, version="auto", use_ssh_client=engine.endpoint.startswith("ssh://"), **options
        )
    except DockerException as error:
        raise EngineError(
            f"the docker SDK cannot talk to the engine at {engine.endpoint}: {error}",
            remedy=f"{engine.client.path} info",
        ) from error


def no_client(passed: Sequence[PassedOver]) -> EngineError:
    """The failure if no client can build."""
    rows = [f"  {one.path}: {one.why}" for one in passed]
    head = "no docker on this machine can build through BuildKit" if rows else "docker not found on this machine"
    lacking = engine_setup.missing(client=False)
    remedy = f"{lacking.by_hand}\n# or, without an engine here: {WITHOUT}"
    state = "client"
    if lacking.why_not:
        rows.append(f"  {lacking.why_not}")
    if named := chosen([one.path for one in passed]):
        rows.append(f"  {named.by} names another engine, so nothing is installed or started on this machine")
        remedy = f"{remedy}\n# or, to use an engine of this machine: {named.forget}"
        state = "remote"
    return EngineError(
        "\n".join([head, *rows]),
        remedy=remedy,
        state=state,
        dockers=[{"path": one.path, "version": one.version, "why": one.why} for one in passed],
    )


def _programs() -> Iterator[str]:
    """Each ``docker`` once, in the order of PATH; linked folders (``/bin``) do not count twice."""
    if named := setting("TRAINWRIGHT_DOCKER"):
        yield shutil.which(named) or named
        return
    seen: set[str] = set()
    folders = [folder or "." for folder in os.environ.get("PATH", os.defpath).split(os.pathsep)]
    for path in [*(os.path.join(folder, "docker") for folder in folders), *USUAL_PLACES]:  # noqa: PTH118 - "." stays
        real = os.path.realpath(path)
        if real not in seen and os.access(path, os.X_OK) and Path(path).is_file():
            seen.add(real)
            yield path


def _examined(path: str, said: runner.Completed, plugin: runner.Completed) -> Client | PassedOver:
    """A program by what it said to ``--version`` and to ``buildx version``."""
    match = re.search(r"Docker version (\d+)\.(\d+)[^\s,]*", said.stdout)
    if not said.ok or not match:
        what = (said.stdout.strip() or said.tail(1)).splitlines()
        return PassedOver(path, "", f"is not a docker client: {what[0] if what else f'exit status {said.returncode}'}")
    version = match.group(0).removeprefix("Docker version ")
    number = (int(match.group(1)), int(match.group(2)))
    buildx = re.search(r"buildx\S*\s+v?(\d+)\.(\d+)", plugin.stdout) if plugin.ok else None
    if buildx and (int(buildx.group(1)), int(buildx.group(2))) >= RAWJSON_SINCE:
        return Client(path, "buildx", version, "rawjson")
    if BUILTIN_SINCE <= number < BUILTIN_UNTIL:
        return Client(path, "builtin", version, "plain")
    if buildx:
        return Client(path, "buildx", version, "plain")
    if number < BUILTIN_SINCE:
        return PassedOver(path, version, f"version {version} is older than BuildKit (18.09)")
    return PassedOver(path, version, f"version {version} needs the buildx plugin to build, which is missing")


def _ask_all(clients: Sequence[Client]) -> Engine | EngineError:
    """Ask through the best client, and through the next one only if the engine refuses that client's version."""
    refusals = []
    for client in clients:
        answer = _ask(client)
        if isinstance(answer, Engine) or answer.details.get("state") != "version":
            return answer
        refusals.append(answer)
    return refusals[0]


def _ask(client: Client) -> Engine | EngineError:
    """The engine that a client reaches, or why it does not."""
    info, said = _info(client)
    context = str((info.get("ClientInfo") or {}).get("Context") or setting("DOCKER_CONTEXT") or "default")
    endpoint = _endpoint(client, context)
    if said.ok and info.get("ServerVersion"):
        devices = info.get("DiscoveredDevices") or []
        return Engine(
            client,
            info["ServerVersion"],
            gpus="nvidia" in (info.get("Runtimes") or {})
            or any(str(device.get("ID", "")).startswith("nvidia.com/gpu") for device in devices),
            endpoint=endpoint,
            context=context,
            data_root=info.get("DockerRootDir") or "",
            mirrors=tuple((info.get("RegistryConfig") or {}).get("Mirrors") or ()),
            system=str(info.get("OSType") or ""),
            processor=str(info.get("Architecture") or ""),
        )
    named = chosen([client.path]) or _context(context)
    return _no_answer(client, endpoint, named, "; ".join(info.get("ServerErrors") or []) or said.tail(3))


def _info(client: Client) -> tuple[dict[str, Any], runner.Completed]:
    """The document of ``docker info`` (possibly empty), and the finished command."""
    said = runner.run([client.path, "info", "--format", "{{json .}}"], timeout=ANSWER_SECONDS)
    try:
        info = json.loads(said.stdout or "{}")
    except ValueError:
        info = {}
    return info if isinstance(info, dict) else {}, said


def _endpoint(client: Client, context: str) -> str:
    if host := setting("DOCKER_HOST"):
        return host
    if context == "default":
        return DEFAULT_ENDPOINT
    said = runner.run([client.path, "context", "inspect", context, "--format", "{{.Endpoints.docker.Host}}"])
    return said.stdout.strip() or DEFAULT_ENDPOINT


def _no_answer(client: Client, endpoint: str, named: ChosenEngine | None, text: str) -> EngineError:
    if re.search(r"client version \S+ is too (old|new)", text):
        message = f"the engine at {endpoint} refuses {client.path} {client.version}: {text}"
        return EngineError(message, remedy="install a docker client of the engine's own version", state="version")
    if "permission denied" in text and endpoint.startswith("unix://"):
        remedy = (
            "run this command as root\n"
            'or: sudo usermod -aG docker "$USER", and log in again; members of the group docker have the rights of root'
        )
        return EngineError(f"no permission to use the engine at {endpoint}", remedy=remedy, state="denied")
    if named:
        return EngineError(
            f"the engine at {endpoint} does not answer: {text}\n"
            f"{named.by} names it, so nothing is installed or started on this machine",
            remedy=f"{named.forget}   # to use an engine of this machine; or start the named engine",
            state="remote",
        )
    message = f"no container engine answers at {endpoint}: {text}"
    if why_not := engine_setup.missing(client=True).why_not:
        message += f"\n{why_not}"
    return EngineError(message, remedy=engine_setup.start_commands(), state="silent")
