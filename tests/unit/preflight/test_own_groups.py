"""Groups of some processes: all of them make all groups, in the same order.

Sources: PyTorch's documentation of torch.distributed.new_group; pytorch/pytorch #25390, #130102.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, TORCHRUN, Case, unmet

TWO_HOSTS: dict[str, Any] = {"instance_type": P4D, "instance_count": 2, "distribution": TORCHRUN}
ONE_HOST = {**TWO_HOSTS, "instance_count": 1}
HEAD = (
    "import os\nimport torch\nimport torch.distributed as dist\ndist.init_process_group('nccl')\n"
    "rank, world = dist.get_rank(), dist.get_world_size()\nlocal = int(os.environ['LOCAL_RANK'])\n"
    "node = int(os.environ['GROUP_RANK'])\n"
)
IN_CLASS = (
    "class Hosts:\n    def __init__(self):\n        self.size = int(os.environ['LOCAL_WORLD_SIZE'])\n"
    "        self.number = int(os.environ['RANK']) // self.size\n    def group(self):\n"
    "        first = self.number * self.size\n"
    "        return dist.new_group(list(range(first, first + self.size)))\nmine = Hosts().group()\n"
)
EVERY = (
    "mine = None\nfor first in range(0, world, 8):\n    ranks = list(range(first, first + 8))\n"
    "    group = dist.new_group(ranks)\n    if rank in ranks:\n        mine = group\n"
)
OF_LOCAL = (
    "for i in range(8):\n    group = dist.new_group(list(range(i, world, 8)))\n    mine = group if i == local else 0\n"
)
CASES: list[Case] = [
    ("TW591", "error", HEAD + "mine = dist.new_group([rank, (rank + 8) % world])\n", TWO_HOSTS),
    ("TW591", "error", HEAD + "mine = dist.new_group(ranks=list(range(local, world, 8)))\n", TWO_HOSTS),
    ("TW591", "error", HEAD + "who = list(range(node * 8, node * 8 + 8))\nmine = dist.new_group(who)\n", TWO_HOSTS),
    (
        "TW591",
        "error",
        HEAD + "first = rank // 8 * 8\nmine = dist.new_group([first + i for i in range(8)])\n",
        TWO_HOSTS,
    ),
    ("TW591", "error", HEAD + IN_CLASS, TWO_HOSTS),
    # Of one host, all processes are in the one group.
    ("TW591", False, HEAD + "mine = dist.new_group(list(range(node * 8, node * 8 + 8)))\n", ONE_HOST),
    ("TW591", False, HEAD + "mine = dist.new_group(list(range(world // 2)))\n", TWO_HOSTS),
    ("TW591", False, HEAD + EVERY, TWO_HOSTS),
    ("TW591", False, HEAD + OF_LOCAL, TWO_HOSTS),
    ("TW591", False, HEAD + "groups = [dist.new_group([i, i + 1]) for i in range(0, world, 2)]\n", TWO_HOSTS),
    ("TW591", False, HEAD + "mine = dist.new_group([rank])\n", TWO_HOSTS),
    (
        "TW591",
        False,
        HEAD + "mine = dist.new_group(list(range(local, world, 8)), use_local_synchronization=True)\n",
        TWO_HOSTS,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_all_processes_make_all_groups(case: Case) -> None:
    assert not unmet(case), unmet(case)
