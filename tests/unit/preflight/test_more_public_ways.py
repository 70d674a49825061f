"""What is right in public scripts that no rule was written for, each beside the nearest mistake."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.neighbour_scripts import TENSORFLOW
from tests.support.public_ways import HOROVOD, ONE
from tests.support.training_scripts import DDP, P4D, SMP_JOB, TORCHRUN, codes

PARSED = """
import transformers
from dataclasses import dataclass
@dataclass
class TrainingArguments(transformers.TrainingArguments):
    {name}: int = 512
(args,) = transformers.HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
"""
WRITTEN = "import transformers\nargs = transformers.TrainingArguments('/tmp/x', model_max_length=512)\n"
SEVERAL: dict[str, Any] = {"instance_type": P4D, "distribution": TORCHRUN}
LENGTH: dict[str, Any] = {**ONE, "hyperparameters": {"output_dir": "/tmp/x", "model_max_length": 512}}
OWN = """
import torch
import torch.distributed as dist
dist.init_process_group("nccl")
class DistributedDataParallel({base}):
    def __init__(self, module):
        super().__init__({given})
        self.module = module
net = torch.nn.Linear(8, 8)
model = {wrapper}(net)
{then}
optimizer = torch.optim.SGD(model.parameters(), 0.1)
"""
TORCH = "torch.nn.parallel.DistributedDataParallel"
NOT_FINITE = """
import math
import sys
loader = DataLoader(data, sampler=DistributedSampler(data))
for batch in loader:
    loss = model(batch)
    loss.backward()
    if not math.isfinite(loss.item()):
        print("stopping")
        {ends}
    dist.all_reduce(loss)
"""
KERAS = """
import glob
import tensorflow as tf
from transformers import TFAutoModel
model, first = TFAutoModel.from_pretrained("bert-base-cased"), 0
paths = glob.glob("/opt/ml/checkpoints/*.h5")
if paths:
    {read}
    first = int(paths[-1].rpartition("_")[2][:-3])
model.fit(data, epochs=4, initial_epoch=first)
"""
PARTED = """
import intel_extension_for_pytorch as ipex
import smdistributed.modelparallel.torch as smp
import torch
smp.init()
torch.cuda.set_device(smp.local_rank())
def wrap(model):
    {before}
    if parted:
        return smp.DistributedModel(model)
    return torch.nn.DataParallel(model)
model = wrap(torch.nn.Linear(8, 8))
"""
SENT = HOROVOD.format("if resume: ")


@pytest.mark.parametrize(
    ("code", "wrong", "right", "job"),
    [
        # QwenLM, FastChat: arguments of a class that is derived from transformers' own.
        ("TW157", WRITTEN, PARSED.format(name="model_max_length"), LENGTH),
        # AWS's samples for Kubeflow: a class of this name that is not PyTorch's.
        (
            "TW437",
            OWN.format(base="object", given="", wrapper=TORCH, then="net.bias = torch.nn.Parameter(net.bias)"),
            OWN.format(base="torch.nn.Module", given="", wrapper="DistributedDataParallel", then=""),
            SEVERAL,
        ),
        # LTH14/mar: a process that fails ends the job; one that leaves quietly does not.
        ("TW401", DDP + NOT_FINITE.format(ends="sys.exit(0)"), DDP + NOT_FINITE.format(ends="sys.exit(1)"), SEVERAL),
        # data-science-on-aws: the weights are those of a checkpoint that transformers reads.
        (
            "TW454",
            KERAS.format(read="print(paths)"),
            KERAS.format(read="model = TFAutoModel.from_pretrained(paths[-1])"),
            ONE,
        ),
        # Trainer of transformers 4.28: what ipex.optimize returns is a model, too.
        (
            "TW147",
            PARTED.format(before="optimizer = torch.optim.SGD(model.parameters(), 0.1)"),
            PARTED.format(before="model = ipex.optimize(model) if on_processor else model"),
            SMP_JOB,
        ),
        # ChenRocks/UNITER: a function of its own sends the weights.
        (
            "TW184",
            SENT,
            f"from own import broadcast_tensors\n{SENT}broadcast_tensors(model.parameters(), 0)\n",
            TENSORFLOW,
        ),
    ],
)
def test_the_mistake_is_reported_and_the_way_beside_it_is_not(code, wrong, right, job):
    assert code in codes(wrong, job)
    assert code not in codes(right, job)
