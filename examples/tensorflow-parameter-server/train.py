"""Parameter servers: the first host coordinates, the others compute, and every host keeps a part of the variables.

    ./invoke rehearse --image IMAGE --entry-point train.py --source-dir examples/tensorflow-parameter-server \
        --hosts 2 --distribution parameter_server

The toolkit starts a parameter server on every host, inside of its own process, and the script beside it. What a script
has to know of the toolkit's ways is in cluster_of and serve.
"""

import argparse
import json
import os
import socket
import time
from pathlib import Path

import numpy
import tensorflow as tf

SECONDS = 120  # for the first host to begin


def cluster_of(config):
    """The cluster as TensorFlow 2 wants it: what the toolkit calls master is called chief there."""
    cluster = dict(config["cluster"])
    cluster["chief"] = cluster.pop("master")
    return tf.train.ClusterSpec(cluster)


def listens(address):
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=2).close()
    except OSError:
        return False
    return True


def serve(cluster, index):
    """Compute for the coordinator until it has gone.

    Not a moment less: the toolkit takes the parameter server of this host away as soon as the script ends here.
    """
    server = tf.distribute.Server(cluster, job_name="worker", task_index=index, protocol="grpc")
    chief = cluster.job_tasks("chief")[0]
    began = time.monotonic()
    while not listens(chief):
        if time.monotonic() > began + SECONDS:
            raise SystemExit(f"{chief} did not begin within {SECONDS} s")
        time.sleep(0.5)
    while listens(chief):
        time.sleep(0.5)
    print(f"{server.target} has done its work", flush=True)


def train(cluster, args):
    """Hand the steps out to the workers, whichever is free."""
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        cluster, task_type="chief", task_id=0, rpc_layer="grpc"
    )
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        slope, offset = tf.Variable(0.0), tf.Variable(0.0)

    def rows(_):
        x = numpy.linspace(-1, 1, 512, dtype=numpy.float32).reshape(-1, 1)
        return tf.data.Dataset.from_tensor_slices((x, 2 * x + 1)).shuffle(512).repeat().batch(args.batch_size)

    @tf.function
    def rows_of_worker():
        return strategy.distribute_datasets_from_function(rows)

    @tf.function
    def step(batches):
        def replica_step(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((slope * x + offset - y) ** 2)
            by_slope, by_offset = tape.gradient(loss, [slope, offset])
            slope.assign_sub(args.lr * by_slope)
            offset.assign_sub(args.lr * by_offset)
            return loss

        return strategy.run(replica_step, args=next(batches))

    batches = iter(coordinator.create_per_worker_dataset(rows_of_worker))
    for epoch in range(args.epochs):
        for _ in range(args.steps):
            loss = coordinator.schedule(step, args=(batches,))
        coordinator.join()
        print(f"epoch {epoch} loss {float(loss.fetch()):.6f}", flush=True)
    model = {"slope": float(slope.numpy()), "offset": float(offset.numpy())}
    Path(os.environ["SM_MODEL_DIR"], "model.json").write_text(json.dumps(model))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=16, help="batches of an epoch")
    parser.add_argument("--batch-size", type=int, default=64, help="of one worker")
    parser.add_argument("--lr", type=float, default=0.2)
    args, _ = parser.parse_known_args()  # SDK 2 gives a TensorFlow script its own --model_dir

    if "TF_CONFIG" not in os.environ:
        raise SystemExit("parameter servers need two hosts or more, and distribution parameter_server")
    config = json.loads(os.environ["TF_CONFIG"])
    cluster, task = cluster_of(config), config["task"]
    if task["type"] == "master":
        train(cluster, args)
    else:
        serve(cluster, task["index"])


if __name__ == "__main__":
    main()
