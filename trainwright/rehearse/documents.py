"""The document of ``rehearse --json``."""

from __future__ import annotations

from typing import Literal

from trainwright.core.records import Document
from trainwright.rehearse.words import RehearsalStart


class RehearsalCheck(Document):
    """One requirement of a job."""

    check: str
    outcome: Literal["passed", "failed", "skipped"]
    says: str


class RehearsedHost(Document):
    """One simulated host. ``end``: by itself, or taken down (with a failed one, at the timeout, at the stop)."""

    name: str
    host_name: str
    exit_code: int | None
    end: Literal["by itself", "taken down", "timeout", "stopped"]
    success: bool
    failure: str | None
    seconds: float
    log: str


class RehearsedRank(Document):
    """One process of the user's script; ``rank`` is null if no launcher numbered it."""

    rank: int | None
    local_rank: int | None
    host: str
    host_name: str
    pid: int
    world_size: int | None
    world_sizes: dict[str, int]
    reduced: dict[str, float]
    reached: list[str]
    error: str


class RehearsedLaunch(Document):
    """A launch line of ``--launch-only``; ``telling`` names the variables that affect the launch."""

    host: str
    argv: tuple[str, ...]
    cwd: str
    environment: dict[str, str]
    telling: tuple[str, ...]
    in_image: str


class RehearsalArtifact(Document):
    """An archive of the hosts' results."""

    path: str
    files: tuple[str, ...]


class RehearsalCause(Document):
    """Why a rehearsal failed."""

    id: str
    text: str
    remedy: str
    host: str
    rank: int | None
    last_lines: tuple[str, ...]


class RehearsedGroup(Document):
    """Hosts of one instance type; a heterogeneous cluster has several."""

    name: str
    instance_type: str
    hosts: tuple[str, ...]


class RehearsalDocument(Document):
    """``rehearse --json`` if the job passed, and ``report.json`` in any case."""

    schema: Literal["trainwright/rehearsal/1"]
    outcome: Literal["passed", "failed"]
    image: str
    image_id: str
    entry_point: str
    sdk: Literal[2, 3]
    start: RehearsalStart = "sagemaker"
    launcher: str
    hosts_asked: int
    processes_per_host: int
    world_size: int
    instance_type: str
    instance_groups: tuple[RehearsedGroup, ...]
    network: Literal["bridge", "veth"]
    gpus: bool
    launch_only: bool
    seconds: float
    checks: tuple[RehearsalCheck, ...]
    hosts: tuple[RehearsedHost, ...]
    ranks: tuple[RehearsedRank, ...]
    launches: tuple[RehearsedLaunch, ...]
    notes: tuple[str, ...]
    artifacts: dict[str, RehearsalArtifact]
    report: str
    cause: RehearsalCause | None
