"""all_gather of tensors that are as long as each process's share, where some shares have one item more.

Source: PyTorch's documentation of all_gather and DistributedSampler; Lightning-AI/pytorch-lightning #7773.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import DDP, P4D, TORCHRUN, but, codes

JOB: dict[str, Any] = {"instance_type": P4D, "instance_count": 2, "distribution": TORCHRUN}
SHARE = "Subset(rows, list(range(rank, len(rows), world)))"
GATHER = (
    "def gather(mine):\n    parts = [torch.empty_like(mine) for _ in range(world)]\n"
    "    dist.all_gather(parts, mine)\n    return torch.cat(parts)\n"
)
SCRIPT = DDP.replace("model = DDP(model)\n", "") + (
    "from torch.utils.data import Subset\nrank, world = dist.get_rank(), dist.get_world_size()\n"
    "rows = torch.load('/opt/ml/input/data/valid/rows.pt')\nmodel = DDP(torch.nn.Linear(2, 2).cuda())\n"
    f"{GATHER}"
    f"loader = DataLoader({SHARE}, batch_size=64)\n"
    "found = []\nwith torch.no_grad():\n    for x in loader:\n        found.append(model(x.cuda()).argmax(-1))\n"
    "print(gather(torch.cat(found)))\n"
)
OBJECT = but(
    SCRIPT,
    "rank, world =",
    "class Part(torch.utils.data.Dataset):\n    def __init__(self, rows, rank, world):\n"
    "        self.rows = rows[rank::world]\n    def __len__(self):\n        return len(self.rows)\n"
    "    def __getitem__(self, i):\n        return self.rows[i]\nrank, world =",
    SHARE,
    "Part(rows, rank, world)",
)
PLAIN = but(
    SCRIPT,
    f"loader = DataLoader({SHARE}, batch_size=64)\n",
    "",
    "for x in loader:",
    "for place in range(rank, len(rows), world):",
    "model(x.cuda())",
    "model(rows[place].cuda())",
    "torch.cat(found)",
    "torch.stack(found).cuda()",
)
APART = [
    SCRIPT,
    OBJECT,
    PLAIN,
    but(
        PLAIN,
        "found.append(model(rows[place].cuda()).argmax(-1))",
        "found.append(place)",
        "stack(found)",
        "tensor(found)",
    ),
    but(SCRIPT, SHARE, "rows[rank::world]"),
    but(SCRIPT, SHARE, "[row for i, row in enumerate(rows) if i % world == rank]"),
    but(SCRIPT, SHARE, "rows.shard(num_shards=world, index=rank)"),
    but(SCRIPT, SHARE, "rows.select(range(rank, len(rows), world))"),
    but(SCRIPT, "found.append(model(x.cuda()).argmax(-1))", "found.extend(model(x.cuda()).argmax(-1))"),
    but(
        SCRIPT,
        "    for x in loader:\n        found.append(model(x.cuda()).argmax(-1))\n",
        "    found = [model(x.cuda()).argmax(-1) for x in loader]\n",
    ),
    but(
        SCRIPT,
        "parts = [torch.empty_like(mine) for _ in range(world)]\n    dist.all_gather(parts, mine)\n",
        "parts = torch.empty(world * len(mine), device='cuda')\n    dist.all_gather_into_tensor(parts, mine)\n",
    ),
]
LONGEST = "longest = torch.tensor(len(mine)).cuda()\n    dist.all_reduce(longest, op=dist.ReduceOp.MAX)\n"
TOGETHER = [
    but(SCRIPT, SHARE, "rows"),
    but(SCRIPT, f"{SHARE}, batch_size", "rows, sampler=DistributedSampler(rows), batch_size"),
    but(SCRIPT, "batch_size=64)", "batch_size=64, drop_last=True)"),
    but(SCRIPT, "len(rows), world)", "len(rows) // world * world, world)"),
    but(SCRIPT, "len(rows), world)", "len(rows) - len(rows) % world, world)"),
    but(SCRIPT, "def gather(mine):\n", f"def gather(mine):\n    {LONGEST}    mine = fill(mine, longest)\n"),
    but(
        SCRIPT,
        "def gather(mine):\n",
        "def gather(mine):\n    mine = torch.nn.functional.pad(mine, (0, 1 + most - len(mine)))\n",
    ),
    *(
        but(SCRIPT, "def gather(mine):\n", f"def gather(mine):\n    {longer}\n")
        for longer in (
            "mine = torch.cat([mine, mine.new_zeros(missing)])",
            "padded = mine.clone()\n    padded.resize_(most)\n    mine = padded",
        )
    ),
    but(
        SCRIPT,
        "parts = [torch.empty_like(mine) for _ in range(world)]\n",
        "sizes = [None] * world\n    dist.all_gather_object(sizes, len(mine))\n"
        "    parts = [torch.empty(size).cuda() for size in sizes]\n",
    ),
    but(
        SCRIPT,
        "def gather(mine):\n",
        "def gather(mine):\n    whole = torch.zeros(most).cuda()\n    whole[: len(mine)] = mine\n    mine = whole\n",
    ),
    but(SCRIPT, "gather(torch.cat(found))", "gather(torch.cat(found).float().mean())"),
    but(SCRIPT, "gather(torch.cat(found))", "gather(torch.tensor([len(found), sum(found)]).cuda())"),
    but(
        SCRIPT, "torch.empty_like(mine) for _ in range(world)", "None] * world + [", "all_gather(", "all_gather_object("
    ),
]


@pytest.mark.parametrize("script", APART)
def test_shares_of_which_some_are_longer(script: str) -> None:
    assert "TW541" in codes(script, JOB), script
    assert "TW541" not in codes(script, {"instance_type": "ml.g5.2xlarge"}), script


@pytest.mark.parametrize("script", TOGETHER)
def test_tensors_that_are_made_equally_long(script: str) -> None:
    assert "TW541" not in codes(script, JOB), script
