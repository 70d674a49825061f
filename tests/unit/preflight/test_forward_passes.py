"""Passes of DistributedDataParallel that disturb each other: buffers that are sent again, blocks computed again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, TORCHRUN, codes

JOB: dict[str, Any] = {"distribution": TORCHRUN, "instance_type": P4D}
HEAD = """
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torchvision import models
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
"""
# Two views of an image, as in SimCLR.
VIEWS = (
    HEAD
    + """
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.{norm}(8), nn.ReLU())
    def forward(self, x):
        return self.body(x).mean((2, 3))
def wrapped(net):
    return DistributedDataParallel(net.cuda(){options})
encoder = wrapped(Encoder())
def loss_of(one, other):
    {passes}
for one, other in loader:
    optimizer.zero_grad()
    loss_of(one.cuda(), other.cuda()).backward()
    optimizer.step()
"""
)
BOTH = "first = encoder(one)\n    second = encoder(other)\n    return nn.functional.mse_loss(first, second)"


def views(passes: str = BOTH, norm: str = "BatchNorm2d", options: str = "") -> str:
    return VIEWS.format(passes=passes, norm=norm, options=options)


# A discriminator that judges what is real and what is not, and a step of its generator.
JUDGES = (
    HEAD
    + """
def down(i, o):
    return [nn.Conv2d(i, o, 4), {norm}, nn.LeakyReLU(0.2)]
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*down(3, 8))
    def forward(self, x):
        return self.layers(x)
class Judge(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()
        self.last = nn.Conv2d(8, 1, 4)
    def forward(self, x):
        return self.last(self.block(x))
judge = DistributedDataParallel({judge}.cuda(){options})
maker = DistributedDataParallel(nn.Linear(8, 8).cuda())
def allow(flag):
    for p in judge.parameters():
        p.requires_grad_(flag)
for real, z in loader:
    fake = maker(z.cuda())
    optimizer.zero_grad()
    {before}
    {passes}
    optimizer.step()
"""
)
ROW = "nn.Sequential(*down(3, 8), nn.Flatten(0))"
NAMED = "nn.Sequential(OrderedDict([('a', nn.Sequential(*down(3, 8))), ('b', nn.Flatten(0))]))"
ONE_LOSS = "good = judge(real)\n    bad = judge(fake.detach())\n    (good.mean() - bad.mean()).backward()"
IN_TURN = "good = judge(real)\n    good.mean().backward()\n    bad = judge(fake.detach())\n    bad.mean().backward()"


def judges(
    judge: str = ROW,
    passes: str = ONE_LOSS,
    norm: str = "nn.BatchNorm2d(o)",
    options: str = "",
    before: str = "pass",
) -> str:
    return JUDGES.format(judge=judge, passes=passes, norm=norm, options=options, before=before)


BLOCKS = (
    HEAD
    + """
class Tower(nn.Module):
    def __init__(self, {setting}=0):
        super().__init__()
        self.{setting} = {setting}
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(12))
    def forward(self, x):
        for number, block in enumerate(self.blocks):
            if {test}:
                x = checkpoint(block, x{reentrant})
            else:
                x = block(x)
        return x
tower = DistributedDataParallel(Tower({setting}={value}).cuda(), find_unused_parameters={looks})
for x in loader:
    optimizer.zero_grad()
    tower(x.cuda()).sum().backward()
    optimizer.step()
"""
)
FEW = "number < self.few and self.training"


def blocks(test: str = FEW, value: str = "4", reentrant: str = ", use_reentrant=True", looks: str = "True") -> str:
    given = {"test": test, "value": value, "reentrant": reentrant, "looks": looks}
    return BLOCKS.format(setting="few", **given)


AVERAGED = (
    HEAD
    + """
from torch.optim.swa_utils import AveragedModel, update_bn
net = nn.{convert}(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).cuda())
model = DistributedDataParallel(net)
average = AveragedModel(net)
for x in loader:
    optimizer.zero_grad()
    model(x.cuda()).sum().backward()
    optimizer.step()
    average.update_parameters(net)
class Last:
    def finish(self):
        update_bn(loader, average)
{finish}
"""
)
SYNCED = "SyncBatchNorm.convert_sync_batchnorm"
FIRST = "if dist.get_rank() == 0:\n    Last().finish()"


@pytest.mark.parametrize(
    ("wrong", "script"),
    [
        (True, views()),
        (True, views("return nn.functional.mse_loss(encoder(one), encoder(other))")),
        (True, views(options=", broadcast_buffers=True")),
        (False, views(options=", broadcast_buffers=False")),
        (False, views(norm="SyncBatchNorm")),
        (
            False,
            views().replace("Encoder())", "resnet18(norm_layer=plain))") + "from torchvision.models import resnet18\n",
        ),
        (False, views("return encoder(torch.cat([one, other])).std()")),
        (False, views(BOTH.replace("first, second", "first.detach(), second"))),
        (False, views(BOTH.replace("first = ", "with torch.no_grad():\n        first = "))),
        (False, views(BOTH.replace("    second", "    first.sum().backward()\n    second"))),
        (False, views("encoder.requires_grad_(False)\n    " + BOTH)),
        (False, views(BOTH.replace("    second", "    return first.sum()\n    second"))),
    ],
)
def test_two_passes_before_a_backward(wrong, script):
    """pytorch/pytorch #22095: the buffers that the first pass has saved are overwritten before the second."""
    assert ("TW555" in codes(script, JOB)) is wrong


@pytest.mark.parametrize(
    ("wrong", "script"),
    [
        (True, judges()),
        (True, judges("nn.Sequential(nn.Sequential(*down(3, 8)), nn.Flatten(0))")),
        (True, judges(NAMED).replace("import os", "import os\nfrom collections import OrderedDict", 1)),
        (True, judges("Judge()")),
        (True, judges(before="allow(True)")),
        (True, judges() + "    allow(False)\n"),
        (False, judges(passes=IN_TURN)),
        (False, judges(options=", broadcast_buffers=False")),
        (False, judges(norm="nn.InstanceNorm2d(o)")),
        (False, judges("Judge()", norm="nn.GroupNorm(2, o)")),
        (False, judges(before="allow(False)")),
        (False, judges().replace("p.requires_grad_(flag)", "p.requires_grad = flag")),
        (False, judges().replace("judge(fake", "judge.module(fake")),
        (False, judges().replace("judge(real)", "judge.module(real)")),
        (
            False,
            judges("row()").replace(
                "judge = ",
                "def row():\n    found = [nn.Flatten(0)]\n    if os.environ.get('NORM'):"
                "\n        found.append(nn.BatchNorm2d(3))\n    return nn.Sequential(*found)\njudge = ",
                1,
            ),
        ),
    ],
)
def test_two_judgements_before_a_backward(wrong, script):
    """pytorch/pytorch #175024: the usual step of a discriminator, whose layers are in a row."""
    assert ("TW555" in codes(script, JOB)) is wrong


@pytest.mark.parametrize(
    ("wrong", "script"),
    [
        (True, blocks()),
        (True, blocks("self.few > 0")),
        (True, blocks("self.training", reentrant="")),
        (False, blocks(value="0")),
        (False, blocks("not self.few")),
        (False, blocks("self.few > 6")),
        (False, blocks(reentrant=", use_reentrant=False")),
        (False, blocks(looks="False")),
        (False, blocks() + "tower._set_static_graph()\n"),
    ],
)
def test_blocks_that_are_computed_again(wrong, script):
    """pytorch/pytorch #24005: their parameters are taken for unused, and are ready a second time in backward."""
    assert ("TW523" in codes(script, JOB)) is wrong


@pytest.mark.parametrize(
    ("wrong", "convert", "finish"),
    [(True, SYNCED, FIRST), (False, SYNCED, "Last().finish()"), (False, "Sequential", FIRST)],
)
def test_statistics_of_all_processes(wrong, convert, finish):
    """timgaripov/swa #22: SyncBatchNorm's forward is a collective of all processes."""
    assert ("TW128" in codes(AVERAGED.format(convert=convert, finish=finish), JOB)) is wrong
