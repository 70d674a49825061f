"""What is kept of a rehearsal: its document, the logs, the stacks of a hang."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainwright.core.junit import Case, write_junit
from trainwright.core.layout import table
from trainwright.rehearse import verdict
from trainwright.rehearse.artifacts import Artifact
from trainwright.rehearse.hosts import JobImage
from trainwright.rehearse.launch_only import LaunchLine
from trainwright.rehearse.observed import JobFacts
from trainwright.rehearse.verdict import Verdict

SCHEMA = "trainwright/rehearse/1"
SUITE = "rehearsal"


def write_logs(facts: JobFacts, folder: Path) -> None:
    """Write ``logs/<host>.log``, and ``logs/<host>.stacks`` where stacks were asked for."""
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
    network: str,
    gpus: bool,
    folder: Path,
) -> dict[str, Any]:
    """The document ``trainwright/rehearse/1``."""
    job, cause = facts.job, judged.cause
    return {
        "schema": SCHEMA,
        "outcome": "passed" if judged.passed else "failed",
        "image": image.reference,
        "image_id": image.id,
        "entry_point": job.entry_point,
        "sdk": job.sdk,
        "launcher": facts.launcher,
        "hosts_asked": job.hosts,
        "processes_per_host": facts.processes_per_host,
        "world_size": facts.world_size,
        "instance_type": job.instance_type,
        "instance_groups": [
            {"name": group.name, "instance_type": group.instance_type, "hosts": list(hosts)}
            for group, hosts in job.cluster
        ],
        "network": network,
        "gpus": gpus,
        "launch_only": job.launch_only,
        "seconds": round(facts.seconds, 1),
        "checks": [{"check": c.name, "outcome": c.outcome, "says": c.says} for c in judged.checks],
        "hosts": [
            {
                "name": host.name,
                "host_name": host.container_host_name,
                "exit_code": host.exit_code,
                "end": host.end,
                "success": host.success,
                "failure": host.failure,
                "seconds": round(host.seconds, 1),
                "log": str(folder / "logs" / f"{host.name}.log"),
            }
            for host in facts.hosts
        ],
        "ranks": [
            {
                "rank": one.rank,
                "local_rank": one.process.local_rank,
                "host": one.host,
                "host_name": one.process.host_name,
                "pid": one.process.pid,
                "world_size": one.process.world_size,
                "world_sizes": dict(one.process.world_sizes),
                "reduced": dict(one.process.reduced),
                "reached": list(one.process.reached),
                "error": one.process.error,
            }
            for one in judged.ranks
        ],
        "launches": [{**one.as_json(), "telling": sorted(one.shown(image.environment))} for one in launches],
        "notes": [*judged.notes, *(_clash(name, archive) for name, archive in kept.items() if archive.clashes)],
        "artifacts": {
            name: {"path": str(archive.path), "files": list(archive.files)} for name, archive in kept.items()
        },
        "report": str(folder / "report.json"),
        "cause": None
        if cause is None
        else {
            "id": cause.id,
            "text": cause.text,
            "remedy": cause.remedy,
            "host": cause.host,
            "rank": cause.rank,
            "last_lines": list(verdict.last_lines(facts, cause)),
        },
    }


def write_junit_report(document: Mapping[str, Any], path: Path) -> None:
    """Write the checks of a rehearsal's document as JUnit; the cause of a failure is a case of its own.

    A failed check alone says what did not hold (``world size``), the cause says why and what to do.
    """
    cause = document["cause"]
    cases = [Case(SUITE, row["check"], row["outcome"], row["says"]) for row in document["checks"]]
    if cause is not None:
        text = "\n".join([cause["text"], cause["remedy"], *cause["last_lines"]])
        cases.append(Case(SUITE, f"cause: {cause['id']}", "failed", text))
    write_junit(path, f"{SUITE} {document['image']} {document['entry_point']}", cases)


def _clash(name: str, archive: Artifact) -> str:
    return f"several hosts wrote {', '.join(archive.clashes[:3])} into {name}; the archive has the first host's"


def rehearsal_text(document: dict[str, Any]) -> str:
    """The text of a rehearsal that passed: the launch lines, or what held."""
    lines = []
    for launch in document["launches"]:
        lines.append(f"{launch['host']}$ {shlex.join(launch['argv'])}")
        lines += [f"    {name}={launch['environment'][name]}" for name in launch["telling"]]
    if lines:
        lines.append("")
    lines.append(table([(row["outcome"], row["check"], row["says"]) for row in document["checks"]]))
    if document["ranks"]:
        rows = [("rank", "host", "host name", "pid", "world")]
        rows += [
            ("-" if r["rank"] is None else str(r["rank"]), r["host"], r["host_name"], str(r["pid"]), _world(r))
            for r in document["ranks"]
        ]
        lines += ["", table(rows)]
    lines += ["", *(f"note    {note}" for note in document["notes"])]
    for kind in ("model", "output"):
        if (kept := document["artifacts"].get(kind)) and kept["files"]:
            lines.append(f"{kind:7} {kept['path']}  ({len(kept['files'])} files)")
    what = "launch lines only" if document["launch_only"] else f"{document['launcher']}, network {document['network']}"
    lines.append(
        f"passed  {document['entry_point']} in {document['image']}: {document['hosts_asked']} hosts x "
        f"{document['processes_per_host']} processes, SDK {document['sdk']}, {what}, {document['seconds']:.0f} s"
    )
    return "\n".join(lines)


def _world(row: dict[str, Any]) -> str:
    sizes = row["world_sizes"] or ({"launcher": row["world_size"]} if row["world_size"] else {})
    return ", ".join(f"{library} {size}" for library, size in sizes.items()) or "-"
