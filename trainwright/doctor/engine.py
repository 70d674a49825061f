"""The container engine: its client, whether it answers, its disk, where base images come from."""

from __future__ import annotations

import shutil
from pathlib import Path

from trainwright.core.errors import EngineError
from trainwright.core.say import Say
from trainwright.doctor.machine import Machine, MachineFinding, finding
from trainwright.engine import engine_packages, platforms, setup
from trainwright.engine.engine import connect, no_client, survey

GB = 1_000_000_000
DISK_ERROR, DISK_WARNING = 5 * GB, 20 * GB  # a CPU image with its cache takes about 3 GB, a CUDA one 15


def check_client(_: Machine) -> MachineFinding:
    able, passed = survey()
    if not able:
        raise no_client(passed)
    chosen = able[0]
    notes = [f"skipped {one.path}: {one.why}" for one in passed]
    how = "buildx" if chosen.buildkit == "buildx" else "BuildKit built in"
    return finding("client", "ok", "; ".join([f"{chosen.path} {chosen.version} ({how})", *notes]))


def check_engine(machine: Machine) -> MachineFinding:
    engine = machine.engine
    if isinstance(engine, EngineError):
        if engine.details.get("state") != "denied":
            raise engine
        warning = (
            "members of the group docker have the rights of root, as a container can mount all files of this machine"
        )
        return finding("engine", "error", f"{engine.message}; {warning}", engine.remedy)
    platforms.check_engine(engine)
    gpus = "with GPUs" if engine.gpus else "no GPU runtime"
    return finding("engine", "ok", f"version {engine.server_version} at {engine.endpoint}, {gpus}")


def fix_engine(_: Machine, say: Say) -> None:
    connect(say=say)


def check_disk(machine: Machine) -> MachineFinding:
    engine = machine.engine
    if isinstance(engine, EngineError):
        return finding("disk", "warning", "not checked: no engine answers", "./invoke doctor --fix")
    root = Path(engine.data_root or "/var/lib/docker")
    if not engine.local or not root.exists():
        return finding("disk", "ok", f"not checked: the engine's disk is not this machine's ({engine.endpoint})")
    free = shutil.disk_usage(root).free
    message = f"{free / GB:.1f} GB free at {root}"
    remedy = f"{engine.client.path} system df; {engine.client.path} builder prune"
    if free < DISK_ERROR:
        return finding("disk", "error", f"{message}; an image needs at least {DISK_ERROR // GB} GB", remedy)
    if free < DISK_WARNING:
        return finding("disk", "warning", f"{message}; a CUDA image may need {DISK_WARNING // GB} GB", remedy)
    return finding("disk", "ok", message)


def check_base(machine: Machine) -> MachineFinding:
    if maker := shutil.which("mmdebstrap"):
        return finding("base images", "ok", f"made from Debian's packages by {maker}")
    mirrors = () if isinstance(machine.engine, EngineError) else machine.engine.mirrors
    if registries := [*machine.registries, *mirrors]:
        return finding("base images", "ok", f"from {', '.join(registries)}")
    message = "no mmdebstrap and no registry mirror: only bases that the engine can pull can be used"
    return finding("base images", "warning", message, engine_packages.commands("mmdebstrap"))


def fix_base(_: Machine, say: Say) -> None:
    setup.ensure_tool("mmdebstrap", say)
