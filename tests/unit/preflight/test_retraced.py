"""A tf.function is traced anew for each value of a Python number that it gets.

Source: TensorFlow's guide, Better performance with tf.function, controlling retracing.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, codes

JOB: dict[str, Any] = {"instance_type": P4D, "plan": {"framework": "tensorflow"}}
SCRIPT = """
import tensorflow as tf
from tqdm import tqdm
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
optimizer = tf.keras.optimizers.SGD(0.1)
{function}
def learn(batch, number=0):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(batch)) * tf.cast(number, tf.float32)
    weights = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
{loop}
"""
EACH = "for i, batch in enumerate(data):\n    learn(batch, i)"
COUNTED = (
    "step = 0\nfor epoch in range(3):\n    for batch in data:\n        learn(batch, number=step)\n        step += 1"
)


def script(loop: str, function: str = "@tf.function") -> str:
    return SCRIPT.format(loop=loop, function=function)


@pytest.mark.parametrize(
    "text",
    [
        script(EACH),
        script(EACH, "@tf.function(jit_compile=True)"),
        script(EACH.replace("enumerate(data)", "tqdm(enumerate(data))")),
        script(EACH.replace("enumerate(data)", "enumerate(data, start=1)")),
        script("for step in tqdm(range(steps)):\n    learn(rows, step)"),
        script("for step in trange(1000):\n    learn(rows, step)"),
        script("for step in trange(len(data)):\n    learn(data[step], step)"),
        script("for i in range(iterations):\n    learn(rows, i)"),
        script("for i, x in enumerate(zip(rows, labels)):\n    learn(x, i)"),
        script("for batch_number in range(1000):\n    learn(rows, batch_number)"),
        script(COUNTED),
        script("batches = iter(data)\nfor step in range(1000):\n    learn(next(batches), step)"),
        script("def main(data):\n    for i, batch in enumerate(data):\n        learn(batch, i)\nmain(rows)"),
    ],
)
def test_a_number_of_each_step(text):
    assert "TW590" in codes(text, JOB)


@pytest.mark.parametrize(
    "text",
    [
        script(EACH, ""),
        script(EACH).replace("optimizer.apply_gradients", "print"),
        script(EACH, "@tf.function(input_signature=SIGNATURE)"),
        script(EACH, "@tf.function(reduce_retracing=True)"),
        script(EACH.replace("batch, i)", "batch, tf.constant(i))")),
        script(EACH.replace("    learn", "    i = tf.constant(i)\n    learn")),
        script(EACH.replace("enumerate(data)", "zip(weights, data)")),
        script(COUNTED.replace("number=step", "number=epoch")),
        script(COUNTED.replace("step = 0", "step = tf.Variable(0)")),
        script(COUNTED.replace("step = 0", "step = tf.constant(0)")),
        script(COUNTED.replace("step = 0", "step = 0\nstep = tf.Variable(step)")),
        script(COUNTED.replace("        step += 1", "    step += 1")),
        script(COUNTED.replace("        step += 1", "")),
        script("epoch = 0\nwhile epoch < 3:\n    learn(rows, epoch)\n    epoch += 1"),
        script("for size in range(3):\n    learn(rows, size)"),
        script("for epoch, batch in enumerate(data):\n    learn(batch, epoch)"),
        script(EACH.replace("learn(batch, i)", "learn(batch)\n    print(i)")),
        "import tensorflow as tf\ntf.config.run_functions_eagerly(True)\n" + script(EACH),
    ],
)
def test_what_is_traced_once_or_a_few_times(text):
    assert "TW590" not in codes(text, JOB)
