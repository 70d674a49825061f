"""Metrics that are summed over all processes, and divided by what one of them has counted."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, TORCHRUN, codes

JOB: dict[str, Any] = {"distribution": TORCHRUN, "instance_type": P4D}
HEAD = """
import os
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
net = DistributedDataParallel(torch.nn.Linear(4, 4).cuda())
held_out = TensorDataset(torch.load("x.pt"))
part = DistributedSampler(held_out, shuffle=False)
batches = DataLoader(held_out, 64, sampler=part)
"""
FUNCTION = (
    HEAD
    + """
@torch.no_grad()
def examine(net, batches):
    right = torch.zeros(1, device="cuda")
    n = 0
    for x, y in batches:
        out = net(x.cuda())
        right += {measure}
        n += {count}
    {join}
    {value}
    return value
for epoch in range(9):
    print({shown})
"""
)
METER = (
    HEAD
    + """
class Rate:
    def __init__(self):
        self.hits = torch.zeros(1, device="cuda")
        self.n = 0
    def see(self, hits, n):
        self.hits += hits
        self.n += n
    def share(self):
        {join}
    def value(self):
        return self.hits.item() / self.n
rate = Rate()
for x, y in batches:
    rate.see((net(x.cuda()).argmax(1) == y.cuda()).sum(), len(y))
rate.share()
print(rate.value())
"""
)
SET = "    def of(self, n):\n        self.n = n\n"


def function(
    join: str = "dist.all_reduce(right)",
    value: str = "value = right.item() / n",
    count: str = "len(y)",
    measure: str = "(out.argmax(1) == y.cuda()).sum()",
    shown: str = "examine(net, batches)",
) -> str:
    return FUNCTION.format(join=join, value=value, count=count, measure=measure, shown=shown)


@pytest.mark.parametrize(
    "script",
    [
        function(),
        function("dist.all_reduce(right, op=dist.ReduceOp.SUM)", "value = 100.0 * right.item() / n"),
        function(value="value = float(right) / max(n, 1)"),
        function().replace("n = 0\n", "n = torch.zeros(1).cuda()\n"),
        function(value="hits = right.item()\n    value = hits / n"),
        function(value="value = (right / n).item()", count="y.size(0)"),
        function(value="value = right.item() / len(part)"),
        function(value="seen = len(part)\n    value = right.item() / seen"),
        function(value="right /= len(batches)\n    value = right", measure="F.cross_entropy(out, y.cuda())"),
        function("for each in (right, other):\n        dist.all_reduce(each)"),
        function("hits = torch.tensor([float(right)]).cuda()\n    dist.all_reduce(hits)", "value = hits[0].item() / n"),
        function(value="value = right.item() / n\n    print(right * dist.get_world_size())"),
        function(count="size").replace("out = net", "size = y.size(0)\n        out = net"),
        function().replace("in batches:", "in tqdm(batches):").replace("import os", "import os\nfrom tqdm import tqdm"),
        function().replace("for x, y in batches", "for i, (x, y) in enumerate(batches)"),
        function("if dist.is_initialized():\n        dist.reduce(right, 0)"),
        METER.format(join="dist.all_reduce(self.hits)"),
    ],
)
def test_a_sum_of_all_processes_is_divided_by_the_count_of_one(script):
    """PyTorch's ImageNet example, AverageMeter.all_reduce: the sum and the count are reduced together."""
    assert "TW572" in codes(script, JOB)


@pytest.mark.parametrize(
    "script",
    [
        function(value="value = right.item() / len(held_out)"),
        function(value="value = right.item() / float(len(held_out))"),
        function(value="value = right.item() / TOTAL"),
        function(value="value = mean_of_processes(right.item() / n)"),
        function(value="value = right.item() / n\n    value = reduce_mean(value)"),
        function(value="value = right.item() / (n * dist.get_world_size())"),
        function(value="value = right.item() / n / dist.get_world_size()"),
        function(value="value = right.item() / n", shown="examine(net, batches) / dist.get_world_size()"),
        function(value="value = right.item() / n\n    value /= dist.get_world_size()"),
        function(value="right /= dist.get_world_size()\n    value = right.item() / n"),
        function("dist.all_reduce(right, op=dist.ReduceOp.AVG)"),
        function("dist.all_reduce(right, group=pair)"),
        function("n = torch.tensor(n).cuda()\n    for each in (right, n):\n        dist.all_reduce(each)"),
        function("n = torch.tensor(n).cuda()\n    dist.all_reduce(n)\n    dist.all_reduce(right)"),
        function("both = torch.tensor([right, n]).cuda()\n    dist.all_reduce(both)\n    right, n = both.tolist()"),
        function("dist.all_reduce(right)\n    n = total_over_processes(n)"),
        function("dist.all_reduce(right)\n    n *= dist.get_world_size()"),
        function("pass"),
        # So many samples of all processes for each of its steps, and for each second of its time.
        function(measure="len(y)", count="1"),
        function(count="time.time() - begin"),
        # Each process sees all of the data: which number is right, another rule says.
        function().replace(", sampler=part", ""),
        METER.format(join="dist.all_reduce(self.hits)\n        self.n = total_over_processes(self.n)"),
        METER.format(join="dist.all_reduce(self.hits)").replace("    def value", SET + "    def value"),
        METER.format(join="dist.all_reduce(self.hits)").replace("/ self.n\n", "/ self.n / dist.get_world_size()\n"),
        METER.format(
            join="both = torch.tensor([self.hits, self.n]).cuda()\n        dist.all_reduce(both)\n"
            "        self.hits, self.n = both"
        ),
    ],
)
def test_both_are_of_all_processes_or_both_of_one(script):
    """A division by the number of processes, or a count that was joined as well, makes the quotient right."""
    assert "TW572" not in codes(script, JOB)
