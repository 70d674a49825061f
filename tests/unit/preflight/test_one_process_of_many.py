"""What is right as only the first process has it, or each its own."""

from __future__ import annotations

import pytest

from tests.support.training_scripts import TORCHRUN, codes

HOROVOD = {"distribution": {"mpi": {"enabled": True, "processes_per_host": 8}}, "instance_type": "ml.p3.16xlarge"}
GPUS = {"distribution": TORCHRUN, "instance_type": "ml.p3.16xlarge"}

WRITER = """
import torch
import horovod.torch as hvd

class Writer:
    def __init__(self, path):
        self.path = path

    def save(self, model):
        torch.save(model.state_dict(), self.path)

class Nothing:
    def save(self, model):
        pass

hvd.init()
torch.cuda.set_device(hvd.local_rank())
model = torch.nn.Linear(4, 2).cuda()
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
if {test}:
    writer = Writer("/opt/ml/model/model.pt")
else:
    writer = Nothing()
for batch in torch.ones(10, 2, 4).cuda():
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
    writer.save(model)
"""


@pytest.mark.parametrize(("test", "reported"), [("hvd.rank() == 0", False), ("torch.cuda.is_available()", True)])
def test_a_writer_that_the_first_process_alone_makes(test, reported):
    assert ("TW141" in codes(WRITER.format(test=test), HOROVOD)) is reported


LOADS = """
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from settings import config
dist.init_process_group("nccl")
rank = int(os.environ["RANK"])
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))


def prepare():
    config.paths.last = os.path.join(config.folder, {name})

prepare()
model = torch.nn.Linear(4, 2).cuda()

def resume(model):
    model.load_state_dict(torch.load(config.paths.last))

resume(model)
model = DDP(model)
"""


@pytest.mark.parametrize(("name", "reported"), [("f'last-{rank}.pt'", False), ("'last.pt'", True)])
def test_each_process_loads_a_file_of_its_own_gpu(name, reported):
    assert ("TW178" in codes(LOADS.format(name=name), GPUS)) is reported


FLAG = """
import argparse
import torch
from transformers import Trainer, TrainingArguments
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=0)
args = parser.parse_args()
{reads}
trainer = Trainer(model, TrainingArguments("/opt/ml/model"), train_dataset=data)
trainer.train()
"""
READS = "torch.cuda.set_device(args.local_rank)"


@pytest.mark.parametrize(
    ("reads", "job", "reported"),
    [
        (READS, GPUS, True),
        ("", GPUS, False),
        (READS, {**GPUS, "instance_type": "ml.p3.2xlarge", "hyperparameters": {"local_rank": 0}}, False),
        (READS, {**GPUS, "hyperparameters": {"local_rank": 0}}, True),
    ],
)
def test_a_rank_that_nothing_reads_or_that_the_job_gives_to_its_only_process(reads, job, reported):
    assert ("TW123" in codes(FLAG.format(reads=reads), job)) is reported


MEASURES = """
import os
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
validation = rows if asked else None
loader = DataLoader(validation, sampler=DistributedSampler(validation)) if validation is not None else None
if {test}:
    dist.barrier()
"""


@pytest.mark.parametrize(
    ("test", "reported"), [("loader is not None", False), ("max(x.sum().item() for x in loader) > 9", True)]
)
def test_whether_there_are_data_is_the_same_everywhere(test, reported):
    assert ("TW401" in codes(MEASURES.format(test=test), GPUS)) is reported
