"""Scripts with a mistake in a step, a group, a save or an argument, each beside its nearest right way."""

from __future__ import annotations

from typing import Any

from tests.support.followed_code import ONE, STEP, Pair
from tests.support.neighbour_scripts import TWO
from tests.support.training_scripts import DDP, P4D, SMP, SMP_JOB, TORCHRUN, XLA

ALONE: dict[str, Any] = {"instance_type": "ml.g5.2xlarge"}
SMDDP: dict[str, Any] = {**TWO, "distribution": {"smdistributed": {"dataparallel": {"enabled": True}}}}
HVD: dict[str, Any] = {**TWO, "distribution": {"mpi": {"enabled": True, "processes_per_host": 8}}}
SMP_TWO: dict[str, Any] = {
    **TWO,
    "distribution": {**TORCHRUN, "smdistributed": {"modelparallel": {"enabled": True, "parameters": {}}}},
}
TORCH = "import torch\nmodel = torch.nn.Linear(2, 2)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
GAN = (
    "import torch\ndef step(x, opt_g, opt_d):\n    opt_g.zero_grad()\n    g_loss = f(x)\n    g_loss.backward()\n"
    "    opt_g.step()\n    {clear}\n    d_loss = h(x)\n    d_loss.backward()\n    opt_d.step()\n"
)
RECURRENT = (
    TORCH + "for x in rows:\n    {detach}\n    optimizer.zero_grad()\n    out, hidden = model(x, hidden)\n"
    "    out.sum().backward()\n    optimizer.step()\n"
)
BATCHES = (
    "from torch.utils.data import BatchSampler, RandomSampler\nsampler = DistributedSampler(rows)\n"
    "loader = DataLoader(rows, batch_sampler=BatchSampler({inner}, 8, drop_last=True){more})\n"
    "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nfor x in loader:\n" + STEP
)
EPOCHS = (
    "sampler = DistributedSampler(rows)\nloader = DataLoader(rows, sampler=sampler)\nfor epoch in range(3):\n    {}\n"
    "    for x in loader:\n        model(x).sum().backward()\n"
)
FIRST_SMDDP = (
    "import torch\nimport smdistributed.dataparallel.torch.distributed as dist\n"
    "from torch.nn.parallel import DistributedDataParallel as DDP\n"
    "from smdistributed.dataparallel.torch.parallel.distributed import DistributedDataParallel as SDP\n{init}\n"
    "torch.cuda.set_device(dist.get_local_rank())\nmodel = {wrap}(net)\n"
    "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nfor x in loader:\n" + STEP
)
SMP2 = (
    "import os\nimport torch\nimport torch.distributed as dist\nimport torch.sagemaker as tsm\n{order}\n"
    "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n"
)
INIT, GROUP = "tsm.init()", "dist.init_process_group('nccl')"
MANUAL = (
    "import lightning as L\nclass Net(L.LightningModule):\n    def __init__(self):\n"
    "        self.automatic_optimization = False\n    def training_step(self, batch, index):\n"
    "        loss = self.net(batch).sum()\n        {}\n"
)
ENGINE = (
    "import deepspeed\nimport torch\nengine, _, loader, _ = deepspeed.initialize(model=net, config={config})\n"
    "for i, x in enumerate(loader):\n    loss = engine(x).sum()\n    engine.backward(loss)\n    {step}\n{end}\n"
)
STAGE = "{'zero_optimization': {'stage': %d}}"
SAVED = "torch.save(engine.module.state_dict(), '/opt/ml/model/m.pt')"
SHARDED = (
    "import os\nimport torch\nimport torch.distributed as dist\nfrom torch.distributed.fsdp import fully_shard\n"
    "from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict\n"
    "dist.init_process_group('nccl')\ntorch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n"
    "model = torch.nn.Linear(2, 2)\nfully_shard(model)\n{}\n"
)
HVD_TORCH = (
    "import torch\nimport horovod.torch as hvd\nhvd.init()\ntorch.cuda.set_device(hvd.local_rank())\n"
    "model = torch.nn.Linear(2, 2).cuda()\n"
    "optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1 * hvd.size()))\n{}\n"
    "for x in loader:\n" + STEP
)
SENT = "hvd.broadcast_parameters(model.state_dict(), 0)\nhvd.broadcast_optimizer_state(optimizer, 0)\n"
RESTORED = "if hvd.rank() == 0:\n    model.load_state_dict(torch.load('/opt/ml/checkpoints/m.pt'))\n"
LOSS_SCALE = (
    "import tensorflow as tf\nnet = tf.keras.Sequential([tf.keras.layers.Dense(1)])\n"
    "opt = tf.keras.mixed_precision.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1))\n"
    "for x in rows:\n    with tf.GradientTape() as tape:\n        loss = tf.reduce_mean(net(x))\n"
    "        loss = {scale}\n    grads = tape.gradient(loss, net.trainable_variables)\n    grads = {unscale}\n"
    "    opt.apply_gradients(zip(grads, net.trainable_variables))\n"
)
SCALE, UNSCALE = "opt.get_scaled_loss(loss)", "opt.get_unscaled_gradients(grads)"
SWITCHED = (
    "import argparse\nimport torch\np = argparse.ArgumentParser()\np.add_argument('--epochs', type=int)\n"
    "p.add_argument('--train', {kind})\nargs = p.parse_args()\n" + TORCH + "if args.train:\n    for x in rows:\n"
    "        optimizer.zero_grad()\n        model(x).sum().backward()\n        optimizer.step()\n"
)
PASSED: dict[str, Any] = {**ALONE, "hyperparameters": {"epochs": 2}}
UNITS = (
    "import argparse\np = argparse.ArgumentParser()\n"
    "p.add_argument('--sizes', type={kind}, nargs='+')\np.parse_args()\n"
)
PARSED = (
    "from transformers import HfArgumentParser, TrainingArguments\n"
    "(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
)
CURRENT = (
    "import os\nimport torch\nimport torch.distributed as dist\n"
    "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\ndist.init_process_group('nccl')\n{}\n"
    "model = FSDP(net, device_id=torch.cuda.current_device())\n"
    "for x in loader:\n    model(x.to(int(os.environ['LOCAL_RANK']))).sum().backward()\n"
)
SPOT: dict[str, Any] = {**ALONE, "spot": True, "max_wait": 90000, "checkpoint": {"s3_uri": "s3://b/c"}}
KEPT = TORCH + "{}\nfor x in rows:\n" + STEP + "torch.save(model.state_dict(), '/opt/ml/checkpoints/last.pt')\n"


def passes(**given: object) -> dict[str, Any]:
    return {**ONE, "hyperparameters": given}


STEPS: dict[str, Pair] = {
    "one of two optimizers": ("TW137", GAN.format(clear="pass"), GAN.format(clear="opt_d.zero_grad()"), ALONE),
    "a hidden state with its graph": (
        "TW447",
        RECURRENT.format(detach="pass"),
        RECURRENT.format(detach="hidden = hidden.detach()"),
        ALONE,
    ),
    "batches of a sampler that divides nothing": (
        "TW171",
        DDP + BATCHES.format(inner="RandomSampler(rows)", more=""),
        DDP + BATCHES.format(inner="sampler", more=""),
        TWO,
    ),
    "batches and their size": (
        "TW176",
        DDP + BATCHES.format(inner="sampler", more=", batch_size=8"),
        DDP + BATCHES.format(inner="sampler", more=", num_workers=2"),
        TWO,
    ),
    "set_epoch in the first process": (
        "TW174",
        DDP + EPOCHS.format("if dist.get_rank() == 0:\n        sampler.set_epoch(epoch)"),
        DDP + EPOCHS.format("sampler.set_epoch(epoch)"),
        TWO,
    ),
    "the same epoch for ever": (
        "TW174",
        DDP + EPOCHS.format("sampler.set_epoch(0)"),
        DDP + EPOCHS.format("sampler.set_epoch(epoch + 1)"),
        TWO,
    ),
    "SMDDP's first interface without its group": (
        "TW120",
        FIRST_SMDDP.format(init="", wrap="SDP"),
        FIRST_SMDDP.format(init="dist.init_process_group()", wrap="SDP"),
        SMDDP,
    ),
    "PyTorch's wrapper in SMDDP's first group": (
        "TW120",
        FIRST_SMDDP.format(init="dist.init_process_group()", wrap="DDP"),
        FIRST_SMDDP.format(init="dist.init_process_group()", wrap="SDP"),
        SMDDP,
    ),
    "SMP 2 before the group": (
        "TW148",
        SMP2.format(order=f"{INIT}\n{GROUP}"),
        SMP2.format(order=f"{GROUP}\n{INIT}"),
        SMP_TWO,
    ),
    "version 1 of SMP in a job of version 2": ("TW109", SMP, SMP2.format(order=f"{GROUP}\n{INIT}"), SMP_TWO),
    "a barrier of one process in each group": (
        "TW128",
        SMP + "if smp.rdp_rank() == 0:\n    smp.barrier()\n",
        SMP + "smp.barrier()\n",
        SMP_JOB,
    ),
    "a sampler of torch.distributed with XLA": (
        "TW175",
        XLA + "def _mp_fn(i):\n    torch.utils.data.DistributedSampler(rows)\n",
        XLA + "def _mp_fn(i):\n    torch.utils.data.DistributedSampler(rows, xm.xrt_world_size(), xm.get_ordinal())\n",
        {"instance_type": "ml.p3.16xlarge", "distribution": {"pytorchxla": {"enabled": True}}},
    ),
    "a plain backward under manual optimization": (
        "TW156",
        MANUAL.format("loss.backward()"),
        MANUAL.format("self.manual_backward(loss)"),
        ALONE,
    ),
    "an engine that is stepped at each fourth batch": (
        "TW156",
        ENGINE.format(config="'ds.json'", step="if i % 4 == 0:\n        engine.step()", end=""),
        ENGINE.format(config="'ds.json'", step="engine.step()", end=""),
        ONE,
    ),
    "the module of an engine of stage 3": (
        "TW450",
        ENGINE.format(config=STAGE % 3, step="engine.step()", end=SAVED),
        ENGINE.format(config=STAGE % 2, step="engine.step()", end=SAVED),
        ONE,
    ),
    "a part of fully_shard's state": (
        "TW430",
        SHARDED.format("if dist.get_rank() == 0:\n    torch.save(model.state_dict(), '/opt/ml/model/m.pt')"),
        SHARDED.format(
            "whole = StateDictOptions(full_state_dict=True)\nstate = get_model_state_dict(model, options=whole)\n"
            "if dist.get_rank() == 0:\n    torch.save(state, '/opt/ml/model/m.pt')"
        ),
        TWO,
    ),
    "a whole tensor in one process": (
        "TW128",
        SHARDED.format("if dist.get_rank() == 0:\n    print(model.weight.full_tensor())"),
        SHARDED.format("whole = model.weight.full_tensor()\nif dist.get_rank() == 0:\n    print(whole)"),
        TWO,
    ),
    "restored after the broadcast": (
        "TW184",
        HVD_TORCH.format(SENT + RESTORED),
        HVD_TORCH.format(RESTORED + SENT),
        HVD,
    ),
    "the scaled gradients of Keras": (
        "TW132",
        LOSS_SCALE.format(scale=SCALE, unscale="grads"),
        LOSS_SCALE.format(scale=SCALE, unscale=UNSCALE),
        ALONE,
    ),
    "a loss that Keras does not scale": (
        "TW134",
        LOSS_SCALE.format(scale="loss * 1.0", unscale=UNSCALE),
        LOSS_SCALE.format(scale=SCALE, unscale=UNSCALE),
        ALONE,
    ),
    "training that nothing switches on": (
        "TW194",
        SWITCHED.format(kind="action='store_true'") + "",
        SWITCHED.format(kind="type=int, default=1"),
        PASSED,
    ),
    "two numbers in one word": (
        "TW198",
        UNITS.format(kind="int"),
        UNITS.format(kind="str"),
        {**ALONE, "hyperparameters": {"sizes": "256 128"}},
    ),
    "a field that no version has": (
        "TW193",
        PARSED,
        PARSED.replace("(TrainingArguments)", "((TrainingArguments, Own))"),
        passes(output_dir="/opt/ml/checkpoints", train_batch_size=8),
    ),
    "the current GPU": (
        "TW121",
        CURRENT.format(""),
        CURRENT.format("torch.cuda.set_device(int(os.environ['LOCAL_RANK']))"),
        ONE,
    ),
    "checkpoints that nothing loads": (
        "TW143",
        KEPT.format(""),
        KEPT.format("model.load_state_dict(torch.load('/opt/ml/checkpoints/last.pt'))"),
        SPOT,
    ),
    "a folder of which nothing is kept": (
        "TW142",
        KEPT.format("").replace("/opt/ml/checkpoints/", "/opt/ml/output/"),
        KEPT.format("").replace("/opt/ml/checkpoints/", "/opt/ml/output/data/"),
        {"instance_type": P4D},
    ),
}
