"""``# trainwright: ignore[TW150] reason`` on a line, or on its own line above, silences findings there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainwright.core.errors import did_you_mean
from trainwright.core.findings import Finding, Rule, Silenced
from trainwright.script.reader import Module

SOURCE = "Trainwright's own rule: a silenced line gives a reason for its next reader"
NO_REASON = Rule(
    code="TW102",
    severity="warning",
    title="a suppression comment without a reason or with an unknown code; it silences nothing",
    source=SOURCE,
    remedy="# trainwright: ignore[TW150] the loss decides whether to stop",
)
UNUSED = Rule(
    code="TW103",
    severity="note",
    title="a suppression comment that silences nothing",
    source=SOURCE,
    remedy="Remove the comment.",
)
RULES = (NO_REASON, UNUSED)
COMMENT = re.compile(r"#\s*trainwright\s*:\s*ignore(?P<codes>\[[^\]]*\])?(?P<reason>.*)$", re.I)


@dataclass(frozen=True)
class Suppression:
    """A suppression comment: the lines it applies to, the codes, the reason."""

    module: Module
    line: int
    lines: range
    codes: tuple[str, ...]
    reason: str
    alone: bool

    def covers(self, finding: Finding) -> bool:
        """Whether a finding of this file is on these lines; one without a line is that of any comment alone on its."""
        return self.alone if finding.line is None else finding.line in self.lines


def _statement(module: Module, line: int) -> range:
    """Return the lines of the smallest statement at a line; of a compound statement, its head."""
    best = range(line, line + 1)
    smallest: int | None = None
    for node in module.nodes:
        if not isinstance(node, ast.stmt):
            continue
        body = getattr(node, "body", None)
        last = node.end_lineno or node.lineno
        if isinstance(body, list) and body:
            last = max(node.lineno, body[0].lineno - 1)
        if node.lineno <= line <= last and (smallest is None or last - node.lineno < smallest):
            best, smallest = range(node.lineno, last + 1), last - node.lineno
    return best


def _in_text(strings: Sequence[ast.Constant | ast.JoinedStr], line: int, column: int) -> bool:
    """Return whether a place (a column in bytes) is within one of these strings."""
    return any(
        (node.lineno, node.col_offset) <= (line, column) < (node.end_lineno or 0, node.end_col_offset or 0)
        for node in strings
    )


def _comments(module: Module) -> Iterator[Suppression]:
    if "trainwright" not in module.text.lower():
        return
    rows = module.text.split("\n")
    strings = [node for node in module.nodes if isinstance(node, ast.Constant | ast.JoinedStr)]
    for line, row in enumerate(rows, 1):
        match = COMMENT.search(row)
        if match is not None and _in_text(strings, line, len(row[: match.start()].encode())):
            # It may be a comment between two parts of the string. Tokenizing takes a tenth of the whole time.
            match = COMMENT.search(module.comments.get(line, ""))
        if match is None:
            continue
        codes = tuple(c.strip().upper() for c in (match["codes"] or "[]")[1:-1].split(",") if c.strip())
        alone = line <= len(rows) and rows[line - 1].lstrip().startswith("#")
        target = line
        if alone:
            while target < len(rows) and (not rows[target].strip() or rows[target].lstrip().startswith("#")):
                target += 1
            target += 1
        yield Suppression(module, line, _statement(module, target), codes, match["reason"].strip(" :-—"), alone)


def silence(
    modules: Sequence[Module], findings: Sequence[Finding], known: Sequence[str]
) -> tuple[list[Finding], list[Silenced]]:
    """Remove the findings that comments silence, and report invalid comments.

    Args:
        modules: the files with the comments.
        findings: what the rules found.
        known: every valid code.
    """
    kept = list(findings)
    silenced: list[Silenced] = []
    for module in modules:
        for suppression in _comments(module):
            unknown = [code for code in suppression.codes if code not in known]
            if not suppression.reason or not suppression.codes or unknown:
                message = "no code" if not suppression.codes else "no reason"
                if unknown:
                    message = f"unknown code {unknown[0]}. {did_you_mean(unknown[0], known)}"
                kept.append(NO_REASON.finding(message, path=module.name, line=suppression.line))
                continue
            for code in suppression.codes:
                matching = [f for f in kept if (f.code, f.path) == (code, module.name) and suppression.covers(f)]
                if not matching:
                    kept.append(UNUSED.finding(f"no {code} here", path=module.name, line=suppression.line))
                for finding in matching:
                    kept.remove(finding)
                    silenced.append(
                        Silenced(
                            code=code,
                            path=module.name,
                            line=finding.line or suppression.line,
                            reason=suppression.reason,
                        )
                    )
    return kept, silenced
