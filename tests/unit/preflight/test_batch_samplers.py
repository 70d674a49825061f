"""The epoch of a loader: of which sampler, or of its data set."""

from __future__ import annotations

import pytest

from tests.support.training_scripts import P4D, TORCHRUN, findings

SCRIPT = """
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler
torch.manual_seed(1)
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
net = DistributedDataParallel(torch.nn.Linear(4, 4).cuda())
def batches(data):
    return {loader}
class Epochs:
    def __init__(self, loader):
        self.loader = loader
    def begin(self, epoch):
        {begin}
        return self.loader
epochs = Epochs(batches(data))
for epoch in range(9):
    for x in epochs.begin(epoch):
        optimizer.zero_grad()
        net(x.cuda()).sum().backward()
        optimizer.step()
"""
OWN = "DataLoader(data, batch_sampler=BatchSampler(DistributedSampler(data), 8, True))"
PLAIN = "DataLoader(data, 8, sampler=DistributedSampler(data))"
NUMBER = "self.loader.sampler.set_epoch(epoch)"
ASKED = f'if hasattr(self.loader.sampler, "set_epoch"):\n            {NUMBER}'


@pytest.mark.parametrize(
    ("severity", "loader", "begin"),
    [
        ("warning", OWN, ASKED),
        ("error", OWN, NUMBER),
        ("", OWN, "self.loader.batch_sampler.sampler.set_epoch(epoch)"),
        ("", PLAIN, ASKED),
        ("", PLAIN, NUMBER),
        ("warning", PLAIN, "self.loader.dataset.set_epoch(epoch)"),
        ("", PLAIN, f"self.loader.dataset.set_epoch(epoch)\n        {NUMBER}"),
        ("", PLAIN.replace("data)", "data, shuffle=False)"), "self.loader.dataset.set_epoch(epoch)"),
    ],
)
def test_the_sampler_that_divides_is_in_the_batch_sampler(severity, loader, begin):
    """torch/utils/data/dataloader.py: without sampler and shuffle, ``sampler`` is a SequentialSampler."""
    job = {"distribution": TORCHRUN, "instance_type": P4D}
    found = [f.severity for f in findings(SCRIPT.format(loader=loader, begin=begin), job) if f.code == "TW174"]
    assert found == ([severity] if severity else [])
