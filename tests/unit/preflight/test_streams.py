"""Streams that worker processes divide among themselves, and those that are divided among the processes as well.

Source: huggingface/datasets #5360: without the rank, each process of DistributedDataParallel reads the same stream.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import DDP, P4D, TORCHRUN, but, codes

JOB: dict[str, Any] = {"distribution": TORCHRUN, "instance_type": P4D}
STREAM = (
    DDP
    + """
import random
from torch.utils.data import IterableDataset, get_worker_info
class Rows(IterableDataset):
    def __init__(self, files, seed=0):
        self.files, self.seed = files, seed
    def shard(self):
        info = get_worker_info()
        shards = self.files if info is None else self.files[info.id :: info.num_workers]
        return shards
    def __iter__(self):
        files = self.shard()
        random.Random(self.seed).shuffle(files)
        for path in files:
            yield from open(path)
loader = DataLoader(Rows(names), batch_size=8, num_workers=2)
net = DDP(torch.nn.Linear(2, 2).cuda())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x in loader:
    optimizer.zero_grad()
    net(x.cuda()).sum().backward()
    optimizer.step()
"""
)
TAKES = "if info is None else self.files[info.id ::"
FILES = "files = self.shard()"
LOADER = "loader = DataLoader("
WITH = "num_workers=2, worker_init_fn="


@pytest.mark.parametrize(
    ("wrong", "script"),
    [
        (True, STREAM),
        (True, but(STREAM, FILES, "shards = self.shard()\n        files = list(shards)")),
        (
            True,
            but(STREAM, FILES, "files = shard_of(self)", "    def shard", "    def other")
            + "def shard_of(rows):\n    return rows.other()\n",
        ),
        (
            True,
            but(STREAM, "num_workers=2", WITH + "begin", LOADER, "def begin(n):\n    random.seed(n)\n" + LOADER),
        ),
        (False, but(STREAM, TAKES, "if info is None else self.files[dist.get_rank() ::")),
        (False, but(STREAM, TAKES, "if info is None else self.files[int(os.environ['RANK']) ::")),
        (
            False,
            but(STREAM, "self.files, self.seed = files", "self.world_size, self.files, self.seed = count(), files"),
        ),
        (False, but(STREAM, "def shard(self)", "def shard(self, shards=None)", "shards = ", "shards = shards or ")),
        (False, but(STREAM, FILES, "files = sharded(self.files)")),
        (False, but(STREAM, FILES, "files = itertools.islice(self.shard(), dist.get_rank(), None, 8)")),
        (False, but(STREAM, "Rows(names)", "Rows(names[dist.get_rank() :: 8])")),
        (False, but(STREAM, "Rows(names)", "Rows(names, seed=dist.get_rank())")),
        (
            False,
            but(
                STREAM,
                "num_workers=2",
                WITH + "begin",
                LOADER,
                "def begin(n):\n    rows = get_worker_info().dataset\n    rows.files = rows.files[rank() :: 8]\n"
                + LOADER,
            ),
        ),
        (False, but(STREAM, "random.Random(self.seed)", "random")),
    ],
)
def test_the_share_of_a_worker_is_not_that_of_a_process(wrong, script):
    assert ("TW171" in codes(script, JOB)) is wrong


def test_a_function_that_divides_by_the_rank():
    """A name alone says nothing: the function that has it is looked at."""
    plain = DDP + "def shard(rows):\n    return {}\nloader = DataLoader(shard(rows), batch_size=8)\n"
    plain += "net = DDP(torch.nn.Linear(2, 2).cuda())\nfor x in loader:\n    net(x).sum().backward()\n"
    assert "TW171" in codes(plain.format("list(rows)"), JOB)
    assert "TW171" not in codes(plain.format("itertools.islice(rows, dist.get_rank(), None, 8)"), JOB)
    assert "TW171" not in codes(plain.format("part_of(rows, os.environ['RANK'])"), JOB)
    assert "TW171" not in codes(plain.replace("def shard(rows):\n    return {}", "from work import shard"), JOB)
