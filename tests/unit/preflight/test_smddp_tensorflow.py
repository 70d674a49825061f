"""SageMaker's data parallel library for TensorFlow: where its functions are stricter than Horovod's."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import read
from trainwright.core.records import parse_record
from trainwright.preflight.preflight import examine
from trainwright.sagemaker.job import Job
from trainwright.script.reader import Script

SMDDP: dict[str, Any] = {
    "distribution": {"smdistributed": {"dataparallel": {"enabled": True}}},
    "instance_type": "ml.p3.16xlarge",
    "instance_count": 2,
    "plan": {"framework": "tensorflow"},
}
SCRIPT = """
import tensorflow as tf
import smdistributed.dataparallel.tensorflow as sdp
sdp.init()
from rows import batches
net = tf.keras.Sequential([tf.keras.layers.Dense(4)])
optimizer = tf.keras.optimizers.SGD(0.1 * sdp.size())
seen = tf.keras.metrics.Mean()
def update(x, y):
    with tf.GradientTape() as tape:
        error = tf.reduce_mean(tf.square(net(x) - y))
    {wrap}
    slopes = tape.gradient(error, net.trainable_variables)
    {reduce}
    optimizer.apply_gradients(zip(slopes, net.trainable_variables))
    seen(error)
    return error
for x, y in batches():
    value = update(x, y)
    {told}
"""
WRAP = "tape = sdp.DistributedGradientTape(tape)"
OWN = "slopes = [sdp.allreduce(s, param_index=i, num_params=len(slopes)) for i, s in enumerate(slopes)]"
ROWS = """
import tensorflow as tf
import smdistributed.dataparallel.tensorflow as sdp
{again}
def batches():
    return tf.data.Dataset.from_tensor_slices((x, y)).shard(sdp.size(), sdp.rank()).batch(8)
"""


def found(again: str = "", *, wrap: str = WRAP, reduce: str = "pass", told: str = "pass") -> set[str]:
    main, rows = read(SCRIPT.format(wrap=wrap, reduce=reduce, told=told)), read(ROWS.format(again=again), "rows.py")
    script = Script((main, rows), (), ("train.py", "rows.py"))
    codes = {finding.code for finding in examine(script, parse_record(Job, SMDDP, "job")).findings}
    return codes & {"TW533", "TW534"}


@pytest.mark.parametrize(
    ("again", "twice"),
    [
        ("", False),
        ("sdp.init()", True),
        ("from smdistributed.dataparallel.tensorflow import init\ninit()", True),
        ("def start():\n    sdp.init()\nstart()", True),
        ("def start():\n    sdp.init()", False),
        ("if __name__ == '__main__':\n    sdp.init()", False),
        ("try:\n    sdp.init()\nexcept Exception:\n    pass", False),
    ],
)
def test_the_library_is_initialised_once(again, twice):
    """SDK 2's documentation of init(): "It will throw an error if called more than once"."""
    assert found(again) == ({"TW534"} if twice else set())


@pytest.mark.parametrize(
    ("told", "wrong"),
    [
        ("value = sdp.oob_allreduce(value)", False),
        ("value = sdp.allreduce(value, 0, 1)", True),
        ("total = sdp.allreduce(seen.result(), param_index=0, num_params=1)", True),
        ("pair = sdp.allreduce(tf.stack([value, 1.0]), param_index=0, num_params=1, op=sdp.ReduceOp.SUM)", True),
    ],
)
def test_allreduce_is_for_gradients(told, wrong):
    """SDK 2's documentation of allreduce(): for other tensors, "the job might stall or stop"."""
    assert found(told=told) == ({"TW533"} if wrong else set())


def test_gradients_may_be_reduced_by_hand():
    assert found(wrap="pass", reduce=OWN) == set()
