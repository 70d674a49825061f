"""Tensors in main memory that a group of NCCL alone is to reduce, and those that are on a GPU by then."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import DDP, P4D, TORCHRUN, but, codes

JOB: dict[str, Any] = {"distribution": TORCHRUN, "instance_type": P4D}
HEAD = DDP + "local = int(os.environ['LOCAL_RANK'])\ndevice = torch.device('cuda', local)\n"
METER = (
    HEAD
    + """
class Scores:
    def __init__(self, labels):
        self.labels = labels
        self.reset()
    def reset(self):
        self.hits = torch.zeros(self.labels)
        self.seen = torch.zeros(self.labels)
    def update(self, out, y):
        found, y = (out > 0).cpu(), y.cpu()
        self.hits += (found & y).sum(0)
        self.seen += (~found | y).sum(0)
    def compute(self):
        both = torch.stack([self.hits, self.seen])
        dist.all_reduce(both)
        return (both[0] / both[1]).mean().item()
scores = Scores(9)
for epoch in range(3):
    scores.reset()
    for x, y in loader:
        scores.update(model(x.to(device)), y)
    print(scores.compute())
"""
)
BY_NAME = """    def to(self, device):
        for name in vars(self):
            setattr(self, name, getattr(self, name).to(device))
    def compute(self):
"""


@pytest.mark.parametrize(
    ("wrong", "script"),
    [
        (True, METER),
        (True, but(METER, "torch.stack(", "torch.cat(")),
        (True, but(METER, "both = torch.stack([self.hits, self.seen])", "both = self.hits")),
        (True, but(METER, "torch.zeros(self.labels)", "torch.zeros(self.labels).long()")),
        (False, but(METER, "self.seen])", "self.seen]).to(device)")),
        (False, but(METER, "torch.zeros(self.labels)", "torch.zeros(self.labels, device=device)")),
        (False, but(METER, "    def compute(self):\n", BY_NAME)),
        (False, but(METER, '"nccl"', '"cpu:gloo,cuda:nccl"')),
        (False, but(METER, "[self.hits, self.seen]", "[self.hits.to(device), self.seen.to(device)]")),
    ],
)
def test_counters_of_a_class(wrong, script):
    """mistralai/mistral-inference #252: NCCL has no operations for tensors in main memory."""
    assert ("TW403" in codes(script, JOB)) is wrong


@pytest.mark.parametrize(
    ("wrong", "lines"),
    [
        (True, "t = torch.tensor(0.5)"),
        (True, "rows = []\nfor x in loader:\n    rows.append(torch.tensor([1.0]))\nt = torch.cat(rows)"),
        (True, "t = torch.as_tensor(total)"),
        (False, "rows = []\nfor x in loader:\n    rows.append(model(x))\nt = torch.cat(rows)"),
        (False, "t = torch.tensor(torch.zeros(3).numpy(), device=device)"),
        (False, "t = torch.as_tensor(model(x))"),
        (False, "t = torch.as_tensor(torch.zeros(3).to(device))"),
        (False, "with device:\n    t = torch.zeros(1)"),
        (False, "with torch.device('cuda'):\n    t = torch.zeros(1)"),
        (False, "t = torch.zeros(1)\nif not t.is_cuda:\n    t = t.cuda()"),
        (False, "t = torch.zeros(1, **options)"),
    ],
)
def test_where_a_tensor_is_made(wrong, lines):
    """PyTorch's documentation of torch.device: a `with` block of a device makes tensors on it."""
    assert ("TW403" in codes(HEAD + lines + "\ndist.all_reduce(t)\n", JOB)) is wrong
