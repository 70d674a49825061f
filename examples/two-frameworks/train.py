"""One script for PyTorch and TensorFlow images: what both contracts give is read once, the model is the framework's.

./invoke rehearse --image IMAGE --entry-point train.py --source-dir examples/two-frameworks
"""

import argparse
import importlib.util
import json
import os
from pathlib import Path

import numpy


def fit_torch(x, y, epochs, lr):
    import torch

    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    inputs, targets = torch.from_numpy(x), torch.from_numpy(y)
    for _ in range(epochs):
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float(model.weight), float(model.bias)


def fit_tensorflow(x, y, epochs, lr):
    import tensorflow as tf

    weight, bias = tf.Variable(0.0), tf.Variable(0.0)
    for _ in range(epochs):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((weight * x + bias - y) ** 2)
        by_weight, by_bias = tape.gradient(loss, [weight, bias])
        weight.assign_sub(lr * by_weight)
        bias.assign_sub(lr * by_bias)
    return float(weight), float(bias)


FITS = {"torch": fit_torch, "tensorflow": fit_tensorflow}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--lr", type=float, default=0.1)
    # SDK 2 gives a TensorFlow script its own --model_dir; SM_MODEL_DIR is what both frameworks have.
    args, _ = parser.parse_known_args()

    framework = next((name for name in FITS if importlib.util.find_spec(name)), None)
    if framework is None:
        raise SystemExit(f"the image has none of {', '.join(FITS)}")
    x = numpy.linspace(-1, 1, 64, dtype=numpy.float32).reshape(-1, 1)
    slope, offset = FITS[framework](x, 2 * x + 1, args.epochs, args.lr)
    print(f"{framework} on {os.environ['SM_CURRENT_HOST']}: y = {slope:.2f} x + {offset:.2f}", flush=True)
    model = {"framework": framework, "slope": slope, "offset": offset}
    Path(os.environ["SM_MODEL_DIR"], "model.json").write_text(json.dumps(model))


if __name__ == "__main__":
    main()
