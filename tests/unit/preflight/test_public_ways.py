"""What public scripts do that is right, each beside the nearest mistake: the mistake is reported, the way is not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.neighbour_scripts import ALONE, HVD, TENSORFLOW, TWO
from tests.support.training_scripts import DDP, LOOP, P4D, codes, findings, parser, write
from trainwright.preflight.preflight import preflight

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
NEIGHBOURS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    # facebookresearch/ibot, NVIDIA's SSD: the value has to be there before the step goes on.
    "a value that decides in the step": (
        "TW150",
        METER,
        METER + "    if not math.isfinite(loss.item()):\n        raise SystemExit\n",
        ONE,
    ),
    "a condition that ends nothing needs no value at each step": (
        "TW150",
        METER + "    if loss.item() > 5:\n        count += 1\n",
        LOOP + "    if count > 5:\n        count = 0\n",
        ONE,
    ),
    "a step that waits for the device anyway": (
        "TW150",
        METER,
        METER.replace("optimizer.step()", "torch.cuda.synchronize()").replace("\nfor", "import torch\nfor"),
        ONE,
    ),
    "a loss that is tested": (
        "TW150",
        METER,
        METER + "    if torch.isnan(loss).any():\n        break\n",
        ONE,
    ),
    "a metric that is computed on the processor": (
        "TW150",
        METER,
        METER + "    seen.append(labels.cpu().numpy())\n",
        ONE,
    ),
    "a profiler that an argument turns on": (
        "TW154",
        "import torch\nwith torch.autograd.profiler.emit_nvtx():\n    train()\n",
        "import torch\nwith torch.autograd.profiler.emit_nvtx(enabled=args.profile):\n    train()\n",
        ONE,
    ),
    # NVIDIA's DLRM: the wrapper is a part of what is trained.
    "a part of the model is wrapped in its place": (
        "TW124",
        ALONE + PARTS + "top = DDP(model.top)\n" + LOOP,
        ALONE + PARTS + "model.top = DDP(model.top)\n" + LOOP,
        TWO,
    ),
    # NVIDIA's nnU-Net: what is saved in another mode than the job's.
    "a mode of the script": (
        "TW141",
        DDP + MODE.format("train") + LOOP,
        DDP + MODE.format("export") + LOOP,
        TWO,
    ),
    "a progress bar": ("TW150", METER, METER + "    bar.set_postfix(loss=meter.avg)\n", ONE),
    "an epoch is a step": ("TW150", METER, METER.replace("for data in loader", "for epoch in range(9)"), ONE),
    # salesforce/BLIP: what the option says is never read.
    "an option that the script sets itself": (
        "TW190",
        OPTION + "args = p.parse_args()\nargs.distributed = True\n",
        OPTION + "args = p.parse_args()\nif x:\n    args.distributed = True\nelse:\n    args.distributed = False\n",
        ONE,
    ),
    "a library adds arguments": (
        "TW193",
        ADDS.format("pytorch_lightning", ""),
        ADDS.format("pytorch_lightning", "p = Trainer.add_argparse_args(p)"),
        {**ONE, "hyperparameters": {"lr": 0.1, "accelerator": "gpu"}},
    ),
    # karpathy/nanochat
    "a service that an argument turns on": (
        "TW416",
        WANDB.format("not first"),
        WANDB.format('args.run == "dummy" or not first'),
        TWO,
    ),
    "fire passes the hyperparameters": (
        "TW142",
        FIRE.replace("output_dir +", '"results" +'),
        FIRE,
        {**ONE, "hyperparameters": {"output_dir": "/opt/ml/model"}},
    ),
    "DeepSpeed reads the local rank": ("TW123", SPEED.format("args"), SPEED.format("engine"), TWO),
    # ultralytics/yolov5
    "a list agrees the processes": (
        "TW400",
        DDP + STOPS.format("pass"),
        DDP + STOPS.format("if rank != 0:\n        stop = told[0]"),
        TWO,
    ),
    "a decorator of the script": ("TW409", EVALUATED.format("print"), EVALUATED.format("torch.no_grad()"), ONE),
    "a copy in half precision": ("TW139", SCALED.format("net"), SCALED.format("mean"), ONE),
    "the script's own schedule": ("TW407", BACK.format("pass"), BACK.format("def step(self): self.set()"), ONE),
    "layers that are the same in both modes": ("TW408", MODES.format(", torch.nn.Dropout(0.1)"), MODES.format(""), ONE),
    "a global batch that is divided": ("TW125", RATE.format(""), RATE.format(" // num_gpus"), TENSORFLOW),
    "an engine that is put aside": ("TW142", TEMPORARY.format("fork"), TEMPORARY.format("load"), ONE),
    # facebookresearch/ijepa: each process sees one GPU, and that is number 0.
    "a process that sees one GPU": (
        "TW121",
        ALONE.replace('torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))', "") + DEVICE + LOOP,
        ALONE.replace(
            'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))',
            'os.environ["CUDA_VISIBLE_DEVICES"] = str(devices[int(os.environ["LOCAL_RANK"])])',
        )
        + DEVICE
        + LOOP,
        TWO,
    ),
    # Mistakes that were planted in public scripts and not found.
    "the model in the wrapper": (
        "TW434",
        DDP + LOOP.replace("model(data)", "model.module(data)"),
        DDP + LOOP,
        TWO,
    ),
    "an evaluation of the model in the wrapper": (
        "TW434",
        DDP + LOOP.replace("model(data)", "model.module(data)"),
        DDP + LOOP + "with torch.no_grad():\n    for data in loader:\n        print(model.module(data))\n",
        TWO,
    ),
    "the first of the batches is synchronised": (
        "TW434",
        DDP + MICRO.format("micro == 0"),
        DDP + MICRO.format("micro == 3"),
        TWO,
    ),
    "a collective in a function of autograd": (
        "TW128",
        DDP + REDUCES.format("if dist.get_rank() == 0:\n    Reduce.apply(loss)"),
        DDP + REDUCES.format("Reduce.apply(loss)"),
        TWO,
    ),
    "the best model and nothing saved": ("TW157", TRAINER.format("no"), TRAINER.format("steps"), ONE),
    "Fabric scales": ("TW156", FABRIC.format("loss.backward()"), FABRIC.format("fabric.backward(loss)"), ONE),
    "the engine steps": ("TW156", ENGINE.format("optimizer.step()"), ENGINE.format(""), TWO),
    "a loss without its graph": (
        "TW432",
        LIGHTNING.format("pass", "return loss.detach()"),
        LIGHTNING.format("pass", "self.log('loss', loss.detach())\n        return loss"),
        ONE,
    ),
    "a name for a loss without its graph": (
        "TW432",
        LIGHTNING.format("pass", "shown = loss.item()\n        return {'loss': shown}"),
        LIGHTNING.format("pass", "shown = loss.item()\n        return {'loss': loss, 'shown': shown}"),
        ONE,
    ),
    "optimizers by hand": (
        "TW433",
        LIGHTNING.format("pass", "self.manual_backward(loss)"),
        LIGHTNING.format("self.automatic_optimization = False", "self.manual_backward(loss)"),
        ONE,
    ),
    "weights that only a restart reads": ("TW184", HOROVOD.format("if resume: "), HOROVOD.format(""), TENSORFLOW),
}


@pytest.mark.parametrize("name", list(NEIGHBOURS))
def test_the_mistake_is_reported_and_the_way_beside_it_is_not(name):
    code, wrong, right, job = NEIGHBOURS[name]
    assert code in codes(wrong, job)
    assert code not in codes(right, job)


def test_a_default_path_that_an_option_overrides_is_one_finding():
    places = [[f.line for f in findings(PLACES + line, ONE) if f.code == "TW180"] for line in USES]
    assert places == [[5], [5, 6]]


def test_on_a_processor_nothing_waits_for_a_device():
    assert "TW150" in codes(METER, ONE)
    assert "TW150" not in codes(METER, CPU)


def test_a_bool_that_the_job_sets_to_true_is_right_for_now():
    text = parser('"--lora", type=bool, default=False')
    said = {
        value: [f.severity for f in findings(text, {**ONE, "hyperparameters": {"lora": value}})]
        for value in (True, False)
    }
    assert said == {True: ["note"], False: ["error"]}


def test_only_what_is_imported_of_a_file_is_run(tmp_path):
    """A file that is a script itself: its parser, its training and what it saves are not run for one of its names."""
    write(tmp_path, train=ENTRY, helper=HELPER)
    assert [f.code for f in preflight([str(tmp_path / "train.py")]).findings] == []
    found = {f.code for f in preflight([str(tmp_path / "helper.py")]).findings}
    assert {"TW196", "TW142", "TW150"} <= found


def test_processes_that_a_script_starts_one_by_one_train_together():
    job = {"instance_type": P4D}
    assert "TW128" in codes(SPAWNS.format("if dist.get_rank() == 0:\n        "), job)
    assert "TW128" not in codes(SPAWNS.format(""), job)
