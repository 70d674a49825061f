"""What processes have to do alike: splits of the data, frozen parameters, forwards of shards, reduced values."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import DDP, LOOP, P4D, TORCHRUN, codes, findings

JOB: dict[str, Any] = {"distribution": TORCHRUN, "instance_type": P4D}
UNSEEDED = DDP.replace("torch.manual_seed(1)\n", "")
TORCH = "from torch.utils.data import random_split\ntrain, held = random_split(dataset, [90, 10])\n"
SKLEARN = "from sklearn.model_selection import train_test_split\ntrain, held = train_test_split(rows, test_size=0.1)\n"
HUB = (
    "from datasets import load_dataset\n"
    'parts = load_dataset("json", data_files="rows.json", split="train").train_test_split(0.1)\n'
)
SPLITS = {"torch": TORCH, "scikit-learn": SKLEARN, "datasets": HUB}
ALIKE = {
    "a generator": TORCH.replace("[90, 10]", "[90, 10], generator=torch.Generator().manual_seed(3)"),
    "a generator by its place": TORCH.replace("[90, 10]", "[90, 10], made"),
    "a state": SKLEARN.replace("test_size=0.1", "test_size=0.1, random_state=0"),
    "a seed": HUB.replace("(0.1)", "(0.1, None, seed=7)"),
    "options from elsewhere": SKLEARN.replace("test_size=0.1", "**options"),
    "nothing is drawn": SKLEARN.replace("test_size=0.1", "test_size=0.1, shuffle=False"),
    "one process splits": "if dist.get_rank() == 0:\n    " + SKLEARN.replace("\n", "\n    ") + "\n",
    "a helper seeds": "from helpers import set_all_seeds\nset_all_seeds(3)\n" + TORCH,
    "a function of one's own": "def random_split(data, parts):\n    return data, data\na, b = random_split(data, 2)\n",
}


@pytest.mark.parametrize("split", SPLITS.values(), ids=SPLITS)
def test_a_split_without_a_seed_differs_between_processes(split):
    assert "TW436" in codes(UNSEEDED + split + LOOP, JOB)


@pytest.mark.parametrize("split", SPLITS.values(), ids=SPLITS)
def test_a_seed_of_every_process_or_a_single_process_makes_it_one(split):
    assert "TW436" not in codes(DDP + split + LOOP, JOB)
    assert "TW436" not in codes(UNSEEDED + split + LOOP, {"instance_type": "ml.g5.xlarge"})


@pytest.mark.parametrize("split", ALIKE.values(), ids=ALIKE)
def test_what_decides_the_split_is_seen(split):
    assert "TW436" not in codes(UNSEEDED + split + LOOP, JOB)


def test_what_lightning_runs_once_is_not_a_split_of_each():
    module = """
import lightning as L
from torch.utils.data import random_split
class Data(L.LightningDataModule):
    def NAME(self, stage=None):
        self.train, self.held = random_split(dataset, [90, 10])
L.Trainer(devices=8, strategy="ddp").fit(model, Data())
"""
    assert "TW436" in codes(module.replace("NAME", "setup"), JOB)
    assert "TW436" not in codes(module.replace("NAME", "prepare_data"), JOB)


WRAPPED = DDP.replace("model = DDP(model)", "net = torch.nn.Sequential(torch.nn.Linear(2, 2)).cuda()\nmodel = DDP(net)")
BEFORE, AFTER = WRAPPED.split("model = DDP(net)")[0], "model = DDP(net)\n"
CHANGES = {
    "a part of the wrapped one": "for p in model.module.body.parameters():\n    p.requires_grad = False\n",
    "a part of the model in it": "for p in net.body.parameters():\n    p.requires_grad_(False)\n",
    "a layer": "net[0].requires_grad_(False)\n",
    "those with a name": (
        "for n, p in net.named_parameters():\n    if 'fc' not in n:\n        p.requires_grad = False\n"
    ),
    "each by its name": "for n, p in net.named_parameters():\n    p.requires_grad = n.startswith('fc')\n",
    "in a function": (
        "def freeze(part):\n    for p in part.parameters():\n        p.requires_grad = False\nfreeze(net.body)\n"
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_parameters_are_frozen_before_the_model_is_wrapped(change):
    assert "TW437" in codes(BEFORE + AFTER + change + LOOP, JOB)
    assert "TW437" not in codes(BEFORE + change + AFTER + LOOP, JOB)


def test_the_finding_names_the_wrapper():
    (found,) = [f for f in findings(BEFORE + AFTER + CHANGES["a layer"] + LOOP, JOB) if f.code == "TW437"]
    assert found.message == "`net[0].requires_grad_(False)` after `DDP(net)` in line 12"


def test_a_wrapper_that_looks_for_unused_parameters_takes_frozen_ones():
    looking = AFTER.replace("(net)", "(net, find_unused_parameters=True)")
    assert "TW437" not in codes(BEFORE + looking + CHANGES["a layer"] + LOOP, JOB)
    assert "TW437" in codes(BEFORE + looking + CHANGES["a layer"].replace("False", "True") + LOOP, JOB)


EPOCHS = "for epoch in range(9):\n    STEP\n    loss = model(data)\n    loss.backward()\n"
FREED = "if epoch == 3:\n        for p in net.body.parameters():\n            p.requires_grad = True"
# facebookresearch/ijepa freezes the whole teacher; rosinality/stylegan2-pytorch frees and freezes in turn.
KNOWN_WAYS = {
    "a teacher": "for p in model.parameters():\n    p.requires_grad = False\n",
    "a helper of a teacher": (
        "def grads(of, on):\n    for p in of.parameters():\n        p.requires_grad = on\ngrads(model, False)\n"
    ),
    "in turn": (
        "def grads(of, on):\n    for p in of.parameters():\n        p.requires_grad = on\n"
        "for step in range(9):\n    grads(net.body, False)\n    grads(net.body, True)\n"
    ),
    "wrapped anew": "net[0].requires_grad_(False)\nmodel = DDP(net)\n",
    "a teacher beside a condition": (
        "for n, p in model.named_parameters():\n    p.requires_grad = False\n    if n == 'x':\n        print(n)\n"
    ),
    "something else in the loop": "for p in net.body.parameters():\n    record.requires_grad = False\n",
    "another model": "teacher = torch.nn.Linear(2, 2).cuda()\nteacher.requires_grad_(False)\n",
}


def test_layers_that_are_freed_later_are_not_averaged():
    assert "TW437" in codes(BEFORE + AFTER + EPOCHS.replace("STEP", FREED), JOB)
    by_default = FREED.replace("requires_grad = True", "requires_grad_()")
    assert "TW437" in codes(BEFORE + AFTER + EPOCHS.replace("STEP", by_default), JOB)
    assert "TW437" in codes(BEFORE + AFTER + KNOWN_WAYS["a teacher"] + EPOCHS.replace("STEP", FREED), JOB)
    assert "TW437" not in codes(BEFORE + AFTER + EPOCHS.replace("STEP", "pass"), JOB)


@pytest.mark.parametrize("way", KNOWN_WAYS.values(), ids=KNOWN_WAYS)
def test_ways_that_public_scripts_have_are_right(way):
    assert "TW437" not in codes(BEFORE + AFTER + way + LOOP, JOB)


SHARDED = DDP.replace(
    "model = DDP(model)", "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\nMODEL"
)
WHOLE = "net = torch.nn.Linear(2, 2)\nmodel = FSDP(net)"
SAMPLE = "def sample(of):\n    with torch.no_grad():\n        print(of(data).mean())\n"


def test_the_forward_of_a_sharded_model_is_made_by_all():
    """PyTorch's documentation of FullyShardedDataParallel: each forward gathers the weights from all ranks."""
    text = SHARDED.replace("MODEL", WHOLE) + SAMPLE + LOOP
    one, every = "if dist.get_rank() == 0:\n    sample(model)\n", "sample(model)\n"
    (found,) = [f for f in findings(text + one, JOB) if f.code == "TW128"]
    says = "of(…), which gathers the weights that FSDP shards, runs only where"
    assert found.message == f"{says} `dist.get_rank() == 0` in line 22"
    assert "TW128" not in codes(text + every, JOB)
    assert "TW128" not in codes(text + one.replace("sample(model)", "sample(teacher)"), JOB)
    assert "TW128" not in codes(text.replace("FSDP(net)", "DDP(net)") + one, JOB)


LOGS = """
import lightning as L
class Net(L.LightningModule):
    def training_step(self, batch, index):
        loss = self.net(batch)
        if self.trainer.is_global_zero:
            self.log("loss", loss, sync_dist=True)
        return loss
L.Trainer(devices=8, strategy="ddp").fit(Net(), loader)
"""


def test_a_value_that_lightning_reduces_is_logged_by_all():
    """Lightning's documentation of log: sync_dist reduces the value over the devices."""
    (found,) = [f for f in findings(LOGS, JOB) if f.code == "TW128"]
    assert found.message == "log(…, sync_dist=True) runs only where `self.trainer.is_global_zero`"
    assert "TW128" not in codes(LOGS.replace(", sync_dist=True", ", rank_zero_only=True"), JOB)
    assert "TW128" not in codes(LOGS.replace("self.trainer.is_global_zero", "index % 10 == 0"), JOB)
