"""Metrics: whether a regular expression can capture a number."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.estimator.subject import Subject

METRIC = Rule(
    code="TW314",
    severity="error",
    title="a metric whose regular expression is broken or captures no number; a warning if it has no group or an "
    "empty one, and no tuner goes by it, if its first group is a word, or if it looks for a backslash",
    source="AWS's developer guide, define training metrics: the expression searches the log and captures the value in "
    "a group; aws/sagemaker-python-sdk #3208 (only numbers are kept), #3932 (F1=(.*?) with nothing behind it); "
    "Python's re, of what no dialect of regular expressions allows",
    remedy='Put the number in a group: "loss=([0-9.]+)".',
)
RULES = (METRIC,)
# The beginnings of Python's messages about brackets without their partner, and about * + ? after nothing.
BROKEN = ("missing )", "unbalanced parenthesis", "unterminated character set", "nothing to repeat")
# A point, an escape, or a set of characters.
_SET = r"\[\^?\]?(?:[^\]\\]|\\.)*\]"
_ATOM = rf"(?:\.|\\.|{_SET})"
# A group of one repeated atom, or of words. `rest`: all that follows it may be missing.
_GROUP = re.compile(
    rf"(?<!\\)\((?:(?P<atom>{_ATOM})(?P<times>[*+?]|\{{[0-9,]+\}})?(?P<lazy>\?)?|(?P<words>[A-Za-z _:=/-]+))\)"
    rf"(?P<rest>(?:(?:{_ATOM}|[A-Za-z ,;:%])[*?]\??)*\Z)?"
)
# Parentheses around a word behind a space, which look like text of the log: "loss (val): 0.3".
_WORD_FIRST = re.compile(r"(?:[^\\()\[]|\\.)* \((?P<word>[A-Za-z_-]+)\)")
# What double quotes in YAML make of \b and \a.
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f]")
# What is written for double quotes: "\\d".
_BACKSLASH = re.compile(r"(?<!\\)\\\\[dswbDSWB.]")
_BRACKET_IN_SET = re.compile(rf"\\.|(?P<set>{_SET})")
# What a lazy repetition takes if nothing has to follow.
_LEAST = {"*": "nothing", "?": "nothing", "+": "one character"}


def check(subject: Subject) -> Iterator[Finding]:
    """Check the rules of this family."""
    for name, expression in subject.job.metrics.items():
        path, tuner = f"metrics.{name}", subject.job.tuner
        sought = tuner is not None and name == tuner.metric
        try:
            groups = re.compile(expression).groups
        except re.error as wrong:
            if wrong.msg.startswith(BROKEN):
                yield METRIC.finding(f"{expression!r}: {wrong.msg}", path=path)
            continue
        if control := _CONTROL.search(expression):
            yield METRIC.finding(
                f"{expression!r} looks for the character {control[0]!r}, which double quotes make of a backslash and "
                "a letter",
                path=path,
                remedy="Write the expression in single quotes.",
            )
        elif _BACKSLASH.search(expression):
            yield METRIC.finding(
                f"{expression!r} looks for a backslash and a letter",
                path=path,
                severity="warning",
                remedy="In single quotes one backslash is enough: '\\d'.",
            )
        elif groups > 1 and (first := _WORD_FIRST.match(expression)):
            yield METRIC.finding(
                f"{expression!r} captures {first['word']!r} first, and matches no parentheses in the log",
                path=path,
                severity="warning",
                remedy=f"If the log has parentheses there: \\({first['word']}\\).",
            )
        elif not groups:
            # Without a group the whole match counts. With words in it, it is not a number: a tuner gets no objective.
            lost = sought and _has_words(expression)
            yield METRIC.finding(f"{expression!r} captures nothing", path=path, severity=None if lost else "warning")
        elif groups == 1 and (message := _no_number(expression)):
            # The job trains, and lacks the metric, as two of AWS's notebooks do.
            empty = message.startswith("captures nothing") and not sought
            yield METRIC.finding(f"{expression!r} {message}", path=path, severity="warning" if empty else None)


def _has_words(expression: str) -> bool:
    return re.search("[A-Za-z]", re.sub(rf"\\.|{_SET}", "", expression)) is not None


def _no_number(expression: str) -> str | None:
    """Why the only group of an expression never holds the number; None: it may, or its form is not known."""
    group = _GROUP.search(expression)
    if group is None or any("(" in (each["set"] or "") for each in _BRACKET_IN_SET.finditer(expression)):
        return None
    if group["words"] or not _takes_digits(group["atom"]):
        return "captures no digit"
    least = _LEAST.get(group["times"]) if group["lazy"] and group["rest"] is not None else None
    return (
        f"captures {least}: {group['times']}? takes as little as it can, and nothing has to follow" if least else None
    )


def _takes_digits(atom: str) -> bool:
    try:
        return any(re.fullmatch(atom, digit) for digit in "0123456789")
    except re.error:
        return True  # another dialect's escape
