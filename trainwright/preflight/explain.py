"""``preflight --explain TW121``: what a rule means, an example of the mistake and its fix, and how it is known."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal

from trainwright.core.data_files import read_json
from trainwright.core.errors import RequestError, did_you_mean
from trainwright.core.findings import Rule, Severity
from trainwright.core.records import Field, Record

# Made by ./invoke generate from tests/corpus/.
EXAMPLES = Path(__file__).with_name("examples.json")


class RuleDocument(Record):
    """``preflight --explain CODE --json``."""

    schema: Literal["trainwright/rule/1"]
    code: str
    severity: Severity
    title: str
    source: str
    remedy: str
    example: str | None = Field(description="a difference: - is the mistake, + the right way; null: none")


@cache
def examples() -> dict[str, str]:
    """Return an example for each code that has one."""
    return dict(read_json(EXAMPLES))


def explain(code: str, rules: Mapping[str, Rule]) -> RuleDocument:
    """Return what is known about a rule.

    Raises:
        RequestError: no rule has this code (names the nearest).
    """
    rule = rules.get(code.upper())
    if rule is None:
        raise RequestError(
            f"--explain {code}: unknown rule. {did_you_mean(code.upper(), rules)}",
            remedy="docs/findings.md lists all of them.",
        )
    return RuleDocument(
        schema="trainwright/rule/1",
        code=rule.code,
        severity=rule.severity,
        title=rule.title,
        source=rule.source,
        remedy=rule.remedy,
        example=examples().get(rule.code),
    )


def rule_text(rule: RuleDocument) -> str:
    """Return a rule as text."""
    lines = [f"{rule.code} {rule.severity}: {rule.title}", f"fix: {rule.remedy}", f"why: {rule.source}"]
    if rule.example:
        lines += ["example (- the mistake, + the right way):", *(f"    {row}" for row in rule.example.split("\n"))]
    if not rule.code.startswith(("TW2", "TW3")):  # of job files
        lines.append(f"silence: # trainwright: ignore[{rule.code}] the reason")
    else:
        lines.append(f'silence (in the job file): silence: {{{rule.code}: "the reason"}}')
    return "\n".join(lines)


def rule_section(rule: RuleDocument) -> str:
    """Return a rule as a section of a Markdown page."""
    example = f"\n```diff\n{rule.example}\n```\n" if rule.example else ""
    return (
        f"## {rule.code}\n\n{_prose(rule.title)} ({rule.severity}).\n{example}\n"
        f"- Fix: {rule.remedy}\n- Why: {rule.source}\n"
    )


def _prose(text: str) -> str:
    return text[:1].upper() + text[1:]
