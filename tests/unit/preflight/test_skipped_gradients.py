"""Gradients that are reduced by hand where they are there, in a model whose layers each process draws for itself.

Sources: PyTorch's documentation of torch.distributed; deepspeedai/DeepSpeed #291; Python's and NumPy's documentation of
their generators: without a seed, they take one from the operating system.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, TORCHRUN, but, codes

JOB: dict[str, Any] = {"distribution": TORCHRUN, "instance_type": P4D}
SCRIPT = """
import os
import random
import numpy as np
import torch
import torch.distributed as dist
from torch import nn
TASKS = ["a", "b", "c"]
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.heads = nn.ModuleDict({t: nn.Linear(8, 2) for t in TASKS})
        self.first, self.second = nn.Linear(8, 2), nn.Linear(8, 2)
    def forward(self, x, task):
        return self.heads[task](self.body(x))
def average(net):
    for p in net.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
class Mixer:
    def __init__(self, loaders, seed):
        self.loaders, self.chance = loaders, random.Random(seed)
    def next(self):
        task = self.chance.choice(TASKS)
        return task, next(self.loaders[task])
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.manual_seed(1)
rank = dist.get_rank()
net = Net().cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
mixer = Mixer(loaders(), 7 + rank)
for step in range(1000):
    task, (x, y) = mixer.next()
    loss = nn.functional.cross_entropy(net(x.cuda(), task), y.cuda())
    optimizer.zero_grad()
    loss.backward()
    average(net)
    optimizer.step()
"""
GUARD = (
    "        if p.grad is not None:\n            dist.all_reduce(p.grad)\n            p.grad /= dist.get_world_size()\n"
)
LEAVES = """        if p.grad is None:
            continue
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
"""
LOOP = "    for p in net.parameters():\n" + GUARD
FLAT = """    grads = [p.grad for p in net.parameters() if p.grad is not None]
    flat = torch.cat([g.flatten() for g in grads])
    dist.all_reduce(flat)
    spread(flat / dist.get_world_size(), grads)
"""
USES = "self.heads[task](self.body(x))"
DRAWN = "random.Random(seed)"
CHOICE = "self.chance.choice(TASKS)"
IF = "self.first(self.body(x)) if task == 'a' else self.second(self.body(x))"
MIXER = "mixer = Mixer"


@pytest.mark.parametrize(
    ("wrong", "script"),
    [
        (True, SCRIPT),
        (True, but(SCRIPT, GUARD, LEAVES)),
        (True, but(SCRIPT, "if p.grad", "if p.requires_grad and p.grad")),
        (True, but(SCRIPT, "dist.all_reduce(p.grad)", "dist.all_reduce(tensor=p.grad)")),
        (True, but(SCRIPT, CHOICE, "dist.get_rank() % 3")),
        (True, but(SCRIPT, LOOP, FLAT)),
        (True, but(SCRIPT, LOOP, FLAT.replace("all_reduce(flat)", "all_reduce(tensor=flat)"))),
        (True, but(SCRIPT, USES, IF)),
        (True, but(SCRIPT, USES, "getattr(self, 'head_' + task)(self.body(x))")),
        (True, but(SCRIPT, "net(x.cuda(), task)", "net(x.cuda(), task=task)")),
        (True, but(SCRIPT, "7 + rank", "rank")),
        (True, but(SCRIPT, DRAWN, "random.Random()")),
        (True, but(SCRIPT, DRAWN, "np.random.default_rng(seed)", CHOICE, "int(self.chance.integers(3))")),
        (True, but(SCRIPT, CHOICE, "random.choice(TASKS)")),
        (True, but(SCRIPT, CHOICE, "random.choice(TASKS)", MIXER, "random.seed(rank)\n" + MIXER)),
        (False, but(SCRIPT, "7 + rank", "7")),
        (False, but(SCRIPT, CHOICE, "random.choice(TASKS)", MIXER, "random.seed(7)\n" + MIXER)),
        (False, but(SCRIPT, CHOICE, "random.choice(TASKS)", MIXER, "seed_everything(7)\n" + MIXER)),
        (False, but(SCRIPT, CHOICE, "TASKS[len(seen) % 3]")),
        (False, but(SCRIPT, GUARD, "        dist.all_reduce(p.grad)\n        p.grad /= dist.get_world_size()\n")),
        (False, but(SCRIPT, "if p.grad is not None:", "if p.requires_grad:")),
        (
            False,
            but(SCRIPT, GUARD, "        if p.grad is None:\n            p.grad = torch.zeros_like(p)\n" + GUARD),
        ),
        (
            False,
            but(
                SCRIPT,
                LOOP,
                FLAT.replace(
                    "p.grad for p in net.parameters() if p.grad is not None", "filled(p) for p in net.parameters()"
                ),
            ),
        ),
        (False, but(SCRIPT, LOOP, FLAT.replace("g in grads", "g in filled(net)"))),
        (False, but(SCRIPT, USES, "self.heads['a'](self.body(x)) * len(task)")),
        (False, but(SCRIPT, USES, "getattr(self, 'first')(self.body(x)) * len(task)")),
        (
            False,
            but(
                SCRIPT,
                "    optimizer.zero_grad()",
                "    loss = loss + 0.0 * sum(p.sum() for p in net.parameters())\n    optimizer.zero_grad()",
            ),
        ),
        (
            False,
            but(
                SCRIPT,
                "7 + rank",
                "7",
                "        return self.heads",
                "        if os.environ.get('X') == task:\n            x = x + 1\n        return self.heads",
            ),
        ),
        (
            False,
            but(
                SCRIPT,
                "net = Net().cuda()",
                "net = nn.parallel.DistributedDataParallel(Net().cuda(), find_unused_parameters=True)",
            ),
        ),
    ],
)
def test_layers_that_each_process_draws(wrong, script):
    assert ("TW570" in codes(script, JOB)) is wrong


def test_a_process_alone_misses_none():
    assert "TW570" not in codes(SCRIPT, {"instance_type": "ml.g5.2xlarge"})
