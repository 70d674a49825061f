"""A SageMaker job on two hosts in small: two containers of an image on a network of their own, each running `train`."""

from __future__ import annotations

import json
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HOSTS = ("algo-1", "algo-2")
Docker = Callable[..., str]


@dataclass(frozen=True)
class Ended:
    """What a host left: the exit status of `train`, what it printed, its files below /opt/ml by their paths."""

    status: int
    said: str
    files: Mapping[str, str]


def _fill(folder: Path, host: str, script: str, hyperparameters: Mapping[str, object]) -> None:
    """The folders and files of the platform, as below /opt/ml."""
    for name in ("code", "input/config", "input/data/training", "model", "output/data"):
        (folder / name).mkdir(parents=True)
    group = {"instance_group_name": "homogeneousCluster", "instance_type": "ml.p3.16xlarge", "hosts": list(HOSTS)}
    resources = {
        "current_host": host,
        "hosts": list(HOSTS),
        "current_instance_type": "ml.p3.16xlarge",
        "current_group_name": "homogeneousCluster",
        "instance_groups": [group],
        "network_interface_name": "eth0",
    }
    named = {"sagemaker_program": "train.py", "sagemaker_region": "us-west-2", **hyperparameters}
    (folder / "input/config/resourceconfig.json").write_text(json.dumps(resources))
    (folder / "input/config/hyperparameters.json").write_text(json.dumps({k: json.dumps(v) for k, v in named.items()}))
    (folder / "input/config/inputdataconfig.json").write_text(json.dumps({"training": {"TrainingInputMode": "File"}}))
    (folder / "code/train.py").write_text(script)


@contextmanager
def _network(docker: Docker) -> Iterator[str]:
    name = f"twin-{uuid.uuid4().hex[:8]}"
    docker("network", "create", name)
    try:
        yield name
    finally:
        docker("network", "rm", name, check=False)


def two_hosts(
    docker: Docker, image: str, script: str, hyperparameters: Mapping[str, object], *, seconds: float = 180
) -> dict[str, Ended]:
    """Run one job on two hosts and wait for its end.

    Args:
        docker: the engine's client.
        image: reference of the image.
        script: the text of train.py.
        hyperparameters: of the job, beside those of the platform.
        seconds: how long the job may take; then its hosts are ended.
    """
    ended = {}
    with _network(docker) as network, tempfile.TemporaryDirectory(prefix="twin-") as scratch:
        names = {host: f"{network}-{host}" for host in HOSTS}
        try:
            for host, name in names.items():
                folder = Path(scratch, host)
                _fill(folder, host, script, hyperparameters)
                words = ["--name", name, "--hostname", host, "--network", network, "--network-alias", host]
                docker("create", *words, "--shm-size", "1g", "--env", "AWS_REGION=us-west-2", image, "train")
                docker("cp", f"{folder}/.", f"{name}:/opt/ml")
            for name in names.values():
                docker("start", name)
            deadline = time.monotonic() + seconds
            for name in names.values():
                while docker("inspect", "--format", "{{.State.Running}}", name) == "true":
                    if time.monotonic() > deadline:
                        docker("kill", name, check=False)
                        break
                    time.sleep(0.5)
            for host, name in names.items():
                ended[host] = _left(docker, name, Path(scratch, f"{host}-left"))
        finally:
            docker("rm", "--force", *names.values(), check=False)
    return ended


def _left(docker: Docker, name: str, folder: Path) -> Ended:
    folder.mkdir()
    for part in ("model", "output"):
        docker("cp", f"{name}:/opt/ml/{part}", str(folder))
    files = {str(p.relative_to(folder)): p.read_text(errors="replace") for p in folder.rglob("*") if p.is_file()}
    return Ended(int(docker("inspect", "--format", "{{.State.ExitCode}}", name)), docker("logs", name), files)
