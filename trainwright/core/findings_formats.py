"""Findings in the formats of other programs: SARIF 2.1.0, and annotations of GitHub's workflows."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from trainwright import __version__
from trainwright.core.errors import RequestError, did_you_mean
from trainwright.core.findings import Finding, FindingsDocument, Rule, tally

# The id of the schema in oasis-tcs/sarif-spec, sarif-2.1/schema/sarif-schema-2.1.0.json of commit a560296c.
SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
FORMATS = ("text", "json", "sarif", "github")
_NUMBERED = re.compile(r"\b(line|lines|cell) \d+")
_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}


def identity(finding: Finding) -> tuple[str, str, str]:
    """What stays the same of a finding when other lines of its file change: code, path, message without numbers."""
    return finding.code, finding.path, _NUMBERED.sub(r"\1 N", finding.message)


def sarif(found: FindingsDocument, rules: Mapping[str, Rule]) -> dict[str, Any]:
    """Return a log of SARIF 2.1.0, with what GitHub's code scanning asks for beyond the schema (a line, fingerprints).

    Args:
        found: the findings.
        rules: all rules by code.
    """
    codes = sorted({finding.code for finding in found.findings})
    seen: Counter[tuple[str, str, str]] = Counter()
    results = []
    for finding in found.findings:
        seen[identity(finding)] += 1
        same = "\n".join((*identity(finding), str(seen[identity(finding)])))
        results.append(
            {
                "ruleId": finding.code,
                "ruleIndex": codes.index(finding.code),
                "level": finding.severity,
                "message": {"text": f"{finding.message}\nFix: {finding.remedy}"},
                "locations": [_location(finding.path, finding.line or 1)],
                "partialFingerprints": {"trainwright/v1": hashlib.sha256(same.encode()).hexdigest()},
            }
        )
    unread = [
        {"level": "error", "message": {"text": each.reason}, "locations": [_location(each.path, 1)]}
        for each in found.unread
    ]
    driver = {"name": "Trainwright", "version": __version__, "rules": [_descriptor(rules[code]) for code in codes]}
    run = {
        "tool": {"driver": driver},
        "invocations": [{"executionSuccessful": not unread, "toolExecutionNotifications": unread}],
        "columnKind": "unicodeCodePoints",
        "results": results,
    }
    return {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}


def _descriptor(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.code,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.title},
        "help": {"text": f"Fix: {rule.remedy}\nSource: {rule.source}"},
        "defaultConfiguration": {"level": rule.severity},
    }


def _location(path: str, line: int) -> dict[str, Any]:
    uri = Path(path).as_uri() if Path(path).is_absolute() else quote(path)
    return {"physicalLocation": {"artifactLocation": {"uri": uri}, "region": {"startLine": line}}}


def form_of(form: str | None, *, as_json: bool) -> str:
    """The format that a verb's flags ask for, one of :data:`FORMATS`.

    Raises:
        RequestError: it is unknown, or ``--json`` is another.
    """
    form = form or ("json" if as_json else "text")
    if form not in FORMATS:
        raise RequestError(f"--format {form}: unknown format. {did_you_mean(form, FORMATS)}")
    if as_json and form != "json":
        raise RequestError(f"--format {form} and --json are two formats", remedy="Leave one of them out.")
    return form


def github(found: FindingsDocument, verb: str) -> str:
    """Return commands of a GitHub workflow, one per finding, and the verb's number of findings.

    The format is that of actions/toolkit, packages/core/src/command.ts of commit 4b9afa4c. No other line quotes the
    script or a path, as the runner takes commands from any line.
    """
    lines = [
        _command(_COMMANDS[each.severity], f"{each.message}\nFix: {each.remedy}", each.path, each.line, each.code)
        for each in found.findings
    ]
    lines += [_command("error", each.reason, each.path, None, "not checked") for each in found.unread]
    known = f", {len(found.known)} known" if found.known else ""
    return "\n".join([*lines, f"{verb}: {tally(found.errors, found.warnings, found.notes)}{known}"])


def _command(name: str, message: str, path: str, line: int | None, title: str) -> str:
    values = {"title": title, "file": path, "line": str(line or "")}
    properties = ",".join(f"{key}={_property(value)}" for key, value in values.items() if value)
    return f"::{name} {properties}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
