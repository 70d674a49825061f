"""Files that one process writes and others read: whether they wait for it, and whether their host has it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, TORCHRUN, codes

ONE: dict[str, Any] = {"distribution": TORCHRUN, "instance_type": P4D}
TWO = {**ONE, "instance_count": 2}
READY = """
import os
import pandas
import torch.distributed as dist
from datasets import load_dataset, load_from_disk
dist.init_process_group("nccl")
class Rows:
    def __init__(self, folder):
        self.folder = folder
    def write(self, rows):
        {write}
    def read(self):
        return {read}
rows = Rows("/tmp/rows")
if int(os.environ["LOCAL_RANK"]) == 0:
    rows.write(load_dataset("json", data_files="/opt/ml/input/data/train/a.json"))
{wait}
table = rows.read()
"""
WAYS = [("rows.save_to_disk(self.folder)", "load_from_disk(self.folder)")]
WAYS += [("rows.to_pandas().to_parquet(self.folder)", "pandas.read_parquet(self.folder)")]
BEST = """
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("nccl")
rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
net = DistributedDataParallel(torch.nn.Linear(4, 4).cuda())
class Keeper:
    def __init__(self, folder):
        self.file = os.path.join(folder, "kept.pt")
    def keep(self, net):
        if {first}:
            torch.save(net.module.state_dict(), self.file)
        dist.barrier()
    def back(self, net):
        {load}
kept = Keeper("{folder}")
for epoch in range(9):
    for x in loader:
        net(x).sum().backward()
        optimizer.step()
    kept.keep(net)
kept.back(net)
"""
LOAD = "net.module.load_state_dict(torch.load(self.file, map_location='cpu'))"


def best(first: str = "rank == 0", load: str = LOAD, folder: str = "/tmp/kept") -> str:
    return BEST.format(first=first, load=load, folder=folder)


@pytest.mark.parametrize(("write", "read"), WAYS)
def test_prepared_data_are_read_after_a_barrier(write, read):
    """huggingface/datasets #2185: the others find no folder, or half of it."""
    assert "TW404" in codes(READY.format(write=write, read=read, wait=""), ONE)
    assert "TW404" not in codes(READY.format(write=write, read=read, wait="dist.barrier()"), ONE)


@pytest.mark.parametrize(
    ("wrong", "script", "job"),
    [
        (True, best(), TWO),
        (True, best(folder="/opt/ml/model"), TWO),
        (False, best(), ONE),
        (False, best(first="local_rank == 0"), TWO),
        (False, best(folder="/fsx/kept"), TWO),
        (False, best(load="if rank == 0:\n            " + LOAD), TWO),
        (False, best(load="if os.path.exists(self.file):\n            " + LOAD), TWO),
        (False, best(load="bucket.download_file('kept.pt', self.file)\n        " + LOAD), TWO),
    ],
)
def test_weights_of_the_first_process_are_on_its_host(wrong, script, job):
    """huggingface/transformers #12421: each host saves what it loads again, as no disk is shared."""
    assert ("TW469" in codes(script, job)) is wrong
