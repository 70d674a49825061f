"""Mistakes of two halves in different places: a file and its reader, a loop and its mark, a metric and its log line.

Sources: Accelerate's guides on FSDP (save_state is called in every process) and on accumulation; AWS's guides of the
Training Compiler (mark_step) and of metrics; PyTorch's documentation of IterableDataset, DistributedDataParallel and
reduce; Horovod's of broadcast_variables and its examples; TensorFlow's guide on saving with several workers; smp.load
in AWS's API pages.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import DDP, P4D, SMP, SMP_JOB, TORCHRUN, XLA, XLA_JOB, Case, but, findings, unmet

JOB: dict[str, Any] = {"instance_type": P4D, "instance_count": 2, "distribution": TORCHRUN}
ONE_GPU: dict[str, Any] = {"instance_type": "ml.p3.2xlarge", "compiler": {"enabled": True}}
GROUP = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("nccl")
"""
A_AND_B = "{'a': torch.nn.Linear(2, 3), 'b': torch.nn.Linear(2, 4)}"
TRAINS = """
for x in loader:
    model(x).sum().backward()
    optimizer.step()
"""
RENAMED = (
    GROUP
    + """
import os
PATH = "/opt/ml/checkpoints/last.pt"
net = torch.nn.Linear(2, 2)
if os.path.exists(PATH):
    net.load_state_dict(torch.load(PATH)["model"])
model = DDP(net)
model(x).sum().backward()
state = {"model": model.state_dict()}
torch.save(state, PATH + ".part")
os.replace(PATH + ".part", PATH)
"""
)
UNPACKED = (
    DDP
    + """
import shutil
import tarfile
from torchvision.datasets import ImageFolder
if dist.get_rank() == 0:
    with tarfile.open("/opt/ml/input/data/train/images.tar") as tar:
        tar.extractall("/tmp/images")
dist.barrier()
data = ImageFolder("/tmp/images/train")
"""
)
STREAM = (
    DDP
    + """
import random
from torch.utils.data import IterableDataset, get_worker_info
class Rows(IterableDataset):
    def __init__(self, files, seed=0):
        self.files, self.seed = files, seed
    def __iter__(self):
        info = get_worker_info()
        files = self.files[info.id :: info.num_workers]
        random.Random(self.seed).shuffle(files)
        for path in files:
            yield from open(path)
loader = DataLoader(Rows(names), batch_size=8, num_workers=2)
"""
    + TRAINS
)
MARKED = (
    XLA
    + """
from torch.utils.data import DataLoader
model = torch.nn.Linear(2, 2).to(xm.xla_device())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for x in DataLoader(rows, batch_size=8, drop_last=True):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    xm.mark_step()
"""
)
SHARDS = """
from accelerate import Accelerator, FullyShardedDataParallelPlugin
accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin())
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for x in loader:
    accelerator.backward(model(x).sum())
if accelerator.is_main_process:
    accelerator.save_state("/opt/ml/checkpoints")
"""
SPLIT = (
    SMP
    + """
from torch.utils.data import DataLoader
@smp.step
def train_step(model, x):
    model.backward(model(x).sum())
def cut(loader, parts):
    for x in loader:
        size = len(x) // parts * parts
        yield x[:size]
loader = DataLoader(rows, batch_size=30, shuffle=True)
for x in cut(loader, 4):
    train_step(model, x)
    optimizer.step()
"""
)
BY_HAND = """
import tensorflow as tf
import horovod.tensorflow as hvd
hvd.init()
tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
checkpoint = tf.train.Checkpoint(model=model, speeds=speeds)
if hvd.rank() == 0:
    checkpoint.restore(path)
hvd.broadcast_variables(model.variables + speeds, root_rank=0)
with tf.GradientTape() as tape:
    loss = model(x)
gradients = [hvd.allreduce(g) for g in tape.gradient(loss, model.trainable_variables)]
"""
STAGES = (
    GROUP
    + """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    def forward(self, x):
        return self.head(self.body(x))
def stage(net):
    model = DDP(net)
    for x in loader:
        model(x).sum().backward()
        optimizer.step()
net = Net()
for each in net.body.parameters():
    each.requires_grad = False
stage(net)
for each in net.body.parameters():
    each.requires_grad = True
stage(net)
"""
)
DROPS = (
    GROUP
    + """
import random
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(2, 2) for _ in range(9))
    def forward(self, x):
        for layer in self.layers:
            if self.training and random.random() < 0.1:
                continue
            x = layer(x)
        return x
model = DDP(Net())
"""
    + TRAINS
)
HEADS = (
    GROUP
    + """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = torch.nn.Linear(2, 2)
        self.heads = torch.nn.ModuleDict({name: torch.nn.Linear(2, 3) for name in TASKS})
    def forward(self, x, task):
        return self.heads[task](self.trunk(x))
model = DDP(Net())
for task, x in alternate(loaders):
    model(x, task).sum().backward()
    optimizer.step()
"""
)
TO_ONE = (
    GROUP
    + """
from torch.optim.lr_scheduler import ReduceLROnPlateau
def loss_of(model):
    total = torch.zeros(1, device="cuda")
    for x in loader:
        total += model(x).sum()
    dist.reduce(total, dst=0)
    return total.item()
schedule = ReduceLROnPlateau(optimizer)
for epoch in range(9):
    for x in loader:
        model(x).sum().backward()
        optimizer.step()
    schedule.step(loss_of(model))
"""
)
SHARED = (
    GROUP
    + """
import argparse
from torch.utils.data import DataLoader
p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=512)
args = p.parse_args()
args.batch_size //= dist.get_world_size()
loader = DataLoader(rows, args.batch_size)
"""
    + TRAINS
)
PARTS = (
    SMP
    + """
smp.save({"model": model.local_state_dict()}, "/opt/ml/checkpoints/c.pt", partial=True)
state = smp.load("/opt/ml/checkpoints/c.pt", partial=False)
"""
)
ACCUMULATES = """
import argparse
from accelerate import Accelerator
p = argparse.ArgumentParser()
p.add_argument("--accumulation-steps", type=int, default=4)
args = p.parse_args()
accelerator = Accelerator(mixed_precision="bf16")
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for x in loader:
    with accelerator.accumulate(model):
        accelerator.backward(model(x).sum())
        optimizer.step()
"""
OWN_PARSER = """
import argparse
def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--learning-rate", type=float, default=0.1)
    args, _ = p.parse_known_args()
    return args
args = parse_args()
"""
SAME_SEED = """
import tensorflow as tf
import horovod.tensorflow.keras as hvd
hvd.init()
tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
data = tf.data.TFRecordDataset(files).shuffle(1000, seed=7).batch(8).repeat()
model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.1)), "mse")
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
model.fit(data, steps_per_epoch=samples // (8 * hvd.size()), callbacks=callbacks)
"""
CACHED = (
    XLA
    + """
torch.save({"ids": torch.zeros(9), "labels": torch.ones(9)}, "/tmp/cache.pt")
"""
)
HVD_JOB = {**JOB, "plan": {"framework": "tensorflow"}, "distribution": {"mpi": {"enabled": True}}}
LOGGED = "import torch\nloss = torch.nn.Linear(2, 2)(x).sum()\nloss.backward()\nprint(f'loss: {loss.item()}')\n"


def looked_for(expression: str, **more: Any) -> dict[str, Any]:
    """A job with an expression for a metric."""
    return {"instance_type": "ml.p3.2xlarge", "metrics": {"goodness": expression}, **more}


CHIEF = """
import json
import os
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("adam", "mse")
model.fit(data)
if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 0:
    tf.saved_model.save(model, "/opt/ml/model/1")
"""
WORKERS: dict[str, Any] = {**HVD_JOB, "distribution": {"multi_worker_mirrored_strategy": {"enabled": True}}}
SMALL = {**JOB, "hyperparameters": {"batch-size": 8}}
CPUS: dict[str, Any] = {
    **HVD_JOB,
    "instance_type": "ml.c5.18xlarge",
    "distribution": {"mpi": {"enabled": True, "processes_per_host": 4}},
}
TUNER = {"metric": "goodness", "goal": "Minimize", "ranges": {"lr": {"min": 0.1, "max": 0.2}}}
CASES: list[Case] = [
    ("TW497", True, RENAMED, JOB),
    ("TW497", False, but(RENAMED, "model.state_dict()", "model.module.state_dict()"), JOB),
    ("TW497", False, but(RENAMED, "os.replace(PATH + ", "os.replace(OTHER + "), JOB),
    ("TW469", True, UNPACKED, JOB),
    ("TW469", True, but(UNPACKED, "tar.extractall(", "shutil.unpack_archive(tar, "), JOB),
    ("TW469", True, but(UNPACKED, "tar.extractall(", "shutil.copytree(tar, "), JOB),
    ("TW469", False, UNPACKED, {**JOB, "instance_count": 1}),
    ("TW469", False, but(UNPACKED, "dist.get_rank() == 0", 'os.environ["LOCAL_RANK"] == "0"'), JOB),
    ("TW469", False, but(UNPACKED, "/tmp/images", "/fsx/images"), JOB),
    ("TW171", True, STREAM, JOB),
    ("TW171", False, but(STREAM, "random.Random(self.seed).shuffle", "random.shuffle"), JOB),
    ("TW171", False, but(STREAM, "Rows(names)", "Rows(names, seed=dist.get_rank())"), JOB),
    ("TW171", False, but(STREAM, "info.id ::", "self.rank * info.id ::"), JOB),
    ("TW111", True, MARKED, ONE_GPU),
    ("TW111", False, but(MARKED, "    xm.mark_step()", "        xm.mark_step()"), ONE_GPU),
    ("TW111", False, but(MARKED, "optimizer.step()", "optimizer.step()\n        print(epoch)"), ONE_GPU),
    ("TW128", True, SHARDS, JOB),
    ("TW128", False, but(SHARDS, "if accelerator.is_main_process:", "if True:"), JOB),
    ("TW128", False, but(SHARDS, "fsdp_plugin=FullyShardedDataParallelPlugin()", ""), JOB),
    ("TW177", False, SPLIT, SMP_JOB),
    ("TW177", True, but(SPLIT, "// parts * parts", "// parts"), SMP_JOB),
    ("TW184", False, BY_HAND, HVD_JOB),
    ("TW184", "warning", but(BY_HAND, "path)", "path)\noptimizer = tf.keras.optimizers.SGD(0.1)"), HVD_JOB),
    ("TW168", True, CHIEF, WORKERS),
    ("TW168", False, but(CHIEF, 'if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 0:', "if True:"), WORKERS),
    ("TW168", False, but(CHIEF, "save(model, ", "save(vocabulary, "), WORKERS),
    ("TW437", False, STAGES, JOB),
    ("TW437", True, but(STAGES, "    each.requires_grad = True\nstage(net)", "    each.requires_grad = True"), JOB),
    ("TW431", True, DROPS, JOB),
    ("TW431", False, but(DROPS, "DDP(Net())", "DDP(Net(), find_unused_parameters=True)"), JOB),
    ("TW431", False, but(DROPS, "random.random() < 0.1", "layer is None"), JOB),
    ("TW431", True, HEADS, JOB),
    ("TW431", True, but(HEADS, "{name: torch.nn.Linear(2, 3) for name in TASKS}", A_AND_B), JOB),
    (
        "TW431",
        False,
        but(HEADS, "{name: torch.nn.Linear(2, 3) for name in TASKS}", "{'a': torch.nn.Linear(2, 3)}"),
        JOB,
    ),
    ("TW431", False, but(HEADS, "DDP(Net())", "DDP(Net(), find_unused_parameters=True)"), JOB),
    (
        "TW431",
        False,
        but(HEADS, "self.heads[task](self.trunk(x))", "sum(head(self.trunk(x)) for head in self.heads.values())"),
        JOB,
    ),
    ("TW431", False, but(HEADS, "self.heads[task](", "self.heads['a'](x) + self.heads['b']("), JOB),
    # Each head has its part of one loss.
    ("TW431", False, but(HEADS, "model(x, task)", "sum(model(x, each).sum() for each in TASKS)"), JOB),
    ("TW431", False, but(HEADS, "model(x, task)", "(model(x, 'a') + model(x, 'b'))"), JOB),
    ("TW511", True, TO_ONE, JOB),
    ("TW511", False, but(TO_ONE, "dist.reduce(total, dst=0)", "dist.all_reduce(total)"), JOB),
    ("TW511", False, but(TO_ONE, "dst=0)", "dst=0)\n    dist.broadcast(total, src=0)"), JOB),
    ("TW528", True, SHARED, SMALL),
    ("TW528", False, SHARED, {**SMALL, "hyperparameters": {"batch-size": 16}}),
    ("TW528", False, SHARED, {**SMALL, "hyperparameters": {}}),
    ("TW528", False, but(SHARED, "()\nloader", "()\nargs.batch_size = max(args.batch_size, 1)\nloader"), SMALL),
    ("TW528", True, but(SHARED, "args.batch_size //= dist", "size = args.batch_size // dist"), SMALL),
    ("TW118", True, PARTS, SMP_JOB),
    ("TW118", False, but(PARTS, "partial=False", "partial=True"), SMP_JOB),
    ("TW118", False, but(PARTS, ", partial=False", ""), SMP_JOB),
    ("TW527", True, ACCUMULATES, JOB),
    ("TW527", False, but(ACCUMULATES, '"bf16"', '"bf16", gradient_accumulation_steps=args.accumulation_steps'), JOB),
    ("TW527", False, but(ACCUMULATES, "--accumulation-steps", "--steps"), JOB),
    ("TW193", "warning", OWN_PARSER, {**JOB, "hyperparameters": {"learning_rate": 1}}),
    ("TW193", False, OWN_PARSER, {**JOB, "hyperparameters": {"learning-rate": 1}}),
    ("TW186", "warning", SAME_SEED, HVD_JOB),
    ("TW186", False, but(SAME_SEED, "seed=7", "seed=hvd.rank()"), HVD_JOB),
    ("TW186", False, but(SAME_SEED, ", seed=7", ""), HVD_JOB),
    ("TW186", False, but(SAME_SEED, ".shuffle", ".shard(hvd.size(), hvd.rank()).shuffle"), HVD_JOB),
    ("TW183", True, SAME_SEED, CPUS),
    ("TW183", False, but(SAME_SEED, "tf.config", "if gpus:\n    tf.config"), CPUS),
    ("TW183", False, SAME_SEED, HVD_JOB),
    ("TW140", False, CACHED, XLA_JOB),
    ("TW140", True, but(CACHED, '"labels": torch.ones(9)', '"model": model.state_dict()'), XLA_JOB),
    ("TW526", "warning", LOGGED, looked_for("valid_loss: ([0-9.]+)")),
    ("TW526", "error", LOGGED, looked_for("valid_loss: ([0-9.]+)", tuner=TUNER)),
    ("TW526", False, LOGGED, looked_for("loss: ([0-9.]+)", tuner=TUNER)),
    ("TW526", False, LOGGED + "names = ['valid_loss']\n", looked_for("valid_loss: ([0-9.]+)")),
    ("TW526", False, LOGGED + "show(valid_loss=loss)\n", looked_for("valid_loss: ([0-9.]+)")),
    ("TW526", False, LOGGED + "for part in ('valid', 'train'): show(part)\n", looked_for("valid_loss: ([0-9.]+)")),
    ("TW526", False, LOGGED, looked_for("(?i)LOSS: ([0-9.]+)")),
    ("TW526", "warning", LOGGED, looked_for("(?i)VALID: ([0-9.]+)")),
    ("TW526", False, LOGGED, looked_for("(valid|train): ([0-9.]+)")),
    ("TW526", False, "import transformers\n" + LOGGED, looked_for("'eval_loss': ([0-9.]+)")),
    ("TW526", False, "import ours\n" + LOGGED, looked_for("eval_loss: ([0-9.]+)")),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[1]}")
def test_halves_that_are_apart(case: Case) -> None:
    assert not unmet(case)


def test_a_stream_is_not_told_to_take_a_sampler() -> None:
    (said,) = [each.message for each in findings(STREAM, JOB) if each.code == "TW171"]
    assert "stream" in said
