"""Estimators with parameter servers on several hosts: where the checkpoints are, which all of them read and write."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import codes

SCRIPT = """
import argparse
import os
import tensorflow as tf
parser = argparse.ArgumentParser()
parser.add_argument("--model_dir", default={default})
parser.add_argument("--sm-model-dir", default=os.environ.get("SM_MODEL_DIR"))
parser.add_argument("--work", default="/tmp/work")
args, _ = parser.parse_known_args()
{more}
def run(estimator):
    tf.estimator.train_and_evaluate(estimator, tf.estimator.TrainSpec(rows, 100), tf.estimator.EvalSpec(rows))
run({made})
"""
GIVEN = "tf.estimator.Estimator(model, model_dir={})"
READY = "tf.estimator.LinearClassifier(columns, config=tf.estimator.RunConfig(model_dir={}, save_checkpoints_steps=9))"
KERAS = "tf.keras.estimator.model_to_estimator(net, model_dir={})"
LOCAL = [
    "'/tmp/model'",
    "'model'",
    "'/opt/ml/model'",
    "'/opt/ml/checkpoints/run'",
    "os.environ['SM_MODEL_DIR']",
    "os.path.join(os.environ['SM_MODEL_DIR'], 'steps')",
    "args.sm_model_dir",
    "args.work",
]
SHARED = [
    "'s3://bucket/run'",
    "args.model_dir",
    "os.path.join(args.model_dir, 'steps')",
    "os.environ['SM_CHANNEL_SHARED']",
    "'/opt/ml/input/data/shared/run'",
    "'/fsx/run'",
    "place()",
]


def job(hosts: int = 2, **more: Any) -> dict[str, Any]:
    servers = {"parameter_server": {"enabled": True}}
    plan = {"framework": "tensorflow"}
    return {"instance_type": "ml.p3.2xlarge", "instance_count": hosts, "distribution": servers, "plan": plan, **more}


def found(made: str, job: dict[str, Any], *, more: str = "", default: str = "None") -> bool:
    return "TW561" in codes(SCRIPT.format(made=made, more=more, default=default), job)


@pytest.mark.parametrize("way", [GIVEN, READY, KERAS])
def test_folders_of_one_host(way):
    """SDK 2's documentation of TensorFlow: parameter servers require an S3 location as the model directory."""
    for folder in LOCAL:
        assert found(way.format(folder), job()), folder
        assert not found(way.format(folder), job(1)), folder


@pytest.mark.parametrize("way", [GIVEN, READY, KERAS])
@pytest.mark.parametrize("default", ["None", "'/tmp/model'", "os.environ.get('SM_MODEL_DIR')"])
def test_folders_that_all_hosts_share(way, default):
    """The SDK sets --model_dir to a location in S3, whatever its default is."""
    for folder in SHARED:
        assert not found(way.format(folder), job(), default=default), folder


def test_the_job_may_set_a_local_folder():
    local = job(hyperparameters={"model_dir": "/opt/ml/model"})
    assert found(GIVEN.format("args.model_dir"), local)
    assert not found(GIVEN.format("args.model_dir"), job(hyperparameters={"model_dir": "s3://bucket/run"}))
    assert not found(GIVEN.format("args.work"), job(hyperparameters={"work": "s3://bucket/run"}))


@pytest.mark.parametrize(
    "made",
    [
        "tf.estimator.Estimator(model)",
        "tf.estimator.DNNClassifier(hidden_units=[8], feature_columns=columns)",
        "tf.estimator.Estimator(model, config=tf.estimator.RunConfig(save_checkpoints_steps=9))",
        "tf.estimator.Estimator(model, model_dir=None)",
    ],
)
def test_a_temporary_folder(made):
    """API of tf.estimator.Estimator: if model_dir is not set, a temporary directory is used."""
    assert found(made, job())
    assert not found(made, job(1))


@pytest.mark.parametrize(
    "more",
    [
        "del os.environ['TF_CONFIG']",
        "os.environ.pop('TF_CONFIG')",
        "os.environ['TF_CONFIG'] = cluster()",
        "scaffold = tf.compat.v1.train.Scaffold(saver=saver)",
    ],
)
def test_a_script_with_a_cluster_or_a_saver_of_its_own(more):
    assert not found(GIVEN.format("'/tmp/model'"), job(), more=more)


@pytest.mark.parametrize(
    "made",
    ["tf.estimator.Estimator(model, **settings)", "build()", "tf.estimator.Estimator(model, config=settings())"],
)
def test_an_estimator_of_which_too_little_is_known(made):
    assert not found(made, job())


def test_workers_without_servers_have_one_chief_that_writes():
    mirrored = job(distribution={"multi_worker_mirrored_strategy": {"enabled": True}})
    assert not found(GIVEN.format("'/tmp/model'"), mirrored)
