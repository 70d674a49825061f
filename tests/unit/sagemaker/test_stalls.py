"""A stall that Horovod reports: ranks that called in different orders, or only some that are late."""

from __future__ import annotations

import pytest

from trainwright.sagemaker.diagnosis import diagnose


def names(log: str) -> list[str]:
    return [cause.id for cause in diagnose(log.splitlines()).causes]


@pytest.mark.parametrize(
    ("lists", "cause"),
    [
        (("0: [a, b]", "1: [c]"), "hvd-order"),
        (("0!: [a, b]", "1: [c]"), "hvd-order"),
        (("0: [a, b]", "1: [b, c]"), "hvd-order"),
        (("0: [a, b]", "1: [a]"), "collective-timeout"),
        (("0: [a, b]", "1: [a, b]"), "collective-timeout"),
        (("1: [a, b]",), "collective-timeout"),
        # Cut off behind b, so that rank 0 may wait for c, too.
        (("0: [a, b ...]", "1: [b, c]"), "collective-timeout"),
        (("0: [a, c ...]", "1: [b, c]"), "hvd-order"),
    ],
)
def test_ranks_that_wait_for_different_tensors_called_in_different_order(lists, cause):
    """horovod, common/stall_inspector.cc: each rank with the tensors that it has not submitted, sorted, at most six."""
    stall = "[1,0]<stderr>:[2020-12-30 16:35:15.181832: W horovod/common/stall_inspector.cc:105] One or more tensors "
    stall += "were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder"
    log = [stall, "[1,0]<stderr>:Missing ranks:", *(f"[1,0]<stderr>:{line}" for line in lists)]
    assert names("\n".join(log)) == [cause]


@pytest.mark.parametrize(
    ("tensors", "cause"),
    [
        ("Stalled ops: a [ready ranks: 0, 1], b [ready ranks: 0]", "collective-timeout"),
        ("Stalled ops: a [ready ranks: 0, 2], b [ready ranks: 0, 1]", "hvd-order"),
        ("Stalled ops:a [missing ranks: 1]\nb [missing ranks: 1]", "collective-timeout"),
        ("Stalled ops:a [missing ranks: 1]\nb [missing ranks: 0]", "hvd-order"),
    ],
)
def test_old_lists_of_tensors_with_their_ranks_are_read(tensors, cause):
    """horovod/horovod #336 and #1012 have the forms."""
    stall = "WARNING: One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks. "
    assert names(stall + tensors) == [cause]
