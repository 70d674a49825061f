"""A data set that TensorFlow divides among workers by files needs a file for each of them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import codes, parser

HOSTS: dict[str, Any] = {
    "instance_type": "ml.p3.8xlarge",
    "instance_count": 2,
    "plan": {"framework": "tensorflow"},
    "distribution": {"multi_worker_mirrored_strategy": {"enabled": True}},
    "inputs": {"train": "s3://bucket/train"},
}
SCRIPT = (
    parser("'--rows', default=os.environ.get('SM_CHANNEL_TRAIN')").replace("import argparse", "import argparse, os")
    + """
import glob
import tensorflow as tf
from tensorflow.data.experimental import AutoShardPolicy
strategy = tf.distribute.{strategy}()
def rows(names):
    options = tf.data.Options()
    {policy}
    data = tf.data.{kind}({names})
    return data.map(parse).batch(64 * strategy.num_replicas_in_sync).with_options(options)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
model.fit(rows({given}))
"""
)
FILE = "options.experimental_distribute.auto_shard_policy = AutoShardPolicy.FILE"
LIST = "[os.path.join(args.rows, 'a.tfrecord'), os.path.join(args.rows, 'b.tfrecord')]"
ONE = "os.path.join(args.rows, 'all.tfrecord')"


def wrong(
    given: str = ONE,
    *,
    names: str = "names",
    policy: str = FILE,
    kind: str = "TFRecordDataset",
    strategy: str = "MultiWorkerMirroredStrategy",
    job: dict[str, Any] = HOSTS,
) -> bool:
    text = SCRIPT.format(given=given, names=names, policy=policy, kind=kind, strategy=strategy)
    return "TW535" in codes(text, job)


@pytest.mark.parametrize("given", [ONE, f"[{ONE}]", "'/opt/ml/input/data/train/all.tfrecord'", "args.rows + '/x'"])
def test_one_file_is_too_few_for_two_workers(given):
    """API documentation of AutoShardPolicy.FILE: with fewer files than workers, a runtime error is raised."""
    assert wrong(given)


def test_a_list_that_is_too_short_for_the_job():
    assert not wrong(LIST)
    assert wrong(LIST, job={**HOSTS, "instance_count": 3})


def test_the_policy_may_have_a_name_and_the_data_be_lines():
    named = "policy = tf.data.experimental.AutoShardPolicy.FILE; "
    assert wrong(policy=named + "options.experimental_distribute.auto_shard_policy = policy", kind="TextLineDataset")


@pytest.mark.parametrize(
    "changed",
    [
        {"given": "glob.glob(os.path.join(args.rows, '*.tfrecord'))"},
        {"given": "tf.io.gfile.glob(args.rows + '/*')"},
        {"given": "[os.path.join(args.rows, name) for name in os.listdir(args.rows)]"},
        {"given": "sorted(os.listdir(args.rows))"},
        {"given": "args.rows", "names": "tf.data.Dataset.list_files(names + '/*')"},
        {"policy": FILE.replace("FILE", "DATA")},
        {"policy": FILE.replace("FILE", "AUTO")},
        {"policy": f"if len(names) > 1: {FILE}"},
        {"policy": "pass"},
        {"strategy": "MirroredStrategy"},
        {"job": {**HOSTS, "instance_count": 1}},
    ],
)
def test_what_fits_or_is_not_known_is_right(changed):
    assert not wrong(**changed)
