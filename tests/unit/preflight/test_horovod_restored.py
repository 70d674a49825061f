"""A model of Keras that is restored to go on with: its optimizer has to be Horovod's again.

Sources: horovod/horovod #120, #359: load_model of Horovod wraps the optimizer that a file has.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, codes

JOB: dict[str, Any] = {
    "instance_type": P4D,
    "distribution": {"mpi": {"enabled": True, "processes_per_host": 8}},
    "plan": {"framework": "tensorflow"},
}
HEAD = """
import os
import tensorflow as tf
import horovod.tensorflow.keras as hvd
hvd.init()
tf.config.set_visible_devices(tf.config.list_physical_devices("GPU")[hvd.local_rank()], "GPU")
PATH = "/opt/ml/checkpoints/last.h5"
def build():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1 * hvd.size())), "mse")
    return model
"""
REST = """
data = tf.data.Dataset.from_tensor_slices(x).shard(hvd.size(), hvd.rank()).batch(8)
calls = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
"""
BY_FUNCTION = """
def begin():
    if not os.path.exists(PATH):
        return build()
    return {}
model = begin()
"""
BY_TUPLE = """
def begin():
    if os.path.exists(PATH):
        model, first = {}, 3
    else:
        model, first = build(), 0
    return model, first
model, first = begin()
"""
IN_CLASS = """
class Task:
    def __init__(self):
        self.net = {} if os.path.exists(PATH) else build()
    def run(self):
        self.net.fit(data, callbacks=calls)
"""
PLAIN = "tf.keras.models.load_model(PATH)"
FIT = "model.fit(data, callbacks=calls)\n"
WAYS = [(BY_FUNCTION, FIT), (BY_TUPLE, FIT), (IN_CLASS, "Task().run()\n")]


@pytest.mark.parametrize(("begin", "train"), WAYS, ids=["function", "tuple", "class"])
def test_a_restored_model_has_a_plain_optimizer(begin, train):
    assert "TW185" in codes(HEAD + REST + begin.format(PLAIN) + train, JOB)
    assert "TW185" not in codes(HEAD + REST + begin.format("hvd.load_model(PATH)") + train, JOB)


@pytest.mark.parametrize(
    "begin",
    [
        BY_FUNCTION.format("again(tf.keras.models.load_model(PATH))"),
        BY_FUNCTION.format(PLAIN) + "model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), 'mse')\n",
        BY_FUNCTION.format("tf.keras.models.load_model(PATH, custom_objects=HOROVODS)"),
        "model = build()\nif os.path.exists(PATH):\n    model.set_weights(" + PLAIN + ".get_weights())\n",
        "model = build()\nif os.path.exists(PATH):\n    model.load_weights(PATH)\n",
        f"teacher = {PLAIN}\nmodel = build()\n",
    ],
    ids=["compiled in a helper", "compiled after", "wrapped by name", "weights", "only weights", "another model"],
)
def test_a_restored_model_is_averaged_again(begin):
    again = (
        "def again(model):\n"
        "    model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1 * hvd.size())), 'mse')\n"
        "    return model\n"
    )
    assert "TW185" not in codes(HEAD + REST + again + begin + FIT, JOB)
