"""``preflight``: a training script read for mistakes, never run."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import ClassVar

from trainwright.cli.flags import JsonFlag, emit, verb
from trainwright.cli.output import Ended, print_json
from trainwright.core.errors import RequestError
from trainwright.core.findings_formats import FORMATS
from trainwright.core.records import Field


class PreflightFlags(JsonFlag):
    """The flags of ``preflight``."""

    examples: ClassVar[tuple[str, ...]] = (
        "preflight train.py",
        "preflight src --job job.yaml --strict",
        "preflight --explain TW121",
    )

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
    image: str | None = Field(
        default=None,
        description="an image that was built here: requirements.txt is held against it (default: that of --job)",
    )
    format: str | None = Field(
        default=None,
        description="text (the default), json, sarif, or github for annotations",
        heading="Output",
        values=FORMATS,
    )
    only_training: bool = Field(
        default=False, description="of the scripts that are named, check only those that train; there may be none"
    )
    baseline: str | None = Field(default=None, description="a file of findings that are known and do not count")
    write_baseline: bool = Field(default=False, description="write today's findings into --baseline FILE")
    explain: str | None = Field(default=None, description="explain a rule, such as TW121, and check nothing")
    strict: bool = Field(default=False, description="warnings count as errors")


@verb
def preflight(flags: PreflightFlags) -> None:
    """Read training scripts for mistakes that would cost a job.

    Nothing is run. The exit code is 1 if there are errors.
    """
    from trainwright.core.findings import findings_text
    from trainwright.core.findings_formats import form_of, github, sarif
    from trainwright.preflight.preflight import CODES
    from trainwright.preflight.preflight import preflight as check

    form = form_of(flags.format, as_json=flags.json_)
    if flags.explain:
        _explain(flags.explain, as_json=form == "json")
        return
    paths = [*flags.paths, *([flags.entry_point] if flags.entry_point else [])]
    if flags.write_baseline and not flags.baseline:
        raise RequestError(
            "--write-baseline needs --baseline FILE", remedy="--baseline preflight.json --write-baseline"
        )
    found = check(
        paths,
        flags.source_dir,
        flags.job,
        image=flags.image,
        accepted=Path(flags.baseline) if flags.baseline else None,
        renewed=flags.write_baseline,
        only_training=flags.only_training,
        strict=flags.strict,
    )
    if form == "sarif":
        print_json(sarif(found, CODES))
    else:
        emit(found, findings_text if form != "github" else partial(github, verb="preflight"), as_json=form == "json")
    if found.exit_code:
        raise Ended(found.exit_code)


def _explain(code: str, *, as_json: bool) -> None:
    """Show a rule of scripts or of job files."""
    from trainwright.estimator.check import CODES as JOB_CODES
    from trainwright.preflight.explain import explain, rule_text
    from trainwright.preflight.preflight import CODES

    emit(explain(code, CODES | JOB_CODES), rule_text, as_json=as_json)
