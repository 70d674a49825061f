"""Rules with several conditions: scripts that meet all of them, and for each condition one that lacks it alone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import DDP, LOOP, P4D, SMP, SMP_JOB, TORCHRUN, codes, findings

TWO: dict[str, Any] = {"instance_type": P4D, "instance_count": 2, "distribution": TORCHRUN}
ONE: dict[str, Any] = {"instance_type": P4D, "distribution": TORCHRUN}


def every_step(line: str, head: str = "import numpy as np\nimport logging\nlogger = logging.getLogger()\n") -> str:
    """A training loop with one more line."""
    return f"{DDP}{head}{LOOP}    {line}\n"


STEPPED = SMP + "@smp.step\ndef step(model, x):\n    loss = model(x)\n    model.backward(loss)\n    return loss\n"


def smp_step(line: str) -> str:
    return f"{STEPPED}for x in loader:\n    loss = step(model, x)\n    {line}\n"


def saved(words: str, head: str = "") -> str:
    return f"{STEPPED}{head}smp.save({words})\n"


OTHERS = "if dist.get_rank() != 0:\n    dist.barrier()\nprepare()\n"
GET = "state = get_model_state_dict(model)"
GETS = "from torch.distributed.checkpoint.state_dict import get_model_state_dict\n"


def ranked(line: str, head: str = DDP) -> str:
    return f"{head}if dist.get_rank() == 0:\n    {line}\n"


def updates(line: str) -> str:
    made = (
        "optimizer = torch.optim.SGD(model.parameters())\nscheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)\n"
    )
    loop = f"for x in loader:\n    model(x).backward()\n    if dist.get_rank() == 0:\n        {line}\n"
    return f"{DDP}{made}{loop}"


ARGUMENTS = "from transformers import Trainer, TrainingArguments\n"


def arguments(words: str) -> str:
    trainer = "trainer = Trainer(model, args, eval_dataset=held_out)"
    return f"{ARGUMENTS}args = TrainingArguments('out', {words})\n{trainer}\ntrainer.train()\n"


MAPPED = "from transformers import AutoModelForCausalLM, Trainer\n"


def mapped(value: str, after: str = "Trainer(model=model).train()\n") -> str:
    return f"{MAPPED}model = AutoModelForCausalLM.from_pretrained('m', device_map={value})\n{after}"


SPEED = "import deepspeed\nengine, optimizer, _, _ = deepspeed.initialize(model=model, config='ds.json')\n"


def speed(backward: str, step: str, *, loop: bool = True) -> str:
    body = f"loss = engine(x)\n    {backward}\n    {step}\n"
    return SPEED + (f"for x in loader:\n    {body}" if loop else f"def work(x):\n    {body}")


OWN = "import torch\nown = torch.optim.SGD(model.parameters())\n"


def accelerated(backward: str, prepared: str) -> str:
    return (
        "import torch\nfrom accelerate import Accelerator\nfrom torch.utils.data import DataLoader\n"
        "accelerator = Accelerator()\nmodel = torch.nn.Linear(2, 2)\n"
        "optimizer = torch.optim.SGD(model.parameters())\nloader = DataLoader(data)\n"
        f"prepared = accelerator.prepare({prepared})\n"
        f"for x in loader:\n    loss = model(x).sum()\n    {backward}\n    optimizer.step()\n"
    )


LIGHTNING = "import pytorch_lightning as pl\n"


def lightning(words: str) -> str:
    return f"{LIGHTNING}trainer = pl.Trainer({words})\ntrainer.fit(model)\n"


SPAWN = "import torch.multiprocessing as mp\n"
MPI: dict[str, Any] = {"instance_type": P4D, "distribution": {"mpi": {"enabled": True, "processes_per_host": 8}}}
SMDDP: dict[str, Any] = {
    "instance_type": P4D,
    "instance_count": 2,
    "distribution": {"smdistributed": {"dataparallel": {"enabled": True}}},
}
FLAG = "import argparse, os\np = argparse.ArgumentParser()\np.add_argument('--local_rank', type=int)\n"
GROUP = "import torch\nimport torch.distributed as dist\ndist.init_process_group({})\n"
RATE = (
    "import torch\nimport horovod.torch as hvd\nhvd.init()\ntorch.cuda.set_device(hvd.local_rank())\n"
    "optimizer = torch.optim.SGD(model.parameters(), lr={})\noptimizer = hvd.DistributedOptimizer(optimizer)\n"
)
ANOMALY = "import torch\ntorch.autograd.set_detect_anomaly({})\n"

CASES: list[tuple[str, bool, str, dict[str, Any] | None]] = [
    # --- at every step
    ("TW150", True, every_step("total = loss.item()"), None),
    ("TW150", True, every_step("total = outputs.tolist()"), None),
    ("TW150", True, every_step("total = loss.detach().cpu().numpy()"), None),
    ("TW150", False, every_step("total = names.tolist()"), None),
    ("TW150", False, every_step("total = np.mean(xs).item()"), None),
    ("TW150", False, every_step("total = numpy.mean(xs).item()", "import numpy\n"), None),
    ("TW151", True, every_step("print(loss)"), None),
    ("TW151", False, every_step("print()"), None),
    ("TW151", False, every_step("print('.', end='')"), None),
    ("TW151", False, every_step("print(loss, end='\\r')"), None),
    ("TW151", True, every_step("print(loss, end=' ')"), None),
    ("TW151", True, every_step("logger.info(loss)"), None),
    ("TW151", False, every_step("meter.info(loss)"), None),
    ("TW151", False, every_step("if step % 100 == 0: print(loss)"), None),
    ("TW153", True, arguments("logging_steps=1"), None),
    ("TW153", True, arguments("save_steps=1"), None),
    ("TW153", False, arguments("save_steps=2"), None),
    ("TW154", True, ANOMALY.format("True"), None),
    ("TW154", True, ANOMALY.format("mode=True"), None),
    ("TW154", False, ANOMALY.format("False"), None),
    ("TW154", False, "import torch\nif args.debug:\n    torch.autograd.set_detect_anomaly(True)\n", None),
    ("TW154", True, "import torch\nif __name__ == '__main__':\n    torch.autograd.set_detect_anomaly(True)\n", None),
    ("TW154", True, "import torch\nwith torch.autograd.detect_anomaly():\n    train()\n", None),
    ("TW154", True, "import torch\nwith torch.autograd.profiler.emit_nvtx():\n    train()\n", None),
    ("TW154", False, "import torch\nwith torch.autograd.no_grad():\n    train()\n", None),
    # --- the model parallel library
    ("TW107", True, SMP.replace("torch.cuda.set_device(smp.local_rank())\n", ""), SMP_JOB),
    ("TW107", False, SMP.replace("torch.cuda.set_device(smp.local_rank())", "model.to(smp.local_rank())"), SMP_JOB),
    ("TW108", True, STEPPED.replace("model.backward(loss)", "loss.backward()"), SMP_JOB),
    ("TW108", False, STEPPED, SMP_JOB),
    ("TW109", True, DDP + LOOP, SMP_JOB),
    ("TW109", True, STEPPED, ONE),
    ("TW109", False, STEPPED, SMP_JOB),
    ("TW116", True, SMP + LOOP, SMP_JOB),
    ("TW116", False, STEPPED + "for x in loader:\n    step(model, x)\n", SMP_JOB),
    ("TW117", True, smp_step("total += loss.item()"), SMP_JOB),
    ("TW117", True, smp_step("total += loss.detach()"), SMP_JOB),
    ("TW117", True, smp_step("total += float(loss)"), SMP_JOB),
    ("TW117", False, smp_step("total += loss.reduce_mean().item()"), SMP_JOB),
    ("TW117", False, smp_step("total += float(loss.reduce_mean())"), SMP_JOB),
    ("TW118", True, saved("model.local_state_dict(), 'm.pt'", "if smp.rank() == 0:\n    "), SMP_JOB),
    ("TW118", True, saved("model.local_state_dict(), 'm.pt', partial=False"), SMP_JOB),
    ("TW118", True, STEPPED + "torch.save(model.local_state_dict(), 'm.pt')\n", SMP_JOB),
    ("TW118", False, STEPPED + "torch.save(model.local_state_dict(), f'm_{smp.rank()}.pt')\n", SMP_JOB),
    ("TW118", False, saved("model.local_state_dict(), 'm.pt', partial=True"), SMP_JOB),
    ("TW118", False, saved("model.state_dict(), 'm.pt', partial=False", "if smp.rank() == 0:\n    "), SMP_JOB),
    ("TW119", True, STEPPED + "scaler = torch.cuda.amp.GradScaler()\n", SMP_JOB),
    ("TW119", False, STEPPED + "scaler = smp.amp.GradScaler()\n", SMP_JOB),
    # --- calls that every process makes
    ("TW128", True, ranked("dist.barrier()"), ONE),
    ("TW128", True, ranked("dist.all_reduce(x)"), ONE),
    ("TW128", False, ranked("dist.all_reduce(x, group=leaders)"), ONE),
    ("TW128", False, ranked("print(x)") + "dist.barrier()\n", ONE),
    ("TW128", False, ranked("dist.barrier()") + "else:\n    dist.barrier()\n", ONE),
    ("TW128", False, f"{DDP}{OTHERS}" + ranked("dist.barrier()", ""), ONE),
    ("TW128", True, ranked("trainer.train()", f"{DDP}{ARGUMENTS}trainer = Trainer(model)\n"), ONE),
    ("TW128", True, ranked("trainer.train()", f"{DDP}from trl import SFTTrainer\ntrainer = SFTTrainer(model)\n"), ONE),
    ("TW128", False, ranked("trainer.train()", f"{DDP}trainer = OwnTrainer(model)\n"), ONE),
    ("TW128", True, ranked("dist.checkpoint.save(x, 'c')", f"{DDP}import torch.distributed.checkpoint\n"), ONE),
    ("TW128", True, ranked(GET, f"{DDP}{GETS}"), ONE),
    ("TW128", False, ranked(GET, f"{DDP}from work import get_model_state_dict\n"), ONE),
    ("TW128", False, ranked("dist.barrier()"), {"instance_type": "ml.g5.xlarge"}),
    ("TW169", True, updates("optimizer.step()"), ONE),
    ("TW169", True, updates("scheduler.step()"), ONE),
    ("TW169", False, updates("scheduler.get_last_lr()"), ONE),
    # --- Trainer
    ("TW157", True, arguments("fp16=True, bf16=True"), ONE),
    ("TW157", False, arguments("fp16=True, bf16=False"), ONE),
    ("TW157", True, "from trl import SFTConfig\nargs = SFTConfig('out', fp16=True, bf16=True)\n", ONE),
    ("TW157", True, arguments("bf16=True"), {"instance_type": "ml.p3.16xlarge"}),
    ("TW157", True, arguments("bf16=True"), {"instance_type": "ml.g4dn.xlarge"}),
    ("TW157", False, arguments("bf16=True"), {"instance_type": "ml.g5.xlarge"}),
    ("TW157", True, arguments("fp16=True"), {"instance_type": "ml.m5.xlarge"}),
    ("TW157", False, arguments("fp16=True"), {"instance_type": "ml.g5.xlarge"}),
    ("TW157", True, arguments("load_best_model_at_end=True, eval_strategy='epoch', save_strategy='steps'"), ONE),
    ("TW157", True, arguments("load_best_model_at_end=True, evaluation_strategy='epoch', save_strategy='no'"), ONE),
    ("TW157", False, arguments("load_best_model_at_end=True, eval_strategy='epoch', save_strategy='epoch'"), ONE),
    ("TW157", False, arguments("load_best_model_at_end=False, eval_strategy='epoch', save_strategy='steps'"), ONE),
    ("TW157", False, arguments("load_best_model_at_end=True, eval_strategy=chosen, save_strategy='steps'"), ONE),
    ("TW157", False, arguments("load_best_model_at_end=True, save_strategy='epoch', **more"), ONE),
    ("TW158", True, mapped("'auto'"), ONE),
    ("TW158", True, mapped("'balanced'"), ONE),
    ("TW158", True, mapped("'auto'", "for x in loader:\n    model(x).loss.backward()\n"), ONE),
    ("TW158", False, mapped("'sequential'"), ONE),
    ("TW158", True, mapped("{'': 0}"), ONE),
    ("TW158", True, mapped("'cuda:1'"), ONE),
    ("TW158", False, mapped("{'': 'cpu'}"), ONE),
    ("TW158", False, mapped("{'': place}"), ONE),
    ("TW158", False, mapped("{'head': 0, 'body': 1}"), ONE),
    ("TW158", False, mapped("{'': 0}", "print(model.generate())\n"), ONE),
    ("TW158", False, mapped("{'': 0}"), {"instance_type": P4D}),
    ("TW158", False, mapped("'auto'", "print(model.generate())\n"), ONE),
    ("TW158", False, mapped("'auto'"), {"instance_type": P4D}),
    # --- DeepSpeed
    ("TW156", True, speed("loss.backward()", "engine.step()"), ONE),
    ("TW156", False, speed("engine.backward(loss)", "engine.step()"), ONE),
    ("TW156", False, speed("loss.backward()", "engine.step()", loop=False), ONE),
    ("TW156", False, speed("loss.backward(ones)", "engine.step()"), ONE),
    ("TW156", True, speed("engine.backward(loss)", "own.step()").replace("engine, opt", f"{OWN}engine, opt"), ONE),
    ("TW156", False, speed("engine.backward(loss)", "optimizer.step()"), ONE),
    ("TW156", False, speed("if fast: engine.backward(loss)", "else: loss.backward()"), ONE),
    ("TW156", False, speed("loss.backward()", "engine.step()").replace("engine, opt", "if False: engine, opt"), ONE),
    # --- Accelerate
    ("TW155", False, accelerated("accelerator.backward(loss)", "model, optimizer, loader"), ONE),
    ("TW155", True, accelerated("accelerator.backward(loss)", "model, loader"), ONE),
    ("TW155", True, accelerated("accelerator.backward(loss)", "model, optimizer"), ONE),
    ("TW155", False, accelerated("accelerator.backward(loss)", "*everything"), ONE),
    ("TW155", False, accelerated("accelerator.backward(loss)", "model, given(), loader"), ONE),
    ("TW156", True, accelerated("loss.backward()", "model, optimizer, loader"), ONE),
    ("TW156", False, accelerated("accelerator.backward(loss)", "model, optimizer, loader"), ONE),
    # --- launchers and libraries
    ("TW123", False, FLAG + "rank = os.environ['LOCAL_RANK']\n", ONE),
    ("TW123", False, FLAG, MPI),
    ("TW126", True, GROUP.format("'smddp'"), ONE),
    ("TW126", True, GROUP.format("backend='smddp'"), ONE),
    ("TW126", False, "import smdistributed.dataparallel.torch.torch_smddp\n" + GROUP.format("'smddp'"), ONE),
    ("TW126", False, GROUP.format("'nccl'"), ONE),
    ("TW127", True, GROUP.format("'nccl'"), SMDDP),
    ("TW127", False, GROUP.format("args.backend"), SMDDP | {"hyperparameters": {"backend": "smddp"}}),
    ("TW127", False, "BACKENDS = ['smddp', 'nccl']\n" + GROUP.format("args.backend"), SMDDP),
    ("TW127", False, "import smdistributed.dataparallel.torch.torch_smddp\n" + GROUP.format("'smddp'"), SMDDP),
    ("TW127", True, "import smdistributed.dataparallel.torch.torch_smddp\n" + GROUP.format("'nccl'"), ONE),
    ("TW127", False, GROUP.format("'nccl'"), ONE),
    ("TW125", True, RATE.format("0.1"), MPI),
    ("TW125", False, RATE.format("0.1 * hvd.size()"), MPI),
    ("TW125", False, RATE.format("0.1"), {"instance_type": P4D}),
    ("TW125", False, RATE.format("0.1") + "from horovod.torch import Adasum\nop = Adasum\n", MPI),
    # --- Lightning
    ("TW159", True, lightning("devices=8"), TWO),
    ("TW159", True, lightning("devices=8, num_nodes=1"), TWO),
    ("TW159", False, lightning("devices=8, num_nodes=2"), TWO),
    ("TW159", False, lightning("devices=8, **more"), TWO),
    ("TW159", True, lightning("devices=4"), ONE),
    ("TW159", True, lightning("gpus=4"), ONE),
    ("TW159", False, lightning("devices=8"), ONE),
    ("TW159", False, lightning("devices=-1"), ONE),
    ("TW159", False, lightning("devices=args.gpus"), ONE),
    ("TW159", False, lightning("devices=4"), {"instance_type": P4D}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("script", "job", "severity"),
    [
        (f"{SPAWN}mp.spawn(work, nprocs=8)\n", ONE, "error"),
        (f"{SPAWN}if __name__ == '__main__':\n    mp.spawn(work, nprocs=8)\n", ONE, "error"),
        # Under a condition of its own, the script may know that a launcher started it.
        (f"{SPAWN}if args.spawn:\n    mp.spawn(work, nprocs=8)\n", ONE, "warning"),
        (f"{SPAWN}mp.spawn(work, nprocs=8)\n", MPI, "error"),
        (f"{SPAWN}mp.spawn(work, nprocs=8)\n", {"instance_type": P4D}, None),
    ],
)
def test_a_launcher_below_a_launcher(script: str, job: dict[str, Any], severity: str | None) -> None:
    assert {each.severity for each in findings(script, job) if each.code == "TW122"} == ({severity} - {None})


@pytest.mark.parametrize(("job", "severity"), [(ONE, "warning"), (None, "note")])
def test_a_flag_that_torchrun_no_longer_passes(job: dict[str, Any] | None, severity: str) -> None:
    assert {each.severity for each in findings(FLAG, job) if each.code == "TW123"} == {severity}


@pytest.mark.parametrize(("code", "reported", "script", "job"), CASES)
def test_it_is_reported_where_all_conditions_are_met(
    code: str, reported: bool, script: str, job: dict[str, Any] | None
) -> None:
    found = codes(script, job)
    assert (code in found) == reported, (found, script)
