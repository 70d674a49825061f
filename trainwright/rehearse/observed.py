"""The observations of a rehearsed job: plain data for ``verdict`` and ``causes``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from trainwright.rehearse.rehearsed_job import RehearsedJob
from trainwright.sagemaker.distribution import Launcher

End = Literal["by itself", "taken down", "timeout", "stopped"]


@dataclass(frozen=True)
class Process:
    """A Python process of a host, as its observer reported it.

    Attributes:
        pid, parent: process ids inside the container.
        argv: its command line.
        cwd: its working folder when it began.
        started: Unix time.
        environment: the variables that say what a process is (``RANK``, ``WORLD_SIZE``, ``LOCAL_RANK``,
            ``OMPI_COMM_WORLD_RANK``, ..., ``TF_CONFIG``, ``SM_CURRENT_HOST``).
        host_name: its ``socket.gethostname()``.
        world_sizes: by library (``torch``, ``mpi``, ``tensorflow``): the world size that it saw.
        reduced: by library: the sum over all ranks of ``rank + 1``.
        reached: tasks of a TensorFlow cluster (``worker:0``, ``ps:1``) that computed something for this process.
        error: type, message and traceback of the exception that ended it; empty if none did.
        error_line: its type and the first line of its message.
        error_at: Unix time of that exception, or 0.
        handles: whether it had a handler for SIGTERM (known only if the rehearsal sends one).
        signal: Unix time at which that handler was called, or 0.
        ended: whether it exited in an orderly way.
        stack: its stacks at the timeout; empty if not requested.
    """

    pid: int
    parent: int
    argv: tuple[str, ...]
    cwd: str = ""
    started: float = 0.0
    environment: Mapping[str, str] = field(default_factory=dict)
    host_name: str = ""
    world_sizes: Mapping[str, int] = field(default_factory=dict)
    reduced: Mapping[str, float] = field(default_factory=dict)
    reached: tuple[str, ...] = ()
    error: str = ""
    error_line: str = ""
    error_at: float = 0.0
    handles: bool = False
    signal: float = 0.0
    ended: bool = False
    stack: str = ""

    @property
    def rank(self) -> int | None:
        """Its rank in the job; ``None`` if no launcher numbered it."""
        number = _number(self.environment, "OMPI_COMM_WORLD_RANK", "RANK")
        return _tf_task(self.environment)[0] if number is None else number

    @property
    def local_rank(self) -> int | None:
        """Its rank on its host."""
        return _number(self.environment, "OMPI_COMM_WORLD_LOCAL_RANK", "LOCAL_RANK")

    @property
    def world_size(self) -> int | None:
        """The world size according to its launcher."""
        number = _number(self.environment, "OMPI_COMM_WORLD_SIZE", "WORLD_SIZE")
        return _tf_task(self.environment)[1] if number is None else number


@dataclass(frozen=True)
class HostFacts:
    """The observations of one host.

    Attributes:
        name: ``algo-1``.
        container_host_name: the container's own host name (never algo-N, as on the platform).
        exit_code: of the container; ``None`` if it never started.
        end: by itself, taken down with the others, at the timeout, or by the stop.
        ended_at: Unix time.
        out_of_memory: whether the kernel killed a process in it because memory ran out.
        success: whether ``output/success`` exists.
        failure: text of ``output/failure``, if it exists.
        log: its last lines (at most :data:`LOG_LINES`).
        processes: its Python processes, by start time.
        others: command lines of all processes that were running at the timeout.
        seconds: from start to end.
        started_at: Unix time.
    """

    name: str
    container_host_name: str = ""
    exit_code: int | None = None
    end: End = "by itself"
    ended_at: float = 0.0
    out_of_memory: bool = False
    success: bool = False
    failure: str | None = None
    log: tuple[str, ...] = ()
    processes: tuple[Process, ...] = ()
    others: tuple[str, ...] = ()
    seconds: float = 0.0
    started_at: float = 0.0

    @property
    def text(self) -> str:
        """The log as one text, followed by the failure file."""
        return "\n".join([*self.log, self.failure or ""])


LOG_LINES = 20_000


@dataclass(frozen=True)
class JobFacts:
    """The observations of one job.

    Attributes:
        job: the job.
        launcher: the launcher that should have started the ranks.
        processes_per_host: how many it should have started on each host.
        hosts: by number.
        timed_out: whether the timeout passed before every host had ended.
        stopped: Unix time of the SIGTERM of ``RehearsedJob.stop_after``; 0 if none was sent.
        seconds: from the first start to the last end.
    """

    job: RehearsedJob
    launcher: Launcher
    processes_per_host: int
    hosts: tuple[HostFacts, ...]
    timed_out: bool = False
    stopped: float = 0.0
    seconds: float = 0.0

    @property
    def world_size(self) -> int:
        """How many ranks there should have been."""
        return len(self.job.rank_hosts) * self.processes_per_host

    @property
    def distributed(self) -> bool:
        """Whether a launcher should have numbered the ranks."""
        return self.launcher != "process"


@dataclass(frozen=True)
class Cause:
    """Why a job failed, for a person.

    Attributes:
        id: a short name of the kind of failure, such as ``mca-key-repeated``.
        text: one line.
        remedy: what to do.
        host: the host it concerns; empty if none in particular.
        rank: the rank it concerns.
        last_lines: the last lines of that rank or host, if the cause knows better than the verdict.
    """

    id: str
    text: str
    remedy: str
    host: str = ""
    rank: int | None = None
    last_lines: tuple[str, ...] = ()


def _number(environment: Mapping[str, str], *names: str) -> int | None:
    for name in names:
        if (value := environment.get(name, "")).isdigit():
            return int(value)
    return None


def _tf_task(environment: Mapping[str, str]) -> tuple[int | None, int | None]:
    """Rank and world size from ``TF_CONFIG``: the tasks that run the script are the chief, or master, and the workers.

    Parameter servers run in the toolkit's own process, and an evaluator does not take part in the training.
    """
    try:
        config = json.loads(environment.get("TF_CONFIG", ""))
        cluster, task = config["cluster"], config["task"]
        tasks = [
            (kind, number) for kind in ("chief", "master", "worker") for number in range(len(cluster.get(kind, ())))
        ]
        own = (task["type"], int(task["index"]))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None, None
    return (tasks.index(own), len(tasks)) if own in tasks else (None, None)
