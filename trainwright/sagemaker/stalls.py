"""Horovod's report of a stall: whether ranks wait for different tensors, or only some ranks are late."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations

from trainwright.sagemaker.log_lines import bare, clean

# Old releases write a tensor with its ranks, `name [ready ranks: 0, 2]`; newer ones a rank with the tensors it misses,
# `2: [a, b ...]`, in alphabetical order and cut off after six, and `2!:` if it ends the job (horovod 0f37436e,
# common/stall_inspector.cc).
_OF_TENSOR = re.compile(r"\[(?:ready|missing) ranks: ([\d, ]+)\]?")
_OF_RANK = re.compile(r"^\s*(\d+)!?: \[(.*?)( \.\.\.)?\]\s*$")


def ranks_part(message: str, after: bytes) -> bool:
    """Whether two tensors each have a rank that called for it and not for the other one.

    Args:
        message: the line of the stall, without prefixes.
        after: the lines that follow it.
    """
    lines = [message, *(bare(clean(line)) for line in after.decode("utf-8", "replace").split("\n"))]
    tensors = [frozenset(re.findall(r"\d+", found[1])) for line in lines for found in _OF_TENSOR.finditer(line)]
    if any(one - other and other - one for one, other in combinations(set(tensors), 2)):
        return True
    ranks = list(_listed(lines))
    return any(_lacks(one, other) and _lacks(other, one) for one, other in combinations(ranks, 2))


def _listed(lines: list[str]) -> Iterator[tuple[list[str], bool]]:
    for line in lines:
        if found := _OF_RANK.match(line):
            yield found[2].split(", "), bool(found[3])


def _lacks(one: tuple[list[str], bool], other: tuple[list[str], bool]) -> bool:
    """Whether the first rank waits for a tensor that the second one does not; what a list cuts off is unknown."""
    names, cut = other
    return any(name not in names and not (cut and name > names[-1]) for name in one[0])
