"""Findings of checks, in one format for training scripts, job files and logs.

A rule is the constant part (code, severity, title, source, fix); a finding is a rule that applies to a place. The codes
of ``preflight`` are TW1xx, those of ``estimator`` TW2xx and TW3xx, those of ``diagnose`` the names of its causes.
``docs/findings.md`` is generated from the rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta

from trainwright.core.fields import form
from trainwright.core.records import Field, Record

Severity = Literal["error", "warning", "note"]
SCHEMA: Literal["trainwright/findings/1"] = "trainwright/findings/1"
# As of other linters (ruff, ESLint, ShellCheck): a wrong command line or a path that cannot be read is 2.
FOUND: Literal[1] = 1


# Of a rule, or of a cause in the logs of a failed job.
RuleCode = Annotated[str, form(r"^(TW[0-9]{3}|[a-z0-9-]+)$")]


class Finding(Record):
    """A mistake: what is wrong, where, the source of the rule, and the fix."""

    code: RuleCode
    severity: Severity
    path: str = Field(description="a file, or the path of a key in the job file")
    line: Annotated[int, Meta(ge=1)] | None = Field(
        default=None, description="the line in that file, or of that key; null: no single line"
    )
    message: str
    source: str
    remedy: str


class Rule(Record):
    """The meaning of a code. ``title`` describes the mistake in general, the message of a finding in particular."""

    code: RuleCode
    severity: Severity
    title: str
    source: str
    remedy: str

    def finding(
        self,
        message: str,
        *,
        path: str,
        line: int | None = None,
        severity: Severity | None = None,
        remedy: str | None = None,
        source: str | None = None,
    ) -> Finding:
        """Return a finding of this rule at a place; ``severity``, ``remedy`` and ``source`` override the rule's."""
        return Finding(
            code=self.code,
            severity=severity or self.severity,
            path=path,
            line=line,
            message=message,
            source=self.source if source is None else source,
            remedy=self.remedy if remedy is None else remedy,
        )


class Silenced(Record):
    """A finding that a comment in the script or the job file silences, and its reason."""

    code: str
    path: str
    line: int | None
    reason: str


class Unread(Record):
    """A file that could not be checked, and why."""

    path: str
    reason: str


class Known(Record):
    """Findings that a baseline accepts: alike but for the numbers of lines, which the message shows as N."""

    code: str
    path: str
    message: str
    count: Annotated[int, Meta(ge=1)]


class FindingsDocument(Record):
    """``preflight --json``; ``estimator`` and ``diagnose`` make one for their formats of other programs."""

    schema: Literal["trainwright/findings/1"]
    subject: str = Field(description="what was checked: a script, or a number of them")
    files: tuple[str, ...] = Field(description="the files that were read, the subject first")
    facts: dict[str, Any] = Field(
        description="assumptions of the checks: launcher, hosts, XLA, …; of several scripts: script → its assumptions"
    )
    findings: tuple[Finding, ...]
    silenced: tuple[Silenced, ...]
    unread: tuple[Unread, ...] = Field(description="files that were not checked")
    known: tuple[Finding, ...] = Field(description="findings of the baseline, which do not count")
    gone: tuple[Known, ...] = Field(description="findings of the baseline that are no longer there")
    errors: int
    warnings: int
    notes: int
    strict: bool = Field(description="warnings count as errors for the exit code")
    exit_code: Literal[0, 1, 2] = Field(description="1: findings; 2: files could not be read")


def table(rules: Iterable[Rule]) -> dict[str, Rule]:
    """Rules by code.

    Raises:
        ValueError: a code is there twice.
    """
    known: dict[str, Rule] = {}
    for rule in rules:
        if rule.code in known:
            raise ValueError(f"{rule.code} is there twice")
        known[rule.code] = rule
    return known


def document(
    subject: str,
    files: Sequence[str],
    facts: dict[str, Any],
    findings: Sequence[Finding],
    silenced: Sequence[Silenced] = (),
    *,
    unread: Sequence[Unread] = (),
    known: Sequence[Finding] = (),
    gone: Sequence[Known] = (),
    strict: bool = False,
) -> FindingsDocument:
    """The document of a check: findings in order of file and line, counts, and the exit code that follows."""
    place = {name: index for index, name in enumerate(files)}
    ordered = sorted(findings, key=lambda f: (place.get(f.path, len(place)), f.path, f.line or 0, f.code))
    count = {kind: sum(f.severity == kind for f in ordered) for kind in ("error", "warning", "note")}
    failed = bool(count["error"] or (strict and count["warning"]))
    return FindingsDocument(
        schema=SCHEMA,
        subject=subject,
        files=tuple(files),
        facts=facts,
        findings=tuple(ordered),
        silenced=tuple(silenced),
        unread=tuple(unread),
        known=tuple(known),
        gone=tuple(gone),
        errors=count["error"],
        warnings=count["warning"],
        notes=count["note"],
        strict=strict,
        exit_code=2 if unread else FOUND if failed else 0,
    )


def finding_lines(finding: Finding) -> list[str]:
    """Return a finding as text: its place in the style of compilers, then the fix and why."""
    place = finding.path if finding.line is None else f"{finding.path}:{finding.line}"
    return [
        f"{place}: {finding.severity} {finding.code}: {finding.message}",
        f"    fix: {finding.remedy}",
        f"    why: {finding.source}",
    ]


def moved(finding: Finding, path: str, line: int | None, cell: str = "") -> Finding:
    """Return a finding at another place; ``cell`` says where it is in a notebook."""
    return Finding(
        code=finding.code,
        severity=finding.severity,
        path=path,
        line=line,
        message=f"{finding.message} ({cell})" if cell else finding.message,
        source=finding.source,
        remedy=finding.remedy,
    )


def silenced_line(kept: Silenced) -> str:
    """Return a silenced finding as text."""
    place = kept.path if kept.line is None else f"{kept.path}:{kept.line}"
    return f"{place}: silenced {kept.code}: {kept.reason}"


def tally(errors: int, warnings: int, notes: int) -> str:
    """``1 error, 0 warnings, 2 notes``."""
    counts = ((errors, "error"), (warnings, "warning"), (notes, "note"))
    return ", ".join(f"{number} {kind}{'s' if number != 1 else ''}" for number, kind in counts)


def findings_text(found: FindingsDocument) -> str:
    """Return the findings and their number as text."""
    lines = [line for finding in found.findings for line in finding_lines(finding)]
    lines += [silenced_line(kept) for kept in found.silenced]
    lines += [f"not checked: {each.reason}" for each in found.unread]
    lines += [f"{each.path}: no longer there: {each.code}: {each.message}" for each in found.gone]
    read = f"{len(found.files)} file{'s' if len(found.files) != 1 else ''} read"
    known = f", {len(found.known)} known" if found.known else ""
    lines.append(f"{found.subject}: {tally(found.errors, found.warnings, found.notes)}{known} ({read})")
    return "\n".join(lines)


def rules_markdown(title: str, rules: Iterable[Rule], page: str) -> str:
    """Return a table of codes for the docs, which link to their sections on another page."""
    head = [f"## {title}", "", "| code | severity | what is wrong |", "| --- | --- | --- |"]
    texts = ((r, r.title.replace("|", "\\|")) for r in sorted(rules, key=lambda r: r.code))
    rows = [f"| [{r.code}]({page}#{r.code.lower()}) | {r.severity} | {text} |" for r, text in texts]
    return "\n".join([*head, *rows]) + "\n"
