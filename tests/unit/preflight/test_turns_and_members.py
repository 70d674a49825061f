"""Membership in lists, passes that are shared out, packages that join processes: right ways beside the mistakes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, TORCHRUN, codes, findings

TWO: dict[str, Any] = {"instance_type": P4D, "instance_count": 2, "distribution": TORCHRUN}
# WongKinYiu/yolov7, utils/torch_utils.py and utils/datasets.py, as in all that descends from YOLOv5.
FIRST = """
import os
import torch
import torch.distributed as dist
from contextlib import contextmanager
@contextmanager
def zero_first(local_rank):
    if local_rank not in [-1, 0]:
        dist.barrier()
    yield
    if local_rank == 0:
        dist.barrier()
def loader(path, rank=-1):
    with zero_first(rank):
        return open(path)
dist.init_process_group("nccl")
rank = int(os.environ["RANK"])
loader("train.txt", rank=rank)
if rank in [-1, 0]:
    loader("val.txt"{given})
"""
# Vahe1994/AQLM, src/datautils.py.
SHARES = """
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel
dist.init_process_group("nccl")
rank, world_size = dist.get_rank(), dist.get_world_size()
model = FullyShardedDataParallel(net)
for step, x in enumerate(rows):
    if {test}:
        continue
    model(x)
"""
SAMPLED = """
import torch
{imported}
generator = torch.Generator().manual_seed(1)
sampler = torch.utils.data.RandomSampler(data, generator=generator)
loader = torch.utils.data.DataLoader(data, sampler=sampler)
{prepared}
for x in loader:
    model(x).sum().backward()
    optimizer.step()
"""
# facebookresearch/vicreg, evaluate.py: a head on a network, of which the head is trained.
HEADED = """
import torch
import resnet
backbone, size = resnet.build(deep=True)
head = torch.nn.Linear(size, 1000)
model = {model}
optimizer = torch.optim.SGD([dict(params=head.parameters(), lr=0.1)], 0)
for x in data:
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
"""
# facebookresearch/dinov2, dinov2/eval/linear.py: a package of its own joins the processes.
PACKAGED = """
import torch
import dinov2.distributed as distributed
from torch.nn.parallel import DistributedDataParallel
{asked}
model = DistributedDataParallel(torch.nn.Linear(1, 1).cuda())
for x in data:
    model(x).sum().backward()
    optimizer.step()
"""
# yl4579/StyleTTS2, train_finetune_accelerate.py: a file of settings that is not there.
SETTINGS = """
import yaml
from accelerate import Accelerator
accelerator = Accelerator()
settings = yaml.safe_load(open("settings.yml"))
if settings.get("first", "") == {first}:
    raise ValueError("first")
{prepared}
for x in data:
    accelerator.backward(model(x).sum())
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("code", "script", "right", "wrong"),
    [
        ("TW128", FIRST, {"given": ", rank=-1"}, {"given": ", rank=rank"}),
        ("TW128", SHARES, {"test": "step % world_size != rank"}, {"test": "step > 8 and rank != 0"}),
        (
            "TW175",
            SAMPLED,
            {
                "imported": "from accelerate import Accelerator\naccelerator = Accelerator()",
                "prepared": "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
            },
            {
                "imported": "import torch.distributed as dist\ndist.init_process_group('nccl')",
                "prepared": "model = torch.nn.parallel.DistributedDataParallel(model)",
            },
        ),
        (
            "TW147",
            HEADED,
            {"model": "torch.nn.Sequential(backbone, head)"},
            {"model": "torch.nn.Sequential(torch.nn.Linear(8, 8))"},
        ),
        (
            "TW155",
            SETTINGS,
            {"first": "''", "prepared": "model, optimizer = accelerator.prepare(model, optimizer)"},
            {"first": "''", "prepared": "model, optimizer = net, opt"},
        ),
        ("TW120", PACKAGED, {"asked": "size = distributed.get_global_size()"}, {"asked": "size = 8"}),
        ("TW121", PACKAGED, {"asked": "size = distributed.get_global_size()"}, {"asked": "size = 8"}),
    ],
)
def test_only_the_mistake_is_reported(code: str, script: str, right: dict[str, str], wrong: dict[str, str]) -> None:
    assert code not in codes(script.format(**right), TWO)
    assert code in codes(script.format(**wrong), TWO)


@pytest.mark.parametrize(
    ("made", "severity"),
    [
        ("plugin = FullyShardedDataParallelPlugin()", "error"),
        ("if config.sharded:\n    plugin = FullyShardedDataParallelPlugin()\nelse:\n    plugin = None", "warning"),
    ],
)
def test_a_plugin_that_a_setting_decides(made: str, severity: str) -> None:
    """PixArt-alpha/PixArt-alpha, train_scripts/train_diffusers.py saves on one process, and shards if it is told to."""
    script = (
        "from accelerate import Accelerator, FullyShardedDataParallelPlugin\n" + made + "\n"
        "accelerator = Accelerator(fsdp_plugin=plugin)\nmodel, optimizer = accelerator.prepare(model, optimizer)\n"
        "for x in data:\n    accelerator.backward(model(x).sum())\n    optimizer.step()\n"
        "if accelerator.is_main_process:\n    accelerator.save_state('/opt/ml/checkpoints/last')\n"
    )
    assert [f.severity for f in findings(script, TWO) if f.code == "TW128"] == [severity]


@pytest.mark.parametrize(("within", "severity"), [("torch.no_grad()", "warning"), ("autocast()", "error")])
def test_a_pass_with_buffers_on_one_process(within: str, severity: str) -> None:
    """facebookresearch/barlowtwins, evaluate.py trains on after it has evaluated on the first process."""
    script = (
        "import os\nimport torch\nimport torchvision\nimport torch.distributed as dist\n"
        "from torch.cuda.amp import autocast\n"
        "dist.init_process_group('nccl')\nlocal_rank = int(os.environ['LOCAL_RANK'])\n"
        "model = torchvision.models.resnet18().to(local_rank)\n"
        "model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[local_rank])\n"
        "for x in data:\n    model(x).sum().backward()\n    optimizer.step()\nif dist.get_rank() == 0:\n"
        f"    with {within}:\n        print(model(held))\n"
    )
    assert [f.severity for f in findings(script, TWO) if f.code == "TW128"] == [severity]
