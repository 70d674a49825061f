"""The hosts of a rehearsal: one container each, created as on the platform."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from trainwright.core.errors import EngineError, RequestError
from trainwright.core.runner import run
from trainwright.engine.engine import Engine
from trainwright.estimator.cluster_job import CODE
from trainwright.rehearse import starts
from trainwright.rehearse.indexes import HostIndexes
from trainwright.rehearse.network import labels
from trainwright.rehearse.opt_ml import CONTROL, JOB_NAME, PTH, REGION, HostFolder
from trainwright.rehearse.owner import LABEL
from trainwright.rehearse.rehearsed_job import RehearsedJob

SHARED_MEMORY = "2g"
SECONDS = 120
_LOOK = """
import json, os, sys, sysconfig
paths = sysconfig.get_paths()
print(json.dumps({"site": sorted({paths["purelib"], paths["platlib"]}), "python": sys.version.split()[0],
  "user": os.getuid(), "code": sorted(os.listdir("/opt/ml/code")) if os.path.isdir("/opt/ml/code") else []}))
"""


@dataclass(frozen=True)
class JobImage:
    """The image, as inspected before the job starts.

    Attributes:
        reference: as the user gave it.
        id: ``sha256:…``.
        labels: of the image.
        path: its ``PATH``.
        environment: all of its variables.
        entrypoint: its ENTRYPOINT, if any.
        site: the ``site-packages`` folders of its ``python3``; empty if it has no Python.
        code: the names in ``/opt/ml/code``.
        user: the uid that it runs as.
    """

    reference: str
    id: str
    labels: Mapping[str, str]
    path: str
    environment: Mapping[str, str]
    entrypoint: tuple[str, ...]
    site: tuple[str, ...]
    code: tuple[str, ...]
    user: int


def inspect_image(engine: Engine, reference: str, identity: str) -> JobImage:
    """Inspect an image.

    Raises:
        RequestError: the engine has no such image.
    """
    client = engine.client.path
    found = run([client, "image", "inspect", reference], env=engine.cli_env, timeout=SECONDS)
    if not found.ok:
        raise RequestError(
            f"--image {reference}: the engine has no such image",
            remedy="./invoke list --built shows the images that were built here.",
        )
    inspected: dict[str, Any] = json.loads(found.stdout)[0]
    config = inspected.get("Config") or {}
    environment = dict(pair.partition("=")[::2] for pair in config.get("Env") or ())
    argv = [client, "run", "--rm", "--network", "none", *labels(identity), "--entrypoint", "python3", inspected["Id"]]
    done = run([*argv, "-c", _LOOK], env=engine.cli_env, timeout=SECONDS, finish=True)
    try:
        seen: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        # An image without Python can still train with a shell script; there is only less to observe.
        seen = {"site": [], "code": [], "user": 0}
    return JobImage(
        reference=reference,
        id=inspected["Id"],
        labels=config.get("Labels") or {},
        path=environment.get("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
        environment=environment,
        entrypoint=tuple(config.get("Entrypoint") or ()),
        site=tuple(seen["site"]),
        code=tuple(seen["code"]),
        user=int(seen["user"]),
    )


@dataclass(frozen=True)
class Host:
    """One host: SageMaker's name for it, its container, its host name, its files."""

    name: str
    container: str
    own_name: str
    folder: HostFolder


def command(
    job: RehearsedJob,
    image: JobImage,
    host: Host,
    *,
    control: Path,
    network: Sequence[str],
    identity: str,
    gpus: bool,
    packages: HostIndexes,
    own: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """The options of ``docker create`` for one host; ``own`` are variables of that host."""
    folder = host.folder
    mounts = [
        (folder.input, "/opt/ml/input", False),
        (folder.model, "/opt/ml/model", False),
        (folder.output, "/opt/ml/output", False),
        (control, CONTROL, True),
        (folder.facts, f"{CONTROL}/facts", False),
        *((control / PTH, f"{site}/{PTH}", True) for site in image.site),
        # The platform's copy is writable; the user's folder must not be.
        *((path.absolute(), f"/opt/ml/input/data/{channel}", True) for channel, path in job.inputs.items()),
        *((path, place, True) for path, place in packages.mounts),
    ]
    if job.start != "sagemaker" and not job.baked:
        mounts.append(starts.mount(job, control))
    variables = {
        "TRAINING_JOB_NAME": JOB_NAME,
        "AWS_REGION": REGION,
        **dict(packages.environment),
        **own,
        **job.environment,
    }
    if job.launch_only:
        mounts.append((folder.devices, f"{CONTROL}/devices", True))
        variables["PATH"] = f"{CONTROL}/bin:{CONTROL}/devices:{variables.get('PATH', image.path)}"
    if (control / "python").is_dir():
        variables["PYTHONPATH"] = f"{CONTROL}/python:{image.environment.get('PYTHONPATH', '')}".rstrip(":")
    argv = ["--name", host.container, *labels(identity), *network]
    argv += ["--shm-size", SHARED_MEMORY, "--log-driver", "json-file"]
    argv += ["--memory", job.memory, "--memory-swap", job.memory] if job.memory else []
    argv += ["--gpus", "all"] if gpus else []
    argv += ["--workdir", CODE] if job.start != "sagemaker" else []
    for source, target, readonly in mounts:
        argv += ["--mount", f"type=bind,src={source},dst={target}{',readonly' if readonly else ''}"]
    argv += [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]
    return argv


@dataclass(frozen=True)
class ContainerProgram:
    """The command of a container; ``entrypoint`` replaces the image's."""

    words: tuple[str, ...]
    entrypoint: str | None = None


TRAIN = ContainerProgram(("train",))


def create(engine: Engine, words: Sequence[str], image: JobImage, program: ContainerProgram) -> None:
    """Create a container without starting it.

    Raises:
        EngineError: the engine refuses.
    """
    instead = ["--entrypoint", program.entrypoint] if program.entrypoint else []
    argv = [engine.client.path, "create", *words, *instead, image.id, *program.words]
    done = run(argv, env=engine.cli_env, timeout=SECONDS, finish=True)
    if not done.ok:
        raise EngineError(
            f"the engine could not create a container of {image.reference}: {done.tail(3)}",
            remedy="./invoke doctor says what is wrong with the engine.",
        )


def remove(engine: Engine, identity: str) -> None:
    """Remove the containers of a rehearsal, running or not, and its networks.

    They are found by label: an interrupted client may have created some that nobody noted.
    """
    client, mark = engine.client.path, ["--filter", f"label={LABEL}={identity}"]
    containers = run([client, "ps", "-aq", *mark], env=engine.cli_env, timeout=SECONDS).stdout.split()
    if containers:
        run([client, "rm", "-f", "-v", *containers], env=engine.cli_env, timeout=SECONDS)
    for name in run([client, "network", "ls", "-q", *mark], env=engine.cli_env, timeout=SECONDS).stdout.split():
        run([client, "network", "rm", name], env=engine.cli_env, timeout=SECONDS)
