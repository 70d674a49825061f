"""Gradients that a script averages itself are for one model: all processes begin with the same weights."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, TORCHRUN, codes

JOB: dict[str, Any] = {"distribution": TORCHRUN, "instance_type": P4D}
# PyTorch's tutorial on writing distributed applications, with what each case changes.
TUTORIAL = """
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
    def forward(self, x):
        return self.layer(x)
class Group:
    def __init__(self):
        dist.init_process_group("nccl")
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
    def chance(self, number):
        torch.manual_seed(number)
    def average(self, net):
        for parameter in net.parameters():
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)
            parameter.grad /= self.size
group = Group()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
{seed}
net = Net().cuda()
{after}
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
sampler = DistributedSampler(data)
for epoch in range(9):
    sampler.set_epoch(epoch)
    for x, y in DataLoader(data, 8, sampler=sampler):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x.cuda()), y.cuda()).backward()
        group.average(net)
        optimizer.step()
"""
BY_RANK = "group.chance(7 + group.rank)"


@pytest.mark.parametrize(
    ("wrong", "seed", "after"),
    [
        (True, BY_RANK, ""),
        (True, "torch.manual_seed(1000 * (group.rank + 1))", ""),
        (True, BY_RANK, "if os.path.exists('a.pt'):\n    net.load_state_dict(torch.load('a.pt', map_location='cpu'))"),
        (False, "group.chance(7)", ""),
        (False, "seed = 7 + group.rank\ntorch.manual_seed(seed - group.rank)", ""),
        (False, "group.chance(7)", "torch.manual_seed(group.rank)"),
        (False, BY_RANK, "for p in net.parameters():\n    dist.broadcast(p.data, 0)"),
        (False, BY_RANK, "for p in net.parameters():\n    dist.all_reduce(p.data)\n    p.data /= group.size"),
        (False, BY_RANK, "net.load_state_dict(torch.load('a.pt', map_location='cpu'))"),
        (False, BY_RANK, "net = nn.parallel.DistributedDataParallel(net)"),
    ],
)
def test_each_process_begins_with_the_same_weights(wrong, seed, after):
    """PyTorch's tutorial, run: torch.manual_seed(1234) in each process, before it makes its model."""
    assert ("TW184" in codes(TUTORIAL.format(seed=seed, after=after), JOB)) is wrong


def test_without_a_seed_each_process_has_its_own():
    """PyTorch's notes on reproducibility: without manual_seed, results differ from one process to the next."""
    assert "TW184" in codes(TUTORIAL.replace("torch.manual_seed(number)", "pass").format(seed="", after=""), JOB)
