"""A function that nobody calls, a step without its decorator, streams that every process reads whole, and similar."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.neighbour_scripts import HVD, TENSORFLOW
from tests.support.training_scripts import DDP, LOOP, P4D, SMP_JOB, TORCHRUN, codes

JOB: dict[str, Any] = {"distribution": TORCHRUN, "instance_type": P4D}
SETUP = (
    "import torch\nimport torch.distributed as dist\nfrom torch.nn.parallel import DistributedDataParallel as DDP\n"
    'torch.manual_seed(1)\ndef join_group():\n    dist.init_process_group("nccl")\n{call}\nmodel = DDP(model)\n'
)
PARTITIONED = """
import torch
import smdistributed.modelparallel.torch as smp
smp.init()
torch.cuda.set_device(smp.local_rank())
model = smp.DistributedModel(torch.nn.Linear(1, 1))
optimizer = smp.DistributedOptimizer(torch.optim.Adam(model.parameters()))
{decorator}
def train_step(model, x):
    loss = model(x)
    model.backward(loss)
    return loss
@smp.step
def test_step(model, x):
    return model(x)
step = 0
while step < 100:
    for x in loader:
        if step >= 100:
            break
        train_step(model, x)
        optimizer.step()
        step += 1
"""
STREAM = """
from torch.utils.data import IterableDataset
class Lines(IterableDataset):
    def __init__(self, files, rank, world):
        self.files = {files}
    def __iter__(self):
        for name in self.files:
            yield from open(name)
rank, world = dist.get_rank(), dist.get_world_size()
loader = DataLoader(Lines(names, rank, world), batch_size=4)
"""
PASSES = """
import horovod.torch as hvd
import torch
hvd.init()
torch.cuda.set_device(hvd.local_rank())
model = torch.nn.Linear(1, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * hvd.size())
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(){more})
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
for batch in loader:
    optimizer.zero_grad()
    for part in batch.split(8):
        loss = model(part).mean()
        loss.backward()
    optimizer.step()
"""
RESUMED = (
    HVD
    + """
def build(start):
    if start and {who}:
        return hvd.load_model("/opt/ml/checkpoints/last.h5")
    return tf.keras.Sequential([tf.keras.layers.Dense(1)])
start = hvd.broadcast(found, 0, name="resume_from_epoch")
model = build(start)
model.compile(optimizer=hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1 * hvd.size())), loss="mse")
model.fit(data, initial_epoch=start{more})
"""
)
MIRRORED = """
import tensorflow as tf
strategy = tf.distribute.MirroredStrategy()
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    optimizer = tf.keras.optimizers.SGD(0.1)
    criterion = tf.keras.losses.MeanSquaredError(reduction=tf.keras.losses.Reduction.NONE)
def compute_loss(labels, outputs):
    each = criterion(labels, outputs)
    return {mean}
def step(batch):
    with tf.GradientTape() as tape:
        loss = compute_loss(batch[1], model(batch[0]))
    grads = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
    return loss
for batch in strategy.experimental_distribute_dataset(dataset):
    strategy.run(step, args=(batch,))
"""
TRAINER = """
import os
from dataclasses import dataclass, field
from transformers import HfArgumentParser, Trainer, TrainingArguments
@dataclass
class ModelArguments:
    model_name: str = field({default}metadata={{"help": "Hub id"}})
parser = HfArgumentParser((ModelArguments, TrainingArguments))
model_args, training_args = parser.parse_args_into_dataclasses()
trainer = Trainer(model=model, args=training_args, train_dataset=dataset)
trainer.train()
{save}
tokenizer.save_pretrained(os.environ["SM_MODEL_DIR"])
"""
SAVED = 'trainer.save_model(os.environ["SM_MODEL_DIR"])'
KEPT: dict[str, Any] = {**JOB, "hyperparameters": {"output_dir": "/opt/ml/checkpoints"}}
MPI: dict[str, Any] = {"distribution": {"mpi": {"enabled": True, "processes_per_host": 8}}, "instance_type": P4D}
GLOBAL = "tf.nn.compute_average_loss(each, global_batch_size=64)"
ALL = "callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)]"

PAIRS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "a function with the group that nobody calls": (
        "TW120",
        SETUP.format(call="") + LOOP,
        SETUP.format(call="join_group()") + LOOP,
        JOB,
    ),
    "a function with the group that something else may call": (
        "TW120",
        SETUP.format(call="") + LOOP,
        SETUP.format(call="run(before=join_group)") + LOOP,
        JOB,
    ),
    "one step of two is decorated": (
        "TW116",
        PARTITIONED.format(decorator=""),
        PARTITIONED.format(decorator="@smp.step"),
        SMP_JOB,
    ),
    "a stream that ignores its rank": (
        "TW171",
        DDP + STREAM.format(files="sorted(files)") + LOOP,
        DDP + STREAM.format(files="sorted(files)[rank::world]") + LOOP,
        JOB,
    ),
    "a stream in an order of its own": (
        "TW171",
        DDP + STREAM.format(files="sorted(files)") + LOOP,
        DDP + STREAM.format(files="random.sample(files, 9)") + LOOP,
        JOB,
    ),
    "backward passes in an inner loop": (
        "TW415",
        PASSES.format(more=""),
        PASSES.format(more=", backward_passes_per_step=4"),
        MPI,
    ),
    "only the first process loads its model": (
        "TW184",
        RESUMED.format(who="hvd.rank() == 0", more=""),
        RESUMED.format(who="hvd.rank() == 0", more=f", {ALL}"),
        TENSORFLOW,
    ),
    "a mean in a function of the loss": (
        "TW422",
        MIRRORED.format(mean="tf.reduce_mean(each)"),
        MIRRORED.format(mean=GLOBAL),
        {"instance_type": "ml.p3.8xlarge"},
    ),
    "only the tokenizer is kept": (
        "TW145",
        TRAINER.format(default="default='gpt2', ", save=""),
        TRAINER.format(default="default='gpt2', ", save=SAVED),
        KEPT,
    ),
    "a field without a default": (
        "TW194",
        TRAINER.format(default="", save=SAVED),
        TRAINER.format(default="default='gpt2', ", save=SAVED),
        KEPT,
    ),
}


@pytest.mark.parametrize("name", list(PAIRS))
def test_the_mistake_is_reported_and_its_neighbour_is_not(name):
    code, wrong, right, job = PAIRS[name]
    assert code in codes(wrong, job)
    assert code not in codes(right, job)


def test_a_trainer_that_writes_into_the_models_folder_keeps_its_model():
    job = {**JOB, "hyperparameters": {"output_dir": "/opt/ml/model"}}
    assert "TW145" not in codes(TRAINER.format(default="default='gpt2', ", save=""), job)


def test_a_field_that_the_job_passes_is_not_missing():
    job = {**JOB, "hyperparameters": {"output_dir": "/opt/ml/checkpoints", "model_name": "gpt2"}}
    assert "TW194" not in codes(TRAINER.format(default="", save=SAVED), job)


LOOPED = (
    HVD
    + "import os\nclass Loop:\n    def fit(self, data, steps):\n        pass\nmodel = {made}\nmodel.fit(data{more})\n"
)
REPEATED = "data = tf.data.Dataset.from_tensor_slices(rows).batch(8).repeat()\n"
WORKERS = """
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
manager = tf.train.CheckpointManager(tf.train.Checkpoint(model=model), folder, max_to_keep=2)
model.fit(dataset)
{save}
"""
PINNED = """
import tensorflow as tf
import horovod.tensorflow.keras as hvd
def pin():
    gpus = tf.config.list_physical_devices("GPU")
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
hvd.init()
{call}
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.compile(optimizer=hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1 * hvd.size())), loss="mse")
model.fit(data, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
"""
HOSTS: dict[str, Any] = {
    "instance_type": P4D,
    "instance_count": 2,
    "plan": {"framework": "tensorflow"},
    "distribution": {"multi_worker_mirrored_strategy": {"enabled": True}},
}


def test_fit_of_a_class_of_the_script_may_count_its_steps_itself():
    begin = LOOPED.replace("model = ", REPEATED + "model = ")
    keras = "tf.keras.Sequential([tf.keras.layers.Dense(1)])"
    assert "TW423" in codes(begin.format(made=keras, more=""), TENSORFLOW)
    assert "TW423" not in codes(begin.format(made="Loop()", more=", 100"), TENSORFLOW)


def test_every_worker_saves_a_checkpoint():
    assert "TW168" in codes(WORKERS.format(save="if is_chief():\n    manager.save()"), HOSTS)
    assert "TW168" not in codes(WORKERS.format(save="manager.save()"), HOSTS)


def test_a_function_that_pins_has_to_be_called():
    assert "TW183" in codes(PINNED.format(call=""), TENSORFLOW)
    assert "TW183" not in codes(PINNED.format(call="pin()"), TENSORFLOW)


def test_a_mean_that_becomes_the_loss():
    named = MIRRORED.replace("    return {mean}", "    loss = {mean}\n    return loss").replace("compute_loss", "value")
    assert "TW422" in codes(named.format(mean="tf.reduce_mean(each)"), {"instance_type": "ml.p3.8xlarge"})
    assert "TW422" not in codes(named.format(mean="tf.reduce_sum(each) / 64"), {"instance_type": "ml.p3.8xlarge"})
