"""What public scripts do on two sides of conditions that exclude each other, each with the nearest mistake."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, codes, findings

TWO: dict[str, Any] = {
    "instance_type": P4D,
    "instance_count": 2,
    "distribution": {"torch_distributed": {"enabled": True}},
}
MPI: dict[str, Any] = {"instance_type": P4D, "distribution": {"mpi": {"enabled": True, "processes_per_host": 8}}}
ALONE: dict[str, Any] = {"instance_type": P4D}
# huggingface/transformers v4.2, examples/research_projects/mm-imdb/run_mmimdb.py, and many scripts after it.
LEGACY = """
import argparse
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
def features(args, evaluate):
    if args.local_rank not in [-1, 0] and {asked}:
        dist.barrier()
    made = torch.load("cached.pt")
    if args.local_rank == 0 and {asked}:
        dist.barrier()
    return made
def evaluate(args, model):
    return model(features(args, True))
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default={default})
parser.add_argument("--logging", action="store_true")
args = parser.parse_args()
if args.local_rank == -1:
    device = torch.device("cuda")
    args.n_gpu = torch.cuda.device_count()
else:
    torch.cuda.set_device(args.local_rank)
    device = torch.device("cuda", args.local_rank)
    dist.init_process_group(backend="nccl")
    args.n_gpu = 1
if args.local_rank not in [-1, 0]:
    dist.barrier()
model = torch.nn.Linear(1, 1)
if args.local_rank == 0:
    {joined}
model.to(device)
if {several}:
    model = torch.nn.DataParallel(model)
if args.local_rank != -1:
    model = DDP(model, device_ids=[args.local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in features(args, False):
    optimizer.zero_grad()
    model(batch.to(device)).sum().backward()
    optimizer.step()
    if args.local_rank in [-1, 0]:
        if {single}:
            evaluate(args, model)
"""
RIGHT = {
    "asked": "not evaluate",
    "default": "-1",
    "joined": "dist.barrier()",
    "several": "args.n_gpu > 1",
    "single": "args.local_rank == -1 and args.logging",
}


@pytest.mark.parametrize(
    ("changed", "code", "reported"),
    [
        ({}, "TW128", False),
        ({}, "TW148", False),
        ({}, "TW121", False),
        ({}, "TW123", True),
        ({"joined": "pass"}, "TW128", True),
        ({"several": "args.local_rank != -1"}, "TW148", True),
        ({"single": "args.logging", "asked": "evaluate"}, "TW128", True),
        ({"single": "args.logging"}, "TW128", False),  # of what is evaluated nothing waits
        ({"default": 'int(__import__("os").environ["LOCAL_RANK"])'}, "TW123", False),
    ],
)
def test_scripts_for_one_process_or_a_launcher(changed: dict[str, str], code: str, reported: bool) -> None:
    """The barriers are a pair, and DataParallel is for a process that no launcher has started."""
    assert (code in codes(LEGACY.format(**RIGHT | changed), TWO)) is reported


@pytest.mark.parametrize(
    ("default", "severity"), [("-1", "error"), ("0", "warning"), ("None", "warning"), ("args.gpu", "warning")]
)
def test_processes_that_never_join(default: str, severity: str) -> None:
    """torchrun passes no --local_rank (PyTorch's documentation): with -1 each process takes itself for the only one."""
    found = findings(LEGACY.format(**RIGHT | {"default": default}), TWO)
    assert [f.severity for f in found if f.code == "TW123"] == [severity]


def test_a_function_named_like_a_flag_is_always_true() -> None:
    """`not evaluate` is false if evaluate is a function: the barrier is not reached, nor its pair missing."""
    script = LEGACY.replace("def features(args, evaluate)", "def features(args, mode)")
    for asked in ("not evaluate", "evaluate == 'train'"):
        assert "TW128" not in codes(script.format(**RIGHT | {"asked": asked, "single": "args.logging"}), TWO)
    assert "TW128" in codes(script.format(**RIGHT | {"asked": "mode", "single": "args.logging"}), TWO)


# The shape of Lightning's examples/fabric/reinforcement_learning/train_fabric_decoupled.py.
PLAYER = """
import os
import torch
import torch.distributed as dist
def player(rounds):
    for _ in range(rounds):
        dist.broadcast(torch.randn(8, 4).cuda(), 0)
def trainer(model, optimizer, rounds):
    for _ in range(rounds):
        batch = torch.empty(8, 4).cuda()
        {received}
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
group = dist.new_group(list(range(1, dist.get_world_size())))
if dist.get_rank() == 0:
    {first}
else:
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1).cuda(){group})
    trainer(model, torch.optim.SGD(model.parameters(), lr=0.1), 10)
"""


@pytest.mark.parametrize(
    ("received", "first", "group", "expected"),
    [
        ("dist.broadcast(batch, 0)", "player(10)", ", process_group=group", set()),
        ("dist.broadcast(batch, 0)", "player(10)", "", {"TW128"}),
        ("dist.all_reduce(batch)", "player(10)", ", process_group=group", {"TW128"}),
        ("pass", "pass", ", process_group=group", {"TW169"}),
    ],
)
def test_two_tasks(received: str, first: str, group: str, expected: set[str]) -> None:
    """A player and trainers meet in the same calls, in functions of their own."""
    found = codes(PLAYER.format(received=received, first=first, group=group), TWO)
    assert found & {"TW128", "TW169"} == expected


HEAD = "import argparse\nimport torch\nimport torch.distributed as dist\n"
APEX = (
    HEAD + "from torch.nn.parallel import DistributedDataParallel\nimport apex.parallel\n"
    "dist.init_process_group('nccl')\n"
    "class Distiller:\n    def __init__(self, student, fp16):\n        self.student = student.cuda()\n"
    "        if fp16:\n            self.student = apex.parallel.DistributedDataParallel(self.student)\n"
    "        {other}\n            self.student = DistributedDataParallel(self.student, device_ids=[0])\n"
    "    def train(self):\n        self.student(x).sum().backward()\n"
    "Distiller(torch.nn.Linear(1, 1), flag).train()\n"
)
STEPS = (
    HEAD + "import deepspeed\nengine, optimizer, _, scheduler = deepspeed.initialize(model=net, config=cfg, "
    "lr_scheduler=torch.optim.lr_scheduler.LambdaLR(opt, rate))\n"
    "for batch in data:\n    engine.backward(engine(batch).sum())\n    if args.deepspeed:\n        engine.step()\n"
    "    else:\n        ok = optimizer.step()\n    if args.deepspeed:\n        skipped = 0\n    {other}\n"
    "        if ok:\n            scheduler.step()\n"
)
HALF = (
    HEAD + "scaler = torch.cuda.amp.GradScaler()\nmodel = torch.nn.Linear(1, 1).cuda()\n"
    "if args.fp16:\n    model.half()\nopt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    "for x in data:\n    loss = model(x).sum()\n    scaler.scale(loss).backward()\n"
    "    if {test}:\n        scaler.step(opt)\n    scaler.update()\n"
)
LOADED = (
    HEAD + "dist.init_process_group('nccl')\ntorch.cuda.set_device(rank)\nmodel = torch.nn.Linear(1, 1).cuda()\n"
    "model = torch.nn.parallel.DistributedDataParallel(model)\nmodel(x).sum().backward()\n"
    "torch.save({{'model': model.module.state_dict()}}, 'checkpoint.pt')\nstate = torch.load('checkpoint.pt')\n"
    "if {test}:\n    model.module.load_state_dict(state['model'])\nelse:\n    model.load_state_dict(state['model'])\n"
)
TAPE = (
    "import tensorflow as tf\nimport horovod.tensorflow as hvd\nfrom parallel import layers\nhvd.init()\n"
    "with tf.GradientTape() as tape:\n    loss = model(x)\nif hvd.size() > 1:\n    {wrapped}\n"
    "gradients = tape.gradient(loss, model.trainable_variables)\nopt.apply_gradients(zip(gradients, weights))\n"
)
LOSS = (
    HEAD + "model = torch.nn.Linear(1, 1)\nopt = torch.optim.SGD(model.parameters(), lr=0.1)\nfor x in data:\n"
    "    loss = model(x).mean()\n    logged = loss{copied}.detach_()\n    loss.backward()\n    opt.step()\n"
)
PLACE = (
    HEAD + "def join(rank):\n    torch.cuda.set_device({device})\n    dist.init_process_group('nccl', rank=rank)\n"
    "parser = argparse.ArgumentParser()\nparser.add_argument('--rank', type=int, default=0)\n"
    "join(parser.parse_args().rank)\nmodel = torch.nn.parallel.DistributedDataParallel(net.cuda())\n"
    "model(x).sum().backward()\n"
)
TEXT = (
    "import os\n" + HEAD + "def number():\n    if dist.is_initialized():\n        rank = {known}\n    else:\n"
    "        rank = os.getenv('RANK', 0)\n    return rank\nif number() == 0:\n    print()\n"
)
UTILS = (
    HEAD + "import utils\n{joined}\nmodel = torch.nn.Linear(1, 1)\nmodel.cuda()\n"
    "model = torch.nn.parallel.DistributedDataParallel(model)\nmodel(x).sum().backward()\n"
)
FUNCTION = (
    "from transformers import Trainer\ndef predict(is_world_process_zero=True):\n"
    "    if is_world_process_zero:\n        print()\nclass Answers(Trainer):\n    pass\n"
    "trainer = Answers(model)\npredict({given})\n"
    "if trainer.is_world_process_zero{call}:\n    print()\n"
)
BUILT = (
    HEAD + "from {library} import build_model\ndist.init_process_group('nccl')\nmodel = build_model(config)\n"
    "ids = [int(__import__('os').environ['LOCAL_RANK'])]\n"
    "model = torch.nn.parallel.DistributedDataParallel(model, device_ids=ids)\nmodel(x).sum().backward()\n"
)
ADAPTED = (
    HEAD + "import torch.multiprocessing as mp\nfrom torch.nn.parallel import DistributedDataParallel\n"
    "class Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.layer = torch.nn.Linear(1, 1)\ndef made(params):\n    return Net(params)\n"
    "def run(rank, world, params):\n    dist.init_process_group('nccl', rank=rank)\n    model = made(params)\n"
    "    {before}\n    model.to(rank)\n    if world > 1:\n"
    "        model = DistributedDataParallel(model, device_ids=[rank])\n    {after}\n"
    "    for x in data:\n        model(x).sum().backward()\n        optimizer.step()\n"
    "def main():\n    if world > 1:\n        mp.spawn(run, args=(8, args), nprocs=8)\n"
    "    else:\n        run(0, 1, args)\nmain()\n"
)
FROZEN = "for name, p in model.named_parameters():\n        p.requires_grad = 'adapter' in name"
TESTED = (
    HEAD + "model = torch.nn.Linear(1, 1)\n{first}\nopt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    "model(torch.randn(8, 1))\nmodel = model.to('cuda')\nfor x in data:\n    model(x.cuda()).sum().backward()\n"
    "    opt.step()\n"
)
# NVIDIA's data_prefetcher, as in tczhangzhi/pytorch-distributed apex_distributed.py.
PREFETCHED = (
    HEAD + "dist.init_process_group('nccl')\nsampler = torch.utils.data.distributed.DistributedSampler(data)\n"
    "loader = torch.utils.data.DataLoader(data, sampler=sampler)\n"
    "model = torch.nn.parallel.DistributedDataParallel(net.cuda())\nitems = iter(loader)\nx = next(items)\n"
    "loss = model(x).sum()\nwhile {test}:\n    loss = model(x).sum()\n    loss.backward()\n    x = next(items)\n"
)
POLICIES = (
    HEAD + "from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision\n"
    "half = MixedPrecision(param_dtype=torch.float16)\n{other}\ndist.init_process_group('nccl')\n"
    "model = FullyShardedDataParallel(net, mixed_precision={chosen})\n"
    "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nfor x in data:\n"
    "    model(x).sum().backward()\n    optimizer.step()\n"
)
# CompVis/latent-diffusion main.py.
SIGNALLED = (
    "import signal\nimport torch.distributed as dist\nfrom pytorch_lightning import Trainer\n"
    "from pytorch_lightning.callbacks import Callback\nclass Setup(Callback):\n"
    "    def {hook}(self, trainer, module):\n        if trainer.global_rank == 0:\n"
    "            trainer.save_checkpoint('last.ckpt')\ntrainer = Trainer(callbacks=[Setup()])\n"
    "def melk(*args):\n    if trainer.global_rank == 0:\n        trainer.save_checkpoint('last.ckpt')\n"
    "signal.signal(signal.SIGUSR1, melk)\ntry:\n    trainer.fit(model)\nexcept Exception:\n    melk()\n    raise\n"
    "{then}\n"
)
# NVIDIA/DeepLearningExamples, PyTorch/Translation/GNMT: passes before each update, from a batch of all processes.
DIVIDED = (
    HEAD + "dist.init_process_group('nccl')\nmodel = torch.nn.parallel.DistributedDataParallel(net.cuda())\n"
    "passes = {passes}\nfor x in data:\n    loss = model(x).sum()\n    loss = loss / (x.size(0) * passes)\n"
    "    loss.backward()\n    opt.step()\n"
)
JOINED = (
    HEAD + "import apex\nclass Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.layer = torch.nn.Linear(1, 1)\nmodel = Net().cuda()\n"
    "optimizer = torch.optim.Adam(model.parameters())\n{other}\n"
    "model.train()\nfor x in data:\n    model(x).sum().backward()\n    optimizer.step()\n    optimizer.zero_grad()\n"
)
ESTIMATOR = (
    "import tensorflow as tf\nstrategy = tf.contrib.distribute.MirroredStrategy(num_gpus=8)\n"
    "config = tf.estimator.RunConfig({given})\nopt = tf.train.AdamOptimizer()\nopt.apply_gradients(grads)\n"
)
NEURON = (
    "import torch\nimport torch_xla.core.xla_model as xm\nimport torch_xla.distributed.xla_multiprocessing as xmp\n"
    "{imported}\ndef main(index):\n    device = xm.xla_device()\n    model = torch.nn.Linear(1, 1).to(device)\n"
    "    optimizer = torch.optim.AdamW(model.parameters())\n    for x in data:\n        model(x).sum().backward()\n"
    "        optimizer.step()\n        xm.mark_step()\nxmp.spawn(main)\n"
)
ELSEWHERE = (
    "import tensorflow as tf\nimport horovod.tensorflow as hvd\nfrom detection import model_lib\nhvd.init()\n"
    "config.gpu_options.visible_device_list = str(hvd.local_rank())\n"
    "estimator = {made}\nestimator.train(data, hooks=[hvd.BroadcastGlobalVariablesHook(0)])\n"
)


@pytest.mark.parametrize(
    ("code", "script", "right", "wrong", "job"),
    [
        ("TW148", APEX, {"other": "else:"}, {"other": "if True:"}, TWO),
        ("TW564", STEPS, {"other": "else:"}, {"other": "if True:"}, TWO),
        ("TW504", HALF, {"test": "opt.name and not (args.fp16 or args.bf16)"}, {"test": "opt.name"}, TWO),
        ("TW148", LOADED, {"test": "isinstance(model, DDP)"}, {"test": "args.inner"}, TWO),
        (
            "TW185",
            TAPE,
            {"wrapped": "tape = layers.DistributedGradientTape(tape)"},
            {"wrapped": "wrapped = hvd.DistributedGradientTape(tape)"},
            MPI,
        ),
        ("TW492", LOSS, {"copied": ".clone()"}, {"copied": ""}, ALONE),
        ("TW129", PLACE, {"device": "rank % torch.cuda.device_count()"}, {"device": "rank"}, TWO),
        ("TW161", TEXT, {"known": "dist.get_rank()"}, {"known": "os.environ['RANK']"}, TWO),
        ("TW121", UTILS, {"joined": "utils.init_distributed_mode(args)"}, {"joined": "utils.seed(args)"}, TWO),
        (
            "TW470",
            FUNCTION,
            {"given": "trainer.is_world_process_zero()", "call": "()"},
            {"given": "True", "call": ""},
            TWO,
        ),
        ("TW148", BUILT, {"library": "detectron2.modeling"}, {"library": "torchvision.models"}, TWO),
        (
            "TW147",
            JOINED,
            {"other": "if flag:\n    model, other = apex.amp.initialize(model, optimizer)"},
            {"other": "model = Net().cuda()"},
            ALONE,
        ),
        ("TW437", ADAPTED, {"before": FROZEN, "after": ""}, {"before": "", "after": FROZEN}, ALONE),
        ("TW459", TESTED, {"first": ""}, {"first": "model = model.to('cuda')"}, ALONE),
        ("TW401", PREFETCHED, {"test": "x is not None"}, {"test": "loss > 0.1"}, TWO),
        (
            "TW480",
            POLICIES,
            {"other": "best = MixedPrecision(param_dtype=torch.bfloat16)", "chosen": "best if ready() else half"},
            {"other": "", "chosen": "half"},
            TWO,
        ),
        ("TW128", SIGNALLED, {"hook": "on_exception", "then": ""}, {"hook": "on_exception", "then": "melk()"}, TWO),
        (
            "TW128",
            SIGNALLED,
            {"hook": "on_keyboard_interrupt", "then": ""},
            {"hook": "on_train_epoch_end", "then": ""},
            TWO,
        ),
        (
            "TW485",
            DIVIDED,
            {"passes": "total // (batch * dist.get_world_size())"},
            {"passes": "dist.get_world_size()"},
            TWO,
        ),
        ("TW420", ESTIMATOR, {"given": "train_distribute=strategy"}, {"given": ""}, ALONE),
        (
            "TW114",
            NEURON,
            {"imported": "import neuronx_distributed"},
            {"imported": ""},
            {"instance_type": "ml.trn1.32xlarge", "distribution": {"torch_distributed": {"enabled": True}}},
        ),
        (
            "TW185",
            ELSEWHERE,
            {"made": "model_lib.create(config)['estimator']"},
            {"made": "tf.estimator.Estimator(model_fn)"},
            MPI,
        ),
    ],
)
def test_ways_of_public_scripts(
    code: str, script: str, right: dict[str, str], wrong: dict[str, str], job: dict[str, Any]
) -> None:
    """Only the mistake is reported."""
    assert code not in codes(script.format(**right), job)
    assert code in codes(script.format(**wrong), job)
