"""``preflight``: a training script read for mistakes, never run."""

from __future__ import annotations

from typing import ClassVar

from invoke.exceptions import Exit
from pydantic import Field

from trainwright.cli.flags import JsonFlag, emit, verb


class PreflightFlags(JsonFlag):
    """The flags of ``preflight``."""

    bare: ClassVar[str] = "paths"

    paths: tuple[str, ...] = Field(
        default=(), alias="path", description="a training script, a notebook, a shell script or a folder of them"
    )
    entry_point: str | None = Field(default=None, description="the training script (default: the one that --job names)")
    source_dir: str | None = Field(
        default=None, description="the folder that goes into the job (default: the script's own)"
    )
    job: str | None = Field(
        default=None, description="the job file: launcher, hosts and hyperparameters are then held against the script"
    )
    strict: bool = Field(default=False, description="warnings count as errors")


@verb
def preflight(flags: PreflightFlags) -> None:
    """Read training scripts (never run them) for mistakes that would cost a job; exit code 1 for errors."""
    from trainwright.core.findings import findings_text
    from trainwright.preflight.preflight import preflight as check

    paths = [*flags.paths, *([flags.entry_point] if flags.entry_point else [])]
    found = check(paths, flags.source_dir, flags.job, strict=flags.strict)
    emit(found, findings_text, as_json=flags.json_)
    if found.exit_code:
        raise Exit(code=found.exit_code)
