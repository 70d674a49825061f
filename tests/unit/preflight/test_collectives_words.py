"""Collective calls under a condition on the rank, and calls that one process may make alone.

Names are those of the documentation of PyTorch, Horovod, torch_xla, SMP, DeepSpeed, Lightning and Hugging Face's
libraries.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support.training_scripts import DDP, P4D, SMP, SMP_JOB, TORCHRUN, XLA, XLA_JOB, codes, findings

ONE: dict[str, Any] = {"instance_type": P4D, "distribution": TORCHRUN}
MPI: dict[str, Any] = {"instance_type": P4D, "distribution": {"mpi": {"enabled": True, "processes_per_host": 8}}}
HEAD = "import os\nimport torch\nimport torch.distributed as dist\nmodel = torch.nn.Linear(1, 1)\n"
FIRST = "if dist.get_rank() == 0:\n    "
HVD = "import torch\nimport horovod.torch as hvd\nhvd.init()\n"
KERAS = "import tensorflow as tf\nimport horovod.tensorflow.keras as hvd\nhvd.init()\n"
SMDDP = "import tensorflow as tf\nimport smdistributed.dataparallel.tensorflow.keras as hvd\n"
NET = "model = tf.keras.Sequential()\nmodel.compile(optimizer={}, loss='mse')\n"
OWN = NET.format("tf.keras.optimizers.Adam(0.1)")
AVERAGED = NET.format("hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.1))")
TAPE = "with tf.GradientTape() as tape:\n    loss = model(data)\n"
OPTIMIZER = "optimizer = torch.optim.SGD(parameters, lr=0.1)\n"
JOINED = f"{HVD}{OPTIMIZER}optimizer = hvd.DistributedOptimizer(optimizer)\n"
WRAPPED = "from torch.nn.parallel import DistributedDataParallel as DDP\nnet = DDP(model)\n"
SHARDED = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\nnet = FSDP(model)\n"
STEP = SMP + "@smp.step\ndef step(model, x):\n    loss = model(x)\n    model.backward(loss)\n    return loss\n"
SPEED = "import deepspeed\nengine, _, _, _ = deepspeed.initialize(model=model)\n"
FABRIC = "from lightning.fabric import Fabric\nfabric = Fabric()\n"
DCP = "import torch.distributed.checkpoint as dcp\n"
HF = "from transformers import {0}\ntrainer = {0}(model)\n"


def first(line: str, head: str = "", condition: str = FIRST) -> str:
    """A call that the first process alone makes."""
    return f"{HEAD}{head}{condition}{line}\n"


ROOT = "if hvd.rank() == 0:\n    "
LEADER = "if smp.rank() == 0:\n    "
MASTER = "if xm.get_ordinal() == 0:\n    "
MANY = ("BroadcastGlobalVariablesCallback(0)", "MetricAverageCallback()")
CALLS: list[tuple[bool, str, dict[str, Any] | None]] = [
    (True, first("dist.barrier()"), ONE),
    (False, first("print(1)"), ONE),
    (True, first("dist.init_process_group()"), ONE),
    (True, first("dist.device_mesh.init_device_mesh('cuda', (8,))"), ONE),
    (False, first("init_process_group()", "from work import init_process_group\n"), ONE),
    (True, first("DDP(model)", WRAPPED), ONE),
    (True, first("FSDP(model)", SHARDED), ONE),
    (False, first("DistributedDataParallel(1)", "class DistributedDataParallel:\n    pass\n"), ONE),
    (True, first("loss.backward()", WRAPPED + "loss = net(x).sum()\n"), ONE),
    (False, first("loss.backward()", WRAPPED + "loss = model(x).sum()\n"), ONE),
    (True, first("net(x)", SHARDED), ONE),
    (False, first("model(x)"), ONE),
    (True, first("net.state_dict()", SHARDED), ONE),
    (False, first("net.eval()", SHARDED), ONE),
    (False, first("model.state_dict()"), ONE),
    (True, first("dcp.load(state)", DCP), ONE),
    (True, first("dcp.save(state)", DCP), ONE),
    # Horovod
    (True, first("hvd.allreduce(x)", HVD, ROOT), MPI),
    (True, first("optimizer.step()", JOINED, ROOT), MPI),
    (False, first("optimizer.zero_grad()", JOINED, ROOT), MPI),
    (False, first("optimizer.step()", HVD + OPTIMIZER, ROOT), MPI),
    *((True, KERAS + AVERAGED + f"{ROOT}model.{name}(data)\n", MPI) for name in ("fit", "fit_generator")),
    (False, KERAS + AVERAGED + ROOT + "model.summary()\n", MPI),
    (False, KERAS + OWN + ROOT + "model.fit(data)\n", MPI),
    (True, KERAS + TAPE + "tape = hvd.DistributedGradientTape(tape)\n" + ROOT + "tape.gradient(loss, w)\n", MPI),
    (False, KERAS + TAPE + "tape = hvd.DistributedGradientTape(tape)\n" + ROOT + "tape.watch(loss)\n", MPI),
    (False, KERAS + TAPE + ROOT + "tape.gradient(loss, w)\n", MPI),
    *((True, f"{head}{ROOT}c = hvd.callbacks.{name}\n", MPI) for name in MANY for head in (KERAS, SMDDP)),
    *((True, f"{KERAS}c = hvd.callbacks.{name}\nall = []\n{ROOT}all.append(c)\n", MPI) for name in MANY),
    *((False, f"{KERAS}c = hvd.callbacks.{name}\nall = []\nall.append(c)\n", MPI) for name in MANY),
    (False, f"{KERAS}c = hvd.callbacks.LearningRateScheduleCallback(1)\nall = []\n{ROOT}all.append(c)\n", MPI),
    (False, KERAS + "import work\n" + ROOT + "c = work.MetricAverageCallback()\n", MPI),
    # torch_xla: master_only shows that the author chose who writes.
    (True, first("xm.save(state, 'm.pt')", XLA, MASTER), XLA_JOB),
    (False, first("xm.save(state, 'm.pt', master_only=False)", XLA, MASTER), XLA_JOB),
    (True, first("xm.rendezvous('a')", XLA, MASTER), XLA_JOB),
    # SMP
    (True, STEP + LEADER + "step(model, x)\n", SMP_JOB),
    (False, STEP + "loss = step(model, x)\n" + LEADER + "print(loss.reduce_mean())\n", SMP_JOB),
    (True, SMP + LEADER + "model.state_dict()\n", SMP_JOB),
    (False, SMP + LEADER + "model.local_state_dict()\n", SMP_JOB),
    (False, SMP + "if smp.local_rank() == 0:\n    model.state_dict()\n", SMP_JOB),
    (True, SMP + LEADER + "smp.save_checkpoint('/opt/ml/checkpoints', model=model)\n", SMP_JOB),
    (True, SMP + LEADER + "smp.resume_from_checkpoint('/opt/ml/checkpoints')\n", SMP_JOB),
    # DeepSpeed, Lightning, Hugging Face
    *((True, first(f"engine.{name}('c')", SPEED), ONE) for name in ("save_checkpoint", "save_16bit_model")),
    (False, first("engine.eval()", SPEED), ONE),
    (False, first("engine.save_checkpoint('c')", "from work import engine\n"), ONE),
    *((True, first(f"fabric.{name}('c', state)", FABRIC), ONE) for name in ("save", "load")),
    (False, first("fabric.print(1)", FABRIC), ONE),
    (False, first("store.save(1)", "from lightning import Store\nstore = Store()\n"), ONE),
    (False, first("fabric.save(1)", FABRIC.replace("lightning", "work")), ONE),
    (True, first("t.save_checkpoint('c')", "import lightning\nt = lightning.Trainer()\n"), ONE),
    *((True, first(f"trainer.{name}()", HF.format("Trainer")), ONE) for name in ("train", "evaluate")),
    (True, first("trainer.train()", HF.format("Seq2SeqTrainer")), ONE),
    (False, first("trainer.log(1)", HF.format("Trainer")), ONE),
    (False, first("trainer.train()", HF.format("TFTrainer")), ONE),
    (False, first("trainer.train()", HF.format("AutoModel")), ONE),
    (False, first("trainer.train()", HF.format("Trainer").replace("transformers", "work")), ONE),
]  # fmt: skip

BARRIER = "dist.barrier()"
LATE = "if dist.get_rank() != 0:\n    "
HERE = f"if dist.get_node_local_rank() {{}} 0:\n    {BARRIER}\n"
SOME = f"if dist.get_rank() < {{}}:\n    {BARRIER}\n"
FUNCTION = "def {}():\n    {}    dist.barrier()\n"
HOOK = "{imports}\nclass Own({bases}):\n    def {name}(self, *args):\n"
HOOK += "        if dist.get_rank() == 0:\n            dist.barrier()\n"
CALLBACK = "from transformers import Trainer, TrainerCallback"
PL = "import lightning.pytorch as pl"
PLACES: list[tuple[bool, str]] = [
    # Where the other processes make the same call, before or after.
    (False, f"{FIRST}{BARRIER}\n{LATE}{BARRIER}\n"),
    (False, f"{FIRST}{BARRIER}\nelse:\n    {BARRIER}\n"),
    (True, f"{FIRST}{BARRIER}\nelse:\n    dist.all_reduce(x)\n"),
    (True, f"{FIRST}{BARRIER}\n{FIRST}{BARRIER}\n"),
    (True, f"{FIRST}{BARRIER}\n    {BARRIER}\n"),
    (False, HERE.format("==") + HERE.format("!=")),
    (True, HERE.format("==")),
    (True, SOME.format(4)),
    (False, SOME.format(4) + f"else:\n    {BARRIER}\n"),
    (False, SOME.format(4) + f"if dist.get_rank() > 3:\n    {BARRIER}\n"),
    (True, SOME.format(4) + f"    {BARRIER}\n"),
    (True, FUNCTION.format("a", FIRST) + FUNCTION.format("b", LATE) + "a()\nb()\n"),
    (False, f"def a():\n    {FIRST}    {BARRIER}\n    {LATE}    {BARRIER}\na()\n"),
    # Where something has gone wrong, or in a function that nobody calls.
    (False, f"try:\n    work()\nexcept ValueError:\n    {FIRST}    {BARRIER}\n"),
    (True, f"try:\n    {FIRST}    {BARRIER}\nfinally:\n    pass\n"),
    (False, FUNCTION.format("never_called", FIRST)),
    # A library calls the methods of its callbacks in every process.
    (True, HOOK.format(imports=CALLBACK, bases="TrainerCallback", name="on_epoch_end")),
    (True, HOOK.format(imports=CALLBACK, bases="Mixin, TrainerCallback", name="on_epoch_end")),
    (True, HOOK.format(imports=PL, bases="pl.LightningModule", name="training_step")),
    (True, HOOK.format(imports=PL, bases="pl.LightningModule", name="validation_step")),
    (True, HOOK.format(imports=PL, bases="pl.Callback", name="on_train_end")),
    (False, HOOK.format(imports=PL, bases="pl.LightningModule", name="helper")),
    (False, HOOK.format(imports=CALLBACK, bases="Trainer", name="on_epoch_end")),
    (False, HOOK.format(imports="", bases="Callback", name="on_epoch_end")),
    (False, "def on_start():\n    " + FIRST + f"    {BARRIER}\n"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("reported", "script", "job"),
    [*CALLS, *((reported, "import torch.distributed as dist\n" + text, ONE) for reported, text in PLACES)],
)
def test_a_call_of_all_processes_is_reported_where_only_some_make_it(
    reported: bool, script: str, job: dict[str, Any] | None
) -> None:
    found = codes(script, job)
    assert ("TW128" in found) == reported, (found, script)


STEPPED = DDP + "{made}\nfor x in loader:\n    model(x).backward()\n    if dist.get_rank() == 0:\n        {line}\n"
CALL = "def never_called():\n  for x in"  # what follows is indented by more
EITHER = "scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1) if args.steps else work.Schedule(1)"


@pytest.mark.parametrize(
    ("reported", "script"),
    [
        (True, STEPPED.format(made=OPTIMIZER, line="optimizer.step()")),
        (True, STEPPED.format(made="scaler = torch.amp.GradScaler()", line="scaler.step(optimizer)")),
        (True, STEPPED.format(made="import work\n" + EITHER, line="scheduler.step()")),
        (False, STEPPED.format(made="profiler = torch.profiler.profile()", line="profiler.step()")),
        (False, STEPPED.format(made=OPTIMIZER, line="optimizer.step()") + "    else:\n        optimizer.step()\n"),
        (False, DDP + OPTIMIZER + "if dist.get_rank() == 0:\n    optimizer.step()\n"),
        (False, STEPPED.format(made=OPTIMIZER, line="optimizer.step()").replace("for x in", CALL)),
    ],
)
def test_every_process_updates_its_weights(reported: bool, script: str) -> None:
    assert ("TW169" in codes(script, ONE)) == reported


def test_an_update_that_averages_is_reported_once() -> None:
    found = codes(f"{JOINED}for x in loader:\n    model(x).backward()\n    {ROOT}    optimizer.step()\n", MPI)
    assert found & {"TW128", "TW169"} == {"TW169"}


@pytest.mark.parametrize(
    ("script", "told"), [(FIRST, "`dist.get_rank() == 0`"), (FIRST + "pass\nelse:\n    ", "not `")]
)
def test_the_processes_that_make_the_call_are_named(script: str, told: str) -> None:
    (found,) = [each for each in findings(f"{HEAD}{script}{BARRIER}\n", ONE) if each.code == "TW128"]
    assert told in found.message
    assert ("not `" in found.message) == (told == "not `")


HOSTS: dict[str, Any] = {**ONE, "instance_count": 2}
LOCAL, GLOBAL = 'int(os.environ["LOCAL_RANK"])', "dist.get_rank()"
IN_LINE = DDP + "if {first} != 0:\n    dist.barrier()\nprepare()\nif {second} == 0:\n    dist.barrier()\n"
BLOCK = DDP + (
    "from contextlib import contextmanager\n@contextmanager\ndef ahead():\n    leads = {second} == 0\n"
    "    if {first} > 0:\n        dist.barrier()\n    yield\n    if leads:\n        dist.barrier()\n"
    "with ahead():\n    prepare()\n"
)
OBJECT = DDP + (
    "class Ahead:\n    def __enter__(self):\n        if {first} != 0:\n            dist.barrier()\n"
    "    def __exit__(self, *error):\n        if {second} == 0:\n            dist.barrier()\n"
    "with Ahead():\n    prepare()\n"
)


@pytest.mark.parametrize("script", [IN_LINE, BLOCK, OBJECT])
@pytest.mark.parametrize("ranks", [(LOCAL, GLOBAL), (GLOBAL, LOCAL)])
def test_the_first_of_a_host_and_the_first_of_all_are_the_same_on_one_host_only(
    script: str, ranks: tuple[str, str]
) -> None:
    mixed = script.format(first=ranks[0], second=ranks[1])
    (found,) = [each for each in findings(mixed, HOSTS) if each.code == "TW128"]
    assert re.search(r" line \d+", found.message), "the place of the other one"
    assert "TW128" not in codes(mixed, ONE)
    for rank in ranks:
        assert "TW128" not in codes(script.format(first=rank, second=rank), HOSTS)


def test_a_place_on_the_host_may_be_computed_from_the_rank() -> None:
    computed = IN_LINE.format(first=LOCAL, second=f"{GLOBAL} % 8")
    assert "TW128" not in codes(computed, HOSTS)
    listed = computed.replace(f"if {LOCAL}", f"if several and {LOCAL}").replace("% 8 == 0", "in leaders")
    assert "TW128" not in codes(listed, HOSTS)
