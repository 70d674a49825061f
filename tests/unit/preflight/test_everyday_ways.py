"""Ways to write a training that people use every day, each beside the mistake that is nearest to it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, TORCHRUN, codes

ONE: dict[str, Any] = {"instance_type": P4D, "distribution": TORCHRUN}

LOADER_OF_ONES_OWN = """
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, DistributedSampler
accelerator = Accelerator()
torch.manual_seed(1)
data = torch.utils.data.TensorDataset(torch.ones(64, 4), torch.ones(64, 1))
loader = DataLoader(data, 8, {sampler})
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
net, optimizer{more} = accelerator.prepare(net, optimizer{more})
for x, y in loader:
    loss = torch.nn.functional.mse_loss(net(x.to(accelerator.device)), y.to(accelerator.device))
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
"""
OF_ACCELERATOR = "DistributedSampler(data, accelerator.num_processes, accelerator.process_index)"
VALIDATION = "loader = DataLoader", "held = DataLoader(data, 8)\nloader = DataLoader"


@pytest.mark.parametrize("more", ["", ", held"])
@pytest.mark.parametrize(
    ("sampler", "reported"),
    [
        ("shuffle=True", True),
        ("sampler=torch.utils.data.RandomSampler(data)", True),
        ("sampler=DistributedSampler(data)", False),
        (f"sampler={OF_ACCELERATOR}", False),
        (f"batch_sampler=torch.utils.data.BatchSampler({OF_ACCELERATOR}, 8, True)", False),
    ],
)
def test_a_loader_with_a_share_of_the_data_need_not_be_prepared(sampler, reported, more):
    """Accelerate's prepare_data_loader divides a loader's samples; a DistributedSampler has divided them already."""
    script = LOADER_OF_ONES_OWN.replace(*VALIDATION).format(sampler=sampler, more=more)
    assert ("TW155" in codes(script, ONE)) is reported
