"""Pieces of scripts, after public ones, for what is right and the mistake beside it."""

from __future__ import annotations

from typing import Any

from tests.support.neighbour_scripts import HVD
from tests.support.training_scripts import LOOP

ONE: dict[str, Any] = {"instance_type": "ml.g5.2xlarge"}
CPU: dict[str, Any] = {"instance_type": "ml.m5.xlarge"}
METER = LOOP + "    meter.update(loss.item())\n"
SCALED = """
import copy
import torch
net = torch.nn.Linear(1, 1)
mean = copy.deepcopy(net)
for x in data:
    scaler.scale(net(x)).backward()
    scaler.step(optimizer)
    scaler.update()
{}.half()
"""
BACK = """
import torch
class Warmup(torch.optim.lr_scheduler.LRScheduler):
    {}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = Warmup(optimizer)
for x in data:
    optimizer.zero_grad()
    model(x).backward()
    schedule.step()
    optimizer.step()
"""
EVALUATED = """
import torch
def wrapper():
    def decorate(function):
        return {}(function)
    return decorate
@wrapper()
def evaluate(model, loader):
    model.eval()
    for x in loader:
        model(x)
model = torch.nn.Linear(1, 1)
for epoch in range(3):
    for x in data:
        model.train()
        model(x).backward()
        optimizer.step()
        optimizer.zero_grad()
    evaluate(model, loader)
"""
MODES = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        self.layers = torch.nn.Sequential(torch.nn.Linear(1, 1){})
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for x in data:
        optimizer.zero_grad()
        model(x).backward()
        optimizer.step()
    model.eval()
"""
STOPS = """
rank = dist.get_rank()
stop = False
for epoch in range(3):
    for data in loader:
        optimizer.zero_grad()
        model(data).backward()
        optimizer.step()
    if rank == 0:
        stop = stopper(epoch)
    told = [stop if rank == 0 else None]
    dist.broadcast_object_list(told, 0)
    {}
    if stop:
        break
"""
OPTION = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--distributed', type=bool, default=True)\n"
WANDB = """
import argparse, os, wandb
p = argparse.ArgumentParser()
p.add_argument("--run", default="dummy")
args = p.parse_args()
first = int(os.environ["RANK"]) == 0
off = {}
run = None if off else wandb.init(project="x")
"""
FIRE = """
import fire
import torch
def train(output_dir="out"):
    torch.save(model.state_dict(), output_dir + "/m.pt")
fire.Fire(train)
"""
ADDS = """
import argparse
from {} import Trainer
p = argparse.ArgumentParser()
p.add_argument("--lr", type=float)
{}
args = p.parse_args()
"""
SPEED = """
import argparse
import deepspeed
p = argparse.ArgumentParser()
p.add_argument("--local_rank", type=int, default=-1)
args = p.parse_args()
engine, optimizer, loader, _ = deepspeed.initialize(args=args, model=model)
for x, y in loader:
    engine.backward(engine(x.to({}.local_rank)))
    engine.step()
"""
ENGINE = """
import deepspeed
import torch
net = torch.nn.Linear(1, 1)
engine, optimizer, loader, _ = deepspeed.initialize(model=net)
for x in loader:
    engine.backward(engine(x))
    engine.step()
    {}
"""
HOROVOD = (
    HVD
    + """
opt = tf.keras.optimizers.Adam(0.001 * hvd.size())
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(opt), "mse")
{}model.load_weights("/opt/ml/input/data/model/weights")
model.fit(data)
print("resume")
"""
)
RATE = (
    HVD
    + """
import argparse
p = argparse.ArgumentParser()
p.add_argument("--global_batch", type=int, default=1024)
args = p.parse_args()
num_gpus = hvd.size()
batch = args.global_batch{}
opt = hvd.DistributedOptimizer(tf.keras.optimizers.Adam(learning_rate=0.001))
"""
)
PLACES = """
import argparse
from x import Config
p = argparse.ArgumentParser()
p.add_argument("--data_dir", default="/data/")
"""
USES = ("c = Config(data_dir='/data/')\n", "c = Config(index='/data/')\n")
TEMPORARY = """
import torch
def export(folder=None):
    folder = folder or f"/tmp/engine_{{name}}"
    torch.jit.save(torch.jit.script(model), folder)
def engine(kind):
    folder = f"/tmp/engine_{{kind}}"
    export(folder)
    return torch.jit.{}(folder)
engine("a")
"""
DEVICE = "import torch\ndevice = torch.device('cuda:0')\nmodel = torch.nn.Linear(1, 1).to(device)\nmodel = DDP(model)\n"
FABRIC = """
import lightning as L
fabric = L.Fabric(precision="16-mixed")
model, optimizer = fabric.setup(model, optimizer)
for x in data:
    loss = model(x)
    {}
    optimizer.step()
"""
LIGHTNING = """
import lightning.pytorch as pl
class Lit(pl.LightningModule):
    def __init__(self):
        {}
    def training_step(self, batch, index):
        loss = self.layer(batch).sum()
        {}
"""
TRAINER = """
from transformers import Trainer, TrainingArguments
args = TrainingArguments("out", eval_strategy="steps", eval_steps=10, save_strategy="{}", load_best_model_at_end=True)
Trainer(model, args, train_dataset=a, eval_dataset=b).train()
"""
MICRO = """
for step in range(100):
    optimizer.zero_grad()
    for micro in range(4):
        model.require_backward_grad_sync = {}
        model(next(batches)).backward()
    optimizer.step()
"""
REDUCES = """
class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        dist.all_reduce(x)
        return x
loss = model(x)
{}
"""
PARTS = """
class Net(torch.nn.Module):
    def __init__(self):
        self.top = torch.nn.Linear(1, 1)
model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
MODE = """
import argparse
p = argparse.ArgumentParser()
p.add_argument("--mode", default="train")
args = p.parse_args()
if args.mode == "{}":
    torch.save(model.state_dict(), os.path.join(os.environ["SM_MODEL_DIR"], "m.pt"))
"""
SPAWNS = """
import multiprocessing as mp
import torch.distributed as dist
def work(rank):
    dist.init_process_group("nccl")
    {}dist.barrier()
for rank in range(8):
    mp.Process(target=work, args=(rank,)).start()
"""
HELPER = """
import argparse, torch
def load():
    return []
def save(model):
    torch.save(model, "out/m.pt")
def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("data")
    return p.parse_args()
def train(model):
    for x in load():
        loss = model(x)
        loss.backward()
        total.update(loss.item())
def main():
    args = parse_args()
    train(model)
    save(model)
if __name__ == "__main__":
    main()
"""
ENTRY = """
import argparse
from helper import load
def parse_args():
    return argparse.ArgumentParser().parse_args()
def train(model):
    model.train()
    return load()
def main():
    parse_args()
    train(model)
main()
"""
SHARED = """
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.utils.data.distributed import DistributedSampler
def work(index):
    dist.init_process_group("nccl")
    sampler = DistributedSampler(data, num_replicas={}, rank=0)
mp.spawn(work, nprocs=8)
"""
