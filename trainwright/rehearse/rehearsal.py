"""A whole rehearsal, from a job to a verdict; leaves nothing behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from trainwright.core.errors import EngineError, Failure, RehearsalFailed, RequestError
from trainwright.core.junit import check_junit
from trainwright.core.owned import claim, write_atomically
from trainwright.core.runner import interruptions
from trainwright.core.say import Say
from trainwright.engine.engine import Engine
from trainwright.plan.plan import FOR_LABEL, LABEL
from trainwright.rehearse import (
    artifacts,
    causes,
    hosts,
    launch_only,
    leftovers,
    network,
    opt_ml,
    report,
    starts,
    verdict,
)
from trainwright.rehearse.documents import RehearsalDocument
from trainwright.rehearse.hosts import ContainerProgram, Host, JobImage
from trainwright.rehearse.indexes import write_indexes
from trainwright.rehearse.job_limits import check_job
from trainwright.rehearse.log_view import RehearsalView
from trainwright.rehearse.observed import Cause, JobFacts
from trainwright.rehearse.opt_ml import HostFolder
from trainwright.rehearse.owner import this_process
from trainwright.rehearse.rehearsed_job import RehearsedJob
from trainwright.rehearse.watch import Watch
from trainwright.sagemaker import distribution as distributions
from trainwright.sagemaker import sdk3
from trainwright.sagemaker.distribution import Launcher
from trainwright.sagemaker.instances import instance
from trainwright.site.site import Site, load_site

KEPT_REPORTS = 20


@dataclass(frozen=True)
class Launch:
    """The launcher that a job selects, and how many processes it starts on each host."""

    launcher: Launcher
    processes_per_host: int


def launch_of(job: RehearsedJob) -> Launch:
    """The launch that should start the ranks of a job.

    Raises:
        RequestError: the distribution or the instance type is invalid, or the numbers do not match it.
        RehearsalFailed: there are more processes per host than the instance type has devices.
    """
    kind = instance(job.instance_type)
    launcher: Launcher
    if job.sdk == 3:
        driver = sdk3.driver_of(job.distribution, job.processes_per_host if job.distribution else None)
        launcher, asked = driver.launcher, driver.processes_per_host
    else:
        launcher = distributions.launcher_of(job.distribution, job.framework, job.hosts)
        asked = job.processes_per_host or distributions.processes_per_host(job.distribution)
    if launcher in distributions.ONE_PER_HOST:
        if (job.processes_per_host or 1) > 1:
            raise RequestError(
                f"--processes-per-host {job.processes_per_host}: {launcher} starts one process per host",
                remedy="--distribution torch_distributed, or --distribution mpi",
            )
        return Launch(launcher, 1)
    count = distributions.ranks_per_host(launcher, asked, kind.processes_per_host)
    if cause := causes.before_start(job, count):
        raise failure(cause)
    return Launch(launcher, count)


def rehearse(
    job: RehearsedJob,
    engine: Engine,
    *,
    say: Say,
    site: Site | None = None,
    output: Path | None = None,
    junit: Path | None = None,
    quiet: bool = False,
) -> RehearsalDocument:
    """Rehearse a job.

    Args:
        job: what to rehearse; an image that names its framework overrides ``framework``.
        engine: runs the containers; it must share this machine's files.
        say: progress callback.
        site: where the hosts find packages (default: this machine's).
        output: folder for report, logs and artifacts (default: a new one under ``.trainwright/rehearsals``).
        junit: file for a JUnit report.
        quiet: do not show the logs.

    Raises:
        RequestError: the request is invalid.
        EngineError: the engine cannot run it.
        RehearsalFailed: the job would fail; the details have cause, host, rank, last lines and report.
    """
    check_job(job)
    if junit is not None:
        check_junit(junit)
    if output is not None:
        claim(output.absolute(), "rehearsal", f"--output {output}", whole=True)
    if not engine.local:
        raise EngineError(
            f"the engine at {engine.endpoint} does not share the files of this machine, which the hosts need",
            remedy="Rehearse on the engine's machine, or unset DOCKER_HOST.",
        )
    if job.entry_point:
        opt_ml.check_entry_point(job)
    leftovers.clear(engine)
    identity = f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}"
    folder = (output or leftovers.reports_dir() / identity).absolute()
    work = leftovers.reports_dir() / identity / leftovers.WORK
    folder.mkdir(parents=True, exist_ok=True)
    with _workplace(engine, work, identity):
        image = hosts.inspect_image(engine, job.image, identity)
        (work / "image").write_text(image.id)
        # What a distribution means, and whether it exists, depends on the framework.
        job = of_image(job, image)
        document = _run(
            job,
            launch_of(job),
            image,
            engine,
            identity=identity,
            work=work,
            folder=folder,
            site=site or load_site(),
            say=say,
            quiet=quiet,
        )
    write_atomically(folder / "report.json", json.dumps(document.as_json(), indent=1) + "\n")
    if junit is not None:
        report.write_junit_report(document, junit)
    _forget_old_reports()
    if document.cause is not None:
        raise failure(Cause(**document.cause.as_json()), document)
    return document


def failure(cause: Cause, document: RehearsalDocument | None = None) -> RehearsalFailed:
    """The failure that a cause is for the command line; without a document where nothing was run."""
    known = document.as_json() if document else {"checks": [], "report": "", "launches": []}
    where = ", ".join(word for word in (cause.host, "" if cause.rank is None else f"rank {cause.rank}") if word)
    return RehearsalFailed(
        f"the rehearsal failed{f' on {where}' if where else ''}: {cause.text}",
        remedy=cause.remedy,
        cause=cause.id,
        host=cause.host,
        rank=cause.rank,
        last_lines=list(cause.last_lines),
        checks=known["checks"],
        report=known["report"],
        launches=known["launches"],
    )


def _run(
    job: RehearsedJob,
    launch: Launch,
    image: JobImage,
    engine: Engine,
    *,
    identity: str,
    work: Path,
    folder: Path,
    site: Site,
    say: Say,
    quiet: bool,
) -> RehearsalDocument:
    control = work / "control"
    opt_ml.write_control(job, launch.launcher, control)
    indexes = write_indexes(Site() if job.launch_only else site, control)
    names = network.Names(identity, job.host_names)
    made = [
        Host(name, names.container(n), names.own(n), HostFolder(work / name)) for n, name in enumerate(job.host_names)
    ]
    # With stand-in devices, the toolkit counts them as it does on the platform.
    count = job.processes_per_host if job.launch_only or launch.launcher == "process" else launch.processes_per_host
    for host in made:
        opt_ml.write_host(job, host.name, host.folder, control, count, say=say)
    program = ContainerProgram(sdk3.ARGUMENTS, sdk3.ENTRY_POINT) if job.sdk == 3 else hosts.TRAIN
    elsewhere = job.start != "sagemaker"
    _, entry = opt_ml.check_entry_point(job)
    torchrun = launch.processes_per_host if launch.launcher == "torchrun" else None
    if elsewhere:
        first, *words = starts.program(job, entry, torchrun)
        program = ContainerProgram(tuple(words), first)
    gpus = engine.gpus and not job.launch_only
    view = None
    cable = network.make(engine, names, image.id)
    try:
        for number, host in enumerate(made):
            options = hosts.command(
                job,
                image,
                host,
                control=control,
                network=cable.join(number),
                identity=identity,
                gpus=gpus,
                packages=indexes,
                own=starts.environment(job, host.name, entry, torchrun) if elsewhere else {},
            )
            hosts.create(engine, options, image, program)
        plural = "s" if job.hosts > 1 else ""
        say(f"{job.hosts} host{plural} x {launch.processes_per_host} by {launch.launcher}, network {cable.kind}")
        view = RehearsalView(job.host_names, quiet=quiet)
        facts_of = {host.name: host.folder.facts for host in made}
        awaited = launch_only.awaited(launch.launcher, job)
        watch = Watch(
            engine,
            job,
            made,
            line=view.line,
            state=view.state,
            enough=lambda: job.launch_only and launch_only.complete(awaited, facts_of),
            at_work=lambda: not image.site or verdict.at_work(job, launch.processes_per_host, facts_of),
        )
        seen = watch.follow()
    finally:
        if view is not None:
            view.close()
        with interruptions(signal.SIG_IGN):
            hosts.remove(engine, identity)
            cable.close()
    # First of all: the caller may be unable to read what containers wrote as root.
    artifacts.hand_over(engine, image.id, work)
    facts = JobFacts(
        job, launch.launcher, launch.processes_per_host, watch.facts(), seen.timed_out, seen.stopped, seen.seconds
    )
    model, output = artifacts.collect(made, folder)
    launches = [launch for name, path in facts_of.items() for launch in launch_only.read(path, name)]
    judged = verdict.judge_launches(facts, launches) if job.launch_only else verdict.judge(facts)
    report.write_logs(facts, folder)
    kept = {"model": model, "output": output}
    return report.document(facts, judged, image, launches, kept, network=cable.kind, gpus=gpus, folder=folder)


def of_image(job: RehearsedJob, image: JobImage) -> RehearsedJob:
    """The job with the framework of its image, the version of SMP if the image contains it, and its program if the job
    has no code of its own.

    The framework comes from our label, else from ``SAGEMAKER_TRAINING_MODULE`` (as in AWS's containers), else from the
    job's distribution. A line's name may contain more than its framework (``huggingface-tensorflow``); SageMaker's
    launchers know two frameworks.

    Raises:
        RequestError: neither the job nor the image has code, or the image is not for what starts the job.
    """
    place = image.labels.get(FOR_LABEL)
    if place and job.start == "sagemaker":
        raise RequestError(
            f"{image.reference} is for {place}: it has no `train`, with which SageMaker starts a job",
            remedy="--start pytorchjob or --start slurm starts the job as a cluster does.",
        )
    if not job.entry_point:
        program = image.environment.get("SAGEMAKER_PROGRAM") or image.labels.get(f"{LABEL}.entry-point", "")
        if not program:
            raise RequestError(
                f"rehearse needs --entry-point: {image.reference} names no program of its own (SAGEMAKER_PROGRAM)",
                remedy="For example: --entry-point train.py --source-dir src",
            )
        job = replace(job, entry_point=program, baked=True)
    hints = (image.labels.get(f"{LABEL}.framework", ""), image.environment.get("SAGEMAKER_TRAINING_MODULE", ""))
    names = (name for hint in hints for name in distributions.PRECEDENCE if name in hint)
    framework = next(names, distributions.framework_of(job.distribution) or job.framework)
    smp = image.labels.get(f"{LABEL}.component.smdistributed-modelparallel", "").split()
    return replace(job, framework=framework, smp_version=smp[0] if smp else job.smp_version)


@contextmanager
def _workplace(engine: Engine, work: Path, identity: str) -> Iterator[None]:
    """The folder for the files of the hosts; removed on exit, with all containers that are left."""
    work.mkdir(parents=True)
    (work / leftovers.OWNER_FILE).write_text(this_process())
    try:
        yield
    except BaseException as error:
        with interruptions(signal.SIG_IGN):
            hosts.remove(engine, identity)
            leftovers.remove_work(engine, work)
            if isinstance(error, (KeyboardInterrupt, Failure)) and not any(
                path.is_file() for path in work.parent.rglob("*")
            ):
                shutil.rmtree(work.parent, ignore_errors=True)
        raise
    with interruptions(signal.SIG_IGN):
        leftovers.remove_work(engine, work)


def _forget_old_reports() -> None:
    reports = [path for path in leftovers.reports_dir().iterdir() if not (path / leftovers.WORK).exists()]
    for old in sorted(reports, key=os.path.getmtime)[:-KEPT_REPORTS]:
        shutil.rmtree(old, ignore_errors=True)
