"""What was seen of a rehearsed job: plain data, from which ``verdict`` and ``causes`` judge."""

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
    """A Python process of a host, as the observer in it told.

    Attributes:
        pid, parent: process ids inside of the container.
        argv: its command line.
        cwd: its working folder when it began.
        started: Unix time.
        environment: those variables that say what a process is (``RANK``, ``WORLD_SIZE``, ``LOCAL_RANK``,
            ``OMPI_COMM_WORLD_RANK``, ..., ``TF_CONFIG``, ``SM_CURRENT_HOST``).
        host_name: what ``socket.gethostname()`` says in it.
        world_sizes: by library (``torch``, ``mpi``, ``tensorflow``): the size of the world that it joined.
        reduced: by library: the sum over all ranks of ``rank + 1``.
        reached: tasks of a TensorFlow cluster (``worker:0``, ``ps:1``) that computed something for this process.
        error: type, message and traceback of the exception that ended it; empty: none did.
        error_line: its type and the first line of its message.
        error_at: Unix time of that exception; 0: none.
        handles: it had a handler for SIGTERM (known only where the rehearsal sends one).
        signal: when that handler was called (Unix time; 0: never).
        ended: whether it came to its end in an orderly way.
        stack: its stacks when time was up (empty: not asked).
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
        """Its rank in the job; none for a process that no launcher numbered."""
        number = _number(self.environment, "OMPI_COMM_WORLD_RANK", "RANK")
        return _tf_task(self.environment)[0] if number is None else number

    @property
    def local_rank(self) -> int | None:
        """Its rank among those of its host."""
        return _number(self.environment, "OMPI_COMM_WORLD_LOCAL_RANK", "LOCAL_RANK")

    @property
    def world_size(self) -> int | None:
        """How many ranks its launcher said there are."""
        number = _number(self.environment, "OMPI_COMM_WORLD_SIZE", "WORLD_SIZE")
        return _tf_task(self.environment)[1] if number is None else number


@dataclass(frozen=True)
class HostFacts:
    """What was seen of one host.

    Attributes:
        name: ``algo-1``.
        container_host_name: what the container itself is called (never algo-N, as on the platform).
        exit_code: of the container; ``None``: it never started.
        end: whether it ended by itself or was taken down with the others, at the timeout, or by the stop.
        ended_at: Unix time.
        out_of_memory: the kernel killed something in it for want of memory.
        success: ``output/success`` is there.
        failure: text of ``output/failure``; ``None``: there is none.
        log: its last lines (at most :data:`LOG_LINES`).
        processes: its Python processes, in the order in which they began.
        others: command lines of all processes that were running when time was up.
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
        """The log as one text, with the failure file behind it."""
        return "\n".join([*self.log, self.failure or ""])


LOG_LINES = 20_000


@dataclass(frozen=True)
class JobFacts:
    """What was seen of one job.

    Attributes:
        job: what was asked.
        launcher: what should have started the ranks.
        processes_per_host: how many that should have been per host.
        hosts: in the order of their numbers.
        timed_out: the time was up before every host had ended.
        stopped: Unix time of the SIGTERM of ``RehearsedJob.stop_after``; 0: none was sent, as the job had ended by then.
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
        id: a short name of the kind of failure, as ``mca-key-repeated``.
        text: one line.
        remedy: what to do.
        host: where it was seen; empty: nowhere in particular.
        rank: the rank that it is about.
        last_lines: what that rank (or host) said last, where the cause knows better than the verdict.
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
    """Rank and number of those tasks of ``TF_CONFIG`` that run the script: the chief, or master, and the workers.

    Parameter servers run in the toolkit's own process, and an evaluator has no part in the training.
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
