"""The verbs about a training job: its script, its log. Thin and typed, as those of :mod:`trainwright.verbs`."""

from __future__ import annotations

from invoke.context import Context
from invoke.exceptions import Exit

from trainwright.cli import JSON_HELP, print_json, verb


@verb(
    help={
        "entry-point": "the training script (default: the one that --job names)",
        "source-dir": "the folder that goes into the job (default: the script's own)",
        "job": "the job file: launcher, hosts and hyperparameters are then held against the script",
        "strict": "warnings count as errors",
        "json": JSON_HELP,
    }
)
def preflight(
    c: Context,
    *,
    entry_point: str = "",
    source_dir: str | None = None,
    job: str | None = None,
    strict: bool = False,
    json: bool = False,
) -> None:
    """Read a training script (never run it) for mistakes that would cost a job; exit code 2 for errors."""
    from trainwright.findings import findings_text
    from trainwright.preflight.run import preflight as check

    found = check(entry_point, source_dir, job, strict=strict)
    if json:
        print_json(found.as_json())
    else:
        print(findings_text(found))
    if found.exit_code:
        raise Exit(code=found.exit_code)


@verb(positional=["log"], help={"log": "the log of a failed job, or - for standard input", "json": JSON_HELP})
def diagnose(c: Context, log: str, json: bool = False) -> None:
    """Name the cause of a failed job from its log, and the mend."""
    from trainwright import diagnose as clinic

    found = clinic.diagnose_file(log)
    if json:
        print_json(found.as_json())
    else:
        print(clinic.diagnosis_text(found))
