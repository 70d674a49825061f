"""Lightning with several processes: whose data they train on, and whose values decide."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, TORCHRUN, codes

TWO: dict[str, Any] = {"instance_type": P4D, "instance_count": 2, "distribution": TORCHRUN}
ALONE: dict[str, Any] = {"instance_type": P4D}
DIVIDED = """
import os
import lightning.pytorch as pl
import torch
import torch.distributed as dist
from torch.utils.data import BatchSampler, DataLoader, Dataset, DistributedSampler, IterableDataset, RandomSampler
from torch.utils.data import WeightedRandomSampler

class Rows(Dataset):
    def __init__(self, path, number=0):
        self.rows = torch.load(path)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]

class OwnRows(Rows):
    def __len__(self):
        return len(self.rows) // dist.get_world_size()

class Stream(IterableDataset):
    def __iter__(self):
        return iter(self.rows)

class Share(torch.utils.data.Sampler):
    def __iter__(self):
        return iter(range(dist.get_rank(), 100, dist.get_world_size()))

class Net(pl.LightningModule):
    def training_step(self, batch, index):
        return self.layer(batch).sum()

class Parts(pl.LightningDataModule):
    def setup(self, stage):
        self.rows = {data}

    def train_dataloader(self):
        return DataLoader(self.rows, {words})

def main():
    rows = {data}
    trainer = pl.Trainer(devices={devices}, num_nodes=2, strategy="{strategy}", {option})
    trainer.fit(Net(), {given})

main()
"""
PARTS = {
    "data": "Rows('rows.pt')",
    "words": "64, shuffle=True",
    "devices": "8",
    "strategy": "ddp",
    "option": "use_distributed_sampler=False",
}


@pytest.mark.parametrize(
    "given",
    [
        "DataLoader(rows, {words})",
        "train_dataloaders=[DataLoader(rows, {words})]",
        "datamodule=Parts()",
        "Parts()",
    ],
)
@pytest.mark.parametrize(
    ("changes", "reported"),
    [
        ({}, True),
        ({"option": "replace_sampler_ddp=False"}, True),
        ({"words": "64, sampler=RandomSampler(rows)"}, True),
        ({"words": "batch_sampler=BatchSampler(RandomSampler(rows), 8, True)"}, True),
        ({"data": "torch.utils.data.TensorDataset(torch.ones(8))"}, True),
        ({"option": "max_epochs=2"}, False),
        ({"option": "use_distributed_sampler=True"}, False),
        ({"option": "use_distributed_sampler=chosen"}, False),
        ({"strategy": "dp"}, False),
        ({"words": "64, sampler=DistributedSampler(rows)"}, False),
        ({"words": "64, sampler=Share(rows)"}, False),
        ({"words": "64, sampler=WeightedRandomSampler(weights, 100)"}, False),
        ({"words": "batch_sampler=BatchSampler(DistributedSampler(rows), 8, True)"}, False),
        ({"words": "64, **options"}, False),
        ({"data": "Stream()", "words": "64"}, False),
        ({"data": "OwnRows('rows.pt')"}, False),
        ({"data": "Rows('rows.pt', int(os.environ['RANK']))"}, False),
        ({"data": "torch.utils.data.Subset(all_rows, range(dist.get_rank(), 100, 16))"}, False),
    ],
)
def test_each_process_trains_on_its_share(changes, reported, given):
    """Lightning's documentation of Trainer: with use_distributed_sampler=False the script adds its own sampler."""
    parts = PARTS | changes
    script = DIVIDED.format(**parts, given=given.format(**parts))
    assert ("TW510" in codes(script, TWO)) is reported


@pytest.mark.parametrize(("devices", "reported"), [("8", True), ("-1", True), ("'auto'", True), ("1", False)])
def test_the_processes_that_a_trainer_starts_count(devices, reported):
    script = DIVIDED.format(**PARTS | {"devices": devices}, given="DataLoader(rows, shuffle=True)")
    assert ("TW510" in codes(script, ALONE)) is reported
