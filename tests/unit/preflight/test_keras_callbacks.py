"""What callbacks of Keras monitor, beside what fit logs.

Sources: keras/callbacks.py (ModelCheckpoint, EarlyStopping, ReduceLROnPlateau), keras/engine/compile_utils.py (names of
metrics), and tensorflow/tensorflow #33163, where `val_acc` was monitored and `val_accuracy` logged.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import findings

JOB: dict[str, Any] = {"instance_type": "ml.p3.2xlarge", "plan": {"framework": "tensorflow"}}
SCRIPT = """
import os
import tensorflow as tf
def dice(truth, predicted):
    return tf.reduce_mean(truth * predicted)
def wait(what="acc"):
    return [tf.keras.callbacks.{callback}]
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.compile(optimizer="sgd", loss={loss}, metrics={metrics})
model.fit(x, y, {validation}callbacks=wait())
model.save(os.path.join(os.environ["SM_MODEL_DIR"], "1"))
"""
BEST = 'ModelCheckpoint("best.h5", monitor={}, save_best_only=True)'


def severities(
    callback: str, metrics: str = '["accuracy"]', *, loss: str = '"mse"', validation: str = "validation_split=0.1, "
) -> list[str]:
    """The findings of TW531 in a script with this callback and these metrics."""
    script = SCRIPT.format(callback=callback, metrics=metrics, loss=loss, validation=validation)
    return [each.severity for each in findings(script, JOB) if each.code == "TW531"]


@pytest.mark.parametrize(
    ("callback", "metrics", "severity"),
    [
        (BEST.format('"val_acc"'), '["accuracy"]', "error"),
        (BEST.format('"val_" + what'), '[tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")]', "error"),
        (BEST.format('"val_accuracy"'), "[tf.keras.metrics.SparseCategoricalAccuracy()]", "error"),
        (BEST.format('"val_dice_coefficient"'), "[dice]", "error"),
        ('EarlyStopping("val_acc", patience=3)', '["accuracy"]', "warning"),
        ('ReduceLROnPlateau(monitor="val_auc")', "None", "warning"),
    ],
)
def test_a_name_that_is_not_logged(callback, metrics, severity):
    assert severities(callback, metrics) == [severity]


@pytest.mark.parametrize(
    ("callback", "metrics"),
    [
        (BEST.format('"val_accuracy"'), '["accuracy"]'),
        (BEST.format('"val_acc"'), '["acc"]'),
        (BEST.format('"val_loss"'), "None"),
        (BEST.format('"val_dice"'), "[dice]"),
        (BEST.format('"val_sparse_categorical_accuracy"'), "[tf.keras.metrics.SparseCategoricalAccuracy()]"),
        (BEST.format('"val_auc_1"'), "[tf.keras.metrics.AUC()]"),
        (BEST.format('"val_AUC"'), '["AUC"]'),
        (BEST.format('"val_head_accuracy"'), '["accuracy"]'),  # of a model with several outputs
        (BEST.format('"val_acc"'), "metrics_of(model)"),
        ('ModelCheckpoint("last.h5", monitor="val_acc")', '["accuracy"]'),
        ('EarlyStopping("loss", patience=3)', '["accuracy"]'),
    ],
)
def test_names_that_are_logged_or_not_known(callback, metrics):
    assert severities(callback, metrics) == []


def test_a_value_of_validation_data_needs_them():
    assert severities(BEST.format('"val_loss"'), validation="") == ["error"]
    assert severities(BEST.format('"loss"'), validation="") == []


def test_several_losses_and_callbacks_of_the_script_may_log_more():
    assert severities(BEST.format('"val_acc"'), loss='{"a": "mse", "b": "mse"}') == []
    own = 'ModelCheckpoint("x", monitor="val_acc", save_best_only=True), Own()'
    assert severities(own) == []
