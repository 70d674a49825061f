"""Judges the observations of a job: which checks passed, which failed, and why."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from trainwright.core.junit import Outcome
from trainwright.rehearse.causes import explain, no_stop_heard, no_stop_sent
from trainwright.rehearse.launch_only import LaunchLine, awaited, find_cause
from trainwright.rehearse.observed import Cause, HostFacts, JobFacts, Process
from trainwright.rehearse.observer_files import processes
from trainwright.rehearse.rehearsed_job import RehearsedJob

LAST_LINES = 20
_AGENTS = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "mpirun", "train")
_FRAME = re.compile(r'  File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>.+)')


@dataclass(frozen=True)
class JobCheck:
    """One requirement; ``says`` is what was found."""

    name: str
    outcome: Outcome
    says: str


@dataclass(frozen=True)
class Rank:
    """A rank of the job, or a script that no launcher numbered (``rank`` is then ``None``)."""

    host: str
    process: Process

    @property
    def rank(self) -> int | None:
        return self.process.rank


@dataclass(frozen=True)
class Verdict:
    """The outcome of all checks; ``cause`` is set if one failed."""

    checks: tuple[JobCheck, ...]
    ranks: tuple[Rank, ...]
    notes: tuple[str, ...]
    cause: Cause | None

    @property
    def passed(self) -> bool:
        return self.cause is None


def judge(facts: JobFacts) -> Verdict:
    """Judge a job by its observations."""
    found = ranks(facts)
    if facts.stopped:
        checks = [_stop(facts, found)]
    else:
        checks = [_time(facts), _exit_codes(facts), _reports(facts), *_truth(facts, found)]
        if facts.job.stop_after is not None:
            checks.append(JobCheck("stop", "failed", "not sent: the job ended before it was due"))
    kept = [check for check in checks if check.says]
    failed = [check for check in kept if check.outcome == "failed"]
    cause = explain(facts) or (_cause(facts, found, failed) if failed else None)
    if cause is not None and not failed:
        # The job reports success, but did not do what was asked.
        kept.append(JobCheck("what was asked", "failed", cause.text))
    return Verdict(tuple(kept), tuple(found), tuple(_notes(facts, found)), cause)


def judge_launches(facts: JobFacts, launches: Sequence[LaunchLine]) -> Verdict:
    """Judge a job that was run with ``--launch-only``."""
    hosts = facts.job.rank_hosts
    lacking = sorted(awaited(facts.launcher, facts.job) - {launch.host for launch in launches})
    if lacking:
        check = JobCheck("launch lines", "failed", f"nothing was launched on {', '.join(lacking)}")
        cause = explain(facts) or _cause(facts, [], [check])
        return Verdict((check,), (), (), cause)
    wrong = find_cause(facts.launcher, tuple(launch for launch in launches if launch.host in hosts), hosts)
    said = f"{len(launches)} on {', '.join(dict.fromkeys(launch.host for launch in launches))}"
    check = JobCheck("launch lines", "failed" if wrong else "passed", wrong.text if wrong else said)
    return Verdict((check,), (), (), wrong)


def ranks(facts: JobFacts) -> list[Rank]:
    """The processes that run the user's script: the ranks if there are any, else the script of each host."""
    found = [Rank(host.name, one) for host in facts.hosts for one in scripts(host.processes, facts.job.entry_point)]
    return sorted(found, key=lambda one: (one.rank is None, one.rank or 0, one.host))


def scripts(processes: Sequence[Process], entry_point: str) -> list[Process]:
    """The processes of a host that run the script, without their children, which inherit much from them."""
    found = [one for one in processes if runs_script(one, entry_point)]
    pids = {one.pid for one in found}
    return [one for one in found if one.parent not in pids]


def at_work(job: RehearsedJob, processes_per_host: int, folders: Mapping[str, Path]) -> bool:
    """Whether every rank runs its script; always true if the script is not a Python program.

    Args:
        job: the job.
        processes_per_host: the number of ranks of a host that has any.
        folders: the ``facts`` of each host, by name.
    """
    return not job.entry_point.endswith(".py") or all(
        len(scripts(processes(folder), job.entry_point)) >= (processes_per_host if host in job.rank_hosts else 1)
        for host, folder in folders.items()
    )


def runs_script(process: Process, entry_point: str) -> bool:
    """Whether a process runs the user's script, rather than a launcher with the script among its arguments."""
    name = entry_point.rpartition("/")[2]
    # A module after -m is a launcher only by its full name: the user's own may be called train.
    first = pairwise(("", *process.argv[:4]))
    programs = [word.rpartition("/")[2] for before, word in first if before != "-m" or "." in word]
    if any(word in _AGENTS for word in programs) or "torch.distributed.run" in process.argv[:4]:
        return False
    module = name.removesuffix(".py")
    return any(word.rpartition("/")[2] == name for word in process.argv) or (
        "-m" in process.argv and module in process.argv
    )


def waiting_for(stack: str) -> str:
    """Where the main thread of a process is waiting: the innermost frame, and the nearest one of a script.

    Returns:
        ``accept (socket.py:295), called at train.py:12``; empty without a stack.
    """
    thread: list[tuple[str, str, str]] = []
    blocks = re.split(r"\n(?=(?:Current t|T)hread )", stack)
    # faulthandler puts the most recent call first, and the current (main) thread last.
    for block in blocks:
        frames = [(match["file"], match["line"], match["function"]) for match in _FRAME.finditer(block)]
        if frames and ("Current thread" in block or not thread or "<module>" in frames[-1][2]):
            thread = frames
    if not thread:
        return ""
    file, line, function = thread[0]
    said = f"{function} ({_short(file)}:{line})"
    own = next(
        (frame for frame in thread[1:] if frame[0].startswith(("/opt/ml/code", "/opt/ml/input/data/code"))), None
    )
    return f"{said}, called at {_short(own[0])}:{own[1]}" if own else said


def _short(path: str) -> str:
    return re.sub(r"^.*/(?:site-packages|dist-packages|lib/python3\.\d+)/|^/opt/ml/(?:code|input/data/code)/", "", path)


def _time(facts: JobFacts) -> JobCheck:
    if not facts.timed_out:
        return JobCheck("time", "passed", f"every host ended within {facts.job.timeout:g} s")
    late = [host.name for host in facts.hosts if host.end == "timeout"]
    return JobCheck("time", "failed", f"no end after {facts.job.timeout:g} s: {', '.join(late)}")


def _exit_codes(facts: JobFacts) -> JobCheck:
    bad = [host for host in facts.hosts if host.exit_code != 0 and host.end == "by itself"]
    taken = [host for host in facts.hosts if host.end == "taken down"]
    if not bad and not taken:
        done = all(host.exit_code == 0 for host in facts.hosts)
        return JobCheck("exit codes", "passed" if done else "skipped", "0 on every host" if done else "")
    said = [f"{host.exit_code} on {host.name}" for host in bad]
    said += [f"{host.name} was then taken down" for host in taken]
    return JobCheck("exit codes", "failed", ", ".join(said))


def _reports(facts: JobFacts) -> JobCheck:
    if facts.job.start != "sagemaker":
        return JobCheck("reports", "skipped", "")  # a cluster has exit codes alone
    if facts.job.sdk == 3:
        # SDK 3's drivers write only the failure file.
        failed = [host.name for host in facts.hosts if host.failure is not None]
        where = ", ".join(failed) or "no host"
        return JobCheck("reports", "failed" if failed else "passed", f"output/failure on {where}")
    lacking = [host.name for host in facts.hosts if not host.success and host.end == "by itself"]
    failed = [host.name for host in facts.hosts if host.failure is not None]
    if not lacking and not failed:
        done = all(host.success for host in facts.hosts)
        return JobCheck("reports", "passed" if done else "skipped", "output/success on every host" if done else "")
    said = [f"no output/success on {', '.join(lacking)}"] if lacking else []
    said += [f"output/failure on {', '.join(failed)}"] if failed else []
    return JobCheck("reports", "failed", "; ".join(said))


def _truth(facts: JobFacts, found: Sequence[Rank]) -> Iterable[JobCheck]:
    """What the ranks saw; checked only if the job reports success."""
    if any(host.exit_code != 0 for host in facts.hosts):
        return
    if not any(host.processes for host in facts.hosts):
        yield JobCheck("script", "skipped", "not checked: the image has no Python to observe")
        return
    if not facts.job.entry_point.endswith(".py"):
        yield JobCheck("script", "skipped", f"not checked: {facts.job.entry_point} is not a Python program")
        return
    idle = [host.name for host in facts.hosts if host.name not in {one.host for one in found}]
    if idle:
        yield JobCheck("script", "failed", f"{facts.job.entry_point} never ran on {', '.join(idle)}")
    else:
        yield JobCheck("script", "passed", f"{facts.job.entry_point} ran on every host")
    if not facts.distributed:
        return
    yield _world(facts, found)
    yield _host_names(facts, found)
    yield _servers(facts, found) if facts.launcher == "parameter-server" else _all_reduce(facts, found)


def _world(facts: JobFacts, found: Sequence[Rank]) -> JobCheck:
    wanted = facts.world_size
    formula = f"{len(facts.job.rank_hosts)} x {facts.processes_per_host}"
    numbered = [one for one in found if one.rank is not None]
    if not numbered:
        return JobCheck(
            "world size", "failed", f"no launcher numbered a rank; {facts.launcher} should have started {wanted}"
        )
    seen = {size for one in numbered for size in (one.process.world_size, *one.process.world_sizes.values()) if size}
    right = seen == {wanted} and sorted(one.rank or 0 for one in numbered) == list(range(wanted))
    if right:
        return JobCheck("world size", "passed", f"{wanted} = {formula}")
    said = f"{len(numbered)} ranks saw a world of {' and '.join(map(str, sorted(seen)))}"
    return JobCheck("world size", "failed", f"{said}, not {wanted} = {formula}")


def _host_names(facts: JobFacts, found: Sequence[Rank]) -> JobCheck:
    names: dict[str, set[str]] = {}
    for one in found:
        names.setdefault(one.host, set()).add(one.process.host_name)
    distinct = {name for of_host in names.values() for name in of_host}
    if len(names) == facts.job.hosts and len(distinct) == facts.job.hosts:
        return JobCheck("host names", "passed", ", ".join(sorted(distinct)))
    said = "; ".join(f"{host}: {', '.join(sorted(of_host))}" for host, of_host in sorted(names.items()))
    return JobCheck("host names", "failed", f"ranks on {len(names)} of {facts.job.hosts} hosts ({said})")


def _all_reduce(facts: JobFacts, found: Sequence[Rank]) -> JobCheck:
    numbered = [one for one in found if one.rank is not None]
    proven = {library for one in numbered for library in one.process.reduced}
    if not numbered:
        return JobCheck("all-reduce", "skipped", "")
    if not proven:
        return JobCheck(
            "all-reduce", "skipped", "the ranks never joined a group, so nothing proves that they communicated"
        )
    wanted = facts.world_size * (facts.world_size + 1) / 2
    for library in sorted(proven):
        values = {one.process.reduced.get(library) for one in numbered}
        if values != {wanted}:
            sums = ", ".join("none" if value is None else f"{value:g}" for value in sorted(values, key=str))
            return JobCheck("all-reduce", "failed", f"{library}: {sums}, not {wanted:g} on every rank")
    return JobCheck("all-reduce", "passed", f"{wanted:g} on every rank ({', '.join(sorted(proven))})")


def _servers(facts: JobFacts, found: Sequence[Rank]) -> JobCheck:
    """Instead of an all-reduce: with parameter servers, every task computes something for the coordinator."""
    made = [one.process for one in found if "tensorflow" in one.process.world_sizes]
    reached = {task for process in made for task in process.reached}
    if not made:
        said = "no ParameterServerStrategy was created, so nothing proves that the hosts communicated"
        return JobCheck("cluster", "skipped", said)
    workers, servers = (sum(task.startswith(f"{kind}:") for task in reached) for kind in ("worker", "ps"))
    wanted = facts.world_size - 1  # the coordinator itself runs on the first host
    said = f"workers that the coordinator reached: {workers} of {wanted}; parameter servers: {servers}"
    return JobCheck("cluster", "passed" if workers == wanted and servers else "failed", said)


def _stop(facts: JobFacts, found: Sequence[Rank]) -> JobCheck:
    late = [host.name for host in facts.hosts if host.end == "stopped"]
    if late:
        return JobCheck("stop", "failed", f"{', '.join(late)} still ran {facts.job.stop_grace:g} s after SIGTERM")
    took = max((host.ended_at for host in facts.hosts), default=facts.stopped) - facts.stopped
    ended = f"ended in {max(0.0, took):.1f} s"
    if not found:
        return JobCheck(
            "stop", "passed", f"{ended}; whether the script received SIGTERM is unknown: it is not a Python program"
        )
    if not _living(found):
        return JobCheck("stop", "failed", "no script was running when SIGTERM was sent")
    if deaf := _deaf(found):
        where = sorted({one.host for one in deaf})
        return JobCheck(
            "stop", "failed", f"the script did not receive SIGTERM on {', '.join(where)}: its process was killed"
        )
    return JobCheck("stop", "passed", f"got SIGTERM and {ended}")


def _living(found: Sequence[Rank]) -> list[Rank]:
    """The ranks that were running at SIGTERM."""
    return [one for one in found if not one.process.ended or one.process.signal]


def _deaf(found: Sequence[Rank]) -> list[Rank]:
    return [one for one in _living(found) if not one.process.signal]


def _notes(facts: JobFacts, found: Sequence[Rank]) -> Iterable[str]:
    numbered = [one for one in found if one.rank is not None]
    # TensorFlow 1 scripts use parameter servers through their own sessions, which are not observed.
    alone = facts.launcher != "parameter-server" and not any(one.process.world_sizes for one in numbered)
    if facts.distributed and numbered and alone:
        means = "MultiWorkerMirroredStrategy" if facts.launcher == "mwms" else "torch.distributed or mpi4py"
        yield (
            f"{facts.launcher} started {len(numbered)} ranks, but none joined a group ({means}): "
            "each of them trains separately"
        )
    if facts.launcher == "process" and facts.job.hosts > 1:
        yield f"no distribution was requested: {facts.job.hosts} hosts run the script, each separately"


def _cause(facts: JobFacts, found: Sequence[Rank], failed: Sequence[JobCheck]) -> Cause:
    """The cause if no rule knows one."""
    broken = [one for one in found if one.process.error]
    if facts.timed_out:
        return _hang(facts, found)
    if facts.stopped:
        deaf = _deaf(found)
        return no_stop_heard(facts, deaf[0].process, deaf[0].host, deaf[0].rank) if deaf else no_stop_sent(facts)
    if broken:
        first = min(broken, key=lambda one: one.process.error_at)
        trace = first.process.error.strip().splitlines()
        return Cause(
            id="script-failed",
            text=f"the script failed: {first.process.error_line or trace[-1]}",
            remedy="The traceback is the script's own; on SageMaker it would fail in the same way.",
            host=first.host,
            rank=first.rank,
            last_lines=tuple(trace[-LAST_LINES:]),
        )
    ended = [host for host in facts.hosts if host.exit_code != 0 and host.end == "by itself"]
    if ended:
        first_host = min(ended, key=lambda host: host.ended_at)
        reasons = [line for line in (first_host.failure or "").splitlines() if line.strip()]
        reason = reasons[-1] if reasons else f"exit code {first_host.exit_code}"
        return Cause("host-failed", f"{first_host.name} failed: {reason}", "See its log.", first_host.name)
    check = failed[0]
    host = next((host.name for host in facts.hosts if not host.success), facts.hosts[0].name)
    return Cause(check.name.replace(" ", "-"), f"{check.name}: {check.says}", "See the logs of the hosts.", host)


def _hang(facts: JobFacts, found: Sequence[Rank]) -> Cause:
    waits: list[tuple[Rank, str]] = []
    for one in found:
        if one.process.stack:
            name = one.host if one.rank is None else f"rank {one.rank} ({one.host})"
            waits.append((one, f"{name} in {waiting_for(one.process.stack)}"))
    if not waits:
        for host in facts.hosts:
            waits += [
                (Rank(host.name, process), f"{host.name}: {_program(process)} in {where}")
                for process in host.processes
                if process.stack and (where := waiting_for(process.stack))
            ]
    late = [host for host in facts.hosts if host.end == "timeout"]
    first = waits[0][0] if waits else None
    name = first.host if first else late[0].name
    return Cause(
        id="timeout",
        text=f"no end after {facts.job.timeout:g} s"
        + (f"; waiting: {'; '.join(text for _, text in waits[:4])}" if waits else ""),
        remedy="If the job only needs more time, use --timeout SECONDS; the report has the stacks of every process.",
        host=name,
        rank=first.rank if first else None,
        last_lines=tuple(first.process.stack.splitlines()[:LAST_LINES]) if first else (),
    )


def _program(process: Process) -> str:
    words = [word.rpartition("/")[2] for word in process.argv if not word.startswith("-")]
    return next((word for word in words if not word.startswith("python")), words[0] if words else "?")


def last_lines(facts: JobFacts, cause: Cause) -> tuple[str, ...]:
    """The last lines of the rank (or host) that a cause is about."""
    if cause.last_lines:
        return cause.last_lines
    host = next((one for one in facts.hosts if one.name == cause.host), None)
    if host is None:
        return ()
    return tuple(of_rank(host, cause.rank)[-LAST_LINES:])


def of_rank(host: HostFacts, rank: int | None) -> list[str]:
    """The lines of one rank if mpirun marked them, else all lines of the host."""
    if rank is not None:
        mark = re.compile(rf"\[1,(?:mpirank:)?{rank}[,\]]")
        if own := [line for line in host.log if mark.match(line)]:
            return own
    return list(host.log)
