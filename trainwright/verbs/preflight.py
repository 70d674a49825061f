"""``preflight``: a training script read for mistakes, never run."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from trainwright.cli.flags import JsonFlag, emit, verb
from trainwright.cli.program import Ended, print_json
from trainwright.core.errors import RequestError, did_you_mean
from trainwright.core.records import Field

FORMATS = ("text", "json", "sarif", "github")


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
    from trainwright.core.findings_formats import github, sarif
    from trainwright.preflight.preflight import CODES
    from trainwright.preflight.preflight import preflight as check

    form = _format(flags)
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
        accepted=Path(flags.baseline) if flags.baseline else None,
        renewed=flags.write_baseline,
        only_training=flags.only_training,
        strict=flags.strict,
    )
    if form == "sarif":
        print_json(sarif(found, CODES))
    else:
        emit(found, github if form == "github" else findings_text, as_json=form == "json")
    if found.exit_code:
        raise Ended(found.exit_code)


def _format(flags: PreflightFlags) -> str:
    """The format that the flags ask for.

    Raises:
        RequestError: it is unknown, or ``--json`` is another.
    """
    form = flags.format or ("json" if flags.json_ else "text")
    if form not in FORMATS:
        raise RequestError(f"--format {form}: unknown format. {did_you_mean(form, FORMATS)}")
    if flags.json_ and form != "json":
        raise RequestError(f"--format {form} and --json are two formats", remedy="Leave one of them out.")
    return form


def _explain(code: str, *, as_json: bool) -> None:
    """Show a rule of scripts or of job files."""
    from trainwright.estimator.check import CODES as JOB_CODES
    from trainwright.preflight.explain import explain, rule_text
    from trainwright.preflight.preflight import CODES

    emit(explain(code, CODES | JOB_CODES), rule_text, as_json=as_json)
