"""Idioms of public guides and examples, each beside the mistake that is nearest to it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import DDP, P4D, TORCHRUN, codes

TWO: dict[str, Any] = {"instance_type": P4D, "instance_count": 2, "distribution": TORCHRUN}
MPI: dict[str, Any] = {
    "instance_type": P4D,
    "instance_count": 2,
    "distribution": {"mpi": {"enabled": True, "processes_per_host": 8}},
}
STARTS = """
import os
import torch.distributed as dist
import torch.multiprocessing as mp
def main(index):
    train()
if __name__ == "__main__":
    if {test}:
        dist.init_process_group("nccl")
        main(0)
    else:
        mp.spawn(main, nprocs=8)
"""
SMP2 = """
import torch
import torch.distributed as dist
import torch.sagemaker as tsm
from torch.utils.data.distributed import DistributedSampler
dist.init_process_group("nccl")
tsm.init()
model = tsm.transform(model)
sampler = DistributedSampler(dataset, rank={rank}, num_replicas={size}, drop_last=True)
"""
TAPE = """
import horovod.tensorflow as hvd
import tensorflow as tf
hvd.init()
tf.config.set_visible_devices(tf.config.list_physical_devices("GPU")[hvd.local_rank()], "GPU")
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
opt = tf.keras.optimizers.Adam(0.001 * hvd.size())
data = tf.data.Dataset.from_tensor_slices(x).shard(hvd.size(), hvd.rank())
for batch, x in enumerate(data):
    with tf.GradientTape() as tape:
        loss = model(x)
    grads = tape.gradient(loss, model.trainable_variables)
    {line}
    opt.apply_gradients(zip(grads, model.trainable_variables))
    if batch == 0:
        hvd.broadcast_variables(model.variables, root_rank=0)
"""
FSDP2 = """
import os
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)).cuda()
{before}
for layer in model:
    fully_shard(layer)
fully_shard(model)
{after}
for x in loader:
    model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
OPTIMIZER = "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)"
LOADED = (
    DDP + "train = torch.arange(len(dataset))\nif dist.get_world_size() > 1:\n    train = train.split(100){share}\n"
)
READS = """subset = dataset[train[torch.randperm(len(train))[:10]]]
loader = DataLoader(subset, batch_size=8, shuffle=True)
for x in loader:
    model(x).backward()
    optimizer.step()
"""


def smp(**parameters: object) -> dict[str, Any]:
    library = {"modelparallel": {"enabled": True, "parameters": parameters}}
    return {**TWO, "distribution": {**TORCHRUN, "smdistributed": library}}


WORLD = SMP2.format(rank="dist.get_rank()", size="dist.get_world_size()")
IDIOMS: dict[str, tuple[str, tuple[str, dict[str, Any]], tuple[str, dict[str, Any]]]] = {
    # aws-neuron/aws-neuron-samples, resnet50: torchrun has set it.
    "processes only where no launcher started one": (
        "TW122",
        (STARTS.format(test="os.environ.get('DEBUG')"), TWO),
        (STARTS.format(test="os.environ.get('WORLD_SIZE')"), TWO),
    ),
    # AWS guide for SMP v2: only tensor-parallel ranks share their data.
    "all ranks of SMP v2 read data of their own": (
        "TW175",
        (WORLD, smp(tensor_parallel_degree=4)),
        (WORLD, smp(hybrid_shard_degree=4)),
    ),
    "the ranks that SMP v2 counts": (
        "TW175",
        (WORLD, smp(tensor_parallel_degree=4)),
        (SMP2.format(rank="tsm.state.dp_rank", size="tsm.state.dp_size"), smp(tensor_parallel_degree=4)),
    ),
    # Horovod's documentation: what DistributedGradientTape does, by hand.
    "each gradient is averaged": (
        "TW185",
        (TAPE.format(line="mean = hvd.allreduce(loss)"), MPI),
        (TAPE.format(line="grads = [hvd.allreduce(g) for g in grads]"), MPI),
    ),
    # PyTorch's tutorial of fully_shard: the optimizer is made of the sharded parameters.
    "the optimizer of fully_shard's parameters": (
        "TW147",
        (FSDP2.format(before=OPTIMIZER, after=""), TWO),
        (FSDP2.format(before="", after=OPTIMIZER), TWO),
    ),
    # pyg-team/pytorch_geometric, pcqm4m_ogb.py.
    "a share of the indices": (
        "TW171",
        (LOADED.format(share="[0]") + READS, TWO),
        (LOADED.format(share="[dist.get_rank()]") + READS, TWO),
    ),
}


# aws-neuron/aws-neuron-samples, dp_bert_large_hf_pretrain: a share of the files.
FILES = (
    DDP
    + """import glob
class Records(torch.utils.data.Dataset):
    def __init__(self, path, length):
        self.path = path
def reader(path):
    records = Records(path=path, length=128)
    return DataLoader(records, sampler=torch.utils.data.RandomSampler(records), batch_size=8)
files = sorted(glob.glob("/opt/ml/input/data/training/*.hdf5"))
for epoch in range(3):
    for x in reader(files[{index}]):
        model(x).backward()
        optimizer.step()
        optimizer.zero_grad()
"""
)
IDIOMS["a file for each process"] = (
    "TW171",
    (FILES.format(index="epoch % len(files)"), TWO),
    (FILES.format(index="(epoch * dist.get_world_size() + dist.get_rank()) % len(files)"), TWO),
)

# aws/amazon-sagemaker-examples, cifar10_keras_main.py: the steps of an epoch are divided, by a name for hvd.size().
STEPS = """
import horovod.tensorflow.keras as hvd
import tensorflow as tf
hvd.init()
tf.config.set_visible_devices(tf.config.list_physical_devices("GPU")[hvd.local_rank()], "GPU")
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.compile(optimizer=hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.001 * hvd.size())), loss="mse")
data = tf.data.Dataset.from_tensor_slices(x).shuffle(1000).batch(32).repeat()
parts = 1
if mpi:
    parts = hvd.size()
model.fit(data, steps_per_epoch={steps}, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
"""
IDIOMS["the steps of an epoch are divided"] = (
    "TW186",
    (STEPS.format(steps="50000 // 32"), MPI),
    (STEPS.format(steps="(50000 // 32) // parts"), MPI),
)

# pytorch/examples, imagenet: the meter is averaged if there are several processes.
METER = """
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
class Meter:
    def __init__(self):
        self.sum, self.count = 0.0, 0
    def update(self, value, n):
        self.sum += value * n
        self.count += n
    def all_reduce(self):
        total = torch.tensor([self.sum, self.count], device="cuda")
        dist.all_reduce(total)
        self.sum, self.count = total.tolist()
    @property
    def avg(self):
        return self.sum / self.count
model = DDP(torch.nn.Linear(8, 2).cuda())
loader = DataLoader(dataset, sampler=DistributedSampler(dataset, shuffle=False))
meter = Meter()
for x, y in loader:
    meter.update((model(x.cuda()).argmax(1) == y.cuda()).float().mean().item(), len(x))
if {test}:
    meter.all_reduce()
{other}
"""
IDIOMS["a meter that all processes average"] = (
    "TW401",
    (METER.format(test="meter.avg > 0.5", other=""), TWO),
    (METER.format(test="dist.get_world_size() > 1", other=""), TWO),
)
IDIOMS["both sides average"] = (
    "TW401",
    (METER.format(test="meter.avg > 0.5", other="else:\n    print(meter.avg)"), TWO),
    (METER.format(test="meter.avg > 0.5", other="else:\n    meter.all_reduce()"), TWO),
)
# PyTorch's examples of automatic mixed precision: the condition has a name.
ACCUMULATES = (
    DDP
    + """
scaler = torch.cuda.amp.GradScaler()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step, x in enumerate(loader):
    last = (step + 1) % 4 == 0
    loss = model(x).sum(){divided}
    scaler.scale(loss).backward()
    if last:
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()
"""
)
IDIOMS["the loss of accumulated steps"] = (
    "TW418",
    (ACCUMULATES.format(divided=""), TWO),
    (ACCUMULATES.format(divided=" / 4"), TWO),
)
COUNTED = "steps = len(loader) // args.accumulation * args.epochs\n"
IDIOMS["a product that only counts the steps"] = (
    "TW418",
    (ACCUMULATES.format(divided="") + COUNTED, TWO),
    (ACCUMULATES.replace("loss", "value").format(divided=" / args.accumulation"), TWO),
)


@pytest.mark.parametrize(("code", "wrong", "right"), IDIOMS.values(), ids=IDIOMS)
def test_of_two_alike_only_the_mistake_is_reported(code, wrong, right):
    assert code in codes(*wrong)
    assert code not in codes(*right)
