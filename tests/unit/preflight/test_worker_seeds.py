"""Worker processes of a DataLoader that all draw the same random numbers, and those that do not.

Sources: PyTorch's notes on reproducibility, DataLoader; xingyizhou/CenterNet #233.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, TORCHRUN, but, codes

JOB: dict[str, Any] = {"instance_type": P4D, "instance_count": 2, "distribution": TORCHRUN}
ONE: dict[str, Any] = {"instance_type": "ml.g5.2xlarge"}
SCRIPT = """
import argparse
import os
import random
import time
from functools import partial
import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler
p = argparse.ArgumentParser()
p.add_argument("--seed", type=int, default=1)
args = p.parse_args()
SEED = 7
class Crops(Dataset):
    def __init__(self, rows):
        self.rows = rows[np.random.permutation(len(rows))]
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, i):
        {draw}
dist.init_process_group("nccl")
rank = dist.get_rank()
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
model = DDP(torch.nn.Linear(8, 8).cuda(), device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def shifted(row):
    return row + random.random()
{seed}
def loader(rows):
    data = Crops(rows)
    sampler = DistributedSampler(data)
    return DataLoader(data, batch_size=8, sampler=sampler, num_workers=4, worker_init_fn=start{more}), sampler
rows = np.load(os.path.join(os.environ["SM_CHANNEL_TRAIN"], "rows.npy"))
batches, sampler = loader(rows)
for epoch in range(9):
    sampler.set_epoch(epoch)
    for x in batches:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
"""
DRAW = "at = np.random.randint(0, 9)\n        return self.rows[i][at : at + 8]"
HELPER = "return shifted(self.rows[i])"


def script(seed: str, draw: str = DRAW, more: str = "") -> str:
    """A loader whose workers start with these statements."""
    lines = seed if "start =" in seed else "def start(worker):\n    " + seed.replace("\n", "\n    ")
    return SCRIPT.format(seed=lines, draw=draw, more=more)


@pytest.mark.parametrize(
    "seed",
    [
        "np.random.seed(worker)",
        "np.random.seed(SEED + worker)",
        "np.random.seed(args.seed + int(worker))",
        "np.random.seed(42)",
        "random.seed(torch.initial_seed())\nnp.random.seed(worker * 100)",
        "start = lambda worker: np.random.seed(worker)",
        "number = args.seed\nnp.random.seed(number + worker)",
    ],
)
def test_seeds_that_are_the_same_everywhere(seed):
    assert "TW582" in codes(script(seed), JOB)
    alone = but(script(seed), "sampler=sampler, ", "", "DistributedSampler(data)", "None", "    sampler.set", "    set")
    assert "TW582" in codes(alone, ONE)


@pytest.mark.parametrize(
    "seed",
    [
        "np.random.seed(torch.initial_seed() % 2**32)",
        "np.random.seed(args.seed + worker + 100 * rank)",
        "np.random.seed(np.random.get_state()[1][0] + worker)",
        "np.random.seed(int(time.time()) + worker)",
        "np.random.seed(torch.utils.data.get_worker_info().seed % 2**32)",
        "mine = args.seed + dist.get_rank()\nnp.random.seed(mine + worker)",
        "np.random.seed(current_epoch * 100 + worker)",
        "start = lambda worker: np.random.seed(mine + worker)\nmine, _ = 100 * rank, 0",
        "number = number + 7\nnp.random.seed(number + worker)",
        "random.seed(worker)",
        "torch.manual_seed(worker)",
        "np.random.seed()",
        "def seeded(number, worker):\n    np.random.seed(number + worker)\nstart = partial(seeded, args.seed + rank)",
    ],
)
def test_seeds_that_differ(seed):
    assert "TW582" not in codes(script(seed), JOB)


def test_draws_of_the_data_alone_count():
    assert "TW582" in codes(script("random.seed(worker)", HELPER), JOB)
    assert "TW582" not in codes(script("np.random.seed(worker)", HELPER), JOB)
    assert "TW582" not in codes(script("np.random.seed(worker)", "return self.rows[i]"), JOB)
    own = "return self.rows[i] + np.random.default_rng().random()"
    assert "TW582" not in codes(script("np.random.seed(worker)", own), JOB)


def test_no_workers():
    text = script("np.random.seed(worker)")
    assert "TW582" not in codes(but(text, "num_workers=4, ", ""), JOB) | codes(but(text, "=4", "=0"), JOB)


def test_workers_that_live_on():
    kept = script("np.random.seed(worker)", more=", persistent_workers=True")
    assert "TW582" in codes(kept, JOB)
    assert "TW582" not in codes(kept, ONE)


def test_a_loader_of_the_validation():
    text = but(script("np.random.seed(worker)"), ", worker_init_fn=start", "")
    other = "val_loader = DataLoader(Crops(rows), batch_size=8, num_workers=4, worker_init_fn=start)\nfor epoch"
    assert "TW582" not in codes(but(text, "for epoch", other), JOB)
    assert "TW582" not in codes(text[: text.index("for epoch")] + other.removesuffix("for epoch"), JOB)
