"""Epochs that are divided by the number of processes, as Horovod's example does where each process reads all data."""

from __future__ import annotations

import pytest

from tests.support.training_scripts import P4D, TORCHRUN, codes

SCRIPT = """
import os
import torch
import torch.distributed as dist
dist.init_process_group("nccl")
world = dist.get_world_size()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
sampler = {sampler}
loader = torch.utils.data.DataLoader(data, batch_size=8, sampler=sampler)
model = torch.nn.parallel.DistributedDataParallel(net.cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
epochs = {epochs}
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, {length})
for {name} in range(epochs):
    for x in loader:
        optimizer.zero_grad()
        model(x.cuda()).sum().backward()
        optimizer.step()
        {batch}
    {epoch}
"""
RIGHT = {
    "sampler": "torch.utils.data.distributed.DistributedSampler(data)",
    "epochs": "90",
    "length": "T_max=90",
    "name": "epoch",
    "batch": "pass",
    "epoch": "schedule.step()",
}


@pytest.mark.parametrize(
    ("changed", "reported"),
    [
        ({}, False),
        ({"epochs": "90 // world"}, True),
        ({"epochs": "int(90 / world)"}, True),
        ({"epochs": "90 // world", "sampler": "None"}, False),  # each process reads all of the data
        ({"epochs": "90 // world", "name": "part"}, False),
        ({"length": "T_max=90 // world"}, True),
        ({"length": "90 // world"}, True),
        ({"length": "T_max=90 // world", "batch": "schedule.step()", "epoch": "pass"}, False),
        ({"length": "T_max=90 * world"}, False),
    ],
)
def test_epochs_are_not_divided_as_well_as_the_data(changed: dict[str, str], reported: bool) -> None:
    """PyTorch's documentation of DistributedSampler: each process gets a share of every epoch."""
    job = {"instance_type": P4D, "distribution": TORCHRUN}
    assert ("TW567" in codes(SCRIPT.format(**RIGHT | changed), job)) is reported


@pytest.mark.parametrize(("trained", "reported"), [("model", False), ("teacher", True)])
def test_the_optimizer_that_a_scaler_steps(trained: str, reported: bool) -> None:
    """The optimizer has the parameters of a model that no pass of the loop calls."""
    script = (
        "import torch\nimport torchvision\nmodel = torchvision.models.resnet18().cuda()\n"
        "teacher = torchvision.models.resnet50().cuda()\n"
        f"optimizer = torch.optim.SGD({trained}.parameters(), lr=0.1)\nscaler = torch.cuda.amp.GradScaler()\n"
        "for x in data:\n    optimizer.zero_grad()\n    with torch.cuda.amp.autocast():\n"
        "        loss = model(x).sum()\n"
        "    scaler.scale(loss).backward()\n    scaler.step(optimizer)\n    scaler.update()\n"
    )
    assert ("TW147" in codes(script, {"instance_type": P4D})) is reported
