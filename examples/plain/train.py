"""One process: hyperparameters as arguments, a channel as input, a model as output.

    ./invoke rehearse --image IMAGE --entry-point train.py --source-dir examples/plain \
        --hyperparameters '{"epochs": 20}' --input training=examples/plain/data
"""

import argparse
import csv
import json
import os
from pathlib import Path

import torch


def read(folder):
    """Rows of x, y from every CSV file of the channel."""
    rows = [row for file in sorted(Path(folder).glob("*.csv")) for row in csv.reader(file.open())]
    if not rows:
        raise SystemExit(f"no rows in {folder}: give the channel with --input training=FOLDER")
    values = torch.tensor([[float(cell) for cell in row] for row in rows])
    return values[:, :1], values[:, 1:]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--model-dir", default=os.environ.get("SM_MODEL_DIR", "."))
    parser.add_argument("--training", default=os.environ.get("SM_CHANNEL_TRAINING", "data"))
    args = parser.parse_args()

    torch.manual_seed(0)
    x, y = read(args.training)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if epoch % 10 == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)

    torch.save(model.state_dict(), Path(args.model_dir, "model.pt"))
    # What lies in SM_OUTPUT_DATA_DIR comes back as output.tar.gz, beside model.tar.gz.
    metrics = Path(os.environ.get("SM_OUTPUT_DATA_DIR", "."), "metrics.json")
    metrics.write_text(json.dumps({"loss": loss.item(), "epochs": args.epochs}))


if __name__ == "__main__":
    main()
