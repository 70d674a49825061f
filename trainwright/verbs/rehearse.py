"""``rehearse``: runs a training job on this machine as SageMaker would."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from trainwright.cli.flags import JsonFlag, emit, verb
from trainwright.cli.output import say
from trainwright.core.layout import table
from trainwright.core.records import Field
from trainwright.rehearse.words import RehearsalWords

if TYPE_CHECKING:
    from trainwright.rehearse.documents import RehearsalDocument, RehearsedRank


class RehearseFlags(RehearsalWords, JsonFlag):
    """The flags of ``rehearse``: the job, and what becomes of the result."""

    heading: ClassVar[str] = "Output"
    examples: ClassVar[tuple[str, ...]] = (
        "rehearse --entry-point train.py --hosts 2",
        "rehearse --image IMAGE --entry-point train.py --source-dir src --input training=data",
        "rehearse --entry-point train.py --distribution torch_distributed --launch-only",
    )

    output: str | None = Field(
        default=None,
        description="folder for report, logs and artifacts (default: one under .trainwright/rehearsals)",
        metavar="DIR",
    )
    junit: str | None = Field(
        default=None,
        description="write the verdict to this file, as a JUnit report for build services",
        metavar="FILE",
    )
    quiet: bool = Field(default=False, description="do not show the logs of the hosts")


@verb
def rehearse(flags: RehearseFlags) -> None:
    """Run a training job here as SageMaker would, on simulated hosts."""
    from trainwright.engine.engine import connect
    from trainwright.rehearse.flags import make_job
    from trainwright.rehearse.rehearsal import rehearse as run_rehearsal
    from trainwright.verbs.request import image_in_hand

    job = make_job(flags if flags.image else flags.replace(image=image_in_hand()))
    engine = connect(say=say)
    folder, report = (Path(name) if name else None for name in (flags.output, flags.junit))
    document = run_rehearsal(job, engine, say=say, output=folder, junit=report, quiet=flags.quiet)
    emit(document, rehearsal_text, as_json=flags.json_)


def rehearsal_text(document: RehearsalDocument) -> str:
    """The text of a rehearsal that passed: the launch lines, or what held."""
    lines = []
    for launch in document.launches:
        lines.append(f"{launch.host}$ {shlex.join(launch.argv)}")
        lines += [f"    {name}={launch.environment[name]}" for name in launch.telling]
    if lines:
        lines.append("")
    lines.append(table([(row.outcome, row.check, row.says) for row in document.checks]))
    if document.ranks:
        rows = [("rank", "host", "host name", "pid", "world")]
        rows += [
            ("-" if r.rank is None else str(r.rank), r.host, r.host_name, str(r.pid), _world(r)) for r in document.ranks
        ]
        lines += ["", table(rows)]
    lines += ["", *(f"note    {note}" for note in document.notes)]
    for kind in ("model", "output"):
        if (kept := document.artifacts.get(kind)) and kept.files:
            lines.append(f"{kind:7} {kept.path}  ({len(kept.files)} files)")
    what = "launch lines only" if document.launch_only else f"{document.launcher}, network {document.network}"
    how = f"SDK {document.sdk}" if document.start == "sagemaker" else f"as by {document.start}"
    lines.append(
        f"passed  {document.entry_point} in {document.image}: {document.hosts_asked} hosts x "
        f"{document.processes_per_host} processes, {how}, {what}, {document.seconds:.0f} s"
    )
    return "\n".join(lines)


def _world(row: RehearsedRank) -> str:
    sizes = row.world_sizes or ({"launcher": row.world_size} if row.world_size else {})
    return ", ".join(f"{library} {size}" for library, size in sizes.items()) or "-"
