"""Steps that a script divides among functions, variables and callbacks: each mistake and the nearest right ways.

Sources: PyTorch's documentation of automatic mixed precision and of DistributedDataParallel.no_sync; lightning,
loops/optimization/automatic.py and callbacks/model_checkpoint.py, early_stopping.py; diffusers, pipeline_utils.py;
TensorFlow's guide, Custom training with tf.distribute.Strategy.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import DDP, P4D, codes

TWO: dict[str, Any] = {
    "instance_type": P4D,
    "instance_count": 2,
    "distribution": {"torch_distributed": {"enabled": True}},
}
MWMS: dict[str, Any] = {
    "instance_type": P4D,
    "instance_count": 2,
    "distribution": {"multi_worker_mirrored_strategy": {"enabled": True}},
    "plan": {"framework": "tensorflow"},
}
MPI: dict[str, Any] = {
    "instance_type": P4D,
    "instance_count": 2,
    "distribution": {"mpi": {"enabled": True, "processes_per_host": 8}},
}
AMP = (
    "import torch\nmodel = torch.nn.Linear(2, 2).cuda()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    "scaler = torch.amp.GradScaler('cuda')\n"
    "def update():\n    {update}\n    scaler.update()\n    optimizer.zero_grad()\n"
    "for x in loader:\n    {loss}\n    update()\n"
)
CLIP = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
STEP = "scaler.step(optimizer)"
SCALED, PLAIN = "scaler.scale(model(x).sum()).backward()", "model(x).sum().backward()"


def amp(*update: str, loss: str = SCALED) -> str:
    """A loop that scales, and the function that updates."""
    return AMP.format(update="\n    ".join(update), loss=loss)


SYNC = (
    DDP + "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nfrom contextlib import nullcontext\n"
    "for i, x in enumerate(loader):\n    around = {around}\n    with around:\n        model(x).sum().backward()\n"
    "    if i % 2:\n        optimizer.step()\n        optimizer.zero_grad()\n"
)
LIGHTNING = (
    "import lightning.pytorch as pl\nfrom lightning.pytorch.callbacks import {callback}\n"
    "class Net({bases}):\n"
    "    def training_step(self, batch, i):\n        loss = self(batch).sum()\n        {train}\n        {back}\n"
    "    def validation_step(self, batch, i):\n        {log}\n"
    "trainer = pl.Trainer(devices=8, num_nodes=2, callbacks=[{callback}({given})])\ntrainer.fit(Net())\n"
)


def lightning(**given: str) -> str:
    """A module of Lightning with a callback that goes by a value."""
    usual = {
        "callback": "ModelCheckpoint",
        "bases": "pl.LightningModule",
        "train": "self.log('train_loss', loss)",
        "back": "return loss",
        "log": "self.log('val_loss', self(batch).sum(), sync_dist=True)",
        "given": "monitor='val_loss'",
    }
    return LIGHTNING.format(**{**usual, **given})


PIPELINE = (
    "import os\nimport torch\nfrom accelerate import Accelerator\nfrom diffusers import DDPMPipeline, UNet2DModel\n"
    "accelerator = Accelerator()\nmodel = UNet2DModel(sample_size=8)\n"
    "optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)\nloader = torch.utils.data.DataLoader(data)\n"
    "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n"
    "for x in loader:\n    accelerator.backward(model(x).sum())\n    optimizer.step()\n    optimizer.zero_grad()\n"
    "if accelerator.is_main_process:\n    made = DDPMPipeline(unet={unet}, scheduler=noise)\n    {use}\n"
)
SAVED = "made.save_pretrained(os.environ['SM_MODEL_DIR'])"
REPLICAS = (
    "import tensorflow as tf\nstrategy = tf.distribute.MultiWorkerMirroredStrategy()\nPER_REPLICA = 64\n"
    "whole = PER_REPLICA * strategy.num_replicas_in_sync\n"
    "data = strategy.experimental_distribute_dataset(source().batch(whole))\n"
    "with strategy.scope():\n    model = tf.keras.Sequential()\n    optimizer = tf.keras.optimizers.Adam(0.1)\n"
    "    loss_of = tf.keras.losses.MeanSquaredError(reduction='none')\n"
    "def step(x, y):\n    with tf.GradientTape() as tape:\n"
    "        loss = tf.nn.compute_average_loss(loss_of(y, model(x)){size})\n"
    "    gradients = tape.gradient(loss, model.trainable_variables)\n"
    "    optimizer.apply_gradients(zip(gradients, model.trainable_variables))\n    return loss\n"
    "for x, y in data:\n    strategy.run(step, args=(x, y))\n"
)
# open_clip, legacy_main.py: the first process looks for a checkpoint, a helper of another package tells the others.
BEGUN = (
    DDP + "from helpers import find, several, tell\nbegun = None\nif dist.get_rank() == 0:\n    begun = find()\n"
    "if several:\n    begun = {tell}(begun)\nfirst = 0\nif begun is not None:\n    first = torch.load(begun)['epoch']\n"
    "for epoch in range(first, 9):\n    dist.barrier()\n"
)
RESUMED = (
    DDP + "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\npath = '/opt/ml/checkpoints/last.pt'\n"
    "if os.path.exists(path):\n    state = torch.load({read}, map_location='cpu')\n    {load}\n"
    "for x in loader:\n    model(x).sum().backward()\n    optimizer.step()\n    optimizer.zero_grad()\n"
    "if dist.get_rank() == 0:\n    torch.save({saved}, path)\n"
)
INNER = "{'model': model.module.state_dict(), 'optimizer': optimizer.state_dict()}"
OUTER = INNER.replace(".module", "")


def resumed(saved: str, load: str, read: str = "path") -> str:
    """A script that continues from its own checkpoint."""
    return RESUMED.format(saved=saved, load=load, read=read)


# rwightman/efficientdet-pytorch, train.py: timm's function sets args.device.
OPTIONS = (
    "import argparse\nimport torch\nfrom torch.nn.parallel import DistributedDataParallel\nfrom timm import utils\n"
    "args = argparse.ArgumentParser().parse_args()\nargs.device = 'cuda:0'\n{joins}\n"
    "model = torch.nn.Linear(2, 2).to(args.device)\n"
    "model = DistributedDataParallel(model, device_ids=[args.device])\n"
)
MASTER = (
    "import os\nimport socket\nimport torch.distributed as dist\nos.environ['MASTER_PORT'] = '29500'\n"
    "os.environ['MASTER_ADDR'] = {address}\nrank = int(os.environ['OMPI_COMM_WORLD_RANK'])\n"
    "dist.init_process_group('nccl', rank=rank, world_size=int(os.environ['OMPI_COMM_WORLD_SIZE']))\n"
)
PARSED = (
    "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
    "(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n{set}trainer = Trainer(args=args)\n"
)
V100: dict[str, Any] = {
    "instance_type": "ml.p3.16xlarge",
    "distribution": {"torch_distributed": {"enabled": True}},
}


def passes(**hyperparameters: object) -> dict[str, Any]:
    """A job on V100 GPUs with these hyperparameters."""
    return {**V100, "hyperparameters": {"output_dir": "/opt/ml/checkpoints", **hyperparameters}}


def backwards(*lines: str) -> str:
    """A loop with these lines between the forward pass and the step."""
    inner = "".join(f"    {line}\n" for line in lines)
    return (
        "import torch\nmodel = torch.nn.Linear(2, 2)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        f"for x in loader:\n    optimizer.zero_grad()\n    loss = model(x).sum()\n{inner}    optimizer.step()\n"
    )


MESH = (
    DDP + "from torch.distributed.device_mesh import init_device_mesh\n"
    "hosts = dist.get_world_size() // torch.cuda.device_count()\nmesh = init_device_mesh('cuda', {shape})\n"
)
HVD = (
    "import horovod.torch as hvd\nimport torch\nhvd.init()\ntorch.cuda.set_device(hvd.local_rank())\n"
    "model = torch.nn.Linear(2, 2).cuda()\nplain = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    "{name} = hvd.DistributedOptimizer(plain, named_parameters=model.named_parameters())\n"
    "hvd.broadcast_parameters(model.state_dict(), root_rank=0)\nhvd.broadcast_optimizer_state(plain, root_rank=0)\n"
    "for x in loader:\n    plain.zero_grad()\n    model(x).sum().backward()\n    {step}.step()\n"
)
PLACED = (
    "import json\nimport os\nimport tensorflow as tf\nstrategy = tf.distribute.MultiWorkerMirroredStrategy()\n"
    "def chief():\n    task = json.loads(os.environ['TF_CONFIG'])['task']\n"
    "    return task['type'] == 'chief' or task['index'] == 0\n"
    "def place(folder):\n    if {test}:\n        return os.path.join(folder, '1')\n    return '/tmp/others/1'\n"
    "with strategy.scope():\n    model = tf.keras.Sequential()\n    model.compile(optimizer='sgd', loss='mse')\n"
    "model.fit(data)\nmodel.save(place(os.environ['SM_MODEL_DIR']))\n"
)
Case = tuple[str, bool, str, dict[str, Any]]
CASES: list[Case] = [
    ("TW130", True, amp(CLIP, STEP), TWO),
    ("TW130", False, amp("scaler.unscale_(optimizer)", CLIP, STEP), TWO),
    ("TW130", False, amp(CLIP, STEP, loss=PLAIN), TWO),
    ("TW130", False, amp(STEP, CLIP), TWO),
    ("TW130", False, amp("if not half:\n        " + CLIP, STEP, loss=f"if half:\n        {SCALED}\n    "
                         f"else:\n        {PLAIN}"), TWO),
    ("TW130", False, amp("if not half:\n        " + CLIP, STEP, loss=f"if not half:\n        {PLAIN}\n    "
                         f"else:\n        {SCALED}"), TWO),
    ("TW130", True, amp("if half:\n        " + CLIP, STEP, loss=f"if not half:\n        {PLAIN}\n    "
                        f"else:\n        {SCALED}"), TWO),
    ("TW130", False, "import accelerate\n" + amp(CLIP, STEP), TWO),
    # A context that a variable holds; of a choice, one side averages.
    ("TW124", True, SYNC.format(around="model.no_sync()"), TWO),
    ("TW124", False, SYNC.format(around="nullcontext() if i % 2 else model.no_sync()"), TWO),
    ("TW124", False, SYNC.format(around="nullcontext()"), TWO),
    # What Lightning requires of training_step.
    ("TW445", True, lightning(back="return {'train_loss': loss}"), TWO),
    ("TW445", False, lightning(back="return {'loss': loss, 'size': 2}"), TWO),
    ("TW445", False, lightning(back="return {**others, 'size': 2}"), TWO),
    ("TW445", False, lightning(back="return {}"), TWO),
    # lightning-bolts, amdim_module.py: Lightning 1 takes the loss of training_step_end.
    ("TW445", False, lightning(back="return {'size': 2}\n    def training_step_end(self, x):\n        return 1"), TWO),
    ("TW445", False, lightning(back="return {'size': 2}", train="self.automatic_optimization = False"), TWO),
    # Callbacks that go by a value.
    ("TW446", True, lightning(given="monitor='valid_loss'"), TWO),
    ("TW446", True, lightning(callback="EarlyStopping", given="'valid_loss'"), TWO),
    ("TW446", False, lightning(), TWO),
    ("TW446", False, lightning(given="monitor='train_loss_epoch'"), TWO),
    ("TW446", False, lightning(given="monitor='val_loss/dataloader_idx_0'"), TWO),
    ("TW446", False, lightning(given="monitor='step', mode='max'"), TWO),
    ("TW446", False, lightning(given="monitor='valid_loss', save_top_k=0"), TWO),
    ("TW446", False, lightning(callback="EarlyStopping", given="'valid_loss', strict=False"), TWO),
    ("TW446", False, lightning(given="monitor=chosen"), TWO),
    ("TW446", False, lightning(given="monitor='acc'", log="self.log_dict({'acc': 1, 'val_loss': 2})"), TWO),
    ("TW446", True, lightning(given="monitor='acc'", log="self.log_dict({'f1': 1, 'val_loss': 2})"), TWO),
    ("TW446", False, lightning(given="monitor='acc'", log="self.log_dict(self.metrics.compute())"), TWO),
    ("TW446", False, lightning(given="monitor='acc'", log="self.log(f'{name}', 1)"), TWO),
    ("TW446", True, lightning(given="monitor='acc'", log="logger.log(level, 'acc')"), TWO),
    ("TW446", False, lightning(given="monitor='acc'", bases="Base, pl.LightningModule"), TWO),
    ("TW446", False, lightning(given="monitor='acc'") + "trainer.callback_metrics['acc'] = 1\n", TWO),
    # A wrapped model is no component of a pipeline.
    ("TW148", True, PIPELINE.format(unet="model", use=SAVED), TWO),
    ("TW148", False, PIPELINE.format(unet="accelerator.unwrap_model(model)", use=SAVED), TWO),
    ("TW148", False, PIPELINE.format(unet="model", use="pictures = made(batch_size=4)"), TWO),
    ("TW148", False, PIPELINE.format(unet="model", use=SAVED), {"instance_type": "ml.g5.2xlarge"}),
    ("TW400", True, BEGUN.format(tell="tell"), TWO),
    ("TW400", False, BEGUN.format(tell="tell.broadcast_object"), TWO),
    # The names of the model's weights, and those of its wrapper's.
    ("TW148", True, resumed(INNER, "model.load_state_dict(state['model'])"), TWO),
    ("TW148", True, resumed(OUTER, "model.module.load_state_dict(state['model'])"), TWO),
    ("TW148", True, resumed("model.module.state_dict()", "model.load_state_dict(state)"), TWO),
    ("TW148", False, resumed(INNER, "model.module.load_state_dict(state['model'])"), TWO),
    ("TW148", False, resumed(OUTER, "model.load_state_dict(state['model'])"), TWO),
    ("TW148", False, resumed(INNER, "model.load_state_dict(state['model'], strict=False)"), TWO),
    ("TW148", False, resumed(INNER, "model.load_state_dict(state['model'])", read="given"), TWO),
    ("TW148", False, resumed(INNER, "optimizer.load_state_dict(state['optimizer'])"), TWO),
    ("TW148", False, resumed(INNER, "model.load_state_dict({'module.' + k: v for k, v in state['model'].items()})"),
     TWO),
    ("TW148", False, resumed(INNER, "model.load_state_dict(state['model'])"), {"instance_type": "ml.g5.2xlarge"}),
    # A function of another package that says which process this is.
    ("TW121", False, OPTIONS.format(joins="utils.init_distributed_device(args)"), TWO),
    ("TW121", True, OPTIONS.format(joins="torch.distributed.init_process_group('nccl')"), TWO),
    ("TW121", True, OPTIONS.format(joins="utils.random_seed(args)"), TWO),
    # The address at which all hosts meet.
    ("TW104", True, MASTER.format(address="os.environ['SM_CURRENT_HOST']"), MPI),
    ("TW104", True, MASTER.format(address="socket.gethostname()"), MPI),
    ("TW104", False, MASTER.format(address="os.environ['SM_MASTER_ADDR']"), MPI),
    ("TW104", False, MASTER.format(address="socket.gethostbyname(hosts[0])"), MPI),
    ("TW104", False, MASTER.format(address="socket.gethostname() if alone else hosts[0]"), MPI),
    ("TW104", False, MASTER.format(address="socket.gethostname()"), {**MPI, "instance_count": 1}),
    # Arguments of a Trainer that the job passes.
    ("TW157", True, PARSED.format(set=""), passes(bf16=True)),
    ("TW157", True, PARSED.format(set=""), passes(fp16="true", bf16="true")),
    ("TW157", True, PARSED.format(set=""), passes(load_best_model_at_end=True, eval_strategy="epoch")),
    (
        "TW157",
        False,
        PARSED.format(set="args.eval_strategy = 'steps'\n").replace("args=args", "args=args, eval_dataset=rows"),
        passes(load_best_model_at_end=True),
    ),
    ("TW157", False, PARSED.format(set="args.bf16 = supported()\n"), passes(bf16=True)),
    ("TW157", False, PARSED.format(set=""), passes(fp16=True)),
    ("TW157", False, PARSED.format(set=""), {**passes(bf16=True), "instance_type": P4D}),
    # One graph, one backward.
    ("TW447", True, backwards("loss.backward()", "print(loss)", "loss.backward()"), TWO),
    ("TW447", False, backwards("loss.backward(retain_graph=True)", "loss.backward()"), TWO),
    ("TW447", False, backwards("loss.backward()", "loss = model(x).sum()", "loss.backward()"), TWO),
    ("TW447", False, backwards("loss.backward()", "if x:", "    loss = model(x).sum()", "loss.backward()"), TWO),
    ("TW447", False, backwards("loss.backward()", "other.backward()"), TWO),
    # A mesh has a place for each process of the job.
    ("TW104", True, MESH.format(shape="(torch.cuda.device_count(),)"), TWO),
    ("TW104", False, MESH.format(shape="(torch.cuda.device_count(),)"), {**TWO, "instance_count": 1}),
    ("TW104", False, MESH.format(shape="(dist.get_world_size(),)"), TWO),
    ("TW104", False, MESH.format(shape="(torch.cuda.device_count(), hosts)"), TWO),
    # The optimizer that averages, and the one inside of it.
    ("TW185", True, HVD.format(name="optimizer", step="plain"), MPI),
    ("TW185", False, HVD.format(name="optimizer", step="optimizer"), MPI),
    ("TW185", False, HVD.format(name="plain", step="plain"), MPI),
    # A function that returns one path in the first process, and another one in the others.
    ("TW141", False, PLACED.format(test="chief()"), MWMS),
    ("TW141", True, PLACED.format(test="folder"), MWMS),
    # The average of a replica's losses.
    ("TW422", True, REPLICAS.format(size=", global_batch_size=PER_REPLICA"), MWMS),
    ("TW422", False, REPLICAS.format(size=", global_batch_size=whole"), MWMS),
    ("TW422", False, REPLICAS.format(size=", global_batch_size=PER_REPLICA * strategy.num_replicas_in_sync"), MWMS),
    ("TW422", False, REPLICAS.format(size=""), MWMS),
]  # fmt: skip


@pytest.mark.parametrize(("code", "reported", "script", "job"), CASES)
def test_the_mistake_is_reported_and_the_right_way_is_not(
    code: str, reported: bool, script: str, job: dict[str, Any]
) -> None:
    found = codes(script, job)
    assert (code in found) == reported, (found, script)
