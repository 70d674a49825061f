"""``rehearse``: a training job as SageMaker would run it, on this machine."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from trainwright.cli.flags import JsonFlag, emit, verb
from trainwright.cli.program import say
from trainwright.rehearse.words import RehearsalWords


class RehearseFlags(RehearsalWords, JsonFlag):
    """The flags of ``rehearse``: the job, and what becomes of the result."""

    output: str | None = Field(
        default=None, description="folder for report, logs and artifacts (default: one under .trainwright/rehearsals)"
    )
    junit: str | None = Field(
        default=None, description="a file for the verdict as a JUnit report, as build services read it"
    )
    quiet: bool = Field(default=False, description="do not show the logs of the hosts")


@verb
def rehearse(flags: RehearseFlags) -> None:
    """Run a training job in an image as SageMaker would, on one or more simulated hosts."""
    from trainwright.engine.engine import connect
    from trainwright.rehearse.request import make_job
    from trainwright.rehearse.run import rehearse as run_rehearsal
    from trainwright.rehearse.show import rehearsal_text

    job = make_job(flags)
    engine = connect(say=say)
    folder, report = (Path(name) if name else None for name in (flags.output, flags.junit))
    document = run_rehearsal(job, engine, say=say, output=folder, junit=report, quiet=flags.quiet)
    emit(document, rehearsal_text, as_json=flags.json_)
