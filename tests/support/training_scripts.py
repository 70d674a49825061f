"""Training scripts in pieces, and what preflight says of a script."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from trainwright.core.findings import Finding
from trainwright.core.records import parse_record
from trainwright.preflight.preflight import examine
from trainwright.sagemaker.job import Job
from trainwright.script.reader import Module, Script, parse_module

XLA = """
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
"""
DDP = """
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
torch.manual_seed(1)
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = DDP(model)
"""
SMP = """
import torch
import smdistributed.modelparallel.torch as smp
smp.init()
torch.cuda.set_device(smp.local_rank())
model = smp.DistributedModel(model)
optimizer = smp.DistributedOptimizer(optimizer)
"""
LOOP = """
for data in loader:
    loss = model(data)
    loss.backward()
    optimizer.step()
"""
SAVE = 'torch.save(model.state_dict(), os.path.join(os.environ["SM_MODEL_DIR"], "m.pt"))\n'
P4D = "ml.p4d.24xlarge"
TORCHRUN: dict[str, Any] = {"torch_distributed": {"enabled": True}}
XLA_JOB: dict[str, Any] = {"distribution": {"pytorchxla": {"enabled": True}}, "instance_type": "ml.p3.8xlarge"}
SMP_JOB: dict[str, Any] = {
    "distribution": {"smdistributed": {"modelparallel": {"enabled": True}}, "mpi": {"enabled": True}},
    "instance_type": P4D,
}


def read(text: str, name: str = "train.py") -> Module:
    module = parse_module(Path(name), name, textwrap.dedent(text))
    assert isinstance(module, Module), module
    return module


def findings(text: str, job: dict[str, Any] | None = None) -> list[Finding]:
    module = read(text)
    made = parse_record(Job, job, "job") if job is not None else None
    return list(examine(Script((module,), (), (module.name,)), made).findings)


def codes(text: str, job: dict[str, Any] | None = None) -> set[str]:
    return {finding.code for finding in findings(text, job)}


def parser(line: str, parse: str = "parse_args") -> str:
    return f"import argparse\np = argparse.ArgumentParser()\np.add_argument({line})\nargs = p.{parse}()\n"


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "train.py"


def everything(text: str) -> list[Finding]:
    module = parse_module(Path("train.py"), "train.py", text)
    if isinstance(module, Finding):
        return [module]
    jobs = [
        None,
        Job(distribution={"pytorchxla": {"enabled": True}}, hyperparameters={"lr": 1}),
        parse_record(
            Job,
            {
                "distribution": {
                    "smdistributed": {"modelparallel": {"enabled": True}},
                    "mpi": {"enabled": True, "processes_per_host": 8},
                },
                "spot": True,
                "inputs": {"train": "s3://b/x"},
            },
            "job",
        ),
    ]
    found: list[Finding] = []
    for job in jobs:
        found += examine(Script((module,), (), ("train.py",)), job).findings
    return found


# A rule's code, what is expected of it, a script and its job: reported or not, or its severity, or its line.
Case = tuple[str, bool | str | int, str, dict[str, Any] | None]


def unmet(case: Case) -> str:
    """Return how preflight's findings differ from what the case expects; empty if they do not."""
    code, expected, script, job = case
    found = [each for each in findings(script, job) if each.code == code]
    if isinstance(expected, bool):
        met = bool(found) == expected
    elif isinstance(expected, str):
        met = {each.severity for each in found} == {expected}
    else:
        met = {each.line for each in found} == {expected}
    return "" if met else f"{code}, expected {expected}: {found or 'nothing'}\n{script}"


def but(text: str, *edits: str) -> str:
    """Return the script with replacements: each text is followed by its replacement."""
    for old, new in zip(edits[::2], edits[1::2], strict=True):
        assert old in text, old
        text = text.replace(old, new)
    return text
