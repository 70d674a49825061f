"""A training job to rehearse, as the user describes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from trainwright.rehearse.words import DEFAULT_INSTANCE, RehearsalStart
from trainwright.sagemaker.job_parts import InstanceGroup

INTERFACE = "eth0"
GROUP = "homogeneousCluster"  # what the platform calls the only group of a cluster of one instance type
STOP_GRACE = 120.0  # seconds that the platform gives a job between SIGTERM and SIGKILL
MAX_HOSTS = 16


@dataclass(frozen=True)
class RehearsedJob:
    """One training job, and how to rehearse it.

    Attributes:
        image: reference or id of the image.
        framework: ``pytorch`` or ``tensorflow``, from the image's labels or the user.
        smp_version: of SageMaker's model parallel library in the image; ``None`` if unknown or missing.
        entry_point: as given: relative to ``source_dir``, or a path if that is not set; empty for the image's program.
        baked: the code is the image's own, as with an ``Estimator`` without ``source_dir``.
        source_dir: the folder that an estimator would upload.
        requirements: a requirements file that replaces the folder's own ``requirements.txt``.
        hosts: number of instances, all groups together.
        processes_per_host: as given; ``None`` for the platform's default for ``instance_type``.
        distribution: the estimator's ``distribution`` argument.
        instance_type: such as ``ml.p4d.24xlarge``; with groups, the type of the hosts that have ranks.
        groups: of a heterogeneous cluster, in the order of its hosts; empty if all hosts have ``instance_type``.
        hyperparameters: the user's own, not encoded.
        inputs: folder by channel.
        sdk: 2 (the image's ``train``) or 3 (the SDK's drivers).
        launch_only: show the launch lines, run nothing.
        timeout: seconds after which the rehearsal is ended.
        stop_after: send SIGTERM, as StopTrainingJob does, this many seconds after every rank started the script (if it
            is not a Python program: after the hosts started); ``None`` for never.
        stop_grace: seconds from SIGTERM to SIGKILL.
        memory: limit of each host in docker's notation (``512m``), if any.
        environment: the estimator's ``environment``: variables of every container.
        interface: name of the network interface in resourceconfig.json.
        start: what starts the job on the hosts: SageMaker, or a cluster of one's own.
    """

    image: str
    entry_point: str
    baked: bool = False
    framework: str = "pytorch"
    smp_version: str | None = None
    source_dir: Path | None = None
    requirements: Path | None = None
    hosts: int = 1
    processes_per_host: int | None = None
    distribution: Mapping[str, Any] | None = None
    instance_type: str = DEFAULT_INSTANCE
    groups: tuple[InstanceGroup, ...] = ()
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, Path] = field(default_factory=dict)
    sdk: Literal[2, 3] = 2
    launch_only: bool = False
    timeout: float = 300.0
    stop_after: float | None = None
    stop_grace: float = STOP_GRACE
    memory: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    interface: str = INTERFACE
    start: RehearsalStart = "sagemaker"

    @property
    def reports_success(self) -> bool:
        """Whether a good job ends with a file, ``output/success``, as by the toolkit, but not by SDK 3's drivers."""
        return self.sdk == 2 and self.start == "sagemaker"

    @property
    def host_names(self) -> tuple[str, ...]:
        """``algo-1``, ``algo-2``, ..."""
        return tuple(f"algo-{number}" for number in range(1, self.hosts + 1))

    @property
    def cluster(self) -> tuple[tuple[InstanceGroup, tuple[str, ...]], ...]:
        """The instance groups with their hosts; at least one."""
        groups = self.groups or (
            InstanceGroup(name=GROUP, instance_type=self.instance_type, instance_count=self.hosts),
        )
        names = iter(self.host_names)
        return tuple((group, tuple(islice(names, group.instance_count))) for group in groups)

    @property
    def rank_hosts(self) -> tuple[str, ...]:
        """Hosts on which the launcher starts ranks; on the others of a heterogeneous cluster, the script runs alone."""
        named = (self.distribution or {}).get("instance_groups", ()) if self.groups else ()
        chosen = [hosts for group, hosts in self.cluster if not named or group.name in named]
        return tuple(host for hosts in chosen for host in hosts)

    def group_of(self, host: str) -> InstanceGroup:
        """The instance group of a host."""
        return next(group for group, hosts in self.cluster if host in hosts)
