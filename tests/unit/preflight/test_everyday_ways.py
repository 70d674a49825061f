"""Ways to write a training that people use every day, each beside the mistake that is nearest to it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, TORCHRUN, codes, findings

ONE: dict[str, Any] = {"instance_type": P4D, "distribution": TORCHRUN}

LOADER_OF_ONES_OWN = """
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, DistributedSampler
accelerator = Accelerator()
torch.manual_seed(1)
data = torch.utils.data.TensorDataset(torch.ones(64, 4), torch.ones(64, 1))
loader = DataLoader(data, 8, {sampler})
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
net, optimizer{more} = accelerator.prepare(net, optimizer{more})
for x, y in loader:
    loss = torch.nn.functional.mse_loss(net(x.to(accelerator.device)), y.to(accelerator.device))
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
"""
OF_ACCELERATOR = "DistributedSampler(data, accelerator.num_processes, accelerator.process_index)"
VALIDATION = "loader = DataLoader", "held = DataLoader(data, 8)\nloader = DataLoader"


@pytest.mark.parametrize("more", ["", ", held"])
@pytest.mark.parametrize(
    ("sampler", "reported"),
    [
        ("shuffle=True", True),
        ("sampler=torch.utils.data.RandomSampler(data)", True),
        ("sampler=DistributedSampler(data)", False),
        (f"sampler={OF_ACCELERATOR}", False),
        (f"batch_sampler=torch.utils.data.BatchSampler({OF_ACCELERATOR}, 8, True)", False),
    ],
)
def test_a_loader_with_a_share_of_the_data_need_not_be_prepared(sampler, reported, more):
    """Accelerate's prepare_data_loader divides a loader's samples; a DistributedSampler has divided them already."""
    script = LOADER_OF_ONES_OWN.replace(*VALIDATION).format(sampler=sampler, more=more)
    assert ("TW155" in codes(script, ONE)) is reported


PLACES = """
import argparse
import os
from dataclasses import dataclass, field
import torch
import torch.distributed as dist

def own_number():
    return int(os.environ["RANK"])

@dataclass(frozen=True)
class Place:
    number: int = field(default_factory={factory})

    @property
    def writes(self):
        return {test}

@dataclass(frozen=True)
class Options:
    epochs: int
    place: Place = field(default_factory=Place)

    @classmethod
    def read(cls):
        parser = argparse.ArgumentParser()
        parser.add_argument("--epochs", type=int, default=3)
        return cls(**vars(parser.parse_args()))

def end(options, net):
    if options.place.writes:
        torch.save(net.state_dict(), os.path.join(os.environ["SM_MODEL_DIR"], "net.pt"))

dist.init_process_group("nccl")
end(Options.read(), torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1)).module)
"""


@pytest.mark.parametrize(
    ("factory", "test", "reported"),
    [
        ("lambda: int(os.environ['RANK'])", "self.number == 0", False),
        ("own_number", "self.number == 0", False),
        ("dist.get_rank", "not self.number", False),
        ("lambda: int(os.environ['RANK'])", "self.number >= 0", True),
        ("lambda: int(os.environ['WORLD_SIZE'])", "self.number > 1", True),
        ("dist.get_world_size", "self.number > 1", True),
    ],
)
def test_what_a_dataclass_makes_by_default_is_followed_into_its_properties(factory, test, reported):
    """Python's documentation of dataclasses: default_factory is called for each object that does not get the field."""
    assert ("TW141" in codes(PLACES.format(factory=factory, test=test), ONE)) is reported


IN_ONE_PIECE = """
import torch
import torch.distributed as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.utils.data import DataLoader, DistributedSampler

class Mean:
    def __init__(self, net):
        self.weights = [w for w in net.parameters() if w.requires_grad]
        self.whole = torch.empty(sum(w.numel() for w in self.weights), device="cuda")

    def apply(self):
        for w in self.weights:
            if w.grad is None:
                w.grad = torch.zeros_like(w)
        pieces = [w.grad for w in self.weights]
        at = 0
        {joined}
        dist.all_reduce(whole)
        whole /= dist.get_world_size()
        for piece, mean in zip(pieces, _unflatten_dense_tensors(whole, pieces)):
            piece.copy_(mean)

dist.init_process_group("nccl")
torch.manual_seed(1)
data = torch.utils.data.TensorDataset(torch.ones(64, 4), torch.ones(64, 1))
loader = DataLoader(data, 8, sampler=DistributedSampler(data))
net = torch.nn.Linear(4, 1).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
mean = Mean(net)
for x, y in loader:
    for w in net.parameters():
        w.grad = None
    loss = torch.nn.functional.mse_loss(net(x.cuda()), y.cuda())
    loss.backward()
    mean.apply()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("joined", "reported"),
    [
        ("whole = _flatten_dense_tensors(pieces)", False),
        ("whole = torch.cat([g.view(-1) for g in pieces])", False),
        ("whole = torch.cat([w.grad.reshape(-1) for w in self.weights if w.grad is not None])", False),
        ("whole = torch.nn.utils.parameters_to_vector(pieces)", False),
        (
            "whole = self.whole\n        for g in pieces:\n            whole[at : at + g.numel()].copy_(g.view(-1))",
            False,
        ),
        ("whole = self.whole\n        for g in pieces:\n            whole[at : at + g.numel()] = g.flatten()", False),
        ("whole = torch.cat([torch.ones(3) for g in pieces])", True),
        ("whole = torch.zeros(3, device='cuda')", True),
    ],
)
def test_gradients_are_averaged_in_one_piece(joined, reported):
    """PyTorch's DistributedDataParallel does the same in buckets; torch/_utils.py flattens a list of tensors."""
    assert ("TW124" in codes(IN_ONE_PIECE.format(joined=joined), ONE)) is reported


MARKED = """
import os
import torch
import torch.distributed as dist
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_backend
from torch.utils.data import DataLoader, DistributedSampler

def update(net, x, y, optimizer):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(net(x), y)
    loss.backward()
    {update}

def judge(net, loader):
    with torch.no_grad():
        for x, y in loader:
            net(x.to(device))
            xm.mark_step()

dist.init_process_group("xla")
torch.manual_seed(1)
device = xm.xla_device()
data = torch.load(os.path.join(os.environ["SM_CHANNEL_TRAIN"], "rows.pt"))
sampler = DistributedSampler(data, xm.xrt_world_size(), xm.get_ordinal())
loader = DataLoader(data, 8, sampler=sampler, drop_last=True)
net = torch.nn.Linear(4, 1).to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(3):
    for x, y in loader:
        {batch}
    judge(net, loader)
"""
MOVED = "update(net, x.to(device), y.to(device), optimizer)"
REDUCED = "xm.reduce_gradients(optimizer)\n    optimizer.step()"


@pytest.mark.parametrize(
    ("update", "batch", "reported"),
    [
        (f"{REDUCED}\n    xm.mark_step()", MOVED, set()),
        (REDUCED, f"{MOVED}\n        xm.mark_step()", set()),
        ("xm.optimizer_step(optimizer)\n    xm.mark_step()", MOVED, set()),
        ("xm.optimizer_step(optimizer, barrier=True)", MOVED, set()),
        (f"{REDUCED}\n    xm.mark_step()", MOVED.replace(".to(device)", ""), {"TW172"}),
        ("xm.optimizer_step(optimizer)", MOVED, {"TW111", "TW172"}),
        ("xm.optimizer_step(optimizer)", f"{MOVED}\n    xm.mark_step()", {"TW111", "TW172"}),
        ("xm.optimizer_step(optimizer)", f"net.train()\n        {MOVED}", {"TW111", "TW172"}),
        ("xm.optimizer_step(optimizer)", f"{MOVED}\n        judge(net, loader)", set()),
    ],
)
def test_a_loop_that_moves_its_batches_and_marks_its_steps_needs_no_device_loader(update, batch, reported):
    """PyTorch/XLA's API guide: a loop without MpDeviceLoader moves the data itself and calls mark_step itself."""
    job = {"instance_type": "ml.trn1.32xlarge", "distribution": TORCHRUN}
    found = findings(MARKED.format(update=update, batch=batch), job)
    assert {each.code for each in found} & {"TW111", "TW172"} == reported
    assert all("is not in this loop" in each.message for each in found if each.code == "TW111")


DEMOS = """
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

def setup(rank, size):
    dist.init_process_group("gloo", init_method="tcp://localhost:29501", rank=rank, world_size=size)

def sums(rank, size):
    setup(rank, size)
    dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()

def waits(rank, size):
    {begin}
    dist.barrier()

def demonstrate(function, size):
    mp.spawn(function, args=(size,), nprocs=size)

if __name__ == "__main__":
    demonstrate(sums, 2)
    demonstrate(waits, 2)
    demonstrate(sums, 3)
"""


@pytest.mark.parametrize(("begin", "reported"), [("setup(rank, size)", False), ("pass", True)])
def test_a_group_may_be_begun_again_by_the_same_function(begin, reported):
    """PyTorch's DDP tutorial: each demonstration sets up its group and destroys it."""
    assert ("TW442" in codes(DEMOS.format(begin=begin), {"instance_type": P4D})) is reported


EARLY = """
import os
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

def loader_of(data):
    return DataLoader(data, 8, sampler=DistributedSampler(data{share}))

data = torch.utils.data.TensorDataset(torch.ones(64, 4), torch.ones(64, 1))
loader = loader_of(data)
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1).cuda())
"""


@pytest.mark.parametrize(
    ("share", "reported"), [("", True), (', int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])', False)]
)
def test_a_sampler_asks_the_group_for_its_share(share, reported):
    """torch/utils/data/distributed.py: without num_replicas and rank it asks the default group, which must be there."""
    assert ("TW472" in codes(EARLY.format(share=share), ONE)) is reported


OF_TRAINER = """
import os
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments

tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")
model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased")
trainer = Trainer(model=model, args=TrainingArguments(output_dir="{folder}"), train_dataset=[])
trainer.train()
trainer.save_model({given})
tokenizer.save_pretrained(os.environ["SM_MODEL_DIR"])
"""


@pytest.mark.parametrize(
    ("folder", "given", "reported"),
    [("/tmp/run", "", True), ("/tmp/run", 'os.environ["SM_MODEL_DIR"]', False), ("/opt/ml/model", "", False)],
)
def test_a_trainer_saves_into_its_output_dir_by_itself(folder, given, reported):
    """transformers, trainer.py, save_model: ``if output_dir is None: output_dir = self.args.output_dir``."""
    assert ("TW142" in codes(OF_TRAINER.format(folder=folder, given=given), ONE)) is reported
