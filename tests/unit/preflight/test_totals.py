"""Totals that are summed over the processes in place, and go on being added to."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, TORCHRUN, codes

JOB: dict[str, Any] = {"distribution": TORCHRUN, "instance_type": P4D}
HEAD = """
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
net = DistributedDataParallel(torch.nn.Linear(4, 4).cuda())
def train():
    for x in loader:
        net(x).sum().backward()
        optimizer.step()
"""
METER = (
    HEAD
    + """
class Error:
    def __init__(self, device):
        self.start(device)
    def start(self, device):
        self.sum = torch.zeros(2, device=device)
    def add(self, wrong, n):
        self.sum += torch.stack([wrong, n])
    def rate(self):
        {rate}
error = Error("cuda")
for epoch in range(9):
    train()
    {first}
    for x, y in held_out:
        error.add((net(x).argmax(1) != y).sum(), y.new_tensor(len(y)))
    print(error.rate())
"""
)
RATE = "dist.all_reduce(self.sum)\n        return (self.sum[0] / self.sum[1]).item()"
VARIABLE = (
    HEAD
    + """
{before}
for epoch in range(9):
    train()
    {first}
    for x, y in held_out:
        seen += (net(x).argmax(1) == y).sum()
    dist.all_reduce(seen{op})
    {after}
    print(seen)
"""
)
SEEN = "seen = torch.zeros((), device='cuda')"
# PyTorch's forum, early stopping in DDP: one process raises the flag, and all of them leave.
SIGNAL = (
    HEAD
    + """
stop = torch.zeros(1).cuda()
for epoch in range(9):
    train()
    if dist.get_rank() == 0 and worse(epoch):
        stop += 1
    dist.all_reduce(stop)
    if stop.item() > 0:
        break
"""
)


def meter(rate: str = RATE, first: str = "pass") -> str:
    return METER.format(rate=rate, first=first)


def variable(before: str = SEEN, first: str = "pass", op: str = "", after: str = "pass") -> str:
    return VARIABLE.format(before=before, first=first, op=op, after=after)


@pytest.mark.parametrize(
    ("wrong", "script"),
    [
        (True, meter()),
        (True, meter("dist.all_reduce(self.sum, dist.ReduceOp.SUM)\n        return self.sum")),
        (False, meter(first="error.start('cuda')")),
        (False, meter(first="error = Error('cuda')")),
        (False, meter(first="error.sum = torch.zeros(2).cuda()")),
        (False, meter("both = self.sum.clone()\n        dist.all_reduce(both)\n        return both[0] / both[1]")),
        (False, meter(RATE.replace("return", "self.sum, result = torch.zeros(2).cuda(), self.sum\n        return"))),
        (False, meter(RATE.replace("(self.sum)", "(self.sum, op=dist.ReduceOp.AVG)"))),
        (True, variable()),
        (False, variable(first=SEEN)),
        (False, variable(op=", op=dist.ReduceOp.AVG")),
        (False, variable(after="seen /= dist.get_world_size()")),
        (False, variable(first="seen.zero_()")),
        (False, SIGNAL),
    ],
)
def test_totals_that_count_several_times(wrong, script):
    """pytorch/ignite #2803: the accumulator was all-reduced in place, and each epoch counted the last ones again."""
    assert ("TW554" in codes(script, JOB)) is wrong
