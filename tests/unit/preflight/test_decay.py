"""Schedules of the learning rate, stepped per batch: by numbers of epochs, and by numbers of batches.

Source: PyTorch's documentation of torch.optim.lr_scheduler: StepLR, MultiStepLR, ExponentialLR, CosineAnnealingLR,
OneCycleLR (which is to be stepped after each batch).
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import Case, but, parser, unmet

ONE: dict[str, Any] = {"instance_type": "ml.g5.2xlarge"}
LOOP = (
    "import torch\nfrom torch.optim import lr_scheduler\nfrom torch.optim.lr_scheduler import StepLR\n{head}"
    "net = torch.nn.Linear(2, 2).cuda()\noptimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
    "loader = torch.utils.data.DataLoader(rows)\nscheduler = {made}\n"
    "for epoch in range(90):\n    for i, x in enumerate(loader):\n        optimizer.zero_grad()\n"
    "        net(x).sum().backward()\n        optimizer.step()\n        {batch}\n    {end}\n"
)
DAILY = "StepLR(optimizer, 30)"


def loop(made: str = DAILY, *edits: str, batch: str = "scheduler.step()", end: str = "", head: str = "") -> str:
    """A training of 90 epochs whose scheduler is stepped for each batch."""
    return but(LOOP.format(made=made, batch=batch, end=end, head=head), *edits)


def scheduler(words: str) -> str:
    """A training with this scheduler, stepped for each batch."""
    return loop(f"lr_scheduler.{words}")


GAMMA = parser("'--gamma', type=float, default=0.7")
CLASS = (
    "class Run:\n    def __init__(self):\n        self.net = torch.nn.Linear(2, 2)\n"
    "        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)\n"
    "        self.scheduler = StepLR(self.optimizer, step_size={}, gamma=0.5)\n"
    "    def epoch(self, loader):\n        for x in loader:\n            self.net(x).sum().backward()\n"
    "            self.optimizer.step()\n            self.scheduler.step()\n"
    "    def train(self):\n        for epoch in range(90):\n            self.epoch(rows)\nRun().train()\n"
)
GRAPH = (
    "import torch\nnet = torch.nn.Linear(2, 2)\noptimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
    "scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 30)\n"
    "for run in range(5):\n    for epoch in range({}):\n        net(nodes).sum().backward()\n"
    "        optimizer.step()\n        scheduler.step()\n"
)
ONCE = LOOP.format(made="StepLR(optimizer, 1, 0.7)", batch="scheduler.step()", end="", head="")
ONCE = but(ONCE, "for epoch in range(90):\n    for i, x in enumerate(loader)", "for i, x in enumerate({})")
UPDATE = "def update(optimizer, scheduler):\n    optimizer.step()\n    scheduler.step()\n"
CASES: list[Case] = [
    ("TW464", reported, script, ONE)
    for reported, script in (
        (13, loop()),
        ("warning", loop()),
        (True, scheduler("StepLR(optimizer, step_size=1, gamma=0.7)")),
        (True, scheduler("StepLR(optimizer, 100, 0.1)")),
        (True, scheduler("ExponentialLR(optimizer, 0.95)")),
        (True, scheduler("ExponentialLR(optimizer, gamma=0.9)")),
        (True, scheduler("MultiStepLR(optimizer, [30, 60, 80])")),
        (True, scheduler("MultiStepLR(optimizer, milestones=(30, 90), gamma=0.1)")),
        (True, scheduler("CosineAnnealingLR(optimizer, T_max=90)")),
        (True, loop("StepLR(optimizer, 1, gamma=args.gamma)", head=GAMMA)),
        (True, loop("StepLR(optimizer, 30)", batch="if scheduler is not None:\n            scheduler.step()")),
        (True, loop("StepLR(optimizer, 30)", batch="if scheduler:\n            scheduler.step()")),
        (True, loop(DAILY, "        optimizer.step()\n", "", head=UPDATE, batch="update(optimizer, scheduler)")),
        (True, loop(DAILY, "enumerate(loader)", "enumerate(source.batches())")),
        (True, loop(DAILY, "for i, x in enumerate(loader)", "for i in range(len(loader))")),
        (True, loop(DAILY, "        optimizer.step()\n", "        if i % 4 == 3:\n            optimizer.step()\n")),
        (True, "import torch\nfrom torch.optim.lr_scheduler import StepLR\n" + CLASS.format(10)),
        (False, "import torch\nfrom torch.optim.lr_scheduler import StepLR\n" + CLASS.format(10_000)),
        (True, loop(DAILY, head=parser("'--decay', default=1"), batch="if args.decay:\n            scheduler.step()")),
        (True, loop("lr_scheduler.CosineAnnealingLR(optimizer, 90)", "range(90)", "range(1, 91)")),
        (True, ONCE.format("loader")),
        (False, ONCE.format("rows")),
        (False, loop("lr_scheduler.CosineAnnealingLR(optimizer, 90)", "range(90)", "range(epochs)")),
        (False, loop("lr_scheduler.CosineAnnealingLR(optimizer, 90)", "range(90)", "range(first, 90)")),
        (False, loop("lr_scheduler.CosineAnnealingLR(optimizer, 91)", "range(90)", "range(1, 91)")),
        (False, loop(batch="", end="scheduler.step()")),
        (False, scheduler("MultiStepLR(optimizer, [30, 60000])")),
        (False, scheduler("StepLR(optimizer, 5000)")),
        (False, scheduler("StepLR(optimizer, step_size=30 * len(loader))")),
        (False, scheduler("StepLR(optimizer, step_size=size)")),
        (False, scheduler("StepLR(optimizer, 30, gamma=1.0)")),
        (False, scheduler("ExponentialLR(optimizer, 0.9999)")),
        (False, scheduler("ExponentialLR(optimizer, decay ** (1 / len(loader)))")),
        (False, scheduler("MultiStepLR(optimizer, [30000, 60000])")),
        (False, scheduler("MultiStepLR(optimizer, [n * len(loader) for n in (30, 60)])")),
        (False, scheduler("CosineAnnealingLR(optimizer, T_max=90 * len(loader))")),
        (False, scheduler("CosineAnnealingLR(optimizer, T_max=9000)")),
        (False, scheduler("OneCycleLR(optimizer, 0.1, epochs=90, steps_per_epoch=len(loader))")),
        (False, scheduler("LinearLR(optimizer, total_iters=90)")),
        (False, scheduler("CyclicLR(optimizer, 0.1, 1.0, step_size_up=30)")),
        (False, scheduler("CosineAnnealingWarmRestarts(optimizer, 90)")),
        (False, scheduler("LambdaLR(optimizer, rate)")),
        (False, loop("get_linear_schedule_with_warmup(optimizer, 30, 90)",
                     head="from transformers import get_linear_schedule_with_warmup\n")),
        # After the last batch of each epoch.
        (False, loop(batch="if i == len(loader) - 1:\n            scheduler.step()")),
        (False, loop(batch="if (i + 1) % len(loader) == 0:\n            scheduler.step()")),
        (False, loop(batch="if i % 1000 == 0:\n            scheduler.step()")),
        # An epoch is one batch.
        (False, GRAPH.format(200)),
        (False, GRAPH.format("args.epochs")),
        # By a number of its own.
        (False, loop(batch="scheduler.step(epoch)")),
        (False, loop(batch="scheduler.step(epoch + i / len(loader))")),
    )
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_a_schedule_is_stepped_in_its_own_unit(case: Case) -> None:
    assert not unmet(case), unmet(case)
