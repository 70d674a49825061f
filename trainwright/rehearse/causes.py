"""Why a rehearsed job failed: from what was seen of it to the cause, in one line, and what to do.

What some program says of a failure is in the catalogue of :mod:`trainwright.sagemaker.diagnosis`; the rules in here
know a failure by the facts: a job that calls itself a success without having done what was asked says nothing at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from trainwright.rehearse.observed import Cause, HostFacts, JobFacts, Process
from trainwright.rehearse.rehearsed_job import RehearsedJob
from trainwright.sagemaker.diagnosis import diagnose, filled, load_book
from trainwright.sagemaker.distribution import BY_TF_CONFIG, Launcher, needs_framework_module
from trainwright.sagemaker.instances import instance

KILLED = 137  # 128 + SIGKILL
MODULE = "sagemaker-pytorch-training and SAGEMAKER_TRAINING_MODULE=sagemaker_pytorch_container.training:main"
MODULE_TF = "sagemaker-tensorflow-training and SAGEMAKER_TRAINING_MODULE=sagemaker_tensorflow_container.training:main"


def before_start(job: RehearsedJob, processes_per_host: int) -> Cause | None:
    """What would fail whatever the script does; asked before a host is started.

    Args:
        job: what is rehearsed.
        processes_per_host: how many there will be.
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
        f"the ranks from {devices} on find no device",
        f"Ask for {devices} processes per host, or leave the number out: one per {noun} is what the toolkit starts.",
        host=job.rank_hosts[0],
        rank=devices,
    )


def explain(facts: JobFacts) -> Cause | None:
    """Why the job failed, or did not do what was asked though it calls itself a success; nothing: not known here."""
    rules: tuple[Callable[[JobFacts], Cause | None], ...] = (_baked_code, _stop)
    if facts.stopped:
        # A process that was stopped ends otherwise than one that failed, and launchers say much about it.
        rules += (_raised,)
    elif failed(facts):
        rules += (_memory, _said, _no_ssh_server, _servers_gone, _silent, _raised, _diagnosed)
    rules += (_plain_toolkit, _one_hosts_ranks)
    if facts.job.stop_after is not None and not facts.stopped and not failed(facts):
        rules += (no_stop_sent,)
    return next((cause for rule in rules if (cause := rule(facts)) is not None), None)


def failed(facts: JobFacts) -> bool:
    """Whether some host says so itself: by its exit code, its failure file, the time that it took.

    SDK 3's drivers write no ``output/success``, so only a job of SDK 2 has to have it.
    """
    return facts.timed_out or any(
        host.exit_code != 0 or host.failure is not None or (facts.job.sdk == 2 and not host.success)
        for host in facts.hosts
    )


def _said(facts: JobFacts) -> Cause | None:
    """The first cause of the catalogue that a host's text shows; a host that ended by itself is asked first."""
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
                    rank=_rank_of(host.text, found.start()),
                )
    return None


def _rank_of(text: str, place: int) -> int | None:
    """The rank whose line this is, where the launcher marks lines with it (mpirun --tag-output, torchrun)."""
    line = text[text.rfind("\n", 0, place) + 1 : place + 40]
    found = re.match(r"\s*\[\d+,(\d+)\]<std|\s*\[rank(\d+)\]|\s*\[default(\d+)\]", line)
    return int(next(group for group in found.groups() if group)) if found else None


def _baked_code(facts: JobFacts) -> Cause | None:
    """Code in the image's ``/opt/ml/code``: the toolkit (5.1.1 and newer) says at INFO that it leaves ours aside."""
    for host in facts.hosts:
        if "is not empty, abandoning unzipping" in host.text:
            return Cause(
                "code-in-image",
                "the image has code of its own in /opt/ml/code, so the toolkit ignored the source folder of this job",
                "Build the image without --code, or leave the code to the image: no source_dir in the estimator.",
                host=host.name,
            )
    return None


def _stop(facts: JobFacts) -> Cause | None:
    """SIGTERM has to end the job within the platform's 120 s, and the script has to hear of it."""
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
            f"the job got SIGTERM and was still running {grace} later, when the platform kills it",
            "Save a checkpoint and leave within that time; what is written after it is lost.",
            host=late.name,
        )
    return Cause(
        "stop-not-heard",
        f"SIGTERM reached no process that handles it, so the job was killed {grace} later without a checkpoint",
        _NO_FORWARDING[facts.job.sdk],
        host=late.name,
    )


_NO_FORWARDING = {
    2: "train hands no signal on. Give the image an ENTRYPOINT that does, as training-init of Trainwright's images "
    "(docs/rehearse.md), and the script a handler for SIGTERM.",
    3: "SDK 3 puts its own script in the place of the image's ENTRYPOINT, and that hands no signal on: save "
    "checkpoints while training goes on, or start the job by SDK 2's contract.",
}


def no_stop_heard(facts: JobFacts, process: Process, host: str, rank: int | None) -> Cause:
    """A rank that SIGTERM ended without a word: it has no handler, or the signal did not come to it."""
    who = f"rank {rank}" if rank is not None else "the script"
    if not process.handles:
        return Cause(
            "stop-no-handler",
            f"{who} has no handler for SIGTERM, so a stop ends it without a checkpoint",
            "signal.signal(signal.SIGTERM, HANDLER) in every rank, before the training begins; it saves and ends.",
            host=host,
            rank=rank,
        )
    return Cause(
        "stop-not-heard",
        f"{who} has a handler for SIGTERM and did not hear it: its process was killed with the job",
        _NO_FORWARDING[facts.job.sdk],
        host=host,
        rank=rank,
    )


def no_stop_sent(facts: JobFacts) -> Cause:
    """A stop that found nothing to stop."""
    return Cause(
        "stop-not-sent",
        f"the script ended before SIGTERM was due, {facts.job.stop_after:g} s after it had begun on every host",
        "Give it more to do, or a smaller --stop-after: a stop is only rehearsed where there is something to stop.",
        host=facts.hosts[0].name,
    )


def _memory(facts: JobFacts) -> Cause | None:
    """Out of memory: the kernel kills one process, and what is seen of it differs by launcher."""
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
    """The rank that ended without a word, if there is one."""
    ranks = [process for process in host.processes if process.rank is not None and process.argv != ("(fork)",)]
    silent = [process for process in ranks if not process.ended and not process.error]
    return silent[0] if silent else None


def _no_ssh_server(facts: JobFacts) -> Cause | None:
    """Hosts that wait for one another for ever because no server runs; sshd without host keys ends at once."""
    if not facts.timed_out or facts.launcher not in ("mpi", "smddp"):
        return None
    for host in facts.hosts:
        keys = re.search(r"no hostkeys available|could not load host key", host.text, re.IGNORECASE)
        server = any(re.search(r"(?:^|/)sshd\b", line) and "<defunct>" not in line for line in host.others)
        if keys or (host.others and not server):
            return Cause(
                "sshd-not-running",
                f"sshd does not run on {host.name}"
                + (": it has no host keys" if keys else " (without host keys it ends at once and says nothing)")
                + "; the hosts wait for one another for ever",
                "Have the keys made when the server starts: ssh-keygen -A. The component ssh does so.",
                host=host.name,
            )
    return None


def _servers_gone(facts: JobFacts) -> Cause | None:
    """A host whose script ended before the coordinator's took its parameter server away, and the coordinator waits.

    sagemaker-tensorflow-training 20.4.1 (``training.py``) keeps a host up while ``curl`` reaches port 2222 of the
    first one. A gRPC server does not speak HTTP/1, so curl fails (7.88, seen),
    and that host counts as gone at the first look.
    """
    if facts.launcher != "parameter-server" or facts.hosts[0].exit_code == 0:
        return None
    for host in facts.hosts[1:]:
        if host.end == "by itself" and host.exit_code == 0 and "is down, stopping parameter server" in host.text:
            return Cause(
                "parameter-server-gone",
                f"the script ended on {host.name}, and the toolkit stopped its parameter server while "
                f"{facts.hosts[0].name} still trained: it takes {facts.hosts[0].name} for gone at once",
                f"Keep the script of every other host alive until port 2222 of {facts.hosts[0].name} is closed, as "
                "examples/tensorflow-parameter-server does.",
                host=host.name,
            )
    return None


def _silent(facts: JobFacts) -> Cause | None:
    """``train`` that ends with 0 and leaves neither success nor failure has done nothing."""
    for host in facts.hosts:
        if facts.job.sdk == 2 and host.exit_code == 0 and not host.success and host.failure is None:
            return Cause(
                "train-silent",
                "train ended with exit code 0, but wrote neither output/success nor output/failure: it did nothing",
                "Is train the toolkit's own, and can it write to /opt/ml/output? Where it cannot, it hides every error "
                "behind 0 (docker run --rm --entrypoint sh IMAGE -c 'head -n 3 $(command -v train)').",
                host=host.name,
            )
    return None


def _raised(facts: JobFacts) -> Cause | None:
    """The first rank that raised: the others fail, or wait, because of it."""
    wrong = [(process, host) for host in facts.hosts for process in host.processes if process.error]
    ranked = [pair for pair in wrong if pair[0].rank is not None]
    script = facts.job.entry_point.rpartition("/")[2]
    scripts = [pair for pair in wrong if any(word.rpartition("/")[2] == script for word in pair[0].argv)]
    for process, host in sorted(ranked or scripts, key=lambda pair: pair[0].error_at):
        lines = tuple(line for line in process.error.splitlines() if line.strip())
        # The last line of a traceback is that of a long message, which often says least.
        last = process.error_line or (lines[-1] if lines else "an exception")
        who = f"rank {process.rank}" if process.rank is not None else "the script"
        cause = Cause(
            "script-raised",
            f"{who} raised {last}",
            "The traceback says where. The other ranks were waiting for it, or fell with it."
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
                remedy="Name its package in requirements.txt, or build it in (build --with-requirements).",
            )
        return cause
    return None


def _diagnosed(facts: JobFacts) -> Cause | None:
    """What ``diagnose`` would say of the log of the host that failed first; of a hang the stacks say more."""
    if facts.timed_out:
        return None
    for host in sorted(facts.hosts, key=lambda host: (host.end != "by itself", host.ended_at)):
        found = next((one for one in diagnose(host.text.splitlines()).causes if one.certainty != "consequence"), None)
        if found is not None:
            rank = _rank_of(found.evidence[0].text, 0)
            return Cause(found.id, found.cause, found.remedy, host=host.name, rank=rank)
    return None


def _plain_toolkit(facts: JobFacts) -> Cause | None:
    """sagemaker-training without a framework's module knows single processes and MPI; all else becomes the first."""
    if facts.job.sdk != 2 or not needs_framework_module(facts.launcher):
        return None
    ranked = [
        process for process in _processes(facts) if process.rank is not None or "TF_CONFIG" in process.environment
    ]
    ran = [host for host in facts.hosts if "Invoking script with the following command" in host.text]
    # Parameter servers are for more hosts than one; with one the module starts one process, too.
    if ranked or not ran or (facts.launcher == "parameter-server" and facts.job.hosts == 1):
        return None
    if any("Imported framework" in host.text for host in ran):
        return None
    module = module_of(facts.launcher, facts.job.framework)
    return Cause(
        "plain-toolkit",
        f"{facts.launcher} was asked for, and the image has the plain training toolkit, which started one process per "
        "host and called that a success",
        f"Add the framework's module to the image: {module}.",
        host=ran[0].name,
    )


def module_of(launcher: Launcher, framework: str) -> str:
    """The framework's module that knows a launcher, in the words of a remedy."""
    return MODULE_TF if framework == "tensorflow" or launcher in BY_TF_CONFIG else MODULE


def _one_hosts_ranks(facts: JobFacts) -> Cause | None:
    """SDK 3's MPI driver hands mpirun the processes of one host as ``-np`` (sagemaker-train 1.27.0, mpi_driver.py)."""
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
