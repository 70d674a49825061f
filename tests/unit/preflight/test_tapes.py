"""Gradients of TensorFlow's tapes: averaged by each optimizer's tape, and unscaled before they are applied."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import codes

MPI: dict[str, Any] = {
    "distribution": {"mpi": {"enabled": True, "processes_per_host": 4}},
    "instance_type": "ml.p3.8xlarge",
    "plan": {"framework": "tensorflow"},
}
ONE = {"instance_type": "ml.p3.2xlarge", "plan": {"framework": "tensorflow"}}
# The way of TensorFlow's tutorial for DCGAN, with Horovod's tape.
TWO_NETS = """
import horovod.tensorflow as hvd
import tensorflow as tf
hvd.init()
gpus = tf.config.list_physical_devices("GPU")
tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
maker = tf.keras.Sequential([tf.keras.layers.Dense(8)])
judge = tf.keras.Sequential([tf.keras.layers.Dense(1)])
first, second = tf.keras.optimizers.Adam(1e-4), tf.keras.optimizers.Adam(1e-4)
def update(x):
    with tf.GradientTape() as one, tf.GradientTape() as two:
        made = maker(x, training=True)
        a = tf.reduce_mean(judge(made))
        b = tf.reduce_mean(judge(x)) - a
    {steps}
for step, x in enumerate(data):
    update(x)
    if step == 0:
        hvd.broadcast_variables(maker.variables + judge.variables, root_rank=0)
        hvd.broadcast_variables(first.variables() + second.variables(), root_rank=0)
"""
ONE_WRAPPED = (
    "one = hvd.DistributedGradientTape(one)",
    "first.apply_gradients(zip(one.gradient(a, maker.trainable_variables), maker.trainable_variables))",
)
PLAIN = "grads = two.gradient(b, judge.trainable_variables)"
APPLIED = "second.apply_gradients(zip(grads, judge.trainable_variables))"
STEPS: dict[str, tuple[bool, tuple[str, ...]]] = {
    "the second tape as it is": (True, (*ONE_WRAPPED, PLAIN, APPLIED)),
    "clipped one by one": (True, (*ONE_WRAPPED, PLAIN, "grads = [tf.clip_by_norm(g, 1.0) for g in grads]", APPLIED)),
    "clipped together": (True, (*ONE_WRAPPED, PLAIN, "grads, norm = tf.clip_by_global_norm(grads, 1.0)", APPLIED)),
    "as a list of pairs": (
        True,
        (*ONE_WRAPPED, PLAIN, "second.apply_gradients(list(zip(grads, judge.trainable_variables)))"),
    ),
    "both wrapped": (False, (*ONE_WRAPPED, "two = hvd.DistributedGradientTape(two)", PLAIN, APPLIED)),
    "averaged by hand": (
        False,
        (*ONE_WRAPPED, PLAIN, "grads = [hvd.allreduce(g) for g in grads]", APPLIED),
    ),
    "an optimizer that averages": (
        False,
        (
            *ONE_WRAPPED,
            PLAIN,
            "hvd.DistributedOptimizer(second).apply_gradients(zip(grads, judge.trainable_variables))",
        ),
    ),
    "steps that an outer tape records": (
        False,
        (
            "with tf.GradientTape() as outer:",
            "    with tf.GradientTape() as inner:",
            "        loss = tf.reduce_mean(judge(x))",
            "    grads = inner.gradient(loss, judge.trainable_variables)",
            f"    {APPLIED}",
            "    loss = tf.reduce_mean(judge(x))",
            "outer = hvd.DistributedGradientTape(outer)",
            "first.apply_gradients(zip(outer.gradient(loss, judge.trainable_variables), judge.trainable_variables))",
        ),
    ),
    "gradients of a penalty": (
        False,
        (
            "with tf.GradientTape() as outer, tf.GradientTape() as inner:",
            "    inner.watch(x)",
            "    score = judge(x)",
            "    slope = inner.gradient(score, x)",
            "    penalty = tf.reduce_mean(tf.square(tf.norm(slope, axis=1) - 1.0))",
            "outer = hvd.DistributedGradientTape(outer)",
            "grads = outer.gradient(penalty, judge.trainable_variables)",
            APPLIED,
        ),
    ),
}
KERAS = """
import tensorflow as tf
tf.keras.mixed_precision.set_global_policy("mixed_float16")
class Net(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.inner = tf.keras.layers.Dense(1, dtype="float32")
    def call(self, x, training=False):
        return self.inner(x)
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compiled_loss(y, self(x, training=True))
            {scale}
        grads = tape.gradient({of}, self.trainable_variables)
        {unscale}
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        return {{"loss": loss}}
net = Net()
net.compile(optimizer=tf.keras.optimizers.SGD(0.1), loss="mse")
net.fit(data, epochs=3)
net.save("/opt/ml/model/1")
"""
SCALE = "scaled = self.optimizer.get_scaled_loss(loss)"
UNSCALE = "grads = self.optimizer.get_unscaled_gradients(grads)"


@pytest.mark.parametrize("name", list(STEPS))
def test_each_optimizer_gets_averaged_gradients(name):
    """Horovod's documentation: wrap the tape of each loop in DistributedGradientTape."""
    wrong, steps = STEPS[name]
    assert ("TW185" in codes(TWO_NETS.format(steps="\n    ".join(steps)), MPI)) is wrong


def test_a_first_step_may_go_without_an_average():
    """Horovod's elastic examples: it makes the variables, before the state of the first process is sent to all."""
    steps = (
        "if averaged:\n        one = hvd.DistributedGradientTape(one)",
        "first.apply_gradients(zip(one.gradient(a, maker.trainable_variables), maker.trainable_variables))",
    )
    text = TWO_NETS.format(steps="\n    ".join(steps)).replace("def update(x):", "def update(x, averaged=True):")
    assert "TW185" not in codes(text.replace("for step", "update(data[0], averaged=False)\nfor step"), MPI)


@pytest.mark.parametrize(
    ("scale", "of", "unscale", "expected"),
    [
        (SCALE, "scaled", UNSCALE, set()),
        (SCALE, "scaled", "", {"TW132"}),
        ("", "loss", UNSCALE, {"TW134"}),
        ("", "loss", "", set()),
    ],
)
def test_a_step_of_a_model_scales_and_unscales(scale, of, unscale, expected):
    """Keras 2, LossScaleOptimizer: a train_step of one's own calls both, also where compile wraps the optimizer."""
    assert codes(KERAS.format(scale=scale, of=of, unscale=unscale), ONE) & {"TW132", "TW134"} == expected


HALF = """
import tensorflow as tf
tf.keras.mixed_precision.set_global_policy("{policy}")
model = tf.keras.Sequential([tf.keras.layers.Dense(8)])
optimizer = {optimizer}
{more}
for x, y in data:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x) - y))
        {within}
    gradients = tape.gradient(loss, model.trainable_variables)
    {after}
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
"""
PLAIN_ADAM = {
    "policy": "mixed_float16",
    "optimizer": "tf.keras.optimizers.Adam()",
    "more": "",
    "within": "pass",
    "after": "pass",
}
SCALES = {
    "optimizer": "tf.keras.mixed_precision.LossScaleOptimizer(tf.keras.optimizers.Adam())",
    "within": "loss = optimizer.get_scaled_loss(loss)",
    "after": "gradients = optimizer.get_unscaled_gradients(gradients)",
}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, True),
        ({"policy": "mixed_bfloat16"}, False),
        (SCALES, False),
        ({"within": "loss = optimizer.scale_loss(loss)"}, False),
        ({"more": "model.compile(optimizer=optimizer)\noptimizer = model.optimizer"}, False),
        ({"within": "loss = loss * loss_scale", "after": "gradients = [g / loss_scale for g in gradients]"}, False),
    ],
)
def test_gradients_in_half_precision_need_a_scaled_loss(changes, found):
    assert ("TW537" in codes(HALF.format(**{**PLAIN_ADAM, **changes}), ONE)) is found
