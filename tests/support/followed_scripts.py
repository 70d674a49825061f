"""Scripts in which what becomes of a value decides: seeds, groups, batches, callbacks and variables."""

from __future__ import annotations

from typing import Any

from tests.support.neighbour_scripts import TWO

MPI: dict[str, Any] = {"distribution": {"mpi": {"enabled": True, "processes_per_host": 8}}}
HVD_JOB: dict[str, Any] = {
    "instance_type": "ml.p3.16xlarge",
    "instance_count": 2,
    "plan": {"framework": "tensorflow"},
} | MPI
HOSTS: dict[str, Any] = {"instance_type": "ml.g5.12xlarge", "instance_count": 2}
SPLIT = (
    "from torch.utils.data import random_split\nrank = dist.get_rank()\n{seed}\na, b = random_split(data, [90, 10])\n"
)
TABLE = (
    "import numpy as np\nfrom sklearn.model_selection import train_test_split\n{seed}\na, b = train_test_split(rows)\n"
)
NO_SYNC = """
from contextlib import nullcontext
model = DDP(torch.nn.Linear(2, 2).cuda())
for step, x in enumerate(loader):
    {}
"""
SUMMED = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i, x in enumerate(loader):
    {first}
    loss = model(x).mean() / 4
    loss.backward()
    if (i + 1) % 4 == 0:
        optimizer.step()
        {then}
"""
CRITIC = """
opt_d = torch.optim.Adam(d.parameters())
opt_g = torch.optim.Adam(g.parameters())
for i, x in enumerate(loader):
    opt_d.zero_grad()
    d(x).mean().backward()
    opt_d.step()
    opt_g.zero_grad()
    if i % 5 == 0:
        g(x).mean().backward()
        opt_g.step()
"""
LIGHTNING = """
import lightning as L
import torch.nn.functional as F
from lightning.pytorch.callbacks import EarlyStopping
class Net(L.LightningModule):
    def validation_step(self, batch, index):
        {log}
class Data(L.LightningDataModule):
    def prepare_data(self):
        {prepare}
    def setup(self, stage=None):
        {setup}
    def train_dataloader(self):
        return torch.utils.data.DataLoader(self.rows)
trainer = L.Trainer(devices=8, num_nodes=2, strategy="ddp", callbacks=[EarlyStopping("val_loss")])
trainer.fit(Net(), Data())
{end}
"""
LIT = {"log": 'self.log("val_loss", loss, sync_dist=True)', "prepare": "download()", "setup": "self.rows = read()"}
FABRIC = """
import lightning as L
fabric = L.Fabric(accelerator="cuda", devices=8, num_nodes=2)
fabric.launch()
{}
"""
GATHER = "rank = dist.get_rank()\nmean = torch.zeros(1).cuda()\n{}\ndist.gather(mean, gather_list=parts, dst=0)\n"
PARTS = "[torch.zeros_like(mean) for _ in range(dist.get_world_size())]"
SPAWN = """
import json, os, torch
import torch.distributed as dist
import torch.multiprocessing as mp
hosts = json.loads(os.environ["SM_HOSTS"])
def work(gpu, gpus):
    os.environ["MASTER_ADDR"] = {address}
    dist.init_process_group("nccl", rank={rank}, world_size={size})
mp.spawn(work, nprocs=torch.cuda.device_count(), args=(torch.cuda.device_count(),))
"""
NODE = 'hosts.index(os.environ["SM_CURRENT_HOST"])'
XLA_LOOP = """
from torch.utils.data import DataLoader
def _mp_fn(index):
    device = xm.xla_device()
    model = torch.nn.Linear(2, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * xm.xrt_world_size())
    plain = DataLoader(data, drop_last=True, sampler=sampler)
    fast = pl.MpDeviceLoader(plain, device)
    for i, x in enumerate({loader}):
        optimizer.zero_grad()
        {body}
        loss.backward()
        xm.optimizer_step(optimizer)
"""
HOROVOD = """
import tensorflow as tf
import horovod.tensorflow.keras as hvd
hvd.init()
gpus = tf.config.list_physical_devices("GPU")
tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.1 * hvd.size())), loss="mse")
"""
KERAS = (
    HOROVOD
    + """
def make():
    return [hvd.callbacks.BroadcastGlobalVariablesCallback(0), {}]
model.fit(data, callbacks=make())
"""
)
AVERAGE, STOP = "hvd.callbacks.MetricAverageCallback()", "tf.keras.callbacks.EarlyStopping()"
WARM = "hvd.callbacks.LearningRateWarmupCallback(initial_lr={}, warmup_epochs=3)"
TAPE = """
import tensorflow as tf
import horovod.tensorflow as hvd
class Net(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.top = tf.keras.layers.Dense(1)
    def call(self, x):
        return self.top(x)
hvd.init()
gpus = tf.config.list_physical_devices("GPU")
tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
net = Net()
opt = tf.keras.optimizers.Adam(0.1 * hvd.size())
{first}
for i, x in enumerate(data.shard(hvd.size(), hvd.rank())):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(net(x))
    tape = hvd.DistributedGradientTape(tape)
    opt.apply_gradients(zip(tape.gradient(loss, net.trainable_variables), net.trainable_variables))
    if i == 0:
        hvd.broadcast_variables(opt.variables(), root_rank=0)
        {then}
"""
SEND = "hvd.broadcast_variables(net.variables, root_rank=0)"
CLUSTER = """
import json, os
{before}
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
{after}
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("sgd", loss="mse")
model.fit(data)
"""
CONFIG = (
    'workers = [host + ":2222" for host in json.loads(os.environ["SM_HOSTS"])]\n'
    'os.environ["TF_CONFIG"] = json.dumps({{"cluster": {{"worker": workers}}, '
    '"task": {{"type": "worker", "index": {}}}}})'
)
MINE = CONFIG.format('json.loads(os.environ["SM_HOSTS"]).index(os.environ["SM_CURRENT_HOST"])')
STEPS = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
class Run:
    def __init__(self):
        self.step = 0
    def fit(self):
        count = 0
        for x in loader:
            loss = model(x).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            self.step += 1
            count += 1
            if {test} % 50 == 0:
                {then}
Run().fit()
"""
SHOWN = "mean = loss.detach()\n                {}if dist.get_rank() == 0:\n                    {}print(mean)"
REDUCED = "dist.all_reduce(mean)"
GROUPED = """
import os, torch
import torch.distributed as dist
import torch.sagemaker as tsm
tsm.init()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = tsm.transform(model)
sampler = torch.utils.data.DistributedSampler(data, {}, {})
"""
V2: dict[str, Any] = TWO | {
    "distribution": {
        "torch_distributed": {"enabled": True},
        "smdistributed": {"modelparallel": {"enabled": True, "parameters": {"tensor_parallel_degree": 2}}},
    }
}
TRANSFORMED = """
import torch
import torch.sagemaker as tsm
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
tsm.init()
model = torch.nn.Linear(1, 1)
{}
model = FSDP(model)
{}
for x in loader:
    model(x).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
ADAM = "optimizer = torch.optim.Adam(model.parameters())"
CLASS = """
import tensorflow as tf
class Job:
    def __init__(self):
        self.strategy = tf.distribute.MirroredStrategy()
        with self.strategy.scope():
            self.model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
            self.opt = tf.keras.optimizers.Adam()
            self.loss = tf.keras.losses.MeanSquaredError({})
    def step(self, x, y):
        with tf.GradientTape() as tape:
            loss = tf.nn.compute_average_loss(self.loss(y, self.model(x)), global_batch_size=64)
        grads = tape.gradient(loss, self.model.trainable_variables)
        self.opt.apply_gradients(zip(grads, self.model.trainable_variables))
    def fit(self):
        for x, y in self.strategy.experimental_distribute_dataset(data):
            self.strategy.run(self.step, args=(x, y))
Job().fit()
"""
BEST = """
from transformers import TrainingArguments
args = TrainingArguments("/opt/ml/model", load_best_model_at_end=True, {})
"""
WEIGHTS = """
import os
import tensorflow as tf
class Net(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.top = tf.keras.layers.Dense(1)
net = Net()
net.compile("sgd", loss="mse")
net.fit(data)
net.save_weights(os.path.join({}, "w.h5"))
os.environ["SM_CHANNEL_TRAIN"]
"""
BATCHES = """
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
whole = 64 * strategy.num_replicas_in_sync
def make(context):
    return tf.data.Dataset.range(9).shard(context.num_input_pipelines, context.input_pipeline_id).batch({})
parts = strategy.distribute_datasets_from_function(make)
strategy.run(step, args=(next(iter(parts)),))
"""
ACCELERATE = """
import os, torch
from accelerate import Accelerator
accelerator = Accelerator()
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train = torch.utils.data.DataLoader(data)
test = torch.utils.data.DataLoader(held)
{prepare}
for x in train:
    accelerator.backward(model(x).mean())
    optimizer.step()
    optimizer.zero_grad()
for x in test:
    out = accelerator.gather_for_metrics(model(x))
where = os.path.join(os.environ["SM_MODEL_DIR"], "model.pt")
{save}
"""
PREPARE = "model, optimizer, train, test = accelerator.prepare(model, optimizer, train, test)"
COUNTS = """
net = DDP(torch.nn.Linear(2, 2).cuda())
right = torch.zeros(1)
for x, y in loader:
    right += {}
dist.all_reduce(right)
"""
CALLBACK = """
import lightning as L
import torch.distributed as dist
class Note(L.Callback):
    def on_train_epoch_end(self, trainer, module):
        {}
        if trainer.is_global_zero:
            {}print("epoch")
L.Trainer(devices=8, num_nodes=2, callbacks=[Note()]).fit(model, loader)
"""
SET_UP = """
import lightning as L
import torch
fabric = L.Fabric(accelerator="cuda", devices=8, num_nodes=2)
fabric.launch()
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = fabric.setup(model, optimizer)
train = torch.utils.data.DataLoader(data)
{}
for x in train:
    fabric.backward(model(x).mean())
    optimizer.step()
    optimizer.zero_grad()
"""
ALL = (
    "mean = torch.zeros(1).cuda()\nparts = [torch.zeros_like(mean) for _ in range({})]\ndist.all_gather(parts, mean)\n"
)
RESUMED = """
import os, torch
import horovod.torch as hvd
hvd.init()
torch.cuda.set_device(hvd.local_rank())
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1 * hvd.size()))
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
{}
for epoch in range(start, 9):
    for x in DataLoader(data, sampler=DistributedSampler(data, hvd.size(), hvd.rank())):
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()
"""
BY_IF = "start = 0\nif hvd.rank() == 0:\n    start = last()\n"
AGREED = "start = int(hvd.broadcast(torch.tensor(start), root_rank=0).item())"
LATER = (
    HOROVOD
    + """
start = 0
if hvd.rank() == 0:
    model.load_weights("/opt/ml/checkpoints/last.h5")
    start = 4
{}
def chosen(callback):
    return {}
calls = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
calls += chosen(tf.keras.callbacks.ModelCheckpoint("/opt/ml/checkpoints/last.h5"))
model.fit(data.shard(hvd.size(), hvd.rank()), initial_epoch=start, callbacks=calls)
"""
)
SENT = 'start = hvd.broadcast(start, root_rank=0, name="start")'
FIRST = "[callback] if hvd.rank() == 0 else []"
HELD = """
import tensorflow as tf
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.compile("sgd", loss="mse")
train = tf.data.Dataset.range(9).repeat()
held = tf.data.Dataset.range(9){}.batch(2)
model.fit(train, steps_per_epoch=5, validation_data=held{})
"""
SEEDED = """
def loader(epoch):
    return DataLoader(data, sampler=DistributedSampler(data, seed={}))
epoch = 0
while epoch < 3:
    for x in loader(epoch):
        model(x).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    epoch += 1
"""
DECORATED = """
import functools
def first():
    return dist.get_rank() == 0
def alone(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        if first():
            return function(*args, **kwargs)
    return inner
class Run:
    def __init__(self, model):
        self.model = model
    @alone
    def save(self, name):
        {}torch.save(self.model.module.state_dict(), "/opt/ml/model/" + name)
Run(model).save("m.pt")
{}
"""
REFUSED = """
if dist.get_rank() == 0 and not os.listdir("/opt/ml/input/data/train"):
    {}
dist.barrier()
"""
