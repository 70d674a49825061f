"""Scripts that do it right have no findings."""

from __future__ import annotations

import pytest

from tests.support.training_scripts import LOOP, P4D, TORCHRUN, XLA_JOB, codes, findings, parser, write
from trainwright.core.records import parse_record
from trainwright.preflight.preflight import examine
from trainwright.sagemaker.job import Job
from trainwright.script.reader import Reader

GOOD_DDP = """
import argparse, os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

def train(model, loader, optimizer, scaler, device):
    for step, (x, y) in enumerate(loader):
        with torch.autocast("cuda"):
            loss = model(x.to(device)).sum()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        if step % 100 == 0 and dist.get_rank() == 0:
            print(step, loss.item())

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--train", default=os.environ.get("SM_CHANNEL_TRAINING"))
    parser.add_argument("--model-dir", default=os.environ.get("SM_MODEL_DIR", "/opt/ml/model"))
    args = parser.parse_args()
    dist.init_process_group("nccl")
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    torch.manual_seed(1)
    model = DDP(torch.nn.Linear(2, 2).cuda(), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * dist.get_world_size())
    data = torch.load(os.path.join(args.train, "data.pt"))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        train(model, loader, optimizer, torch.amp.GradScaler(), rank)
    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), os.path.join(args.model_dir, "model.pt"))

if __name__ == "__main__":
    main()
"""
GOOD_XLA = """
import os
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

def _mp_fn(index):
    torch.manual_seed(1)
    device = xm.xla_device()
    model = torch.nn.Linear(2, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * xm.xrt_world_size())
    data = torch.load(os.path.join(os.environ["SM_CHANNEL_TRAINING"], "data.pt"))
    sampler = DistributedSampler(data, num_replicas=xm.xrt_world_size(), rank=xm.get_ordinal())
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in pl.MpDeviceLoader(DataLoader(data, sampler=sampler, drop_last=True), device):
            optimizer.zero_grad()
            loss = model(x).sum()
            loss.backward()
            xm.optimizer_step(optimizer)
    xm.save(model.state_dict(), os.path.join(os.environ["SM_MODEL_DIR"], "model.pt"))
"""


def test_good_scripts_have_no_findings():
    job = {"distribution": TORCHRUN, "instance_type": P4D, "instance_count": 2, "inputs": {"training": "s3://b/d"}}
    assert findings(GOOD_DDP) == []
    assert findings(GOOD_DDP, {**job, "hyperparameters": {"epochs": 3}}) == []
    assert findings(GOOD_XLA) == []
    assert findings(GOOD_XLA, {**XLA_JOB, "compiler": {}, "inputs": {"training": "s3://b/d"}}) == []


def test_what_a_trainer_does_itself_is_no_mistake():
    script = """
    from transformers import Trainer, TrainingArguments
    import torch
    trainer = Trainer(model, TrainingArguments("out"), train_dataset=d)
    trainer.train()
    """
    assert findings(script, {"distribution": TORCHRUN, "instance_type": P4D, "instance_count": 2}) == []


def test_an_optional_torch_xla_makes_no_xla_script():
    script = "try:\n    import torch_xla.core.xla_model as xm\nexcept ImportError:\n    xm = None\nmodel.cuda()" + LOOP
    assert not codes(script) & {"TW111", "TW113"}


def test_an_optional_model_parallel_library_makes_no_such_script():
    script = "if is_sagemaker_mp_enabled():\n    import smdistributed.modelparallel.torch as smp\n" + LOOP
    assert not codes(script) & {"TW105", "TW107", "TW109"}


def test_a_parser_that_gets_its_own_list_is_no_matter_of_the_job():
    assert "TW196" not in codes(parser('"data"').replace("parse_args()", "parse_args(['x'])"))
    assert "TW196" in codes(parser('"data"').replace("parse_args()", "parse_args(sys.argv[1:])"))


def test_a_script_for_one_process_is_told_so_once():
    script = "import torch\no = torch.optim.SGD(p, lr=0.1)" + LOOP + "    o.zero_grad()\ntorch.save(model, path)"
    assert codes(script, {"distribution": TORCHRUN, "instance_type": P4D}) == {"TW120"}


def test_a_finding_names_the_line():
    (found,) = [f for f in findings("import os\n\nos.environ['N'] = 4\n") if f.code == "TW160"]
    assert found.line == 3


# ---- idioms of public scripts that were once reported ----------------------------------------------------------------

ASIDE = """
import os
import torch
from transformers import AutoModelForCausalLM, Trainer
trainer = Trainer(model)
trainer.train()
folder = "/tmp/adapter"
trainer.model.save_pretrained(folder)
{then}
"""


def test_a_model_that_is_only_put_aside_is_not_lost():
    """aws-samples/amazon-sagemaker-generativeai: adapters go to /tmp, and are merged from there."""
    merged = "model = AutoModelForCausalLM.from_pretrained(folder)\nmodel.save_pretrained(args.output_dir)"
    assert "TW142" not in codes(ASIDE.format(then=merged))
    assert "TW142" in codes(ASIDE.format(then="AutoModelForCausalLM.from_pretrained('/opt/ml/input/data/model')"))


def test_a_text_that_becomes_a_number_where_it_is_used_is_none():
    """philschmid/huggingface-sagemaker-workshop-series: ``learning_rate=float(args.learning_rate)``."""
    text = parser('"--learning-rate", type=str, default=5e-5')
    assert "TW195" in codes(text)
    assert "TW195" not in codes(f"{text}train(lr=float(args.learning_rate))\n")
    assert "TW195" in codes(f"{text}train(lr=float(args.learning_rate))\nprint(args.learning_rate * 2)\n")


def test_logs_at_every_step_are_a_choice_outside_of_xla():
    def severity(argument: str, job: dict | None = None) -> list[str]:
        return [f.severity for f in findings(f"a = TrainingArguments(out, {argument})\n", job) if f.code == "TW153"]

    assert severity("logging_steps=1") == ["note"]
    assert severity("logging_steps=1", XLA_JOB) == ["warning"]
    assert severity("save_steps=1") == ["warning"]


def test_a_list_that_the_container_gives_is_not_read_from_arguments():
    """aws-samples/amazon-sagemaker-local-mode: ``--hosts``, ``type=list, default=env.hosts``."""
    text = parser('"--hosts", type=list, default=env.hosts')
    assert "TW192" not in codes(text)
    assert "TW192" in codes(text, {"hyperparameters": {"hosts": "a"}})


def test_an_estimator_that_saves_under_a_condition_does_not_save_in_every_process():
    """aws/sagemaker-tensorflow-training-toolkit, benchmarks/horovod-resnet."""
    text = """
import tensorflow as tf
import horovod.tensorflow as hvd
hvd.init()
config = {config}
tf.estimator.Estimator(model_fn=f, model_dir=folder, config=tf.estimator.RunConfig(save_checkpoints_steps={steps}))
"""
    job = {"distribution": {"mpi": {"enabled": True, "processes_per_host": 8}}, "instance_type": P4D}
    assert "TW141" in codes(text.format(config=1, steps=100), job)
    assert "TW141" not in codes(text.format(config=1, steps="100 if hvd.rank() == 0 else None"), job)


IS_FIRST = """
import os
import torch
import torch.distributed as dist
def is_first(number):
    if number == 0:
        return True
    {then}
dist.init_process_group("nccl")
if {test}:
    torch.save(model.state_dict(), "/opt/ml/model/m.pt")
    {inside}
"""


@pytest.mark.parametrize("then", ["else:\n        return False", "return False"])
def test_a_function_that_compares_the_rank_is_a_condition_on_the_rank(then):
    """aws-samples/sagemaker-distributed-training-workshop, 1_data_parallel: ``is_main_process(rank)``."""

    def found(test: str, inside: str = "pass") -> set[str]:
        job = {"distribution": TORCHRUN, "instance_type": P4D}
        return codes(IS_FIRST.format(then=then, test=test, inside=inside), job) & {"TW141", "TW128"}

    assert found("is_first(int(os.environ['RANK']))") == set()
    assert found("is_first(int(os.environ['RANK']))", "dist.barrier()") == {"TW128"}
    assert found("is_first(epoch)") == {"TW141"}
    assert found("not is_first(int(os.environ['RANK']))", "dist.barrier()") >= {"TW128"}


@pytest.mark.parametrize("path", ["'{}/1'.format(os.environ['SM_MODEL_DIR'])", "'%s/1' % os.environ['SM_MODEL_DIR']"])
def test_a_path_that_begins_with_a_value_leads_where_that_leads(path):
    """aws-samples/sagemaker-distributed-training-digital-pathology-images: ``'{}/00000001'.format(folder)``."""
    save = f"import os\nimport torch\ntorch.save(model.state_dict(), {path})\n"
    assert "TW142" not in codes(save)
    assert "TW142" in codes(save.replace("os.environ['SM_MODEL_DIR']", "'/tmp/x'"))


def test_a_save_at_every_hundredth_step_is_not_at_every_step():
    """aws-samples/sagemaker-distributed-training-workshop, 16_smp: ``if not steps % args.checkpoint_freq[0]``."""
    text = """
import torch
import torch.distributed as dist
steps, index = start(dist.get_rank())
for data in loader:
    loss = model(data)
    loss.backward()
    optimizer.step()
    steps += 1
    if {test}:
        torch.save(model.state_dict(), "/opt/ml/model/m.pt")
"""
    assert "TW152" not in codes(text.format(test="not steps % args.frequency[0]"))
    assert "TW152" in codes(text.format(test="dist.get_rank() == 0"))
    assert "TW152" in codes(text.format(test="dist.get_rank() % 8 == 0"))


RANK_IN_PATH = """
import os
import torch
import torch.nn as nn
import horovod.torch as hvd
from settings import config
hvd.init()
torch.cuda.set_device(hvd.local_rank())
{before}
model = nn.Linear(4, 2).cuda()
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
for epoch in range(3):
    optimizer.zero_grad()
    model(torch.ones(2, 4).cuda()).sum().backward()
    optimizer.step()
    {path}
    torch.save(model.state_dict(), place)
"""


@pytest.mark.parametrize(
    ("before", "path"),
    [
        ("config.path = os.path.join('/opt/ml/model', 'e{epoch}-' + f'r{hvd.rank()}.pt')",
         "place = config.path.format(epoch=epoch)"),
        ("rank = hvd.rank()", "place = '/opt/ml/model/m.pt'.replace('.pt', f'.{rank}.pt')"),
    ],
)  # fmt: skip
def test_a_file_of_each_process_has_its_rank_in_its_path(before, path):
    job = {"distribution": {"mpi": {"enabled": True, "processes_per_host": 8}}, "instance_type": "ml.p3.16xlarge"}
    assert "TW141" not in codes(RANK_IN_PATH.format(before=before, path=path), job)
    plain = RANK_IN_PATH.format(before=before, path="place = config.other.format(epoch=epoch)")
    assert "TW141" in codes(plain, job)


MPI = {"distribution": {"mpi": {"enabled": True, "processes_per_host": 8}}, "instance_type": "ml.p3.16xlarge"}

BACKENDS = """
import argparse
import horovod.torch as hvd
from torch.utils.data import DistributedSampler

class Backend:
    def size(self):
        return self._size()

class Alone(Backend):
    name = "alone"

    def _size(self):
        return 1

class Horovod(Backend):
    name = "horovod"

    def _size(self):
        return hvd.size()

parser = argparse.ArgumentParser()
parser.add_argument("--backend", default=None)
args = parser.parse_args()

def choose(name):
    chosen = Alone()
    for each in [Alone(), Horovod()]:
        if each.name == name.lower():
            chosen = each
    return chosen

hvd.init()
backend = {backend}
sampler = DistributedSampler(range(100), num_replicas=backend.size(), rank=hvd.rank())
"""


def test_one_of_several_classes_answers():
    job = {**MPI, "hyperparameters": {"backend": "horovod"}}
    assert "TW175" not in codes(BACKENDS.replace("{backend}", "choose(args.backend)"), job)
    assert "TW175" in codes(BACKENDS.replace("{backend}", "Alone()"), job)


OPTIONS_OF_A_CLASS = """
import argparse

class Options:
    def __init__(self):
        self.parser = argparse.ArgumentParser()
        self.parser.add_argument("--epochs", type=int, default=1)

    def training(self):
        self.parser.add_argument("--rate", type=float, default=0.1)
        return self.parser.parse_args()

options = Options()
"""


def test_a_class_of_another_file_adds_options_when_it_is_made(tmp_path):
    entry = "from options import options\n\nif __name__ == '__main__':\n    print(options.training())\n"
    path = write(tmp_path, train=entry, options=OPTIONS_OF_A_CLASS)
    script = Reader().script(path, tmp_path)

    def found(**given):
        job = parse_record(Job, {**MPI, "hyperparameters": given}, "job")
        return {finding.code for finding in examine(script, job).findings}

    assert "TW193" not in found(epochs=3, rate=0.2)
    assert "TW193" in found(epochs=3, width=4)


@pytest.mark.parametrize(
    "sets", ["os.environ.setdefault(ours, os.environ[theirs])", "os.environ[ours] = os.environ[theirs]"]
)
def test_variables_that_a_loop_sets_are_there(sets):
    text = f"""
import os
for ours, theirs in (("RANK", "OMPI_COMM_WORLD_RANK"), ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK")):
    {sets}
local_rank = int(os.environ["LOCAL_RANK"])
"""
    assert "TW166" not in codes(text, MPI)
    assert "TW166" in codes(text.replace(sets, "others.setdefault(ours, theirs)"), MPI)


LOSS_OF = """
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
net = nn.Linear(4, 1).cuda()
model = DDP(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def step(net, loss_of):
    optimizer.zero_grad()
    loss_of({given}).backward()
    optimizer.step()

for images in torch.ones(10, 2, 4).cuda():
    step(model, lambda module: {called}(images)["out"].mean())
"""


def test_the_caller_says_of_which_model_a_lambda_is():
    job = {"distribution": {"torch_distributed": {"enabled": True}}, "instance_type": "ml.p3.16xlarge"}
    assert "TW124" not in codes(LOSS_OF.format(given="net", called="module"), job)
    assert "TW124" in codes(LOSS_OF.format(given="net", called="net"), job)
