"""SageMaker's model parallel library for TensorFlow: what AWS's guide for its scripts says, in other words."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import codes


def job(partitions: int = 2, microbatches: int = 4) -> dict[str, Any]:
    given = {"partitions": partitions, "microbatches": microbatches}
    model_parallel = {"enabled": True, "parameters": given}
    mpi = {"enabled": True, "processes_per_host": 8}
    return {
        "distribution": {"smdistributed": {"modelparallel": model_parallel}, "mpi": mpi},
        "instance_type": "ml.p3.16xlarge",
        "plan": {"framework": "tensorflow"},
    }


SCRIPT = """
import os
import time
import numpy as np
import tensorflow as tf
import smdistributed.modelparallel.tensorflow as smp
{before}
smp.init()
class Net(smp.DistributedModel):
    def __init__(self):
        super().__init__()
        self.a, self.b = tf.keras.layers.Dense(64), tf.keras.layers.Dense(4)
    def call(self, x, training=None):
        return self.b(self.a(x))
def rows(size):
    x, y = np.load("x.npy"), np.load("y.npy")
    {cut}
    data = tf.data.Dataset.from_tensor_slices((x, y))
    return data{data}
net = Net()
optimizer = tf.keras.optimizers.Adam()
lost = tf.keras.losses.MeanSquaredError()
{step}
@tf.function
def update(x, y):
    {call}
    optimizer.apply_gradients(zip([g.accumulate() for g in grads], net.trainable_variables))
    return loss.reduce_mean()
for x, y in rows(64):
    {skip}
    update(x, y)
net.save_model(os.environ["SM_MODEL_DIR"])
"""
STEP = """
@smp.step
def passes(x, y):
    loss = lost(y, net(x, training=True))
    return optimizer.get_gradients(loss, net.trainable_variables), loss
"""
TAPE = STEP.replace("    loss =", "    with tf.GradientTape() as tape:\n        loss =").replace(
    "optimizer.get_gradients", "tape.gradient"
)
SEEDED = ".shuffle(500, seed=smp.dp_rank())"
FULL = ".batch(size, drop_remainder=True)"
CALL = "grads, loss = passes(x, y)"
HELPED = (
    "class Gradients:\n    def of(self, x, y):\n        with tf.GradientTape(persistent=True) as tape:\n"
    "            loss = lost(y, net(x, training=True))\n"
    "        return tape.gradient(loss, net.trainable_variables), loss\n"
    "@smp.step(non_split_inputs=['scale'])\ndef passes(x, y):\n    return Gradients().of(x, y)\n"
)


def script(
    data: str = SEEDED + FULL,
    *,
    before: str = "",
    cut: str = "",
    step: str = STEP,
    call: str = CALL,
    skip: str = "",
) -> str:
    return SCRIPT.format(data=data, before=before, cut=cut, step=step, call=call, skip=skip)


def found(text: str, given: dict[str, Any] | None) -> set[str]:
    return codes(text, given) & {"TW177", "TW413", "TW498", "TW532", "TW175"}


CASES: dict[str, tuple[set[str], str, dict[str, Any] | None]] = {
    "the guide's way": (set(), script(), job()),
    "the guide's way, without a job": (set(), script(), None),
    "a tape in the step": ({"TW498"}, script(step=TAPE), job()),
    "a tape in what the step calls": ({"TW498"}, script(step=HELPED), job()),
    "a function given to step": (
        {"TW498"},
        script(step=TAPE.replace("@smp.step\n", "") + "passes = smp.step(passes)\n"),
        job(),
    ),
    "a tape around the step": (
        {"TW498"},
        script(
            call="with tf.GradientTape() as tape:\n        _, loss = passes(x, y)\n    "
            "grads = tape.gradient(loss, net.trainable_variables)"
        ),
        job(),
    ),
    "a tape of a model that is not divided": (
        set(),
        script(before="small = tf.Variable(1.0)\nwith tf.GradientTape() as tape:\n    square = small * small\n"),
        job(),
    ),
    "TensorFlow's checkpoint": (
        {"TW498"},
        script(step=STEP + "tf.train.Checkpoint(net=net).restore('/opt/ml/checkpoints/ckpt')\n"),
        job(),
    ),
    "smp's checkpoint": (
        set(),
        script(step=STEP + "smp.CheckpointManager(tf.train.Checkpoint(net=net)).restore()\n"),
        job(),
    ),
    "no drop_remainder": ({"TW177"}, script(SEEDED + ".batch(size)"), job()),
    "drop_remainder=False": ({"TW177"}, script(SEEDED + ".batch(size, drop_remainder=False)"), None),
    "padded batches": ({"TW177"}, script(SEEDED + ".padded_batch(size, ([None], []))"), job()),
    "one microbatch": (set(), script(SEEDED + ".batch(size)"), job(microbatches=1)),
    "endless data": (set(), script(SEEDED + ".repeat().batch(size)"), job()),
    "full batches by hand": (
        set(),
        script(SEEDED + ".batch(size)", cut="rest = len(x) - len(x) % size; x, y = x[:rest], y[:rest]"),
        job(),
    ),
    "a multiple by hand": (
        set(),
        script(SEEDED + ".batch(size)", cut="n = len(x); n -= n % size; x, y = x[:n], y[:n]"),
        job(),
    ),
    "a part of the batches": (set(), script(SEEDED + ".batch(size).take(100)"), job()),
    "the last batch left out": (
        set(),
        script(SEEDED + ".batch(size)", skip="if x.shape[0] < 64:\n        continue"),
        job(),
    ),
    "microbatches of another number": ({"TW413"}, script(SEEDED + FULL), job(microbatches=6)),
    "the rank as seed": ({"TW532"}, script(".shuffle(500, seed=smp.rank())" + FULL), job()),
    "the rank in the seed": ({"TW532"}, script(".shuffle(500, 100 + smp.rank())" + FULL), None),
    "the local rank as seed": ({"TW532"}, script(".shuffle(500, seed=smp.local_rank())" + FULL), job()),
    "the number of the part as seed": ({"TW532"}, script(".shuffle(500, seed=smp.mp_rank())" + FULL), job()),
    "the time as seed": ({"TW532"}, script(".shuffle(500, seed=int(time.time()))" + FULL), job()),
    "no seed": ({"TW532"}, script(".shuffle(500)" + FULL), job()),
    "a seed for all operations": (set(), script(".shuffle(500)" + FULL, before="tf.random.set_seed(1)"), job()),
    "the rank as the seed of all": (
        {"TW532"},
        script(".shuffle(500)" + FULL, before="tf.random.set_seed(smp.rank())"),
        job(),
    ),
    "the same seed everywhere": (set(), script(".shuffle(500, seed=3)" + FULL), job()),
    "the number of the copy": (set(), script(".shuffle(500, seed=smp.rank() // 2)" + FULL), job()),
    "the number of the copy, next to one another": (
        set(),
        script(".shuffle(500, seed=smp.rank() % smp.dp_size())" + FULL),
        job(),
    ),
    "a model in one part": (set(), script(".shuffle(500, seed=smp.rank())" + FULL), job(partitions=1)),
    "a share of each process": ({"TW175"}, script(".shard(smp.size(), smp.rank())" + SEEDED + FULL), job()),
    "a share of each copy": (set(), script(".shard(smp.dp_size(), smp.dp_rank())" + SEEDED + FULL), job()),
    "the rank as seed, beside Horovod's": (
        {"TW532"},
        script(
            ".shuffle(500, seed=smp.rank())" + FULL,
            before="import horovod.tensorflow as hvd",
            skip="if hvd.rank() == 0:\n        print(hvd.size())",
        ),
        job(),
    ),
    "a seed of Horovod, with a name": (
        set(),
        script(
            ".shuffle(500, seed=seed)" + FULL,
            before="import horovod.tensorflow as hvd",
            cut="seed = hvd.rank()",
        ),
        job(),
    ),
    "a share by Horovod, of the copies": (
        set(),
        script(
            ".shard(hvd.size(), hvd.rank()).shuffle(500, seed=hvd.rank())" + FULL,
            before="import horovod.tensorflow as hvd",
        ),
        job(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(CASES))
def test_what_the_guide_says_in_other_words(name):
    expected, text, given = CASES[name]
    assert found(text, given) == expected


def test_horovod_is_initialised_by_the_library():
    """The guide: do not call hvd.init; smp.init() initialises Horovod and gives each process its GPU."""
    reduced = "hvd.allreduce(g.accumulate()) for g"
    text = script(before="import horovod.tensorflow as hvd", call=CALL).replace("g.accumulate() for g", reduced)
    text += "hvd.broadcast_variables(net.variables + optimizer.variables(), root_rank=0)\n"
    assert reduced in text
    assert not codes(text, job()) & {"TW182", "TW183", "TW184", "TW185", "TW498"}
    assert "TW498" in codes(text.replace("smp.init()\n", "smp.init()\nhvd.init()\n"), job())


@pytest.mark.parametrize(
    ("folder", "manager", "lost"),
    [
        ("/opt/ml/checkpoints", "smp.CheckpointManager(kept)", False),
        ("/opt/ml/checkpoints/", "smp.CheckpointManager(kept, max_to_keep=2)", False),
        ("/opt/ml/other", "smp.CheckpointManager(kept)", True),
        ("/opt/ml/checkpoints", "smp.CheckpointManager(kept, '/tmp/kept')", True),
        ("/opt/ml/checkpoints", "tf.train.CheckpointManager(kept, '/tmp/kept', max_to_keep=2)", True),
    ],
)
def test_the_library_s_manager_has_the_folder_that_is_copied_to_s3(folder, manager, lost):
    """SDK 2's documentation of smp.CheckpointManager: directory="/opt/ml/checkpoints" by default."""
    kept = {"checkpoint": {"s3_uri": "s3://bucket/kept", "local_path": folder}}
    text = script() + f"kept = tf.train.Checkpoint(net=net)\nmanager = {manager}\nmanager.save()\n"
    assert ("TW143" in codes(text, job() | kept)) is lost
