"""Process groups, launchers and learning rates: each mistake and the nearest correct code.

Names and signatures are those of PyTorch's documentation of torch.distributed, of Horovod's and of DeepSpeed's.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import DDP, LOOP, P4D, SMP, XLA, XLA_JOB, codes, findings, parser

ALONE: dict[str, Any] = {"instance_type": P4D}
ONE: dict[str, Any] = {**ALONE, "distribution": {"torch_distributed": {"enabled": True}}}
TWO: dict[str, Any] = {**ONE, "instance_count": 2}
SINGLE: dict[str, Any] = {**ONE, "instance_type": "ml.g5.xlarge"}
CPUS: dict[str, Any] = {**TWO, "instance_type": "ml.m5.xlarge"}
PAIR: dict[str, Any] = {**TWO, "instance_type": "ml.g5.xlarge"}
MPI: dict[str, Any] = {**ALONE, "distribution": {"mpi": {"enabled": True, "processes_per_host": 8}}}
SMDDP: dict[str, Any] = {**ALONE, "instance_count": 2}
SMDDP["distribution"] = {"smdistributed": {"dataparallel": {"enabled": True}}}
PYTORCHDDP: dict[str, Any] = {**SMDDP, "distribution": {"pytorchddp": {"enabled": True}}}
HEAD = (
    "import os\nimport torch\nimport torch.distributed as dist\n"
    "from torch.nn.parallel import DistributedDataParallel as DDP\n"
)
JOIN = 'dist.init_process_group("nccl")\n'
NET = "model = torch.nn.Linear(1, 1)\n"
STEP = "    loss.backward()\n    optimizer.step()\n"


def trained(*lines: str, loss: str = "model(x).sum()", after: str = "") -> str:
    """A script that joins a group, has some more lines, and trains with a loss."""
    return f"{HEAD}{JOIN}{NET}" + "\n".join(lines) + f"\nfor x in loader:\n    loss = {loss}\n{STEP}{after}"


def grouped(words: str) -> str:
    return f"{HEAD}dist.init_process_group({words})\n"


UNCALLED = HEAD + "def setup():\n    {join}\n" + NET + "net = DDP(model)\n" + LOOP.replace("model(", "net(")
HELPED = HEAD + "from work import {name}\n{name}()\n" + NET
GROUPS: list[tuple[str, bool, str, dict[str, Any] | None]] = [
    # --- who joins a group
    ("TW120", True, HEAD + LOOP, ONE),
    ("TW120", True, HEAD + LOOP, MPI),
    ("TW120", True, HEAD + LOOP, SMDDP),
    ("TW120", False, HEAD + LOOP, ALONE),
    ("TW120", False, HEAD + LOOP, SINGLE),
    ("TW120", False, HEAD + LOOP, XLA_JOB),
    ("TW120", False, HEAD + "import accelerate\n" + LOOP, ONE),
    *(("TW120", False, f"{HEAD}import {name}\n{LOOP}", MPI) for name in ("horovod.torch", "mpi4py.MPI", "byteps")),
    ("TW120", False, "import smdistributed.dataparallel.torch.distributed\n" + LOOP, SMDDP),
    ("TW120", False, HEAD + "from torch.distributed import init_device_mesh\ninit_device_mesh('cuda', 8)" + LOOP, ONE),
    ("TW120", True, HEAD + NET + "start = dist.init_process_group\nnet = DDP(model)\nstart('nccl')\n" + LOOP, ONE),
    ("TW120", True, HEAD + NET + "net = DDP(model)\n" + JOIN + LOOP, ONE),
    ("TW120", False, HEAD + NET + JOIN + "net = DDP(model)\n" + LOOP, ONE),
    ("TW120", True, HEAD + NET + "net = DDP(model)\n" + LOOP, ONE),
    ("TW120", False, HEAD + NET + "net = DDP(model)\n" + LOOP, None),
    ("TW120", False, HEAD + "def never_called(m):\n    return DDP(m)\n" + LOOP, ONE),
    ("TW120", False, HEAD + "def never_called(m):\n    return DDP(m)\n" + LOOP, MPI),
    *(
        ("TW120", False, HELPED.format(name=name) + "net = DDP(model)\n" + LOOP, ONE)
        for name in ("init_dist", "setup_dist", "dist_init", "setup_ddp", "ddp_setup", "init_distributed_mode")
    ),
    ("TW120", False, HELPED.format(name="ddp_setup") + LOOP, ONE),
    ("TW120", True, UNCALLED.format(join=JOIN), ONE),
    ("TW120", True, UNCALLED.format(join="return dist.init_device_mesh('cuda', (8,))"), ONE),
    ("TW120", False, UNCALLED.format(join=JOIN), SINGLE),
    ("TW120", False, UNCALLED.format(join=JOIN), None),
    # --- whose gradients are averaged
    ("TW124", True, trained(), ONE),
    ("TW124", False, trained("import horovod.torch as hvd"), ONE),
    ("TW124", True, HELPED.format(name="init_process_group") + LOOP, ONE),
    ("TW124", True, HELPED.format(name="init_distributed") + "net = DDP(model)\n" + LOOP, ONE),
    ("TW124", False, trained("net = DDP(model)", loss="net(x).sum()"), ONE),
    ("TW124", True, trained("net = DDP(model)"), ONE),
    ("TW124", True, trained("prepare(DDP(model))"), ONE),
    ("TW124", True, trained("plain = model", "model = DDP(model)", loss="plain(x).sum()"), ONE),
    ("TW124", False, trained("net = DDP(model)", loss="net.module(x).sum()"), ONE),
    ("TW124", False, trained("net = DDP(model)", loss="net(x).sum()", after="    model(x).sum().backward()\n"), ONE),
    ("TW124", False, trained("model.top = DDP(model.top)"), ONE),
    ("TW124", False, trained("model.top = DDP(module=model.top)"), ONE),
    ("TW124", True, trained("model.top = DDP(model.bottom)"), ONE),
    ("TW124", True, trained().replace(STEP, "    optimizer.zero_grad()\n" + STEP), ONE),
    ("TW124", True, trained("model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)"), ONE),
    ("TW124", True, trained("from work import DistributedSampler", "DistributedSampler(data)"), ONE),
    ("TW124", True, trained("class DistributedData:\n    pass", "DistributedData()"), ONE),
    ("TW124", True, trained("DistributedData()"), ONE),
    *(
        ("TW124", False, trained(f"from cherry import {name}", f"{name}(model)"), ONE)
        for name in ("DistributedOpt", "ParallelTrainer", "Data_ParallelModel", "DataParallelModel", "SyncOpt")
    ),
    # By hand: a name that says so, or a collective of gradients or parameters.
    ("TW124", True, trained(after="    dist.all_reduce(loss)\n"), ONE),
    ("TW124", True, trained(after="    dist.barrier()\n"), ONE),
    ("TW124", False, trained("from work import sync_grads", after="    sync_grads(model)\n"), ONE),
    ("TW124", False, trained("from work import allreduce_gradients", after="    allreduce_gradients(model)\n"), ONE),
    *(
        ("TW124", False, trained(after=f"    for p in model.parameters():\n        {line}\n"), ONE)
        for line in (
            "dist.all_reduce(p.grad)",
            "d = p.grad; dist.all_reduce(d)",
            "d = p.grad; dist.all_reduce(tensor=d)",
            "dist.all_reduce(p)",
        )
    ),
    *(
        ("TW124", found, trained(f"def {name}(w):\n    dist.all_reduce(w)", f"{name}(weights)"), ONE)
        for name, found in (("average_model", False), ("average_params", False), ("average_loss", True))
    ),
    # All GPUs in each process.
    ("TW124", True, trained("model = torch.nn.DataParallel(model)"), ONE),
    (
        "TW124",
        False,
        trained("def never_called(m):\n    return torch.nn.DataParallel(m)", after="    dist.all_reduce(p.grad)\n"),
        ONE,
    ),
    (
        "TW124",
        False,
        trained(
            "if args.plain:\n    model = torch.nn.DataParallel(model)\nelse:\n    model = DDP(model)",
        ),
        ONE,
    ),
    # A name alone may be a wrapper that was not read, unless the plain model is seen to be trained.
    ("TW124", True, trained("setup_ddp(args)"), ONE),
    ("TW124", False, trained("model = setup_ddp(args)"), ONE),
    ("TW124", False, trained("setup_ddp(args)", after="    other(x).backward()\n").replace(NET, ""), ONE),
    ("TW124", False, trained("net = setup_ddp(args)", after="    net(x).sum().backward()\n"), ONE),
    *(
        ("TW124", found, trained(line).replace(NET, ""), ONE)
        for line, found in (
            ("print(args.ddp)", True),
            ("print(args.ddp_rank)", True),
            ("print(args.ddp_local)", True),
            ("print(args.ddp_world)", True),
            ("print(args.ddp_kind)", False),
            ("print(args.sharded)", False),
            ("data_parallel_model(model)", False),
            ("print(isinstance(model, DDP))", False),
        )
    ),
]  # fmt: skip

MP = "import torch.multiprocessing as mp\n"
HETEROGENEOUS: dict[str, Any] = {
    "distribution": {**ONE["distribution"], "instance_groups": ["gpu"]},
    "instance_groups": [
        {"name": "data", "instance_type": "ml.c5.18xlarge", "instance_count": 2},
        {"name": "gpu", "instance_type": P4D, "instance_count": 1},
    ],
}
PLACED = HEAD + MP + "def work(rank, size=0):\n    dist.init_process_group({words})\n{starts}\n"
SPAWN = "mp.spawn(work, nprocs=8)"
LOCAL_RANK = "int(os.environ['LOCAL_RANK'])"
EITHER = "if args.one:\n    work(0)\nelse:\n    work(int(os.environ['RANK']))"
PLACES: list[tuple[str, bool, str, dict[str, Any] | None]] = [
    # --- the arguments of init_process_group(backend, init_method, timeout, world_size, rank)
    *(
        ("TW104", found, grouped(words), ONE)
        for words, found in (
            ("'nccl', rank=0", True),
            ("'nccl', None, None, 8, 0", True),
            ("'nccl', rank=-1", False),
            ("'nccl', rank=int(os.environ['RANK'])", False),
            ("'nccl', rank=int(os.environ['LOCAL_RANK'])", False),
            ("'nccl', world_size=4", True),
            ("'nccl', world_size=1", True),
            ("'nccl', None, None, 4", True),
            ("'nccl', world_size=8", False),
            ("'nccl', world_size=-1", False),
            ("'nccl', world_size=size()", False),
            ("'nccl', world_size=int(os.environ.get('NPROC', 1))", False),
            ("'nccl', init_method='tcp://localhost:1234'", False),
        )
    ),
    *(
        ("TW104", found, grouped(words), TWO)
        for words, found in (
            ("'nccl', rank=int(os.environ['LOCAL_RANK'])", True),
            ("'nccl', rank=int(os.environ['RANK'])", False),
            ("'nccl', rank=int(os.environ['RANK' if torchrun else 'LOCAL_RANK'])", False),
            ("'nccl', world_size=torch.cuda.device_count()", True),
            ("'nccl', world_size=2 * torch.cuda.device_count()", False),
            ("'nccl', init_method='tcp://localhost:1234'", True),
            ("'nccl', 'tcp://127.0.0.1:1234'", True),
            ("'nccl', init_method='tcp://10.0.0.1:1234'", False),
            ("'nccl', init_method='env://'", False),
            ("'nccl', init_method=address()", False),
        )
    ),
    # Of a job with several groups, the launcher starts the one that its distribution names.
    ("TW104", False, grouped("'nccl', init_method='tcp://localhost:1234'"), HETEROGENEOUS),
    ("TW104", True, grouped("'nccl', world_size=int(os.environ['SM_HOST_COUNT']) * 8"), HETEROGENEOUS),
    ("TW104", True, grouped("'nccl', world_size=32"), HETEROGENEOUS),
    ("TW104", False, grouped("'nccl', world_size=8"), HETEROGENEOUS),
    ("TW104", False, grouped("'nccl', rank=0, world_size=1"), SINGLE),
    ("TW104", False, parser('"--size", type=int, default=1') + grouped("'nccl', world_size=args.size"), ONE),
    ("TW104", False, HEAD + "def never_called():\n    dist.init_process_group('nccl', rank=0)\n", ONE),
    ("TW104", False, PLACED.format(words="backend='nccl', rank=rank", starts=EITHER), TWO),
    ("TW104", True, PLACED.format(words="'nccl', None, None, 16, rank", starts=f"work({LOCAL_RANK})"), TWO),
    ("TW104", True, PLACED.format(words="'nccl', rank=0, world_size=8", starts=SPAWN), ALONE),
    ("TW104", False, PLACED.format(words="'nccl', rank=rank, world_size=8", starts=SPAWN), ALONE),
    ("TW104", False, HEAD + MP + "def work(rank):\n    pass\ndist.init_process_group('gloo', rank=0)\n" + SPAWN, ALONE),
    ("TW104", False, PLACED.format(words="'nccl', rank=0", starts="work(0)"), {**ALONE, "instance_count": 2}),
    (
        "TW104",
        True,
        PLACED.format(words="'nccl', rank=rank, world_size=size", starts="n = torch.cuda.device_count()\n"
        "mp.spawn(work, args=(n,), nprocs=n)"),
        {**ALONE, "instance_count": 2},
    ),
    (
        "TW104",
        False,
        HEAD + MP + parser('"--gpus", type=int, default=torch.cuda.device_count()')
        + "def work(rank):\n    dist.init_process_group('nccl', world_size=args.gpus)\nmp.spawn(work, nprocs=8)\n",
        {**ALONE, "instance_count": 2, "hyperparameters": {"gpus": 16}},
    ),
    # --- a backend for the hardware
    ("TW104", True, grouped("'nccl'"), CPUS),
    ("TW104", True, grouped("backend='nccl'"), CPUS),
    ("TW104", False, grouped("'gloo'"), CPUS),
    ("TW104", False, grouped("chosen()"), CPUS),
    ("TW104", False, grouped("'nccl'"), PAIR),
]  # fmt: skip

FLAG = "import torch\n" + parser("{names}, type=int")
LOCAL = FLAG.format(names="'--local_rank'")
SPEED = LOCAL + "import deepspeed\n"
SPAWNS = MP + "def work(rank):\n    pass\n"
XMP = XLA + "import torch_xla.distributed.xla_multiprocessing as xmp\ndef _mp_fn(index):\n    pass\n"
MAIN = "if __name__ == '__main__':\n    "
LAUNCHERS: list[tuple[str, bool, str, dict[str, Any] | None]] = [
    *(("TW122", True, SPAWNS + SPAWN, job) for job in (ONE, MPI, SMDDP)),
    ("TW122", True, XMP + "xmp.spawn(_mp_fn)\n", XLA_JOB),
    ("TW122", False, XMP + MAIN + "xmp.spawn(_mp_fn)\n", XLA_JOB),
    ("TW122", False, XMP + MAIN + "if args.spawn:\n        xmp.spawn(_mp_fn)\n", XLA_JOB),
    ("TW122", False, f"import os\n{SPAWNS}if os.environ.get('WORLD_SIZE'):\n    work(0)\nelse:\n    {SPAWN}\n", ONE),
    # --- --local_rank
    ("TW123", True, LOCAL, ONE),
    ("TW123", True, FLAG.format(names="'--local-rank'"), ONE),
    ("TW123", True, FLAG.format(names="'-r', '--local_rank'"), ONE),
    ("TW123", False, FLAG.format(names="'--rank'"), ONE),
    ("TW123", True, LOCAL + "print(torch.cuda.device_count())\n", ONE),
    ("TW123", True, LOCAL + "torch.cuda.set_device(args.local_rank)\nprint(torch.cuda.device_count())\n", ONE),
    ("TW123", True, LOCAL + "torch.cuda.set_device(place)\n", ONE),
    ("TW123", False, LOCAL + "torch.cuda.set_device(n % torch.cuda.device_count())\n", ONE),
    ("TW123", True, LOCAL + "import work\nwork.set_device(n % torch.cuda.device_count())\n", ONE),
    # DeepSpeed reads LOCAL_RANK itself; the argument is only there for its own launcher.
    ("TW123", False, SPEED + "deepspeed.initialize(args, model)\n", ONE),
    ("TW123", False, SPEED + "import work\nwork.initialize()\ndeepspeed.initialize(args, model)\n", ONE),
    ("TW123", True, SPEED + "def never_called():\n    deepspeed.initialize(args, model)\n", ONE),
    ("TW123", True, SPEED + "import work\nwork.initialize(args, model)\n", ONE),
    ("TW123", True, SPEED + "deepspeed.initialize(args, model)\nprint(args.local_rank)\n", ONE),
    ("TW123", False, SPEED + "deepspeed.initialize(args, model)\nargs.local_rank = 0\n", ONE),
    ("TW123", False, SPEED + "engine = deepspeed.initialize(args, model)[0]\nprint(engine.local_rank)\n", ONE),
    ("TW123", True, SPEED + "engine = deepspeed.initialize(args)[0]\nprint(engine.local_rank, args.local_rank)\n", ONE),
    ("TW123", False, SPEED + "deepspeed.initialize(args, model)\nprint(args.rank)\n", ONE),
    # --- SageMaker's data parallel library
    ("TW126", True, HEAD + "name = 'smddp'\ndist.init_process_group(name)\n", ONE),
    ("TW126", True, parser('"--b", default="smddp"') + HEAD + "dist.init_process_group(args.b)\n", ONE),
    ("TW126", False, parser('"--b", default="smddp"') + HEAD + "dist.init_process_group(args.b)\n",
     {**ONE, "hyperparameters": {"b": "nccl"}}),
    ("TW126", False, HEAD + "from work import init_process_group\ninit_process_group(name)\n", ONE),
    ("TW126", True, HEAD + "if a:\n    dist.init_process_group('gloo')\nelse:\n    name = 'smddp'\n"
     "    dist.init_process_group(name)\n", ONE),
    ("TW127", True, grouped("'nccl'"), SMDDP),
    ("TW127", False, grouped("'nccl'"), PYTORCHDDP),
    ("TW127", False, grouped("'nccl'") + "import accelerate\n", SMDDP),
    ("TW127", False, "import smdistributed.dataparallel.tensorflow\n", SMDDP),
    *(
        ("TW127", found, "import smdistributed.dataparallel.torch.torch_smddp\n" + grouped(words), ONE)
        for words, found in (("'nccl'", True), ("backend='gloo'", True), ("'mpi'", False), ("", False), ("b()", False))
    ),
    ("TW127", False, "import smdistributed.dataparallel.torch.distributed\n" + grouped("'nccl'"), ONE),
]  # fmt: skip

HVD = "import torch\nimport horovod.torch as hvd\nhvd.init()\ntorch.cuda.set_device(hvd.local_rank())\n"
KERAS = "import tensorflow as tf\nimport horovod.tensorflow.keras as hvd\nhvd.init()\n"
TENSORFLOW: dict[str, Any] = {**MPI, "plan": {"framework": "tensorflow"}}
GROWN: dict[str, Any] = {**ONE, "batch": {"global": 512, "per_replica": 64}}


def rated(words: str = "lr=0.1", *lines: str) -> str:
    return HVD + "\n".join(lines) + f"\noptimizer = torch.optim.Adam(model.parameters(), {words})\n"


RATES: list[tuple[str, bool, str, dict[str, Any] | None]] = [
    ("TW125", True, rated(), MPI),
    ("TW125", True, rated("0.1"), MPI),
    ("TW125", True, rated("lr=0.1", "steps = steps * hvd.size()"), MPI),
    ("TW125", True, rated("lr=0.1", "lr = lr * 0.1"), MPI),
    ("TW125", True, rated("lr=0.1", "steps = samples // batch_size // hvd.size()"), MPI),
    ("TW125", True, rated("lr=0.1", "whole = batch_size * hvd.size()"), MPI),
    ("TW125", False, rated("lr=lr", "lr = 0.1 * hvd.size()"), MPI),
    ("TW125", False, rated("lr=args.lr", "args.lr *= hvd.size()"), MPI),
    ("TW125", False, rated("lr=0.1", "batch_size = args.batch_size // hvd.size()"), MPI),
    ("TW125", False, rated("lr=0.1", "batch_size /= world_size"), MPI),
    ("TW125", False, rated("lr=0.1", "args.bs //= n_gpus"), MPI),
    *(
        ("TW125", False, rated(f"lr={rate}"), MPI)
        for rate in ("scale(0.1)", "schedule(0)", "make_fn()", "decay(0.1)", "warm(0.1)", "policy", "rate(world_size)")
    ),
    ("TW125", False, HVD + "optimizer = make_optimizer(lr=0.1)\n", MPI),
    ("TW125", False, HVD + "scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 30)\n", MPI),
    ("TW125", True, HVD + "optimizer = FusedAdam(parameters, lr=0.1)\n", MPI),
    ("TW125", False, HVD + "optimizer = FusedAdam(parameters, 0.1)\n", MPI),
    ("TW125", True, KERAS + "tf.keras.optimizers.Adam(0.1)\n", TENSORFLOW),
    ("TW125", True, KERAS + "tf.keras.optimizers.Adam(learning_rate=0.1)\n", TENSORFLOW),
    ("TW125", False, KERAS + "tf.keras.layers.Dense(1)\n", TENSORFLOW),
    ("TW125", False, rated() + "import accelerate\n", MPI),
    ("TW125", False, rated(), {**MPI, "hyperparameters": {"lr": 0.8, "epochs": 1}}),
    ("TW125", True, rated(), {**MPI, "hyperparameters": {"epochs": 1}}),
    ("TW125", True, XLA + "n = xm.xrt_world_size()\ntorch.optim.SGD(p, lr=0.1)\n", XLA_JOB),
    ("TW125", False, rated(), {**MPI, "batch": {"global": 64, "per_replica": 64}}),
    ("TW125", True, rated(), {**MPI, "batch": {"per_replica": 64}}),
    ("TW125", True, rated(), {**MPI, "batch": {"global": 64}}),
    ("TW125", True, DDP + "torch.optim.SGD(p, lr=0.1)\n", GROWN),
    ("TW125", False, DDP + "torch.optim.SGD(p, lr=0.1)\n", {**ALONE, "batch": GROWN["batch"]}),
    ("TW125", False, DDP + "torch.optim.SGD(p, lr=0.1)\n", ONE),
    ("TW125", False, SMP + "torch.optim.SGD(p, lr=0.1)\n", GROWN),
]  # fmt: skip


@pytest.mark.parametrize(("code", "reported", "script", "job"), [*GROUPS, *PLACES, *LAUNCHERS, *RATES])
def test_a_mistake_is_reported_and_what_is_near_to_it_is_not(
    code: str, reported: bool, script: str, job: dict[str, Any] | None
) -> None:
    found = codes(script, job)
    assert (code in found) == reported, (found, script)


SYNCED = trained("net = DDP(model)", loss="net(x).sum()")
NO_SYNC = SYNCED.replace("    loss.backward()", "    with net.no_sync(){more}:\n        loss.backward()")


@pytest.mark.parametrize(
    ("script", "reported"),
    [
        (NO_SYNC.format(more=""), True),
        (NO_SYNC.format(more=", torch.autograd.detect_anomaly()"), True),
        (SYNCED.replace("    loss.backward()", "    with torch.enable_grad():\n        loss.backward()"), False),
        (NO_SYNC.format(more="") + "    net(x).sum().backward()\n", False),
    ],
)
def test_gradients_are_averaged_by_some_backward(script: str, reported: bool) -> None:
    assert ("TW124" in codes(script, ONE)) == reported


TWICE = (
    KERAS + "def callbacks(lr):\n    return [hvd.callbacks.LearningRateWarmupCallback(initial_lr={end})]\n"
    "rate = 0.1 * hvd.size()\nopt = tf.keras.optimizers.Adam(rate)\ncallbacks({given})\n"
)
WARM = KERAS + "opt = tf.keras.optimizers.Adam({rate})\nhvd.callbacks.LearningRateWarmupCallback(initial_lr={end})\n"


@pytest.mark.parametrize(
    ("script", "reported"),
    [
        *((WARM.format(rate=f"{key}0.1 * hvd.size()", end=0.1), True) for key in ("", "lr=", "learning_rate=")),
        (WARM.format(rate="0.1 * hvd.size()", end="0.1 * hvd.size()"), False),
        (WARM.format(rate="0.1 * hvd.size()", end="rate()"), False),
        (WARM.format(rate="0.1 * hvd.size()", end="args.lr") + parser('"--lr", default=0.1'), False),
        (parser('"--lr", default=0.1') + WARM.format(rate="0.1 * hvd.size()", end="args.lr"), True),
        (parser('"--lr", required=True') + WARM.format(rate="0.1 * hvd.size()", end="args.lr"), True),
        (TWICE.format(given="rate", end="lr * hvd.size()"), True),
        (TWICE.format(given="rate", end="hvd.size() * lr"), True),
        (TWICE.format(given="rate", end="lr"), False),
        (TWICE.format(given="0.1", end="lr * hvd.size()"), False),
        (TWICE.format(given="rate", end="lr * 2"), False),
        (TWICE.format(given="rate", end="lr * hvd.size()") + "callbacks(0.1)\n", False),  # for another model, perhaps
        (WARM.format(rate="0.1", end=0.1), False),
        (WARM.format(rate="0.1 * hvd.size()", end=0.1).replace(".optimizers.", ".schedules."), False),
        (WARM.format(rate="0.1 * hvd.size()", end=0.1).replace("hvd.callb", "def f():\n    hvd.callb"), False),
    ],
)
def test_a_warm_up_ends_at_the_rate_of_all_processes(script: str, reported: bool) -> None:
    """Horovod's guide for Keras: ``initial_lr`` is the rate multiplied by the number of processes."""
    found = {each.severity for each in findings(script, TENSORFLOW) if each.code == "TW125"}
    assert ("warning" in found) == reported, found


SEVERITIES = [
    ("TW120", HEAD + LOOP, ONE, "warning"),
    ("TW120", HEAD + NET + "net = DDP(model)\n" + LOOP, ONE, "error"),
    ("TW120", HEAD + NET + "net = DDP(model)\n" + JOIN + LOOP, ONE, "error"),
    ("TW120", UNCALLED.format(join=JOIN), ONE, "error"),
    ("TW122", SPAWNS + MAIN + "if args.spawn:\n        " + SPAWN, ONE, "warning"),
    ("TW122", SPAWNS + MAIN + SPAWN, ONE, "error"),
]


@pytest.mark.parametrize(("code", "script", "job", "severity"), SEVERITIES)
def test_what_fails_for_certain_is_an_error(code: str, script: str, job: dict[str, Any], severity: str) -> None:
    assert {each.severity for each in findings(script, job) if each.code == code} == {severity}
