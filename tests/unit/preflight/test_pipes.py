"""A named pipe of a channel in Pipe mode has one reader, and a host several processes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import codes

PIPE = {"s3_data": "s3://bucket/rows", "input_mode": "Pipe"}


def job(processes: int = 4, mode: str = "Pipe") -> dict[str, Any]:
    return {
        "distribution": {"mpi": {"enabled": True, "processes_per_host": processes}},
        "instance_type": "ml.p3.8xlarge",
        "plan": {"framework": "tensorflow"},
        "inputs": {
            "train": {**PIPE, "input_mode": mode},
            "held": {**PIPE, "input_mode": "File"},
            **{f"part_{number}": PIPE for number in range(4)},
        },
    }


SCRIPT = """
import numpy as np
import tensorflow as tf
import horovod.tensorflow.keras as hvd
from sagemaker_tensorflow import PipeModeDataset as Streamed
hvd.init()
gpus = tf.config.list_physical_devices("GPU")
tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
class Source:
    def __init__(self, name="train"):
        self.name = name
    def rows(self, epoch=0):
        return {rows}
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.compile(optimizer=hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1 * hvd.size())), loss="mse")
data = {data}
model.fit(data, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
"""
STREAM = "Streamed(channel=self.name, record_format='TFRecord')"


def wrong(rows: str = STREAM, data: str = "Source().rows()", given: dict[str, Any] | None = None) -> bool:
    return "TW536" in codes(SCRIPT.format(rows=rows, data=data), given or job())


@pytest.mark.parametrize(
    "rows",
    [
        STREAM,
        "Streamed('train', 'TFRecord')",
        "open('/opt/ml/input/data/train_0', 'rb')",
        "tf.data.TFRecordDataset('/opt/ml/input/data/train_0')",
        "np.fromfile(f'/opt/ml/input/data/train_{epoch}', dtype=np.float32)",
        "open('/opt/ml/input/data/%s_0' % 'train', 'rb')",
    ],
)
def test_one_pipe_for_all_processes_of_a_host(rows):
    """AWS guide, Access Training Data: "Each pipe may only be read by a single process"."""
    assert wrong(rows)
    assert not wrong(rows, given=job(processes=1))
    assert not wrong(rows, given=job(mode="FastFile"))


@pytest.mark.parametrize(
    ("rows", "data"),
    [
        ("Streamed(channel=f'part_{hvd.local_rank()}')", "Source().rows()"),
        (STREAM, "Source('part_%d' % hvd.local_rank()).rows()"),
        ("open(f'/opt/ml/input/data/part_{hvd.local_rank()}_{epoch}', 'rb')", "Source().rows()"),
        (STREAM, "Source('held').rows()"),
        (
            STREAM,
            "Source('part_%d' % hvd.local_rank()).rows()\nheld = Source().rows()\n"
            "if hvd.rank() == 0:\n    model.evaluate(held)",
        ),
        (STREAM, "Source('held').rows()\nunread = Source().rows()\nif hvd.rank() == 0:\n    next(iter(unread))"),
        (STREAM, "Source().rows() if hvd.local_rank() == 0 else rows_of_another_process()"),
        ("tf.data.TFRecordDataset('/opt/ml/input/data/held/rows')", "Source().rows()"),
    ],
)
def test_a_pipe_of_its_own_or_none(rows, data):
    assert not wrong(rows, data)
