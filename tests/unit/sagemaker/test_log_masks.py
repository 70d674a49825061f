"""Lines that differ only in their digits are searched once, and the result is that of a search of each line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.regex_steps import accepts, nodes, parse
from trainwright.core.data_files import read_yaml
from trainwright.sagemaker import diagnosis, first_failure, frames, log_lines
from trainwright.sagemaker.causes import load_book
from trainwright.sagemaker.diagnosis import diagnose
from trainwright.sagemaker.log_search import MaskKind, Search, tells_digits

BOOK = load_book()
PATTERNS = sorted({pattern for cause in BOOK.causes for pattern in cause.patterns})
KNOWN = read_yaml(Path(__file__).with_name("failures.yaml"))
TEXTS = [
    *(known["text"] for known in KNOWN["texts"] + KNOWN["consequences"] + KNOWN["also_near"]),
    *KNOWN["near"].values(),
]
OTHER_DIGITS = str.maketrans("0123456789", "3456789012")


def same_for_all_digits(pattern: str, flags: int = 0) -> bool:
    """Whether each part of a pattern takes every digit or none, and none repeats what another one took."""
    tree, flags = parse(pattern, flags)
    for op, value in nodes(tree):
        if op.startswith("GROUPREF"):
            return False
        if (
            op in {"ANY", "LITERAL", "NOT_LITERAL", "IN"}
            and len({accepts(op, value, d, flags) for d in "0123456789"}) > 1
        ):
            return False
    return True


def test_a_pattern_that_names_a_digit_is_known():
    told = {pattern for pattern in PATTERNS if tells_digits(pattern)}
    assert [pattern for pattern in PATTERNS if pattern not in told and not same_for_all_digits(pattern)] == []
    assert len(told) < len(PATTERNS) / 4
    assert not tells_digits(r"a{2,3} \d+ [^x]{4}")
    for pattern in (r"Error 803", r"[1-9]", r"a\{5}", r"(\w) \1", r"(?P<a>\w) (?P=a)", r"\x1b"):
        assert tells_digits(pattern)


def test_what_else_is_read_of_a_line_does_not_tell_digits_apart():
    """Of a mask are known: the message without escapes and prefixes, and whether it matters or is noted."""
    for read in (
        *(log_lines._ESCAPES, log_lines._PREFIX, diagnosis._MATTERS),
        *(frames.ERROR, frames._ERROR_NAME, first_failure._FIRST_OF_MPI),
    ):
        pattern = read.pattern.decode() if isinstance(read.pattern, bytes) else read.pattern
        assert same_for_all_digits(pattern, read.flags & ~re.UNICODE), pattern


def test_digits_decide():
    lines = ["Process 7 exit with status code 139.", "Process 7 exit with status code 137."]
    found = {cause.id: [line.line for line in cause.evidence] for cause in diagnose([*lines, lines[1]]).causes}
    assert found["process-killed"] == [2, 3]


def test_the_result_is_that_of_a_search_of_each_line(monkeypatch: pytest.MonkeyPatch):
    """For each known text among lines that differ from it in digits alone, and among those of a long job."""
    logs = []
    for text in TEXTS:
        lines = text.splitlines()
        step = [f"2026-11-21 10:00:0{at} WARNING request {at} failed: error {at}" for at in range(3)]
        logs.append([*step, *(line.translate(OTHER_DIGITS) for line in lines), *step, *lines, *lines, *step])
    found = [diagnose(lines) for lines in logs]
    monkeypatch.setattr(
        Search,
        "kind",
        lambda self, mask, tried: MaskKind(tuple(tried), bool(self.matters.search(mask.lower())), noted=True),
    )
    assert found == [diagnose(lines) for lines in logs]


def test_a_pattern_is_tried_once_on_lines_that_repeat(monkeypatch: pytest.MonkeyPatch):
    kinds = []
    kind = Search.kind
    monkeypatch.setattr(Search, "kind", lambda self, mask, tried: kinds.append(mask) or kind(self, mask, tried))
    diagnose(f"{1_000 + step} data.py:31: UserWarning: 1 of 4 workers must be restarted" for step in range(500))
    assert kinds == [b"0000 data.py:00: UserWarning: 0 of 0 workers must be restarted"]


def test_what_a_progress_bar_wrote_over_is_not_searched():
    bar = "\r".join(f"Map: {step}%|##| error {step}" for step in range(100))
    found = diagnose([f"{bar}\rdone\r", "step 1"])
    assert [line.text for line in found.matters] == ["done", "step 1"]
    assert [cause.id for cause in diagnose([f"{bar}\rCUDA out of memory.\r"]).causes] == ["gpu-memory"]
