"""``preflight``: read a script, check every family of rules, apply suppressions, return one document."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainwright.core import findings
from trainwright.core.errors import RequestError
from trainwright.core.findings import Finding, FindingsDocument, Rule
from trainwright.preflight import (
    amp,
    arguments,
    collectives,
    data,
    devices,
    distributed,
    environment,
    hotloop,
    huggingface,
    loop,
    reader,
    sagemaker_paths,
    saving,
    smp,
    suppressions,
    tensorflow,
    xla,
)
from trainwright.preflight.reader import Script, read_script
from trainwright.preflight.script_facts import ScriptFacts
from trainwright.sagemaker.job import Job, load_job

FAMILIES = (
    *(smp, xla, distributed, devices, collectives, amp, loop, saving, hotloop, environment, data, huggingface),
    *(tensorflow, sagemaker_paths, arguments),
)
RULES: tuple[Rule, ...] = (
    *reader.RULES,
    *suppressions.RULES,
    *(rule for family in FAMILIES for rule in family.RULES),
)
CODES = findings.table(RULES)


@contextmanager
def _room_for_depth() -> Iterator[None]:
    """Raise the recursion limit: ``ast.unparse`` makes several calls per level of a tree."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 20 * reader.DEEPEST))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def examine(script: Script, job: Job | None = None, *, subject: str = "", strict: bool = False) -> FindingsDocument:
    """Check a parsed script against every rule."""
    facts = ScriptFacts(script, job)
    found: list[Finding] = list(script.findings)
    with _room_for_depth():
        for family in FAMILIES:
            found += family.check(facts)
    kept, silenced = suppressions.silence(script.modules, found, sorted(CODES))
    return findings.document(
        subject or (script.files[0] if script.files else "nothing"),
        script.files,
        facts.summary(),
        list(dict.fromkeys(kept)),
        silenced,
        strict=strict,
    )


def preflight(
    entry_point: str, source_dir: str | None = None, job_file: str | None = None, *, strict: bool = False
) -> FindingsDocument:
    """Check a training script without running it.

    Args:
        entry_point: the script, as for an estimator; if empty, the job file names it.
        source_dir: the folder that is uploaded with the job.
        job_file: the job file; it names the launcher, instances and hyperparameters.
        strict: warnings count as errors.

    Raises:
        RequestError: a file is missing, or the job file is invalid.
    """
    job = load_job(Path(job_file)) if job_file else None
    if job is not None and job_file is not None:
        beside = Path(job_file).parent
        source_dir = source_dir or (str(beside / job.source_dir) if job.source_dir else None)
        if not entry_point and job.entry_point:
            entry_point = job.entry_point if source_dir else str(beside / job.entry_point)
    if not entry_point:
        raise RequestError("the script to check is missing", remedy="./invoke preflight --entry-point train.py")
    script = read_script(Path(entry_point), Path(source_dir) if source_dir else None)
    return examine(script, job, subject=entry_point, strict=strict)
