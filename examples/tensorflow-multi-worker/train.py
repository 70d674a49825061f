"""MultiWorkerMirroredStrategy: one worker per host, whose replicas add up their gradients after every batch.

    ./invoke rehearse --image IMAGE --entry-point train.py --source-dir examples/tensorflow-multi-worker \
        --hosts 2 --distribution multi_worker_mirrored_strategy

The loop is written out because fit of Keras 3 does not train under this strategy (keras-team/keras issue 20585).
"""

import argparse
import os
import tempfile
from pathlib import Path

import numpy
import tensorflow as tf


def batches(strategy, batch_size):
    """Rows of y = 2 x + 1 without end, for every worker others of each batch."""
    x = numpy.linspace(-1, 1, 512, dtype=numpy.float32).reshape(-1, 1)
    rows = tf.data.Dataset.from_tensor_slices((x, 2 * x + 1)).shuffle(512, seed=0).repeat()
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    # The batch is that of all workers together: the strategy gives each its part.
    rows = rows.batch(batch_size, drop_remainder=True).with_options(options)
    return iter(strategy.experimental_distribute_dataset(rows))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=16, help="batches of an epoch")
    parser.add_argument("--batch-size", type=int, default=64, help="of all workers together")
    parser.add_argument("--lr", type=float, default=0.2)
    # SDK 2 gives a TensorFlow script its own --model_dir; SM_MODEL_DIR is what is there without it, too.
    args, _ = parser.parse_known_args()

    # First of all: the strategy sets the connections up, by the TF_CONFIG that the toolkit wrote.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    first = strategy.cluster_resolver.task_id in (None, 0)
    tf.keras.utils.set_random_seed(0)
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
        optimizer = tf.keras.optimizers.SGD(args.lr)
        optimizer.build(model.trainable_variables)

    def replica_step(x, y):
        with tf.GradientTape() as tape:
            # Divided by the whole batch, as the gradients of all replicas are added up.
            loss = tf.reduce_sum((model(x, training=True) - y) ** 2) / args.batch_size
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function
    def step(batch):
        return strategy.reduce("SUM", strategy.run(replica_step, args=batch), axis=None)

    rows = batches(strategy, args.batch_size)
    for epoch in range(args.epochs):
        for _ in range(args.steps):
            loss = step(next(rows))
        if first:
            print(f"epoch {epoch} loss {float(loss):.6f} over {strategy.num_replicas_in_sync} replicas", flush=True)

    # Every worker has to take part in saving, and one of them keeps the result. TensorFlow Serving wants a number.
    with tempfile.TemporaryDirectory() as elsewhere:
        model.export(Path(os.environ["SM_MODEL_DIR"] if first else elsewhere, "1"), verbose=False)


if __name__ == "__main__":
    main()
