"""Accelerate, DeepSpeed, Trainer and Lightning: what the script must still do, left out and nearly left out.

Sources: Accelerate's guide (migrating code), DeepSpeed's (getting started), transformers' ``training_args.py``,
Lightning's documentation of Trainer.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, TORCHRUN, Case, but, parser, unmet

ONE: dict[str, Any] = {"instance_type": P4D, "distribution": TORCHRUN}
TWO = ONE | {"instance_count": 2}
ALONE: dict[str, Any] = {"instance_type": P4D}
HALF: dict[str, Any] = {"instance_type": "ml.g4dn.xlarge", "distribution": TORCHRUN}  # one GPU
MPI: dict[str, Any] = {"instance_type": P4D, "distribution": {"mpi": {"enabled": True, "processes_per_host": 8}}}
GOOD = """
import os
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
accelerator = Accelerator()
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters())
loader = DataLoader(data)
val = DataLoader(held_out)
model, optimizer, loader, val = accelerator.prepare(model, optimizer, loader, val)
for x in loader:
    loss = model(x).sum()
    accelerator.backward(loss)
    optimizer.step()
for x in val:
    results = accelerator.gather(model(x))
"""
PREPARE = "model, optimizer, loader, val = accelerator.prepare(model, optimizer, loader, val)\n"
STEP = "    accelerator.backward(loss)\n"
CLIP = "    torch.nn.utils.clip_grad_norm_(model.parameters(), 1)\n"


def prepared(*names: str) -> str:
    """The script, with only these things prepared."""
    words = ", ".join(names)
    return but(GOOD, PREPARE, f"{words} = accelerator.prepare({words})\n")


UNPREPARED = but(GOOD, PREPARE, "")
NO_VAL = prepared("model", "optimizer", "loader")
PREPARED: list[Case] = [
    ("TW155", False, GOOD, ONE),
    ("TW155", 7, UNPREPARED, ONE),
    ("TW155", False, but(UNPREPARED, "from accelerate", "import accelerate\nfrom work"), ONE),
    ("TW155", False, but(UNPREPARED, "accelerator = Accelerator()", "def other():\n    it = Accelerator()"), ONE),
    ("TW155", False, but(UNPREPARED, STEP, ""), ONE),
    ("TW155", False, but(UNPREPARED, "from accelerate", "if several:\n    from accelerate"), ONE),
    ("TW155", False, but(prepared("optimizer", "loader", "val"), "SGD(model.parameters())", "SGD(weights)",
                         "loader = D", "count = model.parameters()\nloader = D"), ONE),
    ("TW155", 8, but(prepared("optimizer", "loader", "val"), "loader = D",
                     "other = torch.optim.SGD(head.parameters())\nloader = D"), ONE),
    ("TW155", False, but(prepared("model", "optimizer"), "DataLoader(", "WebLoader(", "import os",
                         "from webdataset import WebLoader"), ONE),
    ("TW155", 10, but(prepared("model", "loader", "val"), "import os", "class Own:\n    pass", "(model, loader, val)",
                      "(model, loader, val, Own())"), ONE),
    ("TW155", False, but(GOOD, PREPARE, "model = accelerator.prepare_model(model)\n"), ONE),
    ("TW155", False, but(GOOD, PREPARE, "everything = accelerator._prepare(model, optimizer, loader, val)\n"), ONE),
    ("TW155", False, but(GOOD, PREPARE, "everything = accelerator.prepare(*everything)\n"), ONE),
    ("TW155", 9, prepared("model", "loader", "val"), ONE),
    ("TW155", 8, prepared("optimizer", "loader", "val"), ONE),
    ("TW155", 10, prepared("model", "optimizer"), ONE),
    ("TW155", False, but(prepared("model", "optimizer"), "DataLoader", "batches"), ONE),
    ("TW155", False, but(prepared("optimizer", "loader", "val"), "SGD(model.parameters())", "SGD(weights)"), ONE),
    ("TW155", False, but(prepared("model", "loader", "val"), "torch.optim.SGD", "work.made"), ONE),
    ("TW155", False, but(prepared("model", "loader", "val"), "optimizer = ", "def other():\n    return "), ONE),
    ("TW155", False, but(GOOD, PREPARE, "a, b = accelerator.prepare(model, given())\n"), ONE),
    ("TW155", False, but(GOOD, PREPARE, "a, b, c, d = accelerator.prepare(model, optimizer, loader, d=val)\n"), ONE),
    # The loader whose batches are trained on, as they are.
    ("TW155", "error", prepared("model", "optimizer", "val"), ONE),
    ("TW155", False, prepared("model", "optimizer", "val"), ALONE),
    ("TW155", False, but(prepared("model", "optimizer", "val"), "in loader", "in DataLoader(data)"), ONE),
    ("TW155", False, but(prepared("model", "optimizer", "val"), "for x in loader", "for x in rows"), ONE),
    ("TW155", False, but(GOOD, PREPARE, "a = accelerator.prepare(model, optimizer, val, it())\n"),
     ONE),
    # What is gathered of a loader that was not prepared is there once for each process.
    ("TW155", "warning", NO_VAL, ONE),
    ("TW155", "warning", but(NO_VAL, "gather(", "gather_for_metrics("), ONE),
    ("TW155", False, NO_VAL, ALONE),
    ("TW155", False, but(NO_VAL, "accelerator.gather(model(x))", "model(x)"), ONE),
    ("TW155", False, but(NO_VAL, "accelerator.gather(", "work.gather("), ONE),
    ("TW155", False, but(NO_VAL, "DataLoader(held_out)", "DataLoader(held_out, sampler=chosen)"), ONE),
    ("TW155", False, but(NO_VAL, "DataLoader(held_out)", "DataLoader(held_out, 8, False, chosen)"), ONE),
    ("TW155", False, but(NO_VAL, "DataLoader(held_out)", "DataLoader(held_out[accelerator.process_index])"), ONE),
    ("TW155", False, but(NO_VAL, "for x in val", "for x in DataLoader(held_out)"), ONE),
    ("TW155", False, but(NO_VAL, "for x in val:\n    results", "results"), ONE),
    ("TW155", False, but(NO_VAL, "for x in val:", "def it():\n  for x in val:"), ONE),
    ("TW155", False, but(GOOD, PREPARE, "a, b, c, d = accelerator.prepare(model, optimizer, loader, it())\n"), ONE),
    # prepare() divides the data of a DistributedSampler again.
    *[("TW175", reported, but(script, "DataLoader(data)", f"DataLoader(data{words})"), job)
      for reported, script, words, job in (
        (True, GOOD, ", sampler=DistributedSampler(data)", TWO),
        (True, GOOD, ", 8, False, DistributedSampler(data)", TWO),
        (False, GOOD, ", sampler=DistributedSampler(data)", HALF),
        (False, GOOD, ", sampler=torch.utils.data.RandomSampler(data)", TWO),
        (False, GOOD, "", TWO),
        (False, prepared("model", "optimizer", "val"), ", sampler=DistributedSampler(data)", TWO),
    )],
]  # fmt: skip
FP16 = but(GOOD, "Accelerator()", "Accelerator(mixed_precision='fp16')")
BACKWARD: list[Case] = [
    ("TW156", True, but(GOOD, STEP, "    loss.backward()\n"), ONE),
    ("TW156", False, but(GOOD, STEP, "    loss.backward(ones)\n"), ONE),
    ("TW156", False, but(GOOD, STEP, "    loss.backward()\n"), ALONE),
    ("TW156", False, but(GOOD, STEP, f"    loss.backward()\n{STEP}"), ONE),
    ("TW156", False, f"{GOOD}def other(loss):\n    loss.backward()\n", ONE),
    ("TW156", False, but(GOOD, STEP, "    loss.backward(ones)\n") + "def other(loss):\n    loss.backward()\n", ONE),
    ("TW156", False, but(GOOD, STEP, "    work.backward(loss)\n"), ONE),
    ("TW156", False, but(GOOD, STEP, "    it.backward(ones)\n    from work import backward\n    backward()\n"), ONE),
    ("TW156", True, but(FP16, STEP, STEP + CLIP), ONE),
    ("TW156", False, but(GOOD, STEP, STEP + CLIP), ONE),
    ("TW156", False, but(FP16, "fp16", "bf16", STEP, STEP + CLIP), ONE),
    ("TW156", False, but(FP16, "'fp16'", "chosen", STEP, STEP + CLIP), ONE),
    ("TW156", False, but(FP16, STEP, f"{STEP}    accelerator.clip_grad_norm_(model.parameters(), 1)\n"), ONE),
    ("TW156", False, FP16 + CLIP.strip() + "\n", ONE),
    ("TW156", False, f"{FP16}def other():\n    for x in loader:\n    {CLIP}", ONE),
]  # fmt: skip
MODEL = "os.path.join(os.environ['SM_MODEL_DIR'], 'm')"
SAVED: list[Case] = [
    *[("TW443", expected, GOOD + "from safetensors.torch import save_file\n" + words + "\n", ONE)
      for expected, words in (
        ("warning", f"torch.save(model.state_dict(), {MODEL})"),
        ("warning", f"torch.save(model.state_dict(), f={MODEL})"),
        ("warning", f"save_file(model.state_dict(), {MODEL})"),
        ("warning", f"save_file(model.state_dict(), filename={MODEL})"),
        (False, f"torch.save(accelerator.unwrap_model(model).state_dict(), {MODEL})"),
        (False, f"torch.save(accelerator.get_state_dict(model), {MODEL})"),
        (False, "torch.save(model.state_dict(), '/opt/ml/checkpoints/m')"),
        (False, "torch.save(model.state_dict())"),
        (False, f"torch.save(f={MODEL})"),
        (False, f"torch.save(args, {MODEL})"),
        (False, f"torch.save(model.weight, {MODEL})"),
        (False, f"torch.save(optimizer.state_dict(), {MODEL})"),
        (False, f"torch.save(teacher.state_dict(), {MODEL})"),
        (False, f"torch.save(model.state_dict(), {MODEL})\nmodel.load_state_dict(torch.load({MODEL}))"),
        (False, f"torch.save(model.state_dict(), {MODEL})\nAccelerator(fsdp_plugin=plugin)"),
        (False, f"torch.save(model.state_dict(), {MODEL})\nAccelerator(deepspeed_plugin=plugin)"),
        (False, f"def other():\n    torch.save(model.state_dict(), {MODEL})"),
        (False, f"work.keep(model.state_dict(), {MODEL})"),
    )],
    ("TW443", False, f"{GOOD}torch.save(model.state_dict(), {MODEL})\n", ALONE),
    ("TW443", False, but(GOOD, PREPARE, f"model = torch.distributed.fsdp.FSDP(model)\n{PREPARE}")
     + f"torch.save(model.state_dict(), {MODEL})\n", ONE),
]  # fmt: skip
SPEED = """
import torch
import deepspeed
engine, optimizer, _, _ = deepspeed.initialize(model=model, config="ds.json")
own = torch.optim.SGD(weights)
for x in loader:
    loss = engine(x)
    engine.backward(loss)
    engine.step()
"""
BACK, DO = "    engine.backward(loss)\n", "    engine.step()\n"
TRANSFORMERS = "import torch\nfrom transformers import Trainer\n"
DEEPSPEED: list[Case] = [
    ("TW156", False, SPEED, ONE),
    *[("TW156", expected, but(SPEED, *edits), ONE) for expected, edits in (
        (8, (BACK, "    loss.backward()\n")),
        (False, (BACK, "    loss.backward()\n", "deepspeed.initialize", "work.initialize")),
        (False, (BACK, "    loss.backward()\n", "engine, optimizer", "def other():\n    engine, optimizer")),
        (False, (BACK, f"    loss.backward()\n{BACK}")),
        (False, (BACK, "    loss.backward(ones)\n")),
        (False, (BACK, "    model.backward()\n")),
        (False, (BACK, "    from work import backward\n    backward()\n")),
        (False, ("for x in loader:", "if True:", BACK, "    loss.backward()\n")),
        (9, (DO, "    own.step()\n")),
        (False, (DO, "    optimizer.step()\n")),
        (False, (DO, "    schedule.step()\n")),
        (False, (DO, "    from work import step\n    step()\n")),
        (False, (DO, f"{DO}    from work import step\n    step()\n")),
        (True, (DO, "    from work import step\n    if last:\n        step()\n        own.step()\n")),
        (False, ("import deepspeed\n", "if fast:\n    import deepspeed\n", BACK, "    loss.backward()\n")),
        (False, ("for x in loader:", "if True:", DO, "    own.step()\n")),
        (False, (DO, "    if fast:\n        engine.step()\n    else:\n        own.step()\n")),
        (True, (DO, "    if last:\n        own.step()\n")),
        (True, (DO, "    engine.step()\n    own.step()\n")),
        # A branch without backward is left to Trainer.
        (False, ("import torch\n", TRANSFORMERS, BACK, "", DO, "    own.step()\n")),
        (9, ("import torch\n", TRANSFORMERS, BACK, "    loss.backward()\n")),
        # The engine steps the optimizer.
        ("warning", (DO, f"{DO}    optimizer.step()\n")),
        (False, (DO, "    if fast:\n        engine.step()\n    else:\n        optimizer.step()\n")),
        (False, (DO, f"{DO}for x in other:\n    optimizer.step()\n")),
        (False, (DO, f"{DO}optimizer.step()\n")),
        (False, ("for x in loader:", "if True:", DO, f"{DO}    optimizer.step()\n")),
        (False, (DO, f"{DO}def other():\n    for x in loader:\n        engine.step()\n        optimizer.step()\n")),
    )],
    ("TW156", False, f"{SPEED}def it(loss):\n    for x in rows:\n        loss.backward()\n        own.step()\n", ONE),
]  # fmt: skip
TRAINER = (
    "from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, Trainer, TrainingArguments\n"
    "from trl import SFTConfig, SFTTrainer\nargs = {made}('out', {words})\n{trainer}\n"
)


def trainer(words: str, trainer: str = "", made: str = "TrainingArguments") -> str:
    return TRAINER.format(words=words, trainer=trainer, made=made)


BEST = "load_best_model_at_end=True"
ARGUMENTS: list[Case] = [
    *[("TW157", expected, trainer(words), ONE) for expected, words in (
        ("error", "fp16=True, bf16=True"), (False, "fp16=True, bf16=use"), (False, "fp16=True"), (False, "bf16=True"),
        # Without save_strategy, older versions save when they evaluate.
        ("warning", BEST), ("warning", f"{BEST}, eval_strategy='epoch'"),
        ("error", f"{BEST}, eval_strategy='epoch', save_strategy='steps'"),
        ("error", f"{BEST}, eval_strategy='epoch', save_strategy='steps', eval_steps=5"),
        (False, f"{BEST}, eval_strategy='epoch', eval_steps=5"),
        (False, f"{BEST}, eval_strategy='steps'"), (False, f"{BEST}, evaluation_strategy='steps'"),
        (False, f"{BEST}, save_strategy=chosen"), (False, f"{BEST}, evaluation_strategy=chosen"),
        (False, f"{BEST}, eval_strategy=chosen"), ("warning", f"{BEST}, learning_rate=chosen"),
        (False, f"{BEST}, **more"), (False, "eval_strategy='epoch', save_strategy='steps'"),
        (False, f"{BEST}, save_strategy='no'"),
    )],
    *[("TW157", True, trainer("fp16=True, bf16=True", made=made), ONE)
      for made in ("TrainingArguments", "Seq2SeqTrainingArguments", "SFTConfig")],
    ("TW157", False, trainer("fp16=True, bf16=True", made="Settings"), ONE),
    # Volta and Turing have no bfloat16.
    *[("TW157", reported, trainer(words), {"instance_type": kind}) for reported, words, kind in (
        (True, "bf16=True", "ml.p2.xlarge"), (True, "bf16=True", "ml.p3.2xlarge"),
        (True, "bf16=True", "ml.p3dn.24xlarge"), (True, "bf16=True", "ml.g4dn.xlarge"),
        (False, "bf16=True", "ml.g5.xlarge"), (False, "bf16=False", "ml.p3.2xlarge"),
        (True, "fp16=True", "ml.c5.xlarge"), (False, "fp16=False", "ml.c5.xlarge"),
        (False, "fp16=True", "ml.g4dn.xlarge"), ("warning", f"{BEST}, fp16=True", "ml.c5.xlarge"),
        ("warning", f"{BEST}, bf16=True", "ml.p3.2xlarge"),
    )],
    ("TW157", False, trainer("bf16=True"), None),
    ("TW157", False, parser("'--half', type=bool, default=True") + trainer("fp16=args.half, bf16=True"), ONE),
    ("TW157", False, trainer("fp16=True"), None),
    *[("TW157", reported, trainer(f"eval_strategy={when}", which), ONE) for reported, when, which in (
        (True, "'steps'", "Trainer(model, args)"), (True, "'epoch'", "Trainer(model, args)"),
        (True, "'epoch'", "Trainer(model=model, args=args)"), (False, "'no'", "Trainer(model, args)"),
        (True, "'epoch'", "Seq2SeqTrainer(model, args)"), (True, "'epoch'", "SFTTrainer(model, args)"),
        (False, "'epoch'", "OwnTrainer(model, args)"), (False, "'epoch'", "Trainer(model, other)"),
        (False, "'epoch'", "Trainer(model, args, eval_dataset=rows)"),
        (False, "'epoch'", "Trainer(model, args, collate, rows, rows)"),
        (True, "'epoch'", "Trainer(model, args, collate, rows)"),
        (False, "'epoch'", "Trainer(model, args, **more)"), (False, "chosen", "Trainer(model, args)"),
        (False, "'epoch'", "def other():\n    Trainer(model, args)"),
    )],
]  # fmt: skip
LOADED = """
import torch
from transformers import AutoModel, Trainer
model = AutoModel.from_pretrained('m', device_map={value})
{after}"""
GO = "Trainer(model=model).train()\n"
FLAG = (
    "import argparse\np = argparse.ArgumentParser()\np.add_argument('--map', default='auto')\nargs = p.parse_args()\n"
)


def mapped(value: str, after: str = GO) -> str:
    return LOADED.format(value=value, after=after)


MAPPED: list[Case] = [
    *[("TW158", reported, mapped(value), ONE) for reported, value in (
        (True, "'auto'"), (True, "'balanced'"), (False, "'balanced_low_0'"), (True, "0"), (True, "'cuda:0'"),
        (False, "'cuda'"), (False, "'cuda:x'"), (False, "True"), (True, "{'': 0}"), (True, "{'': 'cuda:3'}"),
        (True, "torch.device('cuda:0')"), (True, "{'': torch.device('cuda', 0)}"),
        (False, "{'': True}"), (False, "{'body': 0}"), (False, "{'': 0, 'head': 1}"), (False, "{'': 'cpu'}"),
        (False, "{'': int(os.environ['LOCAL_RANK'])}"), (False, "None"),
    )],
    *[("TW158", reported, but(mapped("{'': torch.cuda.current_device()}"), "model = ", f"{before}\nmodel = "), ONE)
      for reported, before in (
        (True, ""), (True, "import transformers\ntransformers.set_seed(1)"), (False, "torch.cuda.set_device(local)"),
        (False, "from accelerate import PartialState\nPartialState()"),
        (False, "torch.distributed.init_process_group()"),
        (False, "from transformers import TrainingArguments\nTrainingArguments('/tmp/x')"),
    )],
    ("TW158", True, mapped("torch.cuda.current_device()"), ONE),
    ("TW158", False, mapped("'auto'", "model.generate(x)\n"), ONE),
    ("TW158", False, mapped("'auto'").replace(", device_map='auto'", ""), ONE),
    ("TW158", False, parser("'--gpu', type=int, default=0") + mapped("{'': args.gpu}"), ONE),
    ("TW158", True, mapped("'auto'", "def step():\n    model(x).backward()\n"), ONE),
    ("TW158", False, but(mapped("'auto'"), "from_pretrained", "read"), ONE),
    ("TW158", False, but(mapped("'auto'"), "model = ", "def other():\n    return "), ONE),
    ("TW158", False, but(mapped("'auto'"), "model = ", "if int(os.environ['RANK']) == 0:\n    model = ",
                         "from trans", "import os\nfrom trans"), ONE),
    ("TW158", False, FLAG + mapped("args.map"), ONE),
    ("TW158", False, mapped("0") + "os.environ.update(CUDA_VISIBLE_DEVICES=each)\n", ONE),
    ("TW158", True, mapped("0", GO), MPI),
    ("TW158", True, mapped("'auto'", GO), TWO | {"instance_type": "ml.g4dn.xlarge"}),
    ("TW158", False, mapped("0", GO), TWO | {"instance_type": "ml.g4dn.xlarge"}),
    ("TW158", False, mapped("'auto'"), HALF),
    ("TW158", False, mapped("'auto'"), ALONE | {"instance_count": 2}),
    ("TW158", False, mapped("'auto'"), None),
]  # fmt: skip
PARSED = but(FLAG, "'--map', default='auto'", "'--n', type=int, default=4")
LIGHTNING: list[Case] = [
    *[("TW159", reported, f"{head}\ntrainer = {words}\ntrainer.fit(model)\n", job)
      for reported, head, words, job in (
        (True, "import pytorch_lightning as pl", "pl.Trainer(devices=8)", TWO),
        (True, "import lightning as L", "L.Trainer(devices=8)", TWO),
        (True, "from lightning.pytorch import Trainer", "Trainer()", TWO),
        (False, "import pytorch_lightning as pl", "work.Trainer(devices=8)", TWO),
        (False, "import pytorch_lightning as pl\nfrom work import Trainer", "Trainer()", TWO),
        (False, "from work import lightning", "lightning.Trainer()", TWO),
        (False, "import pytorch_lightning as pl", "pl.Trainer(devices=8, num_nodes=2)", TWO),
        (True, "import pytorch_lightning as pl", "pl.Trainer(devices=8, num_nodes=3)", TWO),
        (False, "import pytorch_lightning as pl", "pl.Trainer(devices=8, num_nodes=nodes)", TWO),
        (False, f"import pytorch_lightning as pl\n{PARSED}", "pl.Trainer(devices=8, num_nodes=args.n)", TWO),
        (False, f"import pytorch_lightning as pl\n{PARSED}", "pl.Trainer(devices=args.n)", ONE),
        (False, "import pytorch_lightning as pl", "pl.Trainer(num_nodes=3)", ONE),
        (False, "import pytorch_lightning as pl", "pl.Trainer(**more)", TWO),
        (False, "import pytorch_lightning as pl\nimport horovod.torch as hvd", "pl.Trainer()", TWO),
        (True, "import pytorch_lightning as pl", "pl.Trainer(devices=4)", ONE),
        (True, "import pytorch_lightning as pl", "pl.Trainer(gpus=4)", ONE),
        (True, "import pytorch_lightning as pl", "pl.Trainer(devices=4, num_nodes=2)", TWO),
        (False, "import pytorch_lightning as pl", "pl.Trainer(devices=8)", ONE),
        (False, "import pytorch_lightning as pl", "pl.Trainer(devices=-1)", ONE),
        (False, "import pytorch_lightning as pl", "pl.Trainer(devices='auto')", ONE),
        (False, "import pytorch_lightning as pl", "pl.Trainer(devices=4)", ALONE),
        (False, "import pytorch_lightning as pl", "pl.Trainer()", ONE),
        (False, "import pytorch_lightning as pl", "pl.Trainer(devices=4)", None),
    )],
    ("TW159", False, "import pytorch_lightning as pl\ndef other():\n    pl.Trainer(devices=4)\n", ONE),
]  # fmt: skip
CASES: list[Case] = [*PREPARED, *BACKWARD, *SAVED, *DEEPSPEED, *ARGUMENTS, *MAPPED, *LIGHTNING]


@pytest.mark.parametrize("case", CASES)
def test_what_a_library_leaves_to_the_script(case: Case) -> None:
    """Check that a rule reports the script or not, with the severity or the line that the case names."""
    assert not unmet(case)
