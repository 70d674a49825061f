"""The prefilter of ``diagnose``: fast, and it hides no line that a pattern matches."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.regex_steps import parse
from trainwright.sagemaker.causes import load_book
from trainwright.sagemaker.diagnosis import _MATTER_WORDS, _MATTERS, diagnose, diagnose_logs
from trainwright.sagemaker.log_lines import Log
from trainwright.sagemaker.log_search import Finder, Search, certain

BOOK = load_book()
PATTERNS = sorted({pattern for cause in BOOK.causes for pattern in cause.patterns})


def flat(tree: Any) -> Iterator[tuple[str, Any]]:
    """The nodes of a tree, those of its groups in their place."""
    for op, value in tree:
        if str(op) == "SUBPATTERN":
            yield from flat(value[3])
        else:
            yield str(op), value


def runs(tree: Any) -> Iterator[str]:
    """The texts that every match of a tree contains, read from the tree that ``re`` itself makes of a pattern."""
    text = ""
    for kind, value in flat(tree):
        if kind == "LITERAL":
            text += chr(value).lower()
        elif not kind.startswith(("ASSERT", "AT")):
            yield text
            text = ""
            if kind.endswith("_REPEAT") and value[0] > 0:
                yield from runs(value[2])
    yield text


@pytest.mark.parametrize("pattern", PATTERNS)
def test_what_is_certain_of_a_pattern_is_in_every_line_that_it_matches(pattern):
    sure = list(runs(parse(pattern)[0]))
    pieces = certain(pattern).split("\n")
    assert any(pieces), "it would be tried on every line"
    for piece in pieces:
        assert any(piece in run for run in sure), piece


@pytest.mark.parametrize(
    ("pattern", "sure"),
    [
        ("exit (?:code|status):? 137", "exit \n \n"),
        (r"a (?P<name>\w+) of b", "a \n of b"),
        ("(?<!not )found", "\nfound"),
        ("one|two", ""),
        ("colou?r", "colo\nr"),
        ("Error 803", "error \n"),
    ],
)
def test_what_is_certain_of_a_pattern(pattern, sure):
    assert re.sub("\n+", "\n", certain(pattern)) == sure


MATTERS = """an error, fatal: x, an exception, it failed, a failure, was killed, aborted, panic, denied, refused,
timed out, timeout, cannot x, could not, unable to, segmentation fault, no such file, not found, ValueError: x,
UserWarning: x"""


@pytest.mark.parametrize("line", re.split(r",\s", MATTERS))
def test_lines_that_matter_are_shown_where_no_cause_is_known(line):
    found = diagnose(["start", line, *["step"] * 9])
    assert found.unknown
    assert line in [each.text for each in found.matters]


@lru_cache
def searched(line):
    """The causes that a search of every pattern finds in a line."""
    return [each.id for each in BOOK.causes if any(re.search(pattern, line) for pattern in each.patterns)]


@given(
    st.lists(st.sampled_from(["step 1", "", "CUDA out of memory", "x" * 50, "Error 803", "\u00fc"]), max_size=60),
    st.integers(1, 40),
)
def test_blocks_make_no_difference(lines, size):
    """What is found in blocks of a few lines is what a search without a prefilter finds in each line."""
    plain = [(number, cause) for number, line in enumerate(lines, 1) for cause in searched(line)]
    finder = Finder(Search(BOOK.causes, _MATTERS, _MATTER_WORDS))
    blocks = ["".join(f"{line}\n" for line in lines[at : at + size]).encode() for at in range(0, len(lines), size)]
    hits = [hit for block in blocks for hit in finder.find(block)]
    assert [(hit.line, cause.id) for hit in hits for cause, _ in hit.matches(hit.text.decode())] == plain
    assert finder.lines == len(lines)


def test_a_cause_is_found_among_lines_that_look_like_none():
    lines = []
    for step in range(2_000):
        rank = f"[1,mpirank:{step % 16},algo-{step % 2 + 1}]<stdout>:"
        lines += [
            f"{rank}Train Epoch: {step // 900} [{step}/300000] Loss: {step / 7:.6f}, lr: {1 / (step + 1):.3e}, 99/s",
            f"algo-1:{step}:{step + 40} [0] NCCL INFO Channel 00 : 0[{step}] -> 1[101d0] via P2P/IPC/read, connected",
        ]
    lines.append("[1,mpirank:3,algo-1]<stderr>:RuntimeError: CUDA out of memory.")
    found = diagnose_logs([Log("job.log", [f"{line}\n".encode() for line in lines])], "job.log")
    assert [(cause.id, cause.evidence[0].line) for cause in found.causes] == [("gpu-memory", 4_001)]


def test_no_pattern_is_tried_on_the_lines_that_a_healthy_job_repeats():
    """They are most of a log; one such line in four made ``diagnose`` twice as slow."""
    lines = [
        "[1,mpirank:3,algo-1]<stdout>:Train Epoch: 1 [640/60000 (1%)] Loss: 2.3, lr: 1e-03, 99/s",
        "algo-1:77:117 [0] NCCL INFO Channel 00 : 0[1a0] -> 1[101d0] via P2P/IPC/read, connected",
        "10:00:00 1200 - mean_absolute_error: 0.31 - val_accuracy: 0.1 - val_loss: 0.2",
        "{'loss': 0.1, 'grad_norm': 0.3, 'learning_rate': 5e-05, 'epoch': 0.9}",
        "Epoch 3:  45%|████▌     | 450/1000 [01:00<01:10,  7.50it/s, loss=0.31, v_num=0]",
        "#quality_metric: host=algo-1, epoch=3, train binary_classification_accuracy <score>=(0.9)",
        "[12]#011train-error:0.01#011validation-error:0.02",
        "IndexError: no row 7",
    ]
    search = Search(BOOK.causes, _MATTERS, _MATTER_WORDS)
    found = search.look(re.sub(r"\d", "", line).lower().encode() for line in lines)
    assert {shape: [each.pattern for each in tried] for shape, tried in found.items() if tried} == {}
