"""Finds out why a rehearsed job failed: the cause in one line, and what to do.

Failures that a program reports are in the catalogue of :mod:`trainwright.sagemaker.causes`. The rules here look at
the facts instead, because a job that reports success without having done its work says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from trainwright.rehearse.observed import Cause, HostFacts, JobFacts, Process
from trainwright.rehearse.rehearsed_job import RehearsedJob
from trainwright.sagemaker.causes import filled, load_book
from trainwright.sagemaker.diagnosis import diagnose
from trainwright.sagemaker.distribution import BY_TF_CONFIG, Launcher, needs_framework_module
from trainwright.sagemaker.instances import instance
from trainwright.sagemaker.log_lines import rank_of

KILLED = 137  # 128 + SIGKILL
MODULE = "sagemaker-pytorch-training and SAGEMAKER_TRAINING_MODULE=sagemaker_pytorch_container.training:main"
MODULE_TF = "sagemaker-tensorflow-training and SAGEMAKER_TRAINING_MODULE=sagemaker_tensorflow_container.training:main"


def before_start(job: RehearsedJob, processes_per_host: int) -> Cause | None:
    """The cause of a failure that does not depend on the script; checked before a host is started.

    Args:
        job: the job.
        processes_per_host: the number of processes that will start on each host.
    """
    machine = instance(job.instance_type)
    devices, noun = (
        (machine.gpus, "GPU") if machine.accelerator == "gpu" else (machine.processes_per_host, "NeuronCore")
    )
    if machine.accelerator is None or processes_per_host <= devices:
        return None
    return Cause(
        "too-many-processes",
        f"{processes_per_host} processes per host, and {machine.name} has {devices} {noun}s: "
        f"ranks {devices} and up have no device",
        f"Use {devices} processes per host, or omit the number: the toolkit starts one per {noun}.",
        host=job.rank_hosts[0],
        rank=devices,
    )


def explain(facts: JobFacts) -> Cause | None:
    """Why the job failed, or succeeded without doing its work; ``None`` if no rule applies."""
    rules: tuple[Callable[[JobFacts], Cause | None], ...] = (_baked_code, _stop)
    if facts.stopped:
        # A stopped process does not end like a failed one, and launchers print a lot about it.
        rules += (_raised,)
    elif failed(facts):
        rules += (_memory, _said, _no_ssh_server, _servers_gone, _silent, _raised, _diagnosed)
    rules += (_plain_toolkit, _one_hosts_ranks)
    if facts.job.stop_after is not None and not facts.stopped and not failed(facts):
        rules += (no_stop_sent,)
    return next((cause for rule in rules if (cause := rule(facts)) is not None), None)


def failed(facts: JobFacts) -> bool:
    """Whether a host reports a failure: exit code, failure file or timeout.

    SDK 3's drivers and clusters write no ``output/success``, so it is required only of the toolkit.
    """
    return facts.timed_out or any(
        host.exit_code != 0 or host.failure is not None or (facts.job.reports_success and not host.success)
        for host in facts.hosts
    )


def _said(facts: JobFacts) -> Cause | None:
    """The first cause of the catalogue that matches a host's text; hosts that ended by themselves come first."""
    hosts = sorted(facts.hosts, key=lambda host: (host.end != "by itself", host.ended_at))
    for known in load_book().rehearsal:
        for host in hosts:
            if found := known.search.search(host.text):
                words = {name: value for name, value in found.groupdict().items() if value}
                words.setdefault("program", words.get("other", ""))
                return Cause(
                    known.id,
                    filled(known.cause, words),
                    filled(known.remedy, words),
                    host=host.name,
                    rank=rank_of(_line_at(host.text, found.start())),
                )
    return None


def _line_at(text: str, place: int) -> str:
    return text[text.rfind("\n", 0, place) + 1 : place + 40]


def _baked_code(facts: JobFacts) -> Cause | None:
    """Code in the image's ``/opt/ml/code``: the toolkit (5.1.1 and newer) logs at INFO that it ignores the job's."""
    for host in () if facts.job.baked else facts.hosts:
        if "is not empty, abandoning unzipping" in host.text:
            return Cause(
                "code-in-image",
                "the image has code in /opt/ml/code, so the toolkit ignored this job's source folder",
                "Build the image without --code, or run the image's own code: an Estimator without source_dir, which "
                "./invoke rehearse without --entry-point rehearses.",
                host=host.name,
            )
    return None


def _stop(facts: JobFacts) -> Cause | None:
    """SIGTERM must reach the script and end the job within the platform's 120 s."""
    if not facts.stopped:
        return None
    late = next((host for host in facts.hosts if host.end == "stopped"), None)
    if late is None:
        return None
    grace = f"{facts.job.stop_grace:g} s"
    heard = any(process.signal for host in facts.hosts for process in host.processes)
    if heard:
        return Cause(
            "stop-too-slow",
            f"the job was still running {grace} after SIGTERM, when the platform kills it",
            "Save a checkpoint and exit within that time; anything written later is lost.",
            host=late.name,
        )
    return Cause(
        "stop-not-heard",
        f"SIGTERM reached no process that handles it, so the job was killed {grace} later without a checkpoint",
        _NO_FORWARDING[facts.job.sdk],
        host=late.name,
    )


_NO_FORWARDING = {
    2: "train does not forward signals. Give the image an ENTRYPOINT that does, such as training-init of "
    "Trainwright's images (docs/rehearse.md), and the script a handler for SIGTERM.",
    3: "SDK 3 replaces the image's ENTRYPOINT with its own script, which does not forward signals: save "
    "checkpoints during training, or start the job with SDK 2.",
}


def no_stop_heard(facts: JobFacts, process: Process, host: str, rank: int | None) -> Cause:
    """A rank that SIGTERM ended silently: it has no handler, or the signal did not reach it."""
    who = f"rank {rank}" if rank is not None else "the script"
    if not process.handles:
        return Cause(
            "stop-no-handler",
            f"{who} has no handler for SIGTERM, so a stop ends it without a checkpoint",
            "Call signal.signal(signal.SIGTERM, HANDLER) in every rank before training; the handler saves and exits.",
            host=host,
            rank=rank,
        )
    return Cause(
        "stop-not-heard",
        f"{who} has a handler for SIGTERM but never received it: its process was killed with the job",
        _NO_FORWARDING[facts.job.sdk],
        host=host,
        rank=rank,
    )


def no_stop_sent(facts: JobFacts) -> Cause:
    """The job ended before the stop."""
    return Cause(
        "stop-not-sent",
        f"the script ended before SIGTERM was due, {facts.job.stop_after:g} s after it started on every host",
        "Give the script more to do, or use a smaller --stop-after.",
        host=facts.hosts[0].name,
    )


def _memory(facts: JobFacts) -> Cause | None:
    """Out of memory: the kernel kills one process, which each launcher reports in its own way."""
    said = re.compile(
        r"OutOfMemory: Process killed|exited on signal 9 \(Killed\)|Signal 9 \(SIGKILL\) received|ExitCode -9\b"
    )
    for host in sorted(facts.hosts, key=lambda host: (not host.out_of_memory, host.ended_at)):
        found = said.search(host.text)
        own = host.exit_code == KILLED and host.end == "by itself"
        if not (host.out_of_memory or own or (found and host.end == "by itself")):
            continue
        victim = _killed(host)
        limit = f" (the limit is {facts.job.memory})" if facts.job.memory else ""
        return Cause(
            "out-of-memory" if host.out_of_memory else "killed",
            f"out of memory{limit}: the kernel killed a process of {host.name} (SIGKILL, exit code 137)"
            if host.out_of_memory
            else f"a process of {host.name} was killed (SIGKILL, exit code 137), as happens when memory runs out",
            "Use a smaller batch or fewer processes and data loader workers per host, or an instance type with more "
            "memory.",
            host=host.name,
            rank=victim.rank if victim else None,
        )
    return None


def _killed(host: HostFacts) -> Process | None:
    """The rank that ended silently, if any."""
    ranks = [process for process in host.processes if process.rank is not None and process.argv != ("(fork)",)]
    silent = [process for process in ranks if not process.ended and not process.error]
    return silent[0] if silent else None


def _no_ssh_server(facts: JobFacts) -> Cause | None:
    """Hosts that wait for each other forever because no sshd runs; without host keys it exits at once."""
    if not facts.timed_out or facts.launcher not in ("mpi", "smddp"):
        return None
    for host in facts.hosts:
        keys = re.search(r"no hostkeys available|could not load host key", host.text, re.IGNORECASE)
        # Of a program that has ended and that nobody waits for, ps says "[sshd] <defunct>".
        server = any(re.search(r"(?:^|/)sshd\b", line) for line in host.others)
        if keys or (host.others and not server):
            return Cause(
                "sshd-not-running",
                f"sshd does not run on {host.name}"
                + (": it has no host keys" if keys else " (without host keys it exits at once and says nothing)")
                + "; the hosts wait for each other forever",
                "Create the keys when the server starts: ssh-keygen -A. The component ssh does this.",
                host=host.name,
            )
    return None


def _servers_gone(facts: JobFacts) -> Cause | None:
    """A host's script ended before the coordinator's and took its parameter server with it; the coordinator hangs.

    sagemaker-tensorflow-training 20.4.1 (``training.py``) keeps a host up while ``curl`` reaches port 2222 of the
    first one. A gRPC server does not speak HTTP/1, so curl fails (measured with 7.88) and
    the first check takes that host for gone.
    """
    if facts.launcher != "parameter-server" or facts.hosts[0].exit_code == 0:
        return None
    for host in facts.hosts[1:]:
        if host.end == "by itself" and host.exit_code == 0 and "is down, stopping parameter server" in host.text:
            return Cause(
                "parameter-server-gone",
                f"the script ended on {host.name}, and the toolkit stopped its parameter server while "
                f"{facts.hosts[0].name} was still training: it assumes at once that {facts.hosts[0].name} is gone",
                f"Keep the script of every other host alive until port 2222 of {facts.hosts[0].name} is closed, as "
                "examples/tensorflow-parameter-server does.",
                host=host.name,
            )
    return None


def _silent(facts: JobFacts) -> Cause | None:
    """``train`` ended with 0 and wrote neither success nor failure, so it did nothing."""
    for host in facts.hosts:
        if facts.job.reports_success and host.exit_code == 0 and not host.success and host.failure is None:
            return Cause(
                "train-silent",
                "train ended with exit code 0, but wrote neither output/success nor output/failure: it did nothing",
                "Is train the toolkit's own, and can it write to /opt/ml/output? If not, it hides every error behind "
                "exit code 0 (docker run --rm --entrypoint sh IMAGE -c 'head -n 3 $(command -v train)').",
                host=host.name,
            )
    return None


def _raised(facts: JobFacts) -> Cause | None:
    """The first rank that raised an exception; the others fail or wait because of it."""
    wrong = [(process, host) for host in facts.hosts for process in host.processes if process.error]
    ranked = [pair for pair in wrong if pair[0].rank is not None]
    script = facts.job.entry_point.rpartition("/")[2]
    scripts = [pair for pair in wrong if any(word.rpartition("/")[2] == script for word in pair[0].argv)]
    for process, host in sorted(ranked or scripts, key=lambda pair: pair[0].error_at):
        lines = tuple(line for line in process.error.splitlines() if line.strip())
        # A long message fills the last lines of a traceback, and its last line is often the least useful.
        last = process.error_line or (lines[-1] if lines else "an exception")
        who = f"rank {process.rank}" if process.rank is not None else "the script"
        cause = Cause(
            "script-raised",
            f"{who} raised {last}",
            "The traceback says where. The other ranks were waiting for it, or failed because of it."
            if facts.distributed and facts.world_size > 1
            else "The traceback says where.",
            host=host.name,
            rank=process.rank,
            last_lines=lines[-20:],
        )
        if missing := re.match(r"ModuleNotFoundError: No module named '([^']+)'", last):
            return replace(
                cause,
                id="module-missing",
                text=f"{who} imports {missing[1]}, which the image does not have",
                remedy="Add its package to requirements.txt, or to the image (build --with-requirements).",
            )
        return cause
    return None


def _diagnosed(facts: JobFacts) -> Cause | None:
    """What ``diagnose`` finds in the log of the host that failed first. Not for a hang: stacks say more."""
    if facts.timed_out:
        return None
    for host in sorted(facts.hosts, key=lambda host: (host.end != "by itself", host.ended_at)):
        found = next((one for one in diagnose(host.text.splitlines()).causes if one.certainty != "consequence"), None)
        if found is not None:
            return Cause(found.id, found.cause, found.remedy, host=host.name, rank=rank_of(found.evidence[0].text))
    return None


def _plain_toolkit(facts: JobFacts) -> Cause | None:
    """Without a framework's module, sagemaker-training knows only single processes and MPI; it starts the former."""
    if not facts.job.reports_success or not needs_framework_module(facts.launcher):
        return None
    ranked = [
        process for process in _processes(facts) if process.rank is not None or "TF_CONFIG" in process.environment
    ]
    ran = [host for host in facts.hosts if "Invoking script with the following command" in host.text]
    # With a single host, the module starts one process as well.
    if ranked or not ran or (facts.launcher == "parameter-server" and facts.job.hosts == 1):
        return None
    if any("Imported framework" in host.text for host in ran):
        return None
    module = module_of(facts.launcher, facts.job.framework)
    return Cause(
        "plain-toolkit",
        f"{facts.launcher} was requested, but the image has the plain training toolkit, which started one process per "
        "host and reported success",
        f"Add the framework's module to the image: {module}.",
        host=ran[0].name,
    )


def module_of(launcher: Launcher, framework: str) -> str:
    """The framework's module that supports a launcher, as a remedy names it."""
    return MODULE_TF if framework == "tensorflow" or launcher in BY_TF_CONFIG else MODULE


def _one_hosts_ranks(facts: JobFacts) -> Cause | None:
    """SDK 3's MPI driver passes the process count of one host as ``-np`` (sagemaker-train 1.27.0, mpi_driver.py)."""
    if facts.job.sdk != 3 or facts.launcher != "mpi" or facts.job.hosts < 2:
        return None
    sizes = {process.world_size for process in _processes(facts) if process.world_size is not None}
    if sizes != {facts.processes_per_host}:
        return None
    count, world = facts.processes_per_host, facts.world_size
    return Cause(
        "sdk3-one-hosts-ranks",
        f"SDK 3's MPI driver started the ranks of one host only: a world of {count} instead of {world} "
        f"({facts.job.hosts} hosts with {count} each); {facts.job.hosts - 1} of the hosts did nothing",
        f'MPI(process_count_per_node={count}, mpi_additional_options=["-np", "{world}"]): the last -np wins. Here: '
        f'--distribution \'{{"MPI": {{"process_count_per_node": {count}, '
        f'"mpi_additional_options": ["-np", "{world}"]}}}}\'',
        host="algo-1",
    )


def _processes(facts: JobFacts) -> Iterator[Process]:
    return (process for host in facts.hosts for process in host.processes)
