"""``# trainwright: ignore[TW150] why`` at a line, or on a line of its own above it, silences findings there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainwright.core.errors import did_you_mean
from trainwright.core.findings import Finding, Rule, Silenced
from trainwright.preflight.reader import Module

SOURCE = "this program's own rule: a silenced line says why, for whoever reads it next"
NO_REASON = Rule(
    code="TW102",
    severity="warning",
    title="a comment that would silence a finding gives no reason, or no code that there is; it silences nothing",
    source=SOURCE,
    remedy="# trainwright: ignore[TW150] the loss decides whether to stop",
)
UNUSED = Rule(
    code="TW103",
    severity="note",
    title="a comment silences a finding that is not there",
    source=SOURCE,
    remedy="Remove the comment.",
)
RULES = (NO_REASON, UNUSED)
COMMENT = re.compile(r"#\s*trainwright\s*:\s*ignore(?P<codes>\[[^\]]*\])?(?P<reason>.*)$", re.I)


@dataclass(frozen=True)
class Suppression:
    """A comment: the lines that it speaks of, the codes, the reason."""

    module: Module
    line: int
    lines: range
    codes: tuple[str, ...]
    reason: str


def _statement(module: Module, line: int) -> range:
    """The lines of the smallest statement at a line; of a compound one, its head."""
    best = range(line, line + 1)
    smallest: int | None = None
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.stmt):
            continue
        body = getattr(node, "body", None)
        last = node.end_lineno or node.lineno
        if isinstance(body, list) and body:
            last = max(node.lineno, body[0].lineno - 1)
        if node.lineno <= line <= last and (smallest is None or last - node.lineno < smallest):
            best, smallest = range(node.lineno, last + 1), last - node.lineno
    return best


def _comments(module: Module) -> Iterator[Suppression]:
    rows = module.text.split("\n")
    for line, text in module.comments.items():
        match = COMMENT.search(text)
        if match is None:
            continue
        codes = tuple(c.strip().upper() for c in (match["codes"] or "[]")[1:-1].split(",") if c.strip())
        alone = line <= len(rows) and rows[line - 1].lstrip().startswith("#")
        target = line
        if alone:
            while target < len(rows) and (not rows[target].strip() or rows[target].lstrip().startswith("#")):
                target += 1
            target += 1
        yield Suppression(module, line, _statement(module, target), codes, match["reason"].strip(" :-—"))


def silence(
    modules: Sequence[Module], findings: Sequence[Finding], known: Sequence[str]
) -> tuple[list[Finding], list[Silenced]]:
    """Take out what comments silence; add what is wrong with the comments.

    Args:
        modules: the files, whose comments are read.
        findings: what the rules found.
        known: every code that there is.
    """
    kept = list(findings)
    silenced: list[Silenced] = []
    for module in modules:
        for ignore in _comments(module):
            strange = [code for code in ignore.codes if code not in known]
            if not ignore.reason or not ignore.codes or strange:
                lacks = "no code" if not ignore.codes else "no reason"
                said = f"{strange[0]}: no such code. {did_you_mean(strange[0], known)}" if strange else lacks
                kept.append(NO_REASON.finding(said, path=module.name, line=ignore.line))
                continue
            for code in ignore.codes:
                met = [f for f in kept if f.code == code and f.path == module.name and f.line in ignore.lines]
                if not met:
                    kept.append(UNUSED.finding(f"no {code} here", path=module.name, line=ignore.line))
                for finding in met:
                    kept.remove(finding)
                    silenced.append(
                        Silenced(code=code, path=module.name, line=finding.line or ignore.line, reason=ignore.reason)
                    )
    return kept, silenced
