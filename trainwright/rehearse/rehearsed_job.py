"""What is rehearsed: a training job as a user describes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from trainwright.sagemaker.job import InstanceGroup

DEFAULT_INSTANCE = "ml.m5.xlarge"
INTERFACE = "eth0"
GROUP = "homogeneousCluster"  # what the platform calls the only group of a cluster of one instance type
STOP_GRACE = 120.0  # seconds that the platform gives a job between SIGTERM and SIGKILL
MAX_HOSTS = 16


@dataclass(frozen=True)
class RehearsedJob:
    """One training job, and how it is rehearsed.

    Attributes:
        image: reference or id of the image.
        framework: ``pytorch`` or ``tensorflow``, as the image's labels or the user say.
        smp_version: of SageMaker's model parallel library in the image; ``None``: not known, or not there.
        entry_point: as given: relative to ``source_dir``, or a file of its own where there is none.
        source_dir: the folder that an estimator would upload.
        requirements: a requirements file that stands for the folder's own ``requirements.txt``.
        hosts: how many instances, all groups together.
        processes_per_host: as given; ``None``: what the platform would take for ``instance_type``.
        distribution: the estimator's ``distribution`` argument.
        instance_type: such as ``ml.p4d.24xlarge``; with groups, of those hosts that have ranks.
        groups: of a heterogeneous cluster, in the order of its hosts; empty: all hosts are of ``instance_type``.
        hyperparameters: the user's own, not encoded.
        inputs: channel to folder.
        sdk: whose contract: 2 (the image's ``train``) or 3 (the SDK's drivers).
        launch_only: show the launch lines, run nothing.
        timeout: seconds until the rehearsal is ended.
        stop_after: send SIGTERM, as StopTrainingJob does, so many seconds after every rank began to run the script (of
            a script that is no Python program: after the hosts began); ``None``: never.
        stop_grace: seconds from SIGTERM to SIGKILL.
        memory: limit of each host as docker writes it (``512m``); ``None``: none.
        environment: the estimator's ``environment``: variables of every container.
        interface: the name that resourceconfig.json gives for the network interface.
    """

    image: str
    entry_point: str
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
        """Hosts on which the launcher starts ranks; on the others of a heterogeneous cluster the script runs alone."""
        named = (self.distribution or {}).get("instance_groups", ()) if self.groups else ()
        chosen = [hosts for group, hosts in self.cluster if not named or group.name in named]
        return tuple(host for hosts in chosen for host in hosts)

    def group_of(self, host: str) -> InstanceGroup:
        """The instance group of a host."""
        return next(group for group, hosts in self.cluster if host in hosts)
