"""What a job made: ``model.tar.gz`` and ``output.tar.gz`` as S3 would hold them, owned by the caller."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainwright.core.errors import EngineError
from trainwright.core.runner import run
from trainwright.engine.engine import Engine
from trainwright.rehearse.hosts import Host

SECONDS = 600


@dataclass(frozen=True)
class Artifact:
    """One archive; ``clashes`` are names that several hosts wrote (the first host's file is in it)."""

    path: Path
    files: tuple[str, ...]
    clashes: tuple[str, ...]


def collect(hosts: Sequence[Host], folder: Path) -> tuple[Artifact, Artifact]:
    """Pack ``/opt/ml/model`` and ``/opt/ml/output/data`` of all hosts, each into one archive in ``folder``."""
    model = _pack(folder / "model.tar.gz", [host.folder.model for host in hosts])
    output = _pack(folder / "output.tar.gz", [host.folder.output / "data" for host in hosts])
    return model, output


def hand_over(engine: Engine, image: str, folder: Path, owner: tuple[int, int] | None = None) -> None:
    """Give everything in a folder to the caller; containers write as root.

    Args:
        engine: the engine whose containers wrote.
        image: any image with a shell.
        folder: a folder of this machine.
        owner: user and group id; the caller's by default.

    Raises:
        EngineError: something still belongs to somebody else.
    """
    user, group = owner or (os.getuid(), os.getgid())
    if not foreign(folder, user):
        return
    argv = [engine.client.path, "run", "--rm", "--network", "none", "--user", "0", "--entrypoint", "/bin/sh"]
    argv += ["--mount", f"type=bind,src={folder},dst=/mnt", image, "-c", f"chown -hR {user}:{group} /mnt"]
    done = run(argv, env=engine.cli_env, timeout=SECONDS)
    if not done.ok or foreign(folder, user):
        raise EngineError(
            f"{folder} holds files of another user: {done.tail(2)}", remedy=f"sudo chown -R {user} {folder}"
        )


def foreign(folder: Path, user: int) -> bool:
    """Whether something in a folder belongs to somebody else than ``user``."""
    for where, folders, files in os.walk(folder):
        for name in (*folders, *files):
            if os.lstat(Path(where, name)).st_uid != user:
                return True
    return False


def _pack(path: Path, folders: Sequence[Path]) -> Artifact:
    names: dict[str, Path] = {}
    clashes = set()
    for folder in folders:
        for file in sorted(folder.rglob("*")):
            name = str(file.relative_to(folder))
            if name in names and not file.is_dir():
                clashes.add(name)
            names.setdefault(name, file)
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, file in names.items():
            archive.add(file, arcname=name, recursive=False)
    files = tuple(name for name, file in names.items() if not file.is_dir())
    return Artifact(path, files, tuple(sorted(clashes)))
