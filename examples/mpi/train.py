"""MPI: every rank has its own rows, the gradients are averaged by an all-reduce; mpirun starts the ranks.

    ./invoke rehearse --image IMAGE --entry-point train.py --source-dir examples/mpi \
        --hosts 2 --processes-per-host 2 --distribution mpi
"""

import argparse
import json
import os
from pathlib import Path

import numpy
from mpi4py import MPI


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--lr", type=float, default=0.3)
    args, _ = parser.parse_known_args()  # SDK 2 gives a script in a TensorFlow image its own --model_dir

    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    rows = numpy.random.default_rng(rank).uniform(-1, 1, 64)
    targets = 2 * rows + 1
    slope, offset = 0.0, 0.0
    for epoch in range(args.epochs):
        error = slope * rows + offset - targets
        own = numpy.array([(2 * error * rows).mean(), (2 * error).mean(), (error**2).mean()])
        mean = numpy.empty_like(own)
        world.Allreduce(own, mean, op=MPI.SUM)
        mean /= size
        slope, offset = slope - args.lr * mean[0], offset - args.lr * mean[1]
        if rank == 0 and epoch % 10 == 0:
            print(f"epoch {epoch} loss {mean[2]:.4f} over {size} ranks", flush=True)

    if rank == 0:  # one rank writes; the folder is one per host
        model = {"slope": slope, "offset": offset, "ranks": size}
        Path(os.environ["SM_MODEL_DIR"], "model.json").write_text(json.dumps(model))


if __name__ == "__main__":
    main()
