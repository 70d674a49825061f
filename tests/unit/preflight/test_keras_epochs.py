"""Keras: passes over the data, and whether there are enough data for them. Each mistake beside its right ways."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, findings

ONE: dict[str, Any] = {"instance_type": P4D, "plan": {"framework": "tensorflow"}}
MPI: dict[str, Any] = ONE | {"distribution": {"mpi": {"enabled": True, "processes_per_host": 8}}}
FITS = """
import tensorflow as tf
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.compile("adam", "mse")
{data}
{steps}
model.fit(rows, epochs={epochs}, steps_per_epoch=steps)
"""
MADE = "rows = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(1000).batch(batch_size){more}"
ENDS = MADE.format(more="")
HOROVOD = """
import math
import horovod.tensorflow.keras as hvd
import tensorflow as tf
hvd.init()
tf.config.set_visible_devices(tf.config.list_physical_devices("GPU")[hvd.local_rank()], "GPU")
{share}
rows = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(1000, seed=hvd.rank()).batch(32)
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1 * hvd.size())), "mse")
{epochs}
model.fit(rows, epochs=epochs, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
"""
CUT = "count = len(x) // hvd.size()\nbegin = hvd.rank() * count\nx, y = x[begin:begin + count], y[begin:begin + count]"


TWO_STAGES = """
import tensorflow as tf
def build():
    base = tf.keras.applications.MobileNetV2(weights="imagenet", include_top=False)
    base.trainable = False
    return tf.keras.Sequential([base, tf.keras.layers.Dense(4)]), base
def stage(model, rate, **given):
    model.compile(tf.keras.optimizers.Adam(rate), "mse")
    return model.fit(rows, **given)
model, base = build()
other = tf.keras.Sequential([tf.keras.layers.Dense(4)])
{first}
base.trainable = True
{more}
"""
FINE = "model.fit(rows, epochs=20, initial_epoch=10)"


def found(text: str, code: str, job: dict[str, Any]) -> list[str]:
    return [f.severity for f in findings(text, job) if f.code == code]


@pytest.mark.parametrize(
    ("steps", "severity"),
    [
        ("steps = len(x) // batch_size", "error"),
        ("steps = int(samples / batch_size)", "warning"),
        ("size = batch_size\nsteps = samples // size", "warning"),
    ],
)
def test_data_that_are_used_up(steps, severity):
    """TensorFlow 2 ends fit, Keras 3 has no batch in every second epoch."""
    assert found(FITS.format(data=ENDS, steps=steps, epochs=5), "TW566", ONE) == [severity]


@pytest.mark.parametrize(
    ("data", "steps", "epochs"),
    [
        (MADE.format(more=".repeat()"), "steps = len(x) // batch_size", 5),
        (MADE.format(more=".repeat(5)"), "steps = len(x) // batch_size", 5),
        (ENDS, "steps = len(x) // batch_size", 1),
        (ENDS, "steps = None", 5),
        (ENDS, "steps = 100", 5),
        (ENDS, "steps = len(x) // batch_size // 5", 5),
        ("rows = tf.data.Dataset.from_generator(draw, tf.int64)", "steps = len(x) // batch_size", 5),
        ("rows = read()", "steps = len(x) // batch_size", 5),
    ],
    ids=["endless", "passes", "one epoch", "none", "short epochs", "fifths", "generator", "unknown"],
)
def test_data_that_are_enough(data, steps, epochs):
    assert found(FITS.format(data=data, steps=steps, epochs=epochs), "TW566", ONE) == []


def test_processes_that_read_all_of_the_data_have_enough():
    """Each makes an eighth of the steps, so eight epochs are one pass."""
    head = HOROVOD.partition("{epochs}")[0].format(share="")
    steps = "steps = len(x) // batch_size // hvd.size()\nmodel.fit(rows, epochs=5, steps_per_epoch=steps)\n"
    assert found(head + steps, "TW566", MPI) == []


@pytest.mark.parametrize("share", [CUT, "x, y = x[hvd.rank()::hvd.size()], y[hvd.rank()::hvd.size()]"])
@pytest.mark.parametrize("epochs", ["epochs = int(math.ceil(40 / hvd.size()))", "epochs = 40 // hvd.size()"])
def test_epochs_and_data_are_both_divided(share, epochs):
    text = HOROVOD.format(share=share, epochs=epochs)
    assert found(text, "TW567", MPI) == ["warning"]
    assert found(text, "TW186", MPI) == []
    assert found(HOROVOD.format(share="", epochs=epochs), "TW567", MPI) == []
    assert found(HOROVOD.format(share=share, epochs="epochs = 40"), "TW567", MPI) == []


@pytest.mark.parametrize(
    ("first", "more"),
    [
        ("history = model.fit(rows, epochs=10)", "model.fit(rows, epochs=20, initial_epoch=len(history.epoch))"),
        ("stage(model, 1e-3, epochs=10)", FINE),
        ("stage(model, 1e-3, epochs=10)", "stage(model, 1e-5, epochs=20, initial_epoch=10)"),
        ("", "for epoch in range(3):\n    model.fit(rows, epochs=epoch + 1, initial_epoch=epoch)"),
        ("", "for n in (0, 10):\n    stage(model, 10 ** -n, epochs=n + 10, initial_epoch=n)"),
    ],
)
def test_a_model_is_trained_in_stages(first, more):
    """TensorFlow's tutorial, Transfer learning and fine-tuning: the second fit counts on from the first."""
    assert found(TWO_STAGES.format(first=first, more=more), "TW454", ONE) == []


@pytest.mark.parametrize("first", ["", "other.fit(rows, epochs=10)", "stage(other, 1e-3, epochs=10)"])
def test_the_first_stage_is_missing(first):
    assert found(TWO_STAGES.format(first=first, more=FINE), "TW454", ONE) == ["warning"]
