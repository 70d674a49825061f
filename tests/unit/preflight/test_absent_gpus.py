"""Numbers that are multiplied by the GPUs of an instance that has none.

Source: aws/sagemaker-training-toolkit, environment.py: SM_NUM_GPUS counts what nvidia-smi lists.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, TORCHRUN, but, codes

TRAINIUM: dict[str, Any] = {"instance_type": "ml.trn1.32xlarge", "instance_count": 2, "distribution": TORCHRUN}
CPU: dict[str, Any] = {"instance_type": "ml.c5.4xlarge", "instance_count": 2}
GPU = TRAINIUM | {"instance_type": P4D}
SCRIPT = """
import argparse
import json
import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, DistributedSampler
from transformers import TrainingArguments
class Cluster:
    def __init__(self):
        self.hosts = json.loads(os.environ["SM_HOSTS"])
        self.gpus = int(os.environ.get("SM_NUM_GPUS", 1))
    def size(self):
        return len(self.hosts) * self.gpus
p = argparse.ArgumentParser()
p.add_argument("--lr", type=float, default=0.1)
p.add_argument("--gpus", type=int, default=int(os.environ["SM_NUM_GPUS"]))
args = p.parse_args()
cluster = Cluster()
net = torch.nn.Linear(2, 2)
{use}
"""
SGD = "torch.optim.SGD(net.parameters(), {})"
WRONG = [
    SGD.format("lr=args.lr * cluster.size()"),
    SGD.format("args.lr * torch.cuda.device_count()"),
    SGD.format("lr=args.lr * args.gpus"),
    "rate = 0.1\nrate *= int(os.getenv('SM_NUM_GPUS'))\n" + SGD.format("lr=rate"),
    "DataLoader(data, batch_size=32 * cluster.gpus)",
    "DistributedSampler(data, num_replicas=cluster.size(), rank=0)",
    "dist.init_process_group('gloo', rank=0, world_size=cluster.size())",
    "mp.spawn(train, nprocs=cluster.gpus)",
    "TrainingArguments('out', learning_rate=1e-4 * cluster.gpus)",
    "TrainingArguments('out', per_device_train_batch_size=8 * cluster.gpus)",
    "DistributedSampler(data, cluster.size(), 0)",
    "dist.init_process_group('gloo', None, None, cluster.size(), 0)",
]
RIGHT = [
    SGD.format("lr=args.lr"),
    SGD.format("lr=args.lr * max(1, cluster.gpus)"),
    SGD.format("lr=args.lr * (cluster.gpus or 1)"),
    SGD.format("lr=args.lr * (cluster.gpus if cluster.gpus else 1)"),
    SGD.format("lr=args.lr * len(cluster.hosts)"),
    SGD.format("lr=args.lr * int(os.environ['SM_NUM_NEURONS'])"),
    SGD.format("lr=args.lr, weight_decay=0.1 * cluster.gpus"),
    "DataLoader(data, batch_size=32, num_workers=4 * cluster.gpus)",
    "if cluster.gpus > 1:\n    mp.spawn(train, nprocs=cluster.gpus)",
    "if torch.cuda.is_available():\n    mp.spawn(train, nprocs=cluster.gpus)",
    "def later():\n    mp.spawn(train, nprocs=cluster.gpus)",
    "print(cluster.size())",
    "table.batch(32 * cluster.gpus)",
]


@pytest.mark.parametrize("use", WRONG)
def test_a_number_that_is_0(use):
    script = SCRIPT.format(use=use)
    assert "TW580" in codes(script, TRAINIUM) & codes(script, CPU)
    assert "TW580" not in codes(script, GPU) | codes(script)


@pytest.mark.parametrize("use", RIGHT)
def test_a_number_that_is_not(use):
    assert "TW580" not in codes(SCRIPT.format(use=use), TRAINIUM)


def test_the_job_says_how_many():
    script = SCRIPT.format(use=SGD.format("lr=args.lr * args.gpus"))
    assert "TW580" not in codes(script, TRAINIUM | {"hyperparameters": {"gpus": 4}})


def test_batches_of_tensorflow():
    script = (
        "import os\nimport tensorflow as tf\ngpus = int(os.environ['SM_NUM_GPUS'])\n"
        "rows = tf.data.TFRecordDataset('x').batch(32 * gpus)\n"
        "tf.keras.optimizers.SGD(0.1)\n"
    )
    assert "TW580" in codes(script, CPU)
    rate = but(script, "32 * gpus", "32", "SGD(0.1)", "SGD(0.1 * gpus)")
    assert "TW580" in codes(rate, CPU)
    assert "TW580" not in codes(but(script, "32 * gpus", "32"), CPU)
