"""Findings that a job file accepts: ``silence: {TW238: "the hosts have no EFA"}``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trainwright.core.errors import did_you_mean
from trainwright.core.findings import Finding, Rule, Silenced
from trainwright.sagemaker.job import Job

INVALID = Rule(
    code="TW288",
    severity="error",
    title="silence names an unknown code, or gives no reason",
    source="Trainwright: an accepted finding needs a reason that others can read",
    remedy='silence: {TW238: "why this is fine here"}',
)
STALE = Rule(
    code="TW289",
    severity="warning",
    title="silence for a finding that is not there",
    source="Trainwright: it would hide the finding if it came back",
    remedy="Remove it from silence.",
)
RULES = (INVALID, STALE)


def apply(job: Job, findings: Iterable[Finding], known: Mapping[str, Rule]) -> tuple[list[Finding], list[Silenced]]:
    """The findings that a job file does not silence, with those about its ``silence``, and the silenced ones.

    Args:
        job: the job.
        findings: of all checks.
        known: all rules by code.
    """
    kept: list[Finding] = []
    silenced: list[Silenced] = []
    wanted = {code: reason for code, reason in job.silence.items() if code in known and reason.strip()}
    for finding in findings:
        if finding.code in wanted:
            silenced.append(Silenced(code=finding.code, path=finding.path, line=None, reason=wanted[finding.code]))
        else:
            kept.append(finding)
    for code, reason in job.silence.items():
        path = f"silence.{code}"
        if code not in known:
            kept.append(INVALID.finding(f"unknown code {code!r}. {did_you_mean(code, known)}", path=path))
        elif not reason.strip():
            kept.append(INVALID.finding(f"no reason for {code}", path=path))
        elif not any(each.code == code for each in silenced):
            kept.append(STALE.finding(f"no {code} in this job", path=path))
    return kept, silenced
