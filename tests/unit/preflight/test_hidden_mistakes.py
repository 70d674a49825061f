"""Mistakes that were planted in public scripts and not found: what a wrapper or another branch hid."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.neighbour_scripts import (
    ALONE,
    CHOSEN,
    HALF,
    HVD,
    SKIPPED,
    SMDDP,
    SPAWNED,
    STEPPED,
    TENSORFLOW,
    TRAINED,
    TWO,
    WRAPPED,
    ZERO,
)
from tests.support.training_scripts import DDP, LOOP, P4D, codes

NEIGHBOURS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    # Planted in scripts of LambdaLabsML, gonsoomoon-ml, Microsoft and AWS: what a wrapper or another branch hid.
    "one GPU for every set_device": (
        "TW121",
        DDP.replace('int(os.environ["LOCAL_RANK"])', "0") + WRAPPED + LOOP,
        DDP + WRAPPED + LOOP,
        TWO,
    ),
    "the device of the wrapper alone": (
        "TW121",
        DDP.replace('torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))', "model.cuda()") + WRAPPED + LOOP,
        DDP + "model.cuda()\n" + WRAPPED + LOOP,
        TWO,
    ),
    "an optimizer that is split": (
        "TW124",
        ALONE + ZERO + LOOP,
        DDP + ZERO + LOOP,
        TWO,
    ),
    "SMDDP's first interface": (
        "TW124",
        SMDDP + "model = torch.nn.Linear(1, 1)\n" + LOOP,
        SMDDP + "model = DistributedDataParallel(torch.nn.Linear(1, 1))\n" + LOOP,
        {**TWO, "distribution": {"smdistributed": {"dataparallel": {"enabled": True}}}},
    ),
    "unscaled under a condition": (
        "TW132",
        HALF + STEPPED.format(unscale="if clip:\n        scaler.unscale_(optimizer)"),
        HALF + STEPPED.format(unscale="scaler.unscale_(optimizer)"),
        {"instance_type": P4D},
    ),
    "a rate by its place": (
        "TW125",
        HVD + "opt = hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.1))\n",
        HVD + "opt = hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.1 * hvd.size()))\n",
        {**TENSORFLOW, "instance_count": 2},
    ),
    "Horovod under a condition": (
        "TW184",
        CHOSEN + "model.fit(data)\n",
        CHOSEN + "model.fit(data, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])\n",
        TENSORFLOW,
    ),
    "gradients that are not waited for": (
        "TW185",
        SKIPPED.format(wait=""),
        SKIPPED.format(wait="opt.synchronize()"),
        {"instance_type": P4D, "distribution": {"mpi": {"enabled": True}}},
    ),
    "a step before its backward": (
        "TW138",
        "import torch\nopt = torch.optim.SGD(p, 1)\nfor x in data:\n    loss = model(x)\n"
        "    opt.zero_grad()\n    opt.step()\n    loss.backward()\n",
        "import torch\nopt = torch.optim.SGD(p, 1)\nfor x in data:\n    loss = model(x)\n"
        "    opt.step()\n    opt.zero_grad()\n    loss.backward()\n",
        {"instance_type": P4D},
    ),
    "half a model for a Trainer": (
        "TW139",
        TRAINED.format(half=".half()", fp16=True),
        TRAINED.format(half=".half()", fp16=False),
        {"instance_type": P4D},
    ),
    "one rank for all that are spawned": (
        "TW104",
        SPAWNED.format(rank="0"),
        SPAWNED.format(rank="rank"),
        {"instance_type": P4D},
    ),
    "placed before set_device": (
        "TW121",
        ALONE.replace("torch.cuda", "model = torch.nn.Linear(1, 1).to('cuda')\ntorch.cuda") + WRAPPED + LOOP,
        ALONE + "model = torch.nn.Linear(1, 1).to('cuda')\n" + WRAPPED + LOOP,
        TWO,
    ),
    # tczhangzhi/pytorch-distributed: the batch does not grow.
    "a batch that is divided": (
        "TW125",
        HVD + "opt = tf.keras.optimizers.Adam(0.1)\n",
        HVD + "batch_size = batch_size // nprocs\nopt = tf.keras.optimizers.Adam(0.1)\n",
        {**TENSORFLOW, "instance_count": 2},
    ),
    "Keras's older way to save": (
        "TW141",
        HVD + "model.fit(data)\ntf.contrib.saved_model.save_keras_model(model, os.environ['SM_MODEL_DIR'])\n",
        HVD + "model.fit(data)\nif hvd.rank() == 0:\n"
        "    tf.contrib.saved_model.save_keras_model(model, os.environ['SM_MODEL_DIR'])\n",
        TENSORFLOW,
    ),
}


@pytest.mark.parametrize("name", list(NEIGHBOURS))
def test_the_mistake_is_reported_and_its_neighbour_is_not(name):
    code, wrong, right, job = NEIGHBOURS[name]
    assert code in codes(wrong, job)
    assert code not in codes(right, job)
