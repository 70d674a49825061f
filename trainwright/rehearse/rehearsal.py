"""A whole rehearsal: from a job to a verdict, with nothing left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainwright.core.errors import EngineError, Failure, RehearsalFailed, RequestError
from trainwright.core.junit import check_junit
from trainwright.core.owned import claim, write_atomically
from trainwright.core.say import Say
from trainwright.engine.engine import Engine
from trainwright.plan.plan import LABEL
from trainwright.rehearse import artifacts, causes, hosts, launch_only, leftovers, network, opt_ml, report, verdict
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
    """Which launcher a job selects, and how many processes it starts on each host."""

    launcher: Launcher
    processes_per_host: int


def launch_of(job: RehearsedJob) -> Launch:
    """What should start the ranks of a job.

    Raises:
        RequestError: the distribution or the instance type is none, or the numbers do not go with it.
        RehearsalFailed: more processes per host than the instance type has GPUs.
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
        raise failure(cause, [], report="")
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
) -> dict[str, Any]:
    """Rehearse a job; returns the document of ``rehearse --json``.

    Args:
        job: what to rehearse; ``framework`` is taken from the image where it says.
        engine: where the containers run; it must share this machine's files.
        say: told of long steps.
        site: where the hosts find packages (default: what this machine says).
        output: the folder for report, logs and artifacts (default: one of its own under ``.trainwright/rehearsals``).
        junit: takes the verdict as a JUnit report.
        quiet: do not show the logs.

    Raises:
        RequestError: the request is wrong.
        EngineError: the engine cannot do it.
        RehearsalFailed: the job would fail; details name cause, host, rank, last lines, report.
    """
    check_job(job)
    if junit is not None:
        check_junit(junit)
    if output is not None:
        claim(output.absolute(), "rehearsal", f"--output {output}", whole=True)
    if not engine.local:
        raise EngineError(
            f"the engine at {engine.endpoint} does not see the files of this machine, which its hosts need",
            remedy="Rehearse on the engine's machine; or unset DOCKER_HOST.",
        )
    opt_ml.check_entry_point(job)
    leftovers.clear(engine)
    identity = f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}"
    folder = (output or leftovers.reports_dir() / identity).absolute()
    work = leftovers.reports_dir() / identity / leftovers.WORK
    folder.mkdir(parents=True, exist_ok=True)
    with _workplace(engine, work, identity):
        image = hosts.inspect_image(engine, job.image, identity)
        (work / "image").write_text(image.id)
        # What a distribution means, and whether there is such a one, is a matter of the framework.
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
    write_atomically(folder / "report.json", json.dumps(document, indent=1) + "\n")
    if junit is not None:
        report.write_junit_report(document, junit)
    _forget_old_reports()
    if document["cause"] is not None:
        told = {**document["cause"], "last_lines": tuple(document["cause"]["last_lines"])}
        raise failure(Cause(**told), document["checks"], document["report"], document["launches"])
    return document


def failure(
    cause: Cause, checks: Sequence[Mapping[str, Any]], report: str, launches: Sequence[Mapping[str, Any]] = ()
) -> RehearsalFailed:
    """The failure that a cause is for the command line."""
    where = ", ".join(word for word in (cause.host, "" if cause.rank is None else f"rank {cause.rank}") if word)
    return RehearsalFailed(
        f"the rehearsal failed{f' on {where}' if where else ''}: {cause.text}",
        remedy=cause.remedy,
        cause=cause.id,
        host=cause.host,
        rank=cause.rank,
        last_lines=list(cause.last_lines),
        checks=list(checks),
        report=report,
        launches=list(launches),
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
) -> dict[str, Any]:
    control = work / "control"
    opt_ml.write_control(job, launch.launcher, control)
    indexes = write_indexes(Site() if job.launch_only else site, control)
    names = network.Names(identity, job.host_names)
    made = [
        Host(name, names.container(n), names.own(n), HostFolder(work / name)) for n, name in enumerate(job.host_names)
    ]
    # Where the devices of the instance type are shown, the toolkit counts them, as it does on the platform.
    count = job.processes_per_host if job.launch_only or launch.launcher == "process" else launch.processes_per_host
    for host in made:
        opt_ml.write_host(job, host.name, host.folder, control, count, say=say)
    program = ContainerProgram(sdk3.ARGUMENTS, sdk3.ENTRY_POINT) if job.sdk == 3 else hosts.TRAIN
    gpus = engine.gpus and not job.launch_only
    view = None
    cable = network.make(engine, names, image.id)
    try:
        for number, host in enumerate(made):
            words = hosts.command(
                job,
                image,
                host,
                control=control,
                network=cable.join(number),
                identity=identity,
                gpus=gpus,
                packages=indexes,
            )
            hosts.create(engine, words, image, program)
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
        with _undisturbed():
            hosts.remove(engine, identity)
            cable.close()
    # First of all: what containers wrote as root need not be readable for others.
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
    """The job with what its image says: the framework, and the version of SMP where it holds that.

    ``SAGEMAKER_TRAINING_MODULE`` names the framework where no label of ours does, as in the containers of AWS, and the
    job's distribution where neither does. A line may have a longer name than its framework
    (``huggingface-tensorflow``); SageMaker's launchers know two.
    """
    told = (image.labels.get(f"{LABEL}.framework", ""), image.environment.get("SAGEMAKER_TRAINING_MODULE", ""))
    named = (name for said in told for name in distributions.PRECEDENCE if name in said)
    framework = next(named, distributions.framework_of(job.distribution) or job.framework)
    smp = image.labels.get(f"{LABEL}.component.smdistributed-modelparallel", "").split()
    return replace(job, framework=framework, smp_version=smp[0] if smp else job.smp_version)


@contextmanager
def _workplace(engine: Engine, work: Path, identity: str) -> Iterator[None]:
    """The folder with the files of the hosts; gone in the end, with every container that is left."""
    work.mkdir(parents=True)
    (work / leftovers.OWNER_FILE).write_text(this_process())
    try:
        yield
    except BaseException as error:
        with _undisturbed():
            hosts.remove(engine, identity)
            leftovers.remove_work(engine, work)
            if isinstance(error, (KeyboardInterrupt, Failure)) and not any(
                path.is_file() for path in work.parent.rglob("*")
            ):
                shutil.rmtree(work.parent, ignore_errors=True)
        raise
    with _undisturbed():
        leftovers.remove_work(engine, work)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Do not let a second Ctrl-C cut the clearing short."""
    try:
        before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: no signal arrives here
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _forget_old_reports() -> None:
    reports = [path for path in leftovers.reports_dir().iterdir() if not (path / leftovers.WORK).exists()]
    for old in sorted(reports, key=os.path.getmtime)[:-KEPT_REPORTS]:
        shutil.rmtree(old, ignore_errors=True)
