"""The twin's base images: Debian 11 in place of Ubuntu 20.04, with what NVIDIA's images hold of CUDA in small."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from trainwright.engine.engine import Engine
from trainwright.site.site import Site
from trainwright.sources.debian_base import make_base

SUITE, OS = "bullseye", "debian-11"
FOLDER = Path(__file__).with_name("base")


@dataclass(frozen=True)
class Bases:
    """The references of the two images, and METIS's sources, which came out of the same making."""

    runtime: str
    devel: str
    metis: Path


def make_bases(engine: Engine, site: Site, name: str, folder: Path) -> Bases:
    """Make both images; unchanged, they come from the builder's cache.

    Args:
        engine: builds and holds them.
        site: its apt mirror, proxies and CA bundle are used.
        name: the repository of their references.
        folder: takes METIS's sources.
    """
    context = folder / "context"
    shutil.copytree(FOLDER, context)
    # A hard link would change with the cached file; a copy of 300 MB is quick.
    shutil.copy2(make_base(SUITE, site, say=lambda _: None).path, context / "rootfs.tar")
    for stage in ("runtime", "devel"):
        _build(engine, site, context, stage, "--tag", f"{name}:{stage}", *_load(engine))
    _build(engine, site, context, "metis", "--output", f"type=local,dest={folder / 'metis'}")
    (metis,) = (folder / "metis").glob("metis_*.orig.tar.xz")
    return Bases(f"{name}:runtime", f"{name}:devel", metis)


def _load(engine: Engine) -> list[str]:
    return ["--load"] if engine.client.buildkit == "buildx" else []


def _build(engine: Engine, site: Site, context: Path, stage: str, *words: str) -> None:
    command = ["buildx", "build"] if engine.client.buildkit == "buildx" else ["build"]
    with tempfile.TemporaryDirectory(prefix="twin-") as scratch:
        secrets = site.secrets(Path(scratch, "secrets"), OS)
        argv = [engine.client.path, *command, "--progress", "plain", "--target", stage, *words]
        for key in secrets.keys() & {"ca", "apt-sources"}:
            argv += ["--secret", f"id={key},src={secrets[key]}"]
        for key in site.build_args():
            argv += ["--build-arg", key]
        if site.build_network:
            argv += ["--network", site.build_network]
        environment = {**os.environ, **engine.cli_env, **site.build_args()}
        done = subprocess.run([*argv, str(context)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
