"""Optimizers and schedules that hold on to what was replaced, and ways to replace it that are right."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import DDP, P4D, TORCHRUN, codes

JOB: dict[str, Any] = {"distribution": TORCHRUN, "instance_type": P4D}
HUB = "123456789012.dkr.ecr.us-west-2.amazonaws.com/huggingface-pytorch-training:{}-gpu-py310"
OLD = {**JOB, "image": HUB.format("2.1.0-transformers4.36.0")}
NEW = {**JOB, "image": HUB.format("2.5.1-transformers4.49.0")}
# The order of the steps is what each case fills in.
HEAD = """
import torch
from torch import nn
from torchvision import models
def other_head(net, classes):
    net.fc = nn.Linear(net.fc.in_features, classes)
    return net
def widened(net):
    net.classifier[-1] = nn.Linear(1280, 9)
net = models.resnet50()
{steps}
for epoch in range(9):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
"""
SGD = "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
HEADS = [
    (True, SGD + "other_head(net, 9)"),
    (True, SGD + "net = other_head(net.cuda(), 9)"),
    (True, SGD + "widened(net)"),
    (True, SGD + "if classes != 1000:\n    net.fc = nn.Sequential(nn.Dropout(0.1), nn.Linear(2048, classes))"),
    (
        True,
        "import horovod.torch as hvd\nhvd.init()\n" + SGD + "optimizer = hvd.DistributedOptimizer(optimizer)\n"
        "other_head(net, 9)\nhvd.broadcast_parameters(net.state_dict(), root_rank=0)",
    ),
    (False, "other_head(net, 9)\n" + SGD),
    (False, SGD + "net.fc = nn.Identity()"),
    (False, SGD + "net.fc = nn.Sequential(nn.Dropout(0.1), net.fc)"),
    (False, SGD + "other_head(net, 9)\noptimizer.add_param_group({'params': net.fc.parameters()})"),
    (False, SGD + "other_head(net, 9)\n" + SGD),
    (False, "optimizer = torch.optim.SGD(net.layer4.parameters(), lr=0.1)\nother_head(net, 9)"),
    (False, SGD + "teacher = models.resnet50()\nother_head(teacher, 9)"),
    (False, "other_head(net, 9)\noptimizer_kwargs = {'lr': 0.1}\n" + SGD.replace("lr=0.1", "**optimizer_kwargs")),
    (False, "if pretrained:\n    " + SGD + "else:\n    other_head(net, 9)\n    " + SGD),
]
WORDS = """
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
def groups(model):
    plain, decayed = [], []
    for name, parameter in model.named_parameters():
        (plain if "norm" in name else decayed).append(parameter)
    return [{"params": decayed}, {"params": plain, "weight_decay": 0.0}]
class Markers:
    def add(self, tokenizer, model):
        if tokenizer.add_tokens(["<a>"]):
            model.resize_token_embeddings(len(tokenizer))
tokenizer = AutoTokenizer.from_pretrained(base)
model = AutoModelForCausalLM.from_pretrained(base)
optimizer = torch.optim.AdamW(groups(model), lr=1e-4)
Markers().add(tokenizer, model)
for batch in loader:
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
FIRST = WORDS.replace("Markers().add(tokenizer, model)\n", "").replace(
    "optimizer = ", "Markers().add(tokenizer, model)\noptimizer = "
)
PHASES = """
import torch
from torch import nn
from torchvision import models
class Phases:
    def __init__(self, net, rate):
        self.net, self.rate = net, rate
        self.collect(rate)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=30)
    def collect(self, rate):
        self.optimizer = torch.optim.AdamW([p for p in self.net.parameters() if p.requires_grad], lr=rate)
    def free(self):
        self.net.requires_grad_(True)
        self.collect(self.rate / 10)
phases = Phases(models.resnet50().cuda(), 0.002)
for epoch in range(30):
    if epoch == 4:
        phases.free()
    for x, y in loader:
        phases.optimizer.zero_grad()
        nn.functional.cross_entropy(phases.net(x), y).backward()
        phases.optimizer.step()
    phases.schedule.step()
"""
ANEW = "self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=26)\n"
FREE = "        self.collect(self.rate / 10)\n"
TWO = """
import torch
from torch import nn
from torchvision import models
net = models.resnet50().cuda()
optimizer = torch.optim.SGD(net.fc.parameters(), lr=0.1)
warm = torch.optim.lr_scheduler.StepLR(optimizer, 2)
def epoch():
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
for _ in range(3):
    epoch()
    warm.step()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
{second}
for _ in range(9):
    epoch()
    {step}
"""
SCHEDULES = [
    (True, PHASES),
    (True, TWO.format(second="", step="warm.step()")),
    (
        True,
        PHASES.replace("AdamW(", "SGD(").replace(
            "CosineAnnealingLR(self.optimizer, T_max=30)", "StepLR(self.optimizer, 9)"
        ),
    ),
    (False, PHASES.replace(FREE, FREE + "        " + ANEW)),
    (False, PHASES.replace(FREE, FREE + "        self.schedule.optimizer = self.optimizer\n")),
    (False, PHASES.replace(FREE, "        self.optimizer.add_param_group({'params': self.net.layer4.parameters()})\n")),
    (False, PHASES.replace("    phases.schedule.step()", "    if epoch < 4:\n        phases.schedule.step()")),
    (False, TWO.format(second="", step="pass")),
    (False, TWO.format(second="cool = torch.optim.lr_scheduler.StepLR(optimizer, 3)", step="cool.step()")),
]

SORTED = """
import functools
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard
from torch import nn
from torchvision import models
def groups(net):
    decayed, plain = [], []
    for name, parameter in net.named_parameters():
        (plain if "bias" in name else decayed).append(parameter)
    return [{{"params": decayed}}, {{"params": plain, "weight_decay": 0.0}}]
class Parts:
    def __init__(self, net):
        self.net = net
    def groups(self):
        found = {{False: [], True: []}}
        for name, parameter in self.net.named_parameters():
            found["bias" in name].append(parameter)
        return [{{"params": found[False]}}, {{"params": found[True], "weight_decay": 0.0}}]
dist.init_process_group("nccl")
net = models.resnet50()
options = dict(device_id=0)
{steps}
for x, y in loader:
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(x), y).backward()
    optimizer.step()
"""
ADAM = "optimizer = torch.optim.AdamW({}, lr=0.1)\n"
LISTS = (
    "decayed, plain = [], []\nfor name, each in net.named_parameters():\n"
    "    (plain if 'bias' in name else decayed).append(each)\n"
    + ADAM.format("[{'params': decayed}, {'params': plain, 'weight_decay': 0.0}]")
)
SHARDS = [
    (True, ADAM.format("groups(net)") + "net = FSDP(net, device_id=0)"),
    (True, ADAM.format("Parts(net).groups()") + "net = FSDP(net)"),
    (True, ADAM.format("params=groups(net)") + "fully_shard(net)"),
    (True, LISTS + "net = FSDP(net, use_orig_params=False)"),
    (True, ADAM.format("net.parameters()") + "net = FSDP(net, **options)"),
    (False, "net = FSDP(net)\n" + ADAM.format("groups(net)")),
    (False, "net = FSDP(net)\n" + LISTS),
    (False, ADAM.format("groups(net)") + "net = FSDP(net, use_orig_params=True)"),
    (False, ADAM.format("groups(net)") + "net = FSDP(net, use_orig_params=keep)"),
    (False, ADAM.format("groups(net)") + "net = FSDP(net, **from_file())"),
    (False, "head = nn.Linear(9, 9)\n" + ADAM.format("groups(head)") + "net = FSDP(net)"),
    (False, "print(sum(p.numel() for p in net.parameters()))\n" + ADAM.format("other.groups()") + "net = FSDP(net)"),
    (False, ADAM.format("groups(net)") + "net = FSDP(net)\n" + ADAM.format("groups(net)")),
    (False, ADAM.format("groups(net)") + "net = nn.parallel.DistributedDataParallel(net)"),
]


@pytest.mark.parametrize(("wrong", "steps"), SHARDS)
def test_groups_of_parameters_from_before_the_sharding(wrong, steps):
    """PyTorch's documentation of FSDP: it breaks optimizers from before, also those whose groups a function sorts."""
    assert ("TW147" in codes(SORTED.format(steps=steps), JOB)) is wrong


# Two parts of a model in a wrapper, perhaps in one more, and a model beside it.
PARTS = (
    DDP
    + """
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.head = nn.Linear(8, 2)
    def forward(self, x):
        return self.head(self.body(x))
net = DDP(Net().cuda())
{before}
optimizer = torch.optim.AdamW({groups})
for x, y in loader:
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(x), y).backward()
    optimizer.step()
"""
)
BOTH = "[{'params': net.module.head.parameters()}, {'params': net.module.body.parameters(), 'lr': 1e-5}]"
BESIDE = "beside = Net().cuda()"


@pytest.mark.parametrize(
    ("wrong", "before", "groups"),
    [
        (True, BESIDE, BOTH.replace("net.module", "beside")),
        (True, BESIDE, "beside.head.parameters()"),
        (True, "beside = nn.parallel.DataParallel(Net())", "beside.module.head.parameters()"),
        (False, "", BOTH),
        (False, "", "net.module.head.parameters()"),
        (False, "net = nn.parallel.DataParallel(net)", BOTH.replace("net.module", "net.module.module")),
        (False, "net = torch.compile(net)", BOTH),
    ],
)
def test_groups_of_a_wrapped_model(wrong, before, groups):
    """PyTorch, torch/optim: groups of parameters, as those of the parts of the model that a wrapper has in it."""
    assert ("TW147" in codes(PARTS.format(before=before, groups=groups), JOB)) is wrong


@pytest.mark.parametrize(("wrong", "steps"), HEADS)
def test_layers_that_an_optimizer_does_not_know(wrong, steps):
    """horovod/horovod #2181: the optimizer is made of the parameters that are there."""
    assert ("TW147" in codes(HEAD.format(steps=steps))) is wrong


def test_resized_embeddings():
    """transformers 4.42.4 replacements a new embedding into the model, 4.43.0 new weights into the old one."""
    assert "TW147" in codes(WORDS, JOB) & codes(WORDS, OLD)
    assert "TW147" not in codes(WORDS, NEW) | codes(FIRST, OLD)
    assert "TW147" not in codes(WORDS.replace("optimizer = ", "model.requires_grad_(False)\noptimizer = "), OLD)


@pytest.mark.parametrize(("wrong", "script"), SCHEDULES)
def test_schedules_of_an_optimizer_that_was_replaced(wrong, script):
    """PyTorch, lr_scheduler.py: a schedule sets the rates of the optimizer that it got."""
    assert ("TW552" in codes(script, JOB)) is wrong


def test_a_wrapper_keeps_the_groups_of_the_optimizer_in_it():
    """Horovod, torch/optimizer.py: DistributedOptimizer is made of the optimizer's param_groups."""
    wrapped = "import horovod.torch as hvd\noptimizer = hvd.DistributedOptimizer(optimizer)"
    script = TWO.replace("optimizer = torch.optim.SGD(net.parameters(), lr=0.01)\n", "")
    assert "TW552" not in codes(script.format(second=wrapped, step="warm.step()"), JOB)
