"""Steps of TensorFlow's replicas: gradients are summed once, and a dataset function makes batches of one replica."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, codes

ONE: dict[str, Any] = {"instance_type": P4D, "plan": {"framework": "tensorflow"}}
ONE_GPU = ONE | {"instance_type": "ml.p3.2xlarge"}
LOOP = """
import tensorflow as tf
strategy = tf.distribute.MirroredStrategy()
BATCH = 256
{data}
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    optimizer = tf.keras.optimizers.SGD(0.1)
    lost = tf.keras.losses.MeanSquaredError(reduction="none")
def step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.nn.compute_average_loss(lost(y, model(x)), global_batch_size=BATCH)
    weights = model.trainable_variables
    grads = tape.gradient(loss, weights)
    replica = tf.distribute.get_replica_context()
    {update}
@tf.function
def all_replicas(batch):
    strategy.run(step, args=batch)
for batch in batches:
    all_replicas(batch)
"""
WHOLE = "batches = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((a, b)).batch(BATCH))"
APPLY = "optimizer.apply_gradients(zip(grads, weights))"
SUM = "grads = replica.all_reduce(tf.distribute.ReduceOp.SUM, grads)"


def lines(*each: str) -> str:
    return "\n    ".join(each)


@pytest.mark.parametrize(
    "update",
    [
        lines(SUM, APPLY),
        lines("grads = replica.all_reduce('sum', grads)", APPLY),
        lines(SUM, "clipped, norm = tf.clip_by_global_norm(grads, 1.0)", APPLY.replace("grads,", "clipped,")),
        APPLY.replace("zip(grads", "zip(replica.all_reduce(tf.distribute.ReduceOp.SUM, grads)"),
        lines(SUM, "pairs = [(g, w) for g, w in zip(grads, weights)]", "optimizer.apply_gradients(pairs)"),
    ],
    ids=["sum", "word", "clipped", "inside", "pairs"],
)
def test_gradients_are_summed_twice(update):
    assert "TW568" in codes(LOOP.format(data=WHOLE, update=update), ONE)


@pytest.mark.parametrize(
    "update",
    [
        APPLY,
        lines(SUM, APPLY.replace("weights))", "weights), experimental_aggregate_gradients=False)")),
        lines(SUM, APPLY.replace("weights))", "weights), skip_gradients_aggregation=True)")),
        lines("total = replica.all_reduce('sum', grads)", "norm = tf.linalg.global_norm(total)", APPLY),
        lines(
            "norm = tf.linalg.global_norm(replica.all_reduce('sum', grads))",
            "grads = [g / tf.maximum(norm, 1.0) for g in grads]",
            APPLY,
        ),
        lines("shown = replica.all_reduce('sum', loss)", APPLY),
    ],
    ids=["once", "not again", "skipped", "measured", "scaled", "loss"],
)
def test_gradients_are_summed_once(update):
    assert "TW568" not in codes(LOOP.format(data=WHOLE, update=update), ONE)


PIPELINE = """
class Pipeline:
    def __init__(self, size):
        self.size = size
    def __call__(self, context):
        rows = tf.data.Dataset.from_tensor_slices((a, b)).shard(context.num_input_pipelines, context.input_pipeline_id)
        return rows.batch({size})
batches = strategy.distribute_datasets_from_function(Pipeline(BATCH))
"""
FUNCTION = (
    "def rows(context):\n    return tf.data.Dataset.from_tensor_slices((a, b)).batch({size})\n"
    "batches = strategy.distribute_datasets_from_function(rows)"
)


@pytest.mark.parametrize(("data", "size"), [(PIPELINE, "self.size"), (FUNCTION, "BATCH")], ids=["object", "function"])
def test_a_dataset_function_makes_batches_of_one_replica(data, size):
    """The losses are divided by the size of one replica's batch, and there are eight replicas."""
    text = LOOP.format(data=data.format(size=size), update=APPLY)
    assert "TW424" in codes(text, ONE)
    assert "TW424" not in codes(text, ONE_GPU)
    share = LOOP.format(data=data.format(size=f"context.get_per_replica_batch_size({size})"), update=APPLY)
    assert "TW424" not in codes(share, ONE)
    assert "TW424" not in codes(LOOP.format(data=data.format(size="32"), update=APPLY), ONE)


READ = """
def read(folder, size):
    return tf.data.TFRecordDataset(folder).shuffle(100).batch(size).prefetch(2)
class Plan:
    def __init__(self, whole, replicas):
        self.whole, self.share = whole, whole // replicas
plan = Plan(BATCH, strategy.num_replicas_in_sync)
{data}
"""
DIVIDED = "batches = strategy.experimental_distribute_dataset(read('train', {}))"


@pytest.mark.parametrize("size", ["plan.share", "BATCH // strategy.num_replicas_in_sync", "int(plan.share)"])
def test_a_strategy_divides_batches_of_the_global_size(size):
    """TensorFlow's API documentation of experimental_distribute_dataset: it divides each batch by the replicas."""
    text = LOOP.format(data=READ.format(data=DIVIDED.format(size)), update=APPLY)
    assert "TW424" in codes(text, ONE)
    assert "TW424" not in codes(text, ONE_GPU)


@pytest.mark.parametrize(
    "data",
    [
        DIVIDED.format("plan.whole"),
        DIVIDED.format("plan.share * strategy.num_replicas_in_sync"),
        "batches = strategy.distribute_datasets_from_function(lambda context: read('train', plan.share))",
        DIVIDED.format("plan.whole") + "\nshown = read('train', plan.share)",
        DIVIDED.format("plan.whole") + "\nval = strategy.experimental_distribute_dataset(read('val', plan.share))",
    ],
    ids=["whole", "multiplied", "function", "elsewhere", "held out"],
)
def test_batches_of_the_size_that_the_strategy_expects(data):
    assert "TW424" not in codes(LOOP.format(data=READ.format(data=data), update=APPLY), ONE)


def test_fit_divides_batches_as_well():
    head = (
        "import tensorflow as tf\nstrategy = tf.distribute.MirroredStrategy()\n"
        "size = 256 {} strategy.num_replicas_in_sync\n"
    )
    rest = (
        "with strategy.scope():\n    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])\n"
        "    model.compile('adam', 'mse')\nmodel.fit(tf.data.TFRecordDataset('x').batch(size), epochs=2)\n"
    )
    assert "TW424" in codes(head.format("//") + rest, ONE)
    assert "TW424" not in codes(head.format("*") + rest, ONE)


RATE = "rate = tf.keras.optimizers.schedules.CosineDecay({}, 1000)\n"
GIVEN = "batches = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((a, b)).batch(256))"
BY_OTHER = "global_batch_size=BATCH"


@pytest.mark.parametrize(
    "scaled",
    [
        "0.1 * strategy.num_replicas_in_sync",
        "args.lr * strategy.num_replicas_in_sync",
        "strategy.num_replicas_in_sync * args.learning_rate",
        "args.base_rate * strategy.num_replicas_in_sync",
    ],
)
def test_a_rate_that_follows_the_replicas_is_no_batch(scaled):
    """Batches have the size that an argument names, and only the learning rate is scaled."""
    text = LOOP.format(data=RATE.format(scaled) + GIVEN, update=APPLY)
    assert "TW424" not in codes(text.replace(BY_OTHER, "global_batch_size=len(x)"), ONE)
    text = LOOP.format(data="size = PER * strategy.num_replicas_in_sync\n" + RATE.format(scaled) + GIVEN, update=APPLY)
    assert "TW424" in codes(text.replace(BY_OTHER, "global_batch_size=size"), ONE)


def test_losses_are_divided_by_the_size_of_the_batches():
    """What the strategy gets in a batch is what the losses are divided by, whatever else is computed."""
    data = "room = 64 * strategy.num_replicas_in_sync\n"
    assert "TW424" not in codes(LOOP.format(data=data + GIVEN, update=APPLY), ONE)
    assert "TW424" in codes(LOOP.format(data=data + GIVEN.replace("256", "32"), update=APPLY), ONE)


CLASS = """
import tensorflow as tf
class Config:
    def __init__(self, per, whole):
        self.per, self.whole = per, whole
class Trainer:
    def __init__(self, cfg, per):
        self.cfg, self.per = cfg, per
        self.strategy = tf.distribute.MirroredStrategy()
        self.size = {size}
        with self.strategy.scope():
            self.model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
            self.optimizer = tf.keras.optimizers.SGD(0.1)
            self.lost = tf.keras.losses.MeanSquaredError(reduction="none")
    def step(self, x, y):
        with tf.GradientTape() as tape:
            loss = {loss}
        weights = self.model.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
    @tf.function
    def all_replicas(self, batch):
        self.strategy.run(self.step, args=batch)
    def fit(self):
        rows = tf.data.Dataset.from_tensor_slices((a, b)).batch(self.size)
        for batch in self.strategy.experimental_distribute_dataset(rows):
            self.all_replicas(batch)
Trainer(Config(64, 512), 64).fit()
"""
AVERAGE = "tf.nn.compute_average_loss(self.lost(y, self.model(x)), global_batch_size={})"


@pytest.mark.parametrize(
    ("size", "divisor"),
    [
        ("cfg.per * self.strategy.num_replicas_in_sync", "self.cfg.per"),
        ("self.strategy.num_replicas_in_sync * self.cfg.per", "self.cfg.per"),
        ("per * self.strategy.num_replicas_in_sync", "self.per"),
    ],
)
def test_losses_are_divided_by_the_batch_of_one_replica(size, divisor):
    """TensorFlow's guide, Custom training: gradients are summed, so that the divisor is the global batch."""
    assert "TW422" in codes(CLASS.format(size=size, loss=AVERAGE.format(divisor)), ONE)
    assert "TW422" not in codes(CLASS.format(size=size, loss=AVERAGE.format("self.size")), ONE)
    assert "TW422" not in codes(CLASS.format(size=size, loss=AVERAGE.format("self.cfg.whole")), ONE)
    averaged = f"{AVERAGE.format(divisor)} / self.strategy.num_replicas_in_sync"
    assert "TW422" not in codes(CLASS.format(size=size, loss=averaged), ONE)
