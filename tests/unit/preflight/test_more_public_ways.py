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
SCOPED = """
import tensorflow as tf
strategy = tf.distribute.MirroredStrategy()
made = {outside}
with strategy.scope():
    model = tf.keras.applications.MobileNetV2(weights=None)
    optimizer = tf.keras.optimizers.SGD()
def step(x):
    with tf.GradientTape() as tape:
        loss = tf.nn.compute_average_loss(model(x), global_batch_size=64)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
for batch in strategy.experimental_distribute_dataset(data):
    strategy.run(step, args=(batch,))
"""
RATED = """
import torch
import horovod.torch as hvd
hvd.init()
torch.cuda.set_device(hvd.local_rank())
def schedule(base, at):
    return base * (1 + at * (hvd.size() - 1))
model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
for batch in loader:
    for group in optimizer.param_groups:
        {rate}
    model(batch).sum().backward()
    optimizer.step()
"""
RESUMED = (
    DDP
    + """
def restore():
    if dist.get_rank() == 0:
        return torch.load("/opt/ml/checkpoints/state.pt")["epoch"] + 1
    return 0
first = restore()
{agree}
for epoch in range(first, 9):
    for batch in loader:
        model(batch).sum().backward()
"""
)
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
        # TensorFlow's guide: a function of keras.applications that makes no model.
        (
            "TW189",
            SCOPED.format(outside="tf.keras.applications.MobileNetV2(weights=None)"),
            SCOPED.format(outside="tf.keras.applications.mobilenet_v2.preprocess_input(image)"),
            {"instance_type": P4D, "plan": {"framework": "tensorflow"}},
        ),
        # Horovod's pytorch_imagenet_resnet50.py: the rate is set in each step.
        (
            "TW125",
            RATED.format(rate="group['momentum'] = 0.9"),
            RATED.format(rate="group['lr'] = schedule(0.1, progress)"),
            {"instance_type": P4D, "distribution": {"mpi": {"enabled": True, "processes_per_host": 8}}},
        ),
        # horovod/horovod #202: the epoch to go on at is known to the first process alone, until it is sent.
        (
            "TW400",
            RESUMED.format(agree=""),
            RESUMED.format(agree="shared = [first]\ndist.broadcast_object_list(shared)\nfirst = shared[0]"),
            SEVERAL,
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
