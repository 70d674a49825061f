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


RATES = """
import pytorch_lightning as pl
import torch
import torchmetrics
from torch.optim.lr_scheduler import ReduceLROnPlateau

class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
        self.right = torchmetrics.Accuracy(task="binary")

    def training_step(self, batch, index):
        x, y = batch
        return torch.nn.functional.cross_entropy(self.layer(x), y)

    def validation_step(self, batch, index):
        x, y = batch
        out = self.layer(x)
        loss = torch.nn.functional.cross_entropy(out, y)
        {log}

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        rate = ReduceLROnPlateau(optimizer, patience=2)
        {returned}

trainer = pl.Trainer(devices=8, strategy="ddp")
trainer.fit(Net(), datamodule=parts)
"""
LOG = "self.log('held', loss)"
RETURNED = "return {'optimizer': optimizer, 'lr_scheduler': {'scheduler': rate, 'monitor': 'held'}}"


@pytest.mark.parametrize(
    ("log", "returned", "reported"),
    [
        (LOG, RETURNED, True),
        ("self.log('held', loss, sync_dist=False)", RETURNED, True),
        ("self.log_dict({'held': loss, 'other': 1})", RETURNED, True),
        ("self.log('held', torchmetrics.functional.accuracy(out, y, task='binary'))", RETURNED, True),
        (LOG, "return {'optimizer': optimizer, 'lr_scheduler': rate, 'monitor': 'held'}", True),
        (LOG, "return [optimizer], [{'scheduler': rate, 'monitor': 'held_epoch'}]", True),
        ("self.log('held', loss, sync_dist=True)", RETURNED, False),
        ("self.log('held', loss, **options)", RETURNED, False),
        ("self.log_dict({'held': loss}, sync_dist=True)", RETURNED, False),
        ("self.right(out, y)\n        self.log('held', self.right)", RETURNED, False),
        ("self.right.update(out, y)\n        self.log('held', self.right.compute())", RETURNED, False),
        ("self.log('held', self.all_gather(loss).mean())", RETURNED, False),
        ("self.log('other', loss)", RETURNED, False),
        (LOG, RETURNED.replace("'held'", "name"), False),
        (LOG, "return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 2)]", False),
    ],
)
def test_a_rate_goes_by_a_value_of_all_processes(log, returned, reported):
    """Lightning's documentation, synchronize validation and test logging."""
    script = RATES.format(log=log, returned=returned)
    assert ("TW511" in codes(script, TWO)) is reported
    assert ("TW511" in codes(script, ALONE)) is reported
    assert "TW511" not in codes(script.replace("devices=8", "devices=1"), ALONE)
