"""A metric of Keras is that of an epoch only if the loop resets it.

Sources: Keras's documentation of metrics; JetBrains-Research/code2seq #112; MichiganCOG/ViP #34.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, but, codes, parser

JOB: dict[str, Any] = {"instance_type": P4D, "plan": {"framework": "tensorflow"}}
SCRIPT = """
import tensorflow as tf
strategy = tf.distribute.MirroredStrategy()
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    learned = tf.keras.metrics.Mean(name="learned")
    held = tf.keras.metrics.MeanSquaredError(name="held")
def check(x, y):
    held.update_state(y, model(x))
@tf.function
def check_all(batch):
    strategy.run(check, args=batch)
for epoch in range(9):
    learned.reset_state()
    for batch in rows:
        learned.update_state(learn(batch))
    for batch in others:
        check_all(batch)
    print(learned.result(), held.result())
"""
CLASS = """
import tensorflow as tf
class Run:
    def __init__(self):
        self.learned = tf.keras.metrics.Mean()
        self.held = tf.keras.metrics.Mean()
    def epoch(self):
        self.learned.reset_states()
        for batch in rows:
            self.learned.update_state(learn(batch))
            self.held.update_state(check(batch))
        return self.held.result()
    def fit(self):
        for epoch in range(9):
            self.learned.reset_states()
            for batch in rows:
                self.learned.update_state(learn(batch))
                self.held.update_state(check(batch))
            print(self.held.result())
Run().fit()
"""


@pytest.mark.parametrize(
    "text",
    [
        SCRIPT,
        CLASS,
        but(SCRIPT, "reset_state()", "reset_states()"),
        but(SCRIPT, "for epoch", "learned.reset_state()\nfor epoch"),
    ],
)
def test_a_metric_of_all_epochs(text):
    assert "TW589" in codes(text, JOB)


RESET = "    learned.reset_state()\n"
ANEW = parser('"--anew", action="store_true"')


@pytest.mark.parametrize(
    "text",
    [
        but(SCRIPT, RESET, f"{RESET}    held.reset_state()\n"),
        but(SCRIPT, RESET, "    for each in (learned, held):\n        each.reset_state()\n"),
        but(SCRIPT, RESET, "    for each in model.metrics:\n        each.reset_state()\n"),
        but(SCRIPT, RESET, ""),
        but(SCRIPT, RESET, "    if args.anew:\n        learned.reset_state()\n", "import tens", f"{ANEW}import tens"),
        but(SCRIPT, "tf.keras.metrics.M", "own_metrics.M"),
        but(SCRIPT, "held = tf", "seen = tf.keras.metrics.Mean()\n    held = tf", "held.result()", "seen.result()"),
        but(SCRIPT, 'MeanSquaredError(name="held")', 'Sum(name="held")'),
        but(SCRIPT, "held.result())\n", "held.result())\n    held.reset_state()\n"),
        but(SCRIPT, "print(learned.result(), held.result())", "print(learned.result())") + "print(held.result())\n",
        but(SCRIPT, RESET, f"{RESET}    held = tf.keras.metrics.MeanSquaredError()\n"),
        but(SCRIPT, RESET, f"{RESET}    restart()\n").replace(
            "for epoch", "def restart():\n    held.reset_state()\nfor epoch"
        ),
        CLASS.replace("self.learned.reset_states()", "self.learned.reset_states(); self.held.reset_states()"),
    ],
)
def test_metrics_that_are_reset_or_of_the_whole_run(text):
    assert "TW589" not in codes(text, JOB)
