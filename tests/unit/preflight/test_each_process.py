"""What each process does for itself, and what all of them have to do together.

Sources: PyTorch's documentation (no_sync, all_gather_object, ZeroRedundancyOptimizer, parallelize_module), reducer.cpp;
Lightning's of LightningModule.log; TRL, grpo_config.py; TensorFlow's of tf.distribute; Horovod's of load_model.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import DDP, P4D, TORCHRUN, Case, but, unmet

JOB: dict[str, Any] = {"instance_type": P4D, "instance_count": 2, "distribution": TORCHRUN}
MWMS: dict[str, Any] = {
    "instance_type": "ml.p3.8xlarge",
    "instance_count": 2,
    "plan": {"framework": "tensorflow"},
    "distribution": {"multi_worker_mirrored_strategy": {"enabled": True}},
}
SERVERS = {**MWMS, "distribution": {"parameter_server": {"enabled": True}}}
HOROVOD = {**MWMS, "distribution": {"mpi": {"enabled": True, "processes_per_host": 4}}}
GATHERED = (
    DDP
    + """
from contextlib import nullcontext
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i, x in enumerate(loader):
    context = model.no_sync() if (i + 1) % accumulation != 0 else nullcontext()
    with context:
        model(x).sum().backward()
    if (i + 1) % accumulation == 0:
        optimizer.step()
        optimizer.zero_grad()
"""
)
OBJECTS = DDP + "parts = [None] * dist.get_world_size()\ndist.all_gather_object(parts, {1: 2})\n"
NOT_SET = 'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))\n'
ZERO = (
    DDP
    + """
from torch.distributed.optim import ZeroRedundancyOptimizer
optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=0.1)
optimizer.consolidate_state_dict(to=0)
if dist.get_rank() == 0:
    torch.save(optimizer.state_dict(), "/opt/ml/checkpoints/x.pt")
"""
)
PAIRS = (
    DDP
    + """
def gathered(tensor):
    all_of_it = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(all_of_it, tensor)
    return torch.cat(all_of_it)
for x in loader:
    output = model(x)
    output = gathered(output)
    (output @ output.t()).sum().backward()
"""
)
# The same in a loss that is a module: its own call, with the model's output, is followed.
IN_LOSS = but(
    PAIRS,
    "for x in loader:",
    """class Contrast(torch.nn.Module):
    def forward(self, output):
        output = gathered(output)
        return (output @ output.t()).sum()
contrast = Contrast()
for x in loader:""",
    """    output = model(x)
    output = gathered(output)
    (output @ output.t()).sum().backward()
""",
    """    contrast(model(x)).backward()
""",
)
LAYERS = """
import os, torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.utils.data import DataLoader, DistributedSampler
dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (4, 4), mesh_dim_names=("dp", "tp"))
model = parallelize_module(torch.nn.Linear(4, 4), mesh["tp"], {"": ColwiseParallel()})
sampler = DistributedSampler(data, num_replicas=mesh["dp"].size(), rank=mesh["dp"].get_local_rank())
for x in DataLoader(data, sampler=sampler):
    model(x).sum().backward()
"""
PLATEAU = (
    DDP
    + """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
valid = DataLoader(rows, sampler=DistributedSampler(rows, shuffle=False))
for epoch in range(3):
    with torch.no_grad():
        loss = torch.stack([torch.nn.functional.mse_loss(model(x), y) for x, y in valid]).mean()
    dist.all_reduce(loss)
    schedule.step(loss)
"""
)
MODULE = """
import torch
import lightning.pytorch as pl
from lightning.pytorch.utilities import rank_zero_only
class Net(pl.LightningModule):
    def training_step(self, batch, index):
        return self.layer(batch).sum()
    def collect(self):
        self.scores = self.all_gather(self.layer.weight)
    def on_validation_epoch_end(self):
        self.collect()
        self.log("auc", 0.5)
pl.Trainer(devices=8, num_nodes=2, callbacks=[pl.callbacks.EarlyStopping("auc")]).fit(Net(), loader)
"""
ARGUMENTS = """
from transformers import Trainer, TrainingArguments
arguments = TrainingArguments("/opt/ml/checkpoints", gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False}, ddp_find_unused_parameters=True)
Trainer(model, arguments, train_dataset=data).train()
"""
GRPO = """
from trl import GRPOConfig, GRPOTrainer
arguments = GRPOConfig("/opt/ml/checkpoints", num_generations=8, per_device_train_batch_size=4)
GRPOTrainer(model, reward_funcs=score, args=arguments, train_dataset=data).train()
"""
STREAM = """
import torch
from accelerate import Accelerator
from datasets.distributed import split_dataset_by_node
accelerator = Accelerator()
rank, world = accelerator.process_index, accelerator.num_processes
stream = split_dataset_by_node(rows, rank=rank, world_size=world).shuffle(seed=1)
def batches():
    return torch.utils.data.DataLoader(stream, batch_size=8)
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = accelerator.prepare(model, optimizer)
for x in batches():
    accelerator.backward(model(x).sum())
    optimizer.step()
    optimizer.zero_grad()
"""
STRATEGY = """
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
def rows(context):
    data = tf.data.Dataset.from_tensor_slices(x).shard(context.num_input_pipelines, context.input_pipeline_id)
    return data.shuffle(100, seed=1).batch(context.get_per_replica_batch_size(64))
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, kernel_regularizer="l2")])
    optimizer = tf.keras.optimizers.SGD(0.1)
def step(batch):
    with tf.GradientTape() as tape:
        loss = tf.nn.compute_average_loss(model(batch), global_batch_size=64)
        loss += tf.nn.scale_regularization_loss(tf.add_n(model.losses))
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
for batch in strategy.distribute_datasets_from_function(rows):
    strategy.run(step, args=(batch,))
"""
MIRRORED = """
import tensorflow as tf
strategy = tf.distribute.MirroredStrategy()
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
model.fit(data, epochs=3)
"""
LOADED = """
import glob
import tensorflow as tf
import horovod.tensorflow.keras as hvd
hvd.init()
tf.config.set_visible_devices(tf.config.list_physical_devices("GPU")[hvd.local_rank()], "GPU")
def newest():
    found = glob.glob("/opt/ml/checkpoints/*.h5")
    return (len(found), max(found)) if found else (0, None)
done, path = newest()
if path is None:
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1 * hvd.size())), "mse")
else:
    model = hvd.load_model(path)
data = tf.data.Dataset.from_tensor_slices(x).shard(hvd.size(), hvd.rank()).batch(8)
model.fit(data, initial_epoch=done, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
"""
ONE_GPU = {"instance_type": "ml.g5.2xlarge"}
SAMPLED = ", sampler=DistributedSampler(rows, shuffle=False)"
REDUCED = "    dist.all_reduce(loss)\n"
COLLECT, ALONE = "    def collect", "    @rank_zero_only\n    def collect"
FIRST = '"auc", 0.5, rank_zero_only=True'
SHARE = ".shard(context.num_input_pipelines, context.input_pipeline_id)"
SCALED = "tf.nn.scale_regularization_loss(tf.add_n(model.losses))"

SENT = """
import tensorflow as tf
import horovod.tensorflow.keras as hvd
from horovod.tensorflow import broadcast_object
hvd.init()
tf.config.set_visible_devices(tf.config.list_physical_devices("GPU")[hvd.local_rank()], "GPU")
done = broadcast_object(3, root_rank=0)
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1 * hvd.size())), "mse")
if hvd.rank() == 0:
    model.load_weights("/opt/ml/checkpoints/w.h5")
data = tf.data.Dataset.from_tensor_slices(x).shard(hvd.size(), hvd.rank()).batch(8)
model.fit(data, initial_epoch=done, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
"""
MOVED = """
import torch
import torch_xla.core.xla_model as xm
model = torch.nn.Linear(2, 2).to(xm.xla_device())
state = xm._maybe_convert_to_cpu(model.state_dict())
if xm.get_ordinal() == 0:
    torch.save(state, "/opt/ml/model/x.pt")
"""

CASES: list[Case] = [
    ("TW184", False, SENT, HOROVOD),
    ("TW140", False, MOVED, {"instance_type": "ml.trn1.32xlarge", "distribution": TORCHRUN}),
    ("TW140", True, but(MOVED, "xm._maybe_convert_to_cpu(model.state_dict())", "model.state_dict()"), JOB),
    ("TW496", False, GATHERED, JOB),
    ("TW496", True, but(GATHERED, "no_sync() if (i + 1) %", "no_sync() if i %"), JOB),
    ("TW496", True, but(GATHERED, "if (i + 1) % accumulation != 0", "if i % accumulation > 0"), JOB),
    ("TW496", False, but(GATHERED, "if (i + 1) % accumulation != 0", "if i % accumulation < accumulation - 1"), JOB),
    ("TW496", False, but(GATHERED, "if (i + 1) % accumulation != 0", "if not last(i)"), JOB),
    ("TW121", False, OBJECTS, JOB),
    ("TW121", True, but(OBJECTS, NOT_SET, ""), JOB),
    ("TW121", False, but(OBJECTS, NOT_SET, "", '"nccl"', '"gloo"'), JOB),
    ("TW121", False, but(OBJECTS, NOT_SET, "", '"nccl"', '"nccl", device_id=OWN'), JOB),
    ("TW121", False, but(OBJECTS, NOT_SET, "", "{1: 2}", "{1: 2}, group=dist.new_group(backend='gloo')"), JOB),
    ("TW128", False, ZERO, JOB),
    ("TW128", True, but(ZERO, "optimizer.consol", "if dist.get_rank() == 0:\n    optimizer.consol"), JOB),
    ("TW524", True, PAIRS, JOB),
    ("TW524", True, IN_LOSS, JOB),
    ("TW524", False, but(IN_LOSS, "    output = gathered(", "    others = gathered(", "@ output", "@ others"), JOB),
    ("TW524", False, but(IN_LOSS, "contrast(model(x)).backward()", "contrast(x)\n    model(x).sum().backward()"), JOB),
    ("TW524", False, but(PAIRS, "    return", "    all_of_it[dist.get_rank()] = tensor\n    return"), JOB),
    ("TW524", False, but(PAIRS, "output = gathered(", "others = gathered(", "output @ output", "others @ output"), JOB),
    ("TW524", False, but(PAIRS, "output = gathered(", "shown = gathered("), JOB),
    ("TW524", False, but(PAIRS, "    output = gathered", "    with torch.no_grad():\n        output = gathered"), JOB),
    ("TW524", False, but(PAIRS, "dist.all_gather(", "torch.distributed.nn.functional.all_gather("), JOB),
    ("TW175", False, LAYERS, JOB),
    ("TW175", True, but(LAYERS, ', num_replicas=mesh["dp"].size(), rank=mesh["dp"].get_local_rank()', ""), JOB),
    ("TW175", True, but(LAYERS, 'mesh["dp"].size()', "dist.get_world_size()"), JOB),
    ("TW175", False, but(LAYERS, 'mesh["dp"].size()', "dist.get_world_size() // 4"), JOB),
    ("TW511", False, PLATEAU, JOB),
    ("TW511", True, but(PLATEAU, REDUCED, ""), JOB),
    ("TW511", False, but(PLATEAU, REDUCED, ""), ONE_GPU),
    ("TW511", False, but(PLATEAU, REDUCED, "", SAMPLED, ""), JOB),
    ("TW128", False, MODULE, JOB),
    ("TW128", True, but(MODULE, COLLECT, ALONE), JOB),
    ("TW128", False, but(MODULE, COLLECT, ALONE, "        self.collect()\n", ""), JOB),
    ("TW522", False, MODULE, JOB),
    ("TW522", True, but(MODULE, '"auc", 0.5', FIRST), JOB),
    ("TW522", False, but(MODULE, '"auc", 0.5', FIRST, 'Stopping("auc")', 'Stopping("loss")'), JOB),
    ("TW523", False, ARGUMENTS, JOB),
    ("TW523", True, but(ARGUMENTS, '"use_reentrant": False', '"use_reentrant": True'), JOB),
    ("TW523", False, but(ARGUMENTS, '"use_reentrant": False', '"use_reentrant": True'), ONE_GPU),
    ("TW523", False, but(ARGUMENTS, "False}, ddp_find_unused_parameters=True", "True}"), JOB),
    ("TW157", False, GRPO, JOB),
    ("TW157", True, but(GRPO, "num_generations=8", "num_generations=6"), JOB),
    ("TW157", False, but(GRPO, "num_generations=8", "num_generations=6, gradient_accumulation_steps=3"), JOB),
    ("TW157", False, but(GRPO, "num_generations=8", "num_generations=6, generation_batch_size=96"), JOB),
    ("TW157", False, but(GRPO, "num_generations=8", "num_generations=6"), None),
    ("TW157", False, "import unsloth\n" + but(GRPO, "num_generations=8", "num_generations=6"), JOB),
    ("TW155", False, STREAM, JOB),
    ("TW155", True, but(STREAM, "split_dataset_by_node(rows, rank=rank, world_size=world)", "rows"), JOB),
    ("TW186", False, STRATEGY, MWMS),
    ("TW186", True, but(STRATEGY, SHARE, ""), MWMS),
    ("TW186", False, but(STRATEGY, SHARE, "", ", seed=1", ""), MWMS),
    ("TW422", False, STRATEGY, MWMS),
    ("TW422", True, but(STRATEGY, SCALED, "tf.add_n(model.losses)"), MWMS),
    ("TW422", False, but(STRATEGY, SCALED, "tf.add_n(model.losses) / 8"), MWMS),
    ("TW188", True, MIRRORED, SERVERS),
    ("TW188", False, MIRRORED, {**SERVERS, "instance_count": 1}),
    ("TW188", False, MIRRORED + "tf.estimator.train_and_evaluate(one, two, three)\n", SERVERS),
    ("TW185", False, LOADED, HOROVOD),
    ("TW185", True, but(LOADED, "hvd.load_model(path)", "tf.keras.models.load_model(path)"), HOROVOD),
    ("TW185", False, but(LOADED, "hvd.load_model(path)", "tf.keras.models.load_model(path)\n"
     "    model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), 'mse')"), HOROVOD),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[1]}")
def test_of_each_process_and_of_all(case: Case) -> None:
    assert not unmet(case)
