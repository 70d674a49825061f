"""A diagnosis as people and other programs read it: text, and findings with the known causes as their rules."""

from __future__ import annotations

from trainwright.core import findings
from trainwright.core.findings import Finding, FindingsDocument, Rule, Severity
from trainwright.sagemaker.causes import filled, load_causes
from trainwright.sagemaker.diagnosis import DiagnosisDocument, LogLine
from trainwright.sagemaker.exceptions import raised_line, raised_text

_SEVERITIES: dict[str, Severity] = {"cause": "error", "likely": "warning", "consequence": "note"}


# What a log without a known cause shows.
EXCEPTION = Rule(
    code="unhandled-exception",
    severity="error",
    title="an exception without a known cause, the first that the log shows",
    source="the log of the job",
    remedy="Read the frame in your code that the message names, and the log's lines before it.",
)


def rules() -> dict[str, Rule]:
    """Return the known causes as rules, by id: one record for scripts, job files and logs."""
    known = (
        Rule(
            code=cause.id,
            severity=_SEVERITIES[cause.certainty],
            title=filled(cause.cause, {}),
            source=cause.source,
            remedy=filled(cause.remedy, {}),
        )
        for cause in load_causes()
    )
    return findings.table((*known, EXCEPTION))


def as_findings(found: DiagnosisDocument) -> FindingsDocument:
    """Return the causes as findings in the log, for the formats of other programs; without one, the exception."""
    made = [
        Finding(
            code=each.id,
            severity=_SEVERITIES[each.certainty],
            path=_file(found, each.evidence[0].log),
            line=each.evidence[0].line,
            message=each.cause,
            source=each.source,
            remedy=each.remedy,
        )
        for each in found.causes
    ]
    if not made and (raised := found.exception):
        # As of a cause: certain is what the log shows to have ended a process.
        severity: Severity = "error" if raised.unhandled else "warning"
        path = _file(found, raised.log)
        made.append(EXCEPTION.finding(raised_line(raised), path=path, line=raised.line, severity=severity))
    return findings.document(found.log, list(dict.fromkeys(each.path for each in made)), {}, made)


def _file(found: DiagnosisDocument, log: str | None) -> str:
    """The file of a line: the log, or one of a folder's."""
    return found.log if log is None else f"{found.log}/{log}"


def diagnosis_text(found: DiagnosisDocument) -> str:
    """Return the diagnosis as text."""
    lines: list[str] = []
    for number, each in enumerate(found.causes, 1):
        lines.append(f"{number}. {each.cause} [{each.certainty}, {each.id}]")
        lines += [f"   {_place(e)}: {e.text[:200]}" for e in each.evidence]
        if each.count > len(each.evidence):
            more = each.count - len(each.evidence)
            lines.append(f"   … and {more} more line{'s' if more != 1 else ''}")
        lines.append(f"   fix: {each.remedy}")
        lines.append(f"   why: {each.source}")
    if found.first:
        lines.append(f"failed first: {found.first}")
    if found.unknown:
        lines.append("unknown: no known cause found in this log")
    if found.exception:
        lines += raised_text(found.exception)
    if found.matters:
        lines.append("relevant lines:")
        lines += [f"   {_place(e)}: {e.text[:200]}" for e in found.matters]
    return "\n".join(lines)


def _place(line: LogLine) -> str:
    return str(line.line) if line.log is None else f"{line.log}:{line.line}"
