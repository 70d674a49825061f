"""The report of a rehearsal: its document, its text, the logs, the stacks of a hang."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from trainwright.core.junit import Case, write_junit
from trainwright.rehearse import verdict
from trainwright.rehearse.artifacts import Artifact
from trainwright.rehearse.documents import (
    RehearsalArtifact,
    RehearsalCause,
    RehearsalCheck,
    RehearsalDocument,
    RehearsedGroup,
    RehearsedHost,
    RehearsedLaunch,
    RehearsedRank,
)
from trainwright.rehearse.hosts import JobImage
from trainwright.rehearse.launch_only import LaunchLine
from trainwright.rehearse.network import NetworkKind
from trainwright.rehearse.observed import Cause, HostFacts, JobFacts
from trainwright.rehearse.verdict import Rank, Verdict

SUITE = "rehearsal"


def write_logs(facts: JobFacts, folder: Path) -> None:
    """Write ``logs/<host>.log``, and ``logs/<host>.stacks`` if there are stacks."""
    logs = folder / "logs"
    logs.mkdir(exist_ok=True)
    for host in facts.hosts:
        (logs / f"{host.name}.log").write_text("".join(f"{line}\n" for line in host.log))
        stacks = [f"--- {one.pid}: {' '.join(one.argv)}\n{one.stack}\n" for one in host.processes if one.stack]
        if stacks:
            (logs / f"{host.name}.stacks").write_text("".join(stacks))


def document(
    facts: JobFacts,
    judged: Verdict,
    image: JobImage,
    launches: Sequence[LaunchLine],
    kept: Mapping[str, Artifact],
    *,
    network: NetworkKind,
    gpus: bool,
    folder: Path,
) -> RehearsalDocument:
    """The document of a rehearsal."""
    job = facts.job
    return RehearsalDocument(
        schema="trainwright/rehearsal/1",
        outcome="passed" if judged.passed else "failed",
        image=image.reference,
        image_id=image.id,
        entry_point=job.entry_point,
        sdk=job.sdk,
        start=job.start,
        launcher=facts.launcher,
        hosts_asked=job.hosts,
        processes_per_host=facts.processes_per_host,
        world_size=facts.world_size,
        instance_type=job.instance_type,
        instance_groups=tuple(
            RehearsedGroup(name=group.name, instance_type=group.instance_type, hosts=hosts)
            for group, hosts in job.cluster
        ),
        network=network,
        gpus=gpus,
        launch_only=job.launch_only,
        seconds=round(facts.seconds, 1),
        checks=tuple(RehearsalCheck(check=c.name, outcome=c.outcome, says=c.says) for c in judged.checks),
        hosts=tuple(_host(host, folder) for host in facts.hosts),
        ranks=tuple(map(_rank, judged.ranks)),
        launches=tuple(_launch(launch, image) for launch in launches),
        notes=(*judged.notes, *(_clash(name, archive) for name, archive in kept.items() if archive.clashes)),
        artifacts={
            name: RehearsalArtifact(path=str(archive.path), files=tuple(archive.files))
            for name, archive in kept.items()
        },
        report=str(folder / "report.json"),
        cause=None if judged.cause is None else _cause(judged.cause, facts),
    )


def _host(host: HostFacts, folder: Path) -> RehearsedHost:
    return RehearsedHost(
        name=host.name,
        host_name=host.container_host_name,
        exit_code=host.exit_code,
        end=host.end,
        success=host.success,
        failure=host.failure,
        seconds=round(host.seconds, 1),
        log=str(folder / "logs" / f"{host.name}.log"),
    )


def _rank(one: Rank) -> RehearsedRank:
    process = one.process
    return RehearsedRank(
        rank=one.rank,
        local_rank=process.local_rank,
        host=one.host,
        host_name=process.host_name,
        pid=process.pid,
        world_size=process.world_size,
        world_sizes=dict(process.world_sizes),
        reduced=dict(process.reduced),
        reached=list(process.reached),
        error=process.error,
    )


def _launch(launch: LaunchLine, image: JobImage) -> RehearsedLaunch:
    return RehearsedLaunch(
        host=launch.host,
        argv=tuple(launch.argv),
        cwd=launch.cwd,
        environment=dict(sorted(launch.environment.items())),
        telling=tuple(sorted(launch.shown(image.environment))),
        in_image=launch.in_image,
    )


def _cause(cause: Cause, facts: JobFacts) -> RehearsalCause:
    return RehearsalCause(
        id=cause.id,
        text=cause.text,
        remedy=cause.remedy,
        host=cause.host,
        rank=cause.rank,
        last_lines=tuple(verdict.last_lines(facts, cause)),
    )


def write_junit_report(document: RehearsalDocument, path: Path) -> None:
    """Write the checks of a rehearsal's document as JUnit; the cause of a failure is a separate case.

    A failed check only says what is wrong (``world size``), the cause says why and what to do.
    """
    cases = [Case(SUITE, row.check, row.outcome, row.says) for row in document.checks]
    if (cause := document.cause) is not None:
        text = "\n".join([cause.text, cause.remedy, *cause.last_lines])
        cases.append(Case(SUITE, f"cause: {cause.id}", "failed", text))
    write_junit(path, f"{SUITE} {document.image} {document.entry_point}", cases)


def _clash(name: str, archive: Artifact) -> str:
    return f"several hosts wrote {', '.join(archive.clashes[:3])} into {name}; the archive has the first host's"
