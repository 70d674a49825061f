"""Every rule of preflight: a script that has the mistake, and one that is right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.corpus import load
from tests.support.training_scripts import (
    DDP,
    LOOP,
    P4D,
    SAVE,
    SMP,
    SMP_JOB,
    TORCHRUN,
    XLA,
    XLA_JOB,
    codes,
    findings,
    parser,
)
from trainwright.preflight.preflight import CODES

READS = 'import torch, os\ndata = torch.load(os.environ["SM_CHANNEL_TRAIN"])\n'
EPOCHS = "\nfor epoch in range(3):" + LOOP.replace("\n", "\n    ")


@dataclass(frozen=True)
class Case:
    code: str
    wrong: str
    right: str
    job: dict[str, Any] | None = None
    right_job: dict[str, Any] | None = None


CASES = [
    Case("TW105", SMP.replace("smp.init()", ""), SMP),
    Case(
        "TW105",
        "import torch.sagemaker as tsm\nmodel = tsm.transform(model)",
        "import torch.sagemaker as tsm\ntsm.init()",
    ),
    Case("TW106", SMP.replace("smp.DistributedOptimizer(optimizer)", "optimizer") + LOOP, SMP + LOOP),
    Case("TW107", SMP.replace("torch.cuda.set_device(smp.local_rank())", ""), SMP),
    Case(
        "TW107",
        SMP.replace("torch.cuda.set_device(smp.local_rank())", ""),
        SMP.replace("torch.cuda.set_device(smp.local_rank())", 'device = torch.device("cuda", smp.local_rank())'),
    ),
    Case(
        "TW108",
        SMP + "@smp.step\ndef step(model, x):\n    loss = model(x)\n    loss.backward()",
        SMP + "@smp.step\ndef step(model, x):\n    loss = model(x)\n    model.backward(loss)",
    ),
    Case("TW109", DDP + LOOP, SMP + LOOP, SMP_JOB),
    Case("TW109", SMP, SMP, {"distribution": {"mpi": {"enabled": True}}}, SMP_JOB),
    Case("TW110", "def main(): pass", "def _mp_fn(index): main()", XLA_JOB),
    Case("TW110", "def main(): pass", "from work import _mp_fn", XLA_JOB),
    Case("TW115", "def _mp_fn(): pass", "def _mp_fn(index, flags=None): pass", XLA_JOB),
    Case("TW115", "def _mp_fn(index, flags): pass", "def _mp_fn(*args): pass", XLA_JOB),
    Case("TW111", XLA + LOOP, XLA + LOOP + "    xm.mark_step()"),
    Case("TW111", XLA + LOOP, XLA + "loader = pl.MpDeviceLoader(loader, xm.xla_device())" + LOOP),
    Case(
        "TW112", XLA + LOOP + "    print(loss)\n    xm.mark_step()", XLA + LOOP + "    xm.mark_step()\n    print(loss)"
    ),
    Case("TW113", XLA + "model.cuda()", XLA + "model.to(xm.xla_device())"),
    Case("TW113", XLA + 'd = torch.device("cuda")', XLA + 'd = torch.device("cuda" if flag else "cpu")'),
    Case(
        "TW114",
        XLA + "world = xm.xrt_world_size()\n" + LOOP + "    xm.mark_step()",
        XLA + "world = xm.xrt_world_size()\n" + LOOP.replace("optimizer.step()", "xm.optimizer_step(optimizer)"),
    ),
    Case(
        "TW120",
        "import torch" + LOOP,
        DDP + LOOP,
        {"distribution": TORCHRUN, "instance_type": P4D},
    ),
    Case("TW121", DDP.replace("torch.cuda.set_device", "int") + "model.cuda()", DDP + "model.cuda()"),
    Case(
        "TW121",
        DDP.replace("torch.cuda.set_device", "int") + "torch.cuda.set_device(rank)\n",
        DDP,
    ),
    Case(
        "TW122",
        DDP + "import torch.multiprocessing as mp\nmp.spawn(main, nprocs=8)",
        DDP + "main()",
        {"distribution": TORCHRUN},
    ),
    Case(
        "TW123",
        DDP.replace("LOCAL_RANK", "X") + parser('"--local_rank", type=int'),
        DDP + parser('"--local_rank", type=int, default=int(os.environ["LOCAL_RANK"])'),
    ),
    Case("TW124", DDP.replace("DDP(model)", "model").replace("DistributedDataParallel as DDP", "X") + LOOP, DDP + LOOP),
    Case(
        "TW125",
        DDP + "o = torch.optim.SGD(model.parameters(), lr=0.1)",
        DDP + "o = torch.optim.SGD(model.parameters(), lr=0.1 * dist.get_world_size())",
        {"distribution": TORCHRUN, "instance_type": P4D, "batch": {"global": 512, "per_replica": 64}},
    ),
    Case(
        "TW125",
        DDP + "o = torch.optim.SGD(model.parameters(), lr=args.lr)",
        DDP + "o = torch.optim.SGD(model.parameters(), lr=args.lr)",
        {"distribution": TORCHRUN, "batch": {"global": 512, "per_replica": 64}},
        {"distribution": TORCHRUN, "batch": {"global": 64, "per_replica": 64}},
    ),
    Case(
        "TW125",
        DDP + "o = torch.optim.SGD(model.parameters(), lr=0.1)",
        DDP + "b = args.batch_size // dist.get_world_size()\no = torch.optim.SGD(model.parameters(), lr=0.1)",
        {"distribution": TORCHRUN, "instance_type": P4D, "batch": {"global": 512, "per_replica": 64}},
    ),
    Case(
        "TW126",
        'import torch.distributed as dist\ndist.init_process_group(backend="smddp")',
        "import torch.distributed as dist\nimport smdistributed.dataparallel.torch.torch_smddp\n"
        'dist.init_process_group(backend="smddp")',
    ),
    Case(
        "TW127",
        DDP,
        DDP.replace("nccl", "smddp") + "import smdistributed.dataparallel.torch.torch_smddp",
        {"distribution": {"smdistributed": {"dataparallel": {"enabled": True}}}},
    ),
    Case(
        "TW130",
        "scaler.scale(loss).backward()\nclip_grad_norm_(p, 1)\nscaler.step(optimizer)\nscaler.update()",
        "scaler.scale(loss).backward()\nscaler.unscale_(optimizer)\nclip_grad_norm_(p, 1)\n"
        "scaler.step(optimizer)\nscaler.update()",
    ),
    Case(
        "TW131",
        LOOP + "    torch.nn.utils.clip_grad_norm_(p, 1)",
        LOOP.replace("    optimizer", "    torch.nn.utils.clip_grad_norm_(p, 1)\n    optimizer"),
    ),
    Case(
        "TW132",
        "scaler.scale(loss).backward()\noptimizer.step()\nscaler.update()",
        "if amp:\n    scaler.scale(loss).backward()\nelse:\n    loss.backward()\n"
        "if amp:\n    scaler.step(optimizer)\n    scaler.update()\nelse:\n    optimizer.step()",
    ),
    Case(
        "TW132",
        "scaler.scale(loss).backward()\nself.optimizer.step()\nscaler.update()",
        "scaler.scale(loss).backward()\nself.opt_scheduler.step()\nscaler.update()",
    ),
    Case(
        "TW133",
        "scaler.scale(loss).backward()\nscaler.step(optimizer)",
        "scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()",
    ),
    Case(
        "TW134",
        "loss.backward()\nscaler.step(optimizer)\nscaler.update()",
        "scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()",
    ),
    Case(
        "TW135",
        XLA + "scaler.scale(loss).backward()\nscaler.unscale_(optimizer)\ngradients = xm._fetch_gradients(optimizer)\n"
        "xm.all_reduce('sum', gradients)\nscaler.step(optimizer)\nscaler.update()",
        XLA + "scaler.scale(loss).backward()\ngradients = xm._fetch_gradients(optimizer)\n"
        "xm.all_reduce('sum', gradients)\nscaler.unscale_(optimizer)\nscaler.step(optimizer)\nscaler.update()",
    ),
    Case(
        "TW136",
        XLA + "scaler.scale(loss).backward()\nxm.mark_step()\nscaler.step(optimizer)\nscaler.update()",
        XLA + "scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()\nxm.mark_step()",
    ),
    Case("TW140", XLA + "torch.save(model.state_dict(), path)", XLA + "xm.save(model.state_dict(), path)"),
    Case("TW141", DDP + SAVE, DDP + "if dist.get_rank() == 0:\n    " + SAVE),
    Case("TW141", DDP + SAVE, DDP + f"def save():\n    {SAVE}\nif rank == 0:\n    save()"),
    Case(
        "TW141",
        DDP + SAVE,
        DDP + f"args.save_logs = args.logs and is_master(args)\nif args.save_logs:\n    {SAVE}",
    ),
    Case(
        "TW142", 'import torch\ntorch.save(state, "model.pt")', 'import torch\ntorch.save(state, "/opt/ml/model/m.pt")'
    ),
    Case("TW142", 'import torch\ntorch.save(s, f"run_{n}.pt")', 'import torch\ntorch.save(s, f"{folder}/run_{n}.pt")'),
    Case(
        "TW142",
        'import torch\ntorch.save(state, "model.pt")',
        'import torch, os\nos.chdir(os.environ["SM_MODEL_DIR"])\ntorch.save(state, "model.pt")',
    ),
    Case("TW143", "import torch" + LOOP, 'd = "/opt/ml/checkpoints"' + LOOP, {"spot": True}),
    Case(
        "TW143",
        "import torch" + LOOP,
        "import torch" + LOOP,
        {"checkpoint": {"s3_uri": "s3://b/c"}},
        {"checkpoint": {"s3_uri": "s3://b/c"}, "hyperparameters": {"output_dir": "/opt/ml/checkpoints"}},
    ),
    Case("TW144", READS + LOOP, READS + LOOP + SAVE),
    Case("TW144", READS + LOOP, "import torch" + LOOP),  # a benchmark: nothing says that a result is wanted
    Case("TW150", LOOP + "    total += loss.item()", LOOP + "    total += loss.detach()"),
    Case("TW150", LOOP + "    total += loss.item()", LOOP + "    if step % 10 == 0:\n        total += loss.item()"),
    Case(
        "TW151",
        LOOP + "    if rank == 0:\n        print(loss)",
        LOOP + "    if i % 10 == 0 and rank == 0:\n        print(loss)",
    ),
    Case("TW151", LOOP + '    logger.info("%s", loss)', LOOP + 'logger.info("%s", loss)'),
    Case(
        "TW152",
        "import torch" + LOOP + "    torch.save(model, path)",
        "import torch" + LOOP + "torch.save(model, path)",
    ),
    Case("TW153", "a = TrainingArguments(out, logging_steps=1)", "a = TrainingArguments(out, logging_steps=100)"),
    Case(
        "TW154",
        "import torch\ntorch.autograd.set_detect_anomaly(True)",
        "import torch\nif args.debug:\n    torch.autograd.set_detect_anomaly(True)",
    ),
    Case("TW160", "import os\nos.environ['N'] = 4", "import os\nos.environ['N'] = '4'"),
    Case("TW160", "from os import environ\nenviron['N'] = True", "from os import environ\nenviron['N'] = str(True)"),
    Case("TW160", "import os\nos.environ['N'] = torch.cuda.device_count()", "import os\nos.environ['N'] = count"),
    Case("TW160", "import os\nos.environ.setdefault('N', 4)", "import os\nos.environ.setdefault('N', '4')"),
    Case("TW160", "import os\nos.environ.update({'N': 4})", "import os\nos.environ.update({'N': '4'})"),
    Case("TW161", "import os\nn = os.environ['SM_NUM_GPUS'] > 1", "import os\nn = int(os.environ['SM_NUM_GPUS']) > 1"),
    Case(
        "TW161",
        "import os\nn = len(os.environ['SM_HOSTS'])",
        "import os, json\nn = len(json.loads(os.environ['SM_HOSTS']))",
    ),
    Case(
        "TW161",
        "import os\nh = os.environ['SM_HOSTS'][0]",
        "import os, json\nh = json.loads(os.environ['SM_HOSTS'])[0]",
    ),
    Case("TW161", "import os\nb = 64 // os.environ['WORLD_SIZE']", "import os\nb = '%s' % os.environ['WORLD_SIZE']"),
    Case("TW161", "import os\nb = 64 / os.environ['WORLD_SIZE']", "import os\nb = folder / os.environ['SM_MODEL_DIR']"),
    Case(
        "TW162",
        "import os\nos.environ['GPU_NUM_DEVICES'] = '8'",
        "import os\nos.environ['GPU_NUM_DEVICES'] = '4'",
        {"instance_type": "ml.p3.8xlarge"},
    ),
    Case(
        "TW163",
        DDP + "os.environ['MASTER_ADDR'] = 'localhost'",
        DDP + "os.environ.setdefault('MASTER_ADDR', 'localhost')",
    ),
    Case("TW164", "import os\nos.environ['SM_MODLE_DIR']", "import os\nos.environ['SM_MODEL_DIR']"),
    Case("TW164", "import os\nos.environ.get('SM_CHANNELLS')", "import os\nos.environ.get('SM_CHANNEL_LS')"),
    Case(
        "TW165",
        "import os\nos.environ['SM_CHANNEL_TRAIN']",
        "import os\nos.environ['SM_CHANNEL_TRAINING']",
        {"inputs": {"training": "s3://b/d"}},
    ),
    Case("TW170", XLA + "tok(x, padding='longest')", XLA + "tok(x, padding='max_length')"),
    Case("TW170", "tok(x, padding=True)", "tok(x, padding=True)", {"compiler": {}}, {}),
    Case("TW171", DDP + "l = DataLoader(d)" + LOOP, DDP + "l = DataLoader(d, sampler=DistributedSampler(d))" + LOOP),
    Case(
        "TW172",
        XLA + "from torch.utils.data import DataLoader\nl = DataLoader(d)\nw = xm.xrt_world_size()" + LOOP,
        XLA
        + "from torch.utils.data import DataLoader\nl = pl.MpDeviceLoader(DataLoader(d), x)\nw = xm.xrt_world_size()"
        + LOOP,
    ),
    Case(
        "TW173",
        "import torch.distributed as dist\ndist.init_process_group()" + LOOP,
        "import torch\nimport torch.distributed as dist\ndist.init_process_group()\ntorch.manual_seed(1)" + LOOP,
    ),
    Case(
        "TW174",
        DDP + "l = DataLoader(d, sampler=DistributedSampler(d))" + EPOCHS,
        DDP + "s = DistributedSampler(d)\nl = DataLoader(d, sampler=s)\ns.set_epoch(1)" + EPOCHS,
    ),
    Case(
        "TW174",
        DDP + "l = DataLoader(d, sampler=DistributedSampler(d))" + EPOCHS,
        DDP + "l = DataLoader(d, sampler=DistributedSampler(d))" + LOOP,  # one epoch has one order
    ),
    Case("TW180", "f = open('/home/me/data.csv')", "f = open('/opt/ml/input/data/training/data.csv')"),
    Case("TW180", parser('"--data", default="/mnt/data"'), parser('"--data", help="/mnt/data"')),
    Case(
        "TW181",
        "d = open('/opt/ml/input/data/train/x.csv')",
        "d = open('/opt/ml/input/data/training/x.csv')",
        {"inputs": {"training": "s3://b/d"}},
    ),
    Case("TW190", parser('"--fp16", type=bool'), parser('"--fp16", type=lambda t: t == "True"')),
    Case(
        "TW191",
        parser('"--fp16", action="store_true"'),
        parser('"--fp16", action="store_true"'),
        {"hyperparameters": {"fp16": True}},
        {},
    ),
    Case("TW192", parser('"--layers", type=list'), parser('"--layers", type=json.loads')),
    Case(
        "TW193",
        parser('"--batch-size", type=int'),
        parser('"--batch-size", type=int', "parse_known_args"),
        {"hyperparameters": {"depth": 8}},
    ),
    Case("TW193", SMP + parser('"--lr", type=float'), SMP + parser('"--mp_parameters"'), SMP_JOB),
    Case("TW194", parser('"--data", required=True'), parser('"--data", default="x"'), {"hyperparameters": {}}),
    Case("TW195", parser('"--epochs", default=3'), parser('"--epochs", default=3, type=int')),
    Case("TW196", parser('"data"'), parser('"--data"')),
    Case("TW196", parser('"data"'), parser('"data", nargs="?"')),
    Case("TW197", "import hydra\n@hydra.main()\ndef main(c): pass", "import hydra\ndef main(c): pass"),
]


@pytest.mark.parametrize("case", CASES, ids=[f"{c.code}-{i}" for i, c in enumerate(CASES)])
def test_rule(case: Case):
    assert case.code in codes(case.wrong, case.job)
    assert case.code not in codes(case.right, case.job if case.right_job is None else case.right_job)


def test_every_rule_has_a_case():
    planted = {code for _, wrong in load() for mistake in wrong for code in mistake.codes}
    assert {case.code for case in CASES} | planted == set(CODES)


@pytest.mark.parametrize("case", CASES, ids=[f"{c.code}-{i}" for i, c in enumerate(CASES)])
def test_finding_has_a_place_and_a_mend(case: Case):
    for finding in findings(case.wrong, case.job):
        assert finding.path == "train.py"
        assert finding.message and finding.source and finding.remedy


def test_severity_follows_the_place():
    hot = LOOP + "    total += loss.item()"
    assert [f.severity for f in findings(hot) if f.code == "TW150"] == ["note"]
    assert [f.severity for f in findings(XLA + hot) if f.code == "TW150"] == ["warning"]
    wait = DDP.replace("nccl", "gloo") + "os.environ['MASTER_ADDR'] = 'localhost'"
    many = {"distribution": TORCHRUN, "instance_type": P4D, "instance_count": 2}
    assert [f.severity for f in findings(wait) if f.code == "TW163"] == ["warning"]
    assert [f.severity for f in findings(wait, many) if f.code == "TW163"] == ["error"]
    untyped = parser('"--epochs", default=3')
    assert [f.severity for f in findings(untyped, {"hyperparameters": {"epochs": 1}})] == ["error"]
