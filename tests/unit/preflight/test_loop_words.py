"""The steps of a training loop: mistakes in order, precision and accumulation, and near misses.

Sources: PyTorch's documentation of torch.optim, automatic mixed precision and FSDP, and its FAQ.
"""

from __future__ import annotations

import pytest

from tests.support.training_scripts import P4D, Case, but, parser, unmet

TRAIN = """
import torch
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in loader:
    optimizer.zero_grad()
    loss = model(x).sum()
    loss.backward()
    optimizer.step()
"""
ZERO, STEP = "    optimizer.zero_grad()\n", "    optimizer.step()\n"
NEVER = but(TRAIN, ZERO, "")
BACK = "    loss.backward()\n"
GIVEN = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
NO_ZERO: list[Case] = [
    ("TW137", False, TRAIN, None),
    ("TW137", 7, NEVER, None),
    *[("TW137", False, NEVER + f"{words}\n", None) for words in (
        "model.zero_grad()", "optimizer.clear_grad()", "clear = torch.zero_grad_", "optimizer.clear_gradients()",
        "import torch.distributed.autograd as dist_autograd\ndist_autograd.context()",
        "import torch.distributed.rpc as rpc\nrpc.init_rpc('a')",
        "for p in model.parameters():\n    p.grad = None", "if fast:\n    import deepspeed",
        "if fast:\n    import fairscale", "import composer",
    )],
    ("TW137", True, NEVER + "import torch.sagemaker as tsm\n", None),
    ("TW137", True, NEVER + "p.gradient = None\n", None),
    ("TW137", True, NEVER + "if args.fast:\n    import numpy\n", None),
    ("TW137", False, but(NEVER, GIVEN, "optimizer = given"), None),
    ("TW137", False, but(NEVER, GIVEN, "optimizer = make_optimizer(model)"), None),
    ("TW137", False, but(NEVER, GIVEN, "optimizer = self.make_optimizer(model)"), None),
    ("TW137", False, but(NEVER, GIVEN, "from work import step, zero_grad\noptimizer = Own(model)\nstep()"), None),
    ("TW137", True, but(NEVER, GIVEN, "from timm.optim import create_optimizer\noptimizer = create_optimizer(model)"),
     None),
    ("TW137", False, but(NEVER, "for x in loader:", "if True:"), None),
    ("TW137", False, but(NEVER, STEP, "optimizer.step()\n"), None),
    ("TW137", False, but(NEVER, "for x in loader:", "def work():\n  for x in loader:"), None),
    ("TW137", False, but(NEVER, STEP, "    work(optimizer)\n"), None),
    ("TW137", False, but(NEVER, STEP, "    schedule.step()\n", "for x",
     "schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)\nfor x"), None),
    ("TW137", True, but(NEVER, STEP, "    scaler.step(optimizer)\n"), None),
    ("TW137", True, but(NEVER, STEP, "    xm.optimizer_step(optimizer)\n", "import torch\n",
     "import torch\nimport torch_xla.core.xla_model as xm\n"), None),
    ("TW137", False, but(NEVER, STEP, "    step()\n"), None),
    ("TW137", False, but(NEVER, STEP, "    profiler.step()\n"), None),
    ("TW137", False, but(NEVER, BACK, "") + "loss.backward()\n", None),
    ("TW137", False, but(NEVER, BACK, ""), None),
]  # fmt: skip


def ordered(*lines: str, head: str = "for x in loader:", before: str = "") -> str:
    """A loop of these lines, in their order."""
    start = but(TRAIN[: TRAIN.index("for x")], "import torch\n", "import torch\nfrom torch.optim import SGD\n")
    return start + before + head + "\n" + "".join(f"    {line}\n" for line in lines)


B, Z, S, L = "loss.backward()", "optimizer.zero_grad()", "optimizer.step()", "loss = model(x).sum()"
OTHER = "other = SGD(model.parameters(), lr=1)\n"
EARLY: list[Case] = [
    *[("TW138", expected, ordered(*lines), None) for expected, lines in (
        (9, (L, B, Z, S)),
        (False, (Z, L, B, S)),
        (False, (L, B, S, Z)),
        (7, (Z, S, B)),
        (8, (L, Z, S, B)),
        (False, (B, S, Z, S)),
        (False, (L, B, Z, L, B, S)),
        (10, (L, B, "work()", Z, S)),
        (10, (B, "if a:\n        print(1)", Z, S)),
        (False, (L, B, f"if a:\n        {Z}", S)),
        (False, (L, B, Z, f"if a:\n        {S}")),
        (False, (L, f"if a:\n        {B}", Z, S)),
        (False, (L, f"if a:\n        {B}\n    else:\n        {Z}\n        {S}")),
        (10, (L, f"if a:\n        {B}\n        {Z}\n        {S}")),
        (11, (L, f"if a:\n        {B}\n    if b:\n        {Z}\n        {S}\n    else:\n        {S}")),
        (False, (L, B, "def later():\n        optimizer.zero_grad()\n        optimizer.step()")),
        # The step after the loop sees the gradients of the last pass alone.
        (8, (f"for y in x:\n        {Z}\n        {B}", S)),
        (False, (Z, f"for y in x:\n        {B}", S)),
        (False, (f"for y in x:\n        {Z}\n        {B}\n        {S}", S)),
        (False, (S, f"for y in x:\n        {Z}\n        {B}")),
        (False, (f"for y in x:\n        {Z}\n        print(y)", S)),
        (False, (f"for y in x:\n        {B}\n    for y in x:\n        {Z}", S)),
    )],
    ("TW138", False, ordered(L, B, Z, S, head="if True:"), None),
    ("TW138", False, ordered("    " + L, "    " + B, "    " + Z, "    " + S, head="def work():\n    for x in loader:"),
     None),
    ("TW138", False, ordered("    " + B, "    " + Z, "    " + S, head="def work():\n    for x in loader:",
                             before="for x in loader:\n    print(x)\n"), None),
    # Another optimizer's.
    ("TW138", False, ordered("other.zero_grad()", S, B, before=OTHER), None),
    ("TW138", False, ordered("optimizer.zero_grad()", "other.step()", B, before=OTHER), None),
    ("TW138", False, ordered(B, S, "other.zero_grad()", "other.step()", before=OTHER), None),
    ("TW138", False, ordered(Z, "step()", B, before="step = optimizer.step\n"), None),
]  # fmt: skip
NTH = f"if (i + 1) % 4 == 0:\n        {S}"
EACH = "for i, x in enumerate(loader):"
DROPPED: list[Case] = [
    *[("TW138", expected, ordered(*lines, head=EACH), None) for expected, lines in (
        (7, (Z, L, B, NTH)),
        (False, (L, B, f"if (i + 1) % 4 == 0:\n        {S}\n        {Z}")),
        (7, (Z, L, B, f"if (i + 1) % 4 == 0 or last:\n        {S}")),
        (7, (Z, L, B, "due = (i + 1) % 4 == 0", f"if due:\n        {S}")),
        (False, (Z, L, B, f"if i == 4:\n        {S}")),
        (False, (Z, L, B, f"if i + 1 == 4:\n        {S}")),
        (False, (Z, L, B, f"if due:\n        {S}")),
        (False, (Z, L, B, S)),
        (False, (Z, L, B, NTH, f"if last:\n        {S}")),
        (7, (Z, L, B, NTH, f"if i % 7 == 0:\n        {S}")),
        (False, (Z, L, f"if (i + 1) % 4 == 0:\n        {B}\n        {S}")),
        (False, (f"if begins:\n        {Z}", L, B, NTH)),
        (False, (f"if i % 4 == 0:\n        {Z}", L, B, NTH)),
        (False, (L, B, NTH, f"for y in x:\n        {Z}")),
        (False, (Z, L, f"for y in x:\n        {B}", NTH)),
        (False, (f"def later():\n        {Z}", L, B, NTH)),
    )],
    ("TW138", False, ordered(Z, L, B, NTH, "if i % 4 == 1:\n        other.step()", head=EACH, before=OTHER), None),
    *[("TW138", False, ordered(Z, L, B, NTH, head=EACH, before=f"{words}\n"), None) for words in (
        "import composer", "import horovod.torch as hvd", "if fast:\n    import deepspeed",
         "if fast:\n    import accelerate",
    )],
]  # fmt: skip
AMP = """
import copy
import torch
from transformers import AutoModel, Seq2SeqTrainer, SFTTrainer, Trainer, TrainingArguments
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.cuda.amp.GradScaler()
for x in loader:
    optimizer.zero_grad()
    loss = model(x).sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""
SCALER = "scaler = torch.cuda.amp.GradScaler()\n"
FLAG = parser("'--half', type=bool, default=True")
HALVES: list[Case] = [
    ("TW139", False, AMP, None),
    *[("TW139", reported, but(AMP, SCALER, f"{SCALER}{words}\n"), None) for reported, words in (
        (True, "model.half()"), (True, "model.to(torch.float16)"), (True, "model.to(torch.half)"),
        (True, "model.to(dtype=torch.float16)"), (True, "model.to(device, torch.half)"),
        (False, "model.to(torch.bfloat16)"), (False, "model.to(device)"), (False, "rows.half()"), (False, "half()"),
        (False, "mean = copy.deepcopy(model)\nmean.half()"), (False,
         "mean = copy.deepcopy(model)\nmean.to(torch.half)"),
        (False, "y = model(x)\ny.to(torch.half)"), (False, "def later():\n    model.half()"),
        (False, "def later():\n    model.to(torch.half)"), (False, f"{FLAG}if args.half:\n    model.half()"),
        (True, "if found:\n    model.half()"),
    )],
    *[("TW139", reported, but(AMP, SCALER, words + "\nmodel.half()\n"), None) for reported, words in (
        (False, "scaler = torch.cuda.amp.GradScaler(enabled=False)"), (True,
         "scaler = torch.cuda.amp.GradScaler(enabled=True)"),
        (True, "scaler = torch.cuda.amp.GradScaler(enabled=use)"),
        (True, f"off = torch.cuda.amp.GradScaler(enabled=False)\n{SCALER}"),
        (False, "from work import scaler"), (True, "pass"), (False, "from work import scale as scaler"),
    )],
    ("TW139", False, but(AMP, "scaler.step(optimizer)", "optimizer.step()", SCALER, f"{SCALER}model.half()\n"), None),
    *[("TW139", reported, f"import torch\n{FLAG}model = torch.nn.Linear(2, 2).half()\n{words}\n", None) for reported,
     words in (
        (True, "TrainingArguments('out', fp16=True)"), (True, "Seq2SeqTrainingArguments('out', fp16=True)"),
        (True, "SFTConfig('out', fp16=True)"), (False, "Settings('out', fp16=True)"),
        (False, "TrainingArguments('out', fp16=False)"), (False, "TrainingArguments('out', fp16=args.half)"),
        (False, "TrainingArguments('out', bf16=True)"), (False, "TrainingArguments('out', fp16=chosen)"),
    )],
]  # fmt: skip


def loaded(words: str, *edits: str) -> str:
    """A model that is loaded with these words."""
    return but(AMP, "torch.nn.Linear(2, 2)", f"AutoModel.from_pretrained('m', {words})", *edits)


F16 = "torch_dtype=torch.float16"
TRAINED = "TrainingArguments('out', fp16=True)\nmodel = AutoModel.from_pretrained('m', torch_dtype=torch.float16)\n"
LOADED: list[Case] = [
    *[("TW139", reported, loaded(words), None) for reported, words in (
        (5, F16), (True, "torch_dtype=torch.half"), (True, "dtype=torch.float16"), (True, "torch_dtype='float16'"),
        (True, "torch_dtype='half'"), (False, "torch_dtype='auto'"), (False, "torch_dtype=torch.float32"),
        (False, "revision=torch.float16"), (False, "torch_dtype=chosen"), (False, "torch_dtype=pick(torch.float16)"),
    )],
    ("TW139", True, loaded("torch_dtype=kind", "model = ", "kind = torch.float16\nmodel = "), None),
    ("TW139", False, loaded("torch_dtype=kind", "model = ",
     "kind = torch.float16\nif new:\n    kind = torch.bfloat16\nmodel = "), None),
    ("TW139", False, loaded("torch_dtype=args.kind", "model = ",
     but(FLAG, "type=bool, default=True", "default='half'", "--half", "--kind") + "model = "), None),
    ("TW139", False, loaded(F16, "model = ", "if found:\n    model = "), None),
    ("TW139", False, loaded(F16, "model = ", "teacher = "), None),
    ("TW139", False, loaded(F16, "model = ", "def later():\n    model = "), None),
    ("TW139", True, loaded(F16, "model.parameters()", "model.named_parameters()"), None),
    ("TW139", False, loaded(F16, "model.parameters()", "model.children()"), None),
    *[("TW139", False, loaded(F16, "optimizer = ", f"{words}\noptimizer = "), None) for words in (
        "model.float()", "model.to(torch.float32)", "model.to(dtype=torch.float32)", "import peft\npeft.wrap()",
         "use_lora = 1",
        "import deepspeed\ndeepspeed.zero", "fsdp = 1", "fully_shard(model)", "model.add_adapter('a')",
         "quantization = 1",
        "more(load_in_8bit=True)", "model.embed.requires_grad = False",
    )],
    ("TW139", True, loaded(F16, "optimizer = ", "model.to(torch.bfloat16)\noptimizer = "), None),
    ("TW139", True, loaded(F16, "optimizer = ", "rows.float()\noptimizer = "), None),
    ("TW139", True, loaded(F16, "optimizer = ", "def later():\n    model.float()\noptimizer = "), None),
    ("TW139", False, loaded(F16, "optimizer = ", but(FLAG, "--half", "--use_lora") + "optimizer = "), None),
    ("TW139", False, loaded(F16), {"instance_type": P4D, "hyperparameters": {"use_lora": 1}}),
    ("TW139", False, loaded(F16), {"instance_type": P4D, "environment": {"USE_LORA": "1"}}),
    ("TW139", True, loaded(F16), {"instance_type": P4D, "hyperparameters": {"lr": 1}}),
    ("TW139", False, loaded(F16, SCALER, "scaler = torch.cuda.amp.GradScaler(enabled=False)\n"), None),
    *[("TW139", reported, f"{AMP[: AMP.index('model =')]}{TRAINED}{words}\n", None) for reported, words in (
        (True, "Trainer(model)"), (True, "Trainer(model=model)"), (True, "Seq2SeqTrainer(model)"),
        (True, "SFTTrainer(model)"), (False, "Judge(model)"), (False, "Trainer(other, model)"),
        (False, "def later():\n    Trainer(model)"),
    )],
]  # fmt: skip
MADE = "import torch\nmodel = torch.nn.Linear(2, 2)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
REST = "for x in loader:\n    optimizer.zero_grad()\n    model(x).sum().backward()\n    optimizer.step()\n"
FSDP = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard\n"
XM = "import torch_xla.core.xla_model as xm\n"
STALE: list[Case] = [
    *[("TW147", expected, head + MADE + words + REST, None) for expected, head, words in (
        (5, FSDP, "model = FSDP(model)\n"),
        (5, FSDP, "fully_shard(model)\n"),
        (5, "import torch.sagemaker as tsm\n", "model = tsm.transform(model)\n"),
        (5, XM, "model = model.to(xm.xla_device())\n"),
        (False, FSDP, "other = FSDP(other)\n"),
        (False, "", "from work import transform\nmodel = transform(model)\n"),
        (False, "", "model = model.to('cuda')\n"),
        (False, XM, "model = model.to('cpu')\n"),
        (False, XM, "rows = rows.to(xm.xla_device())\n"),
        (False, XM, "send(model, xm.xla_device())\n"),
        (False, f"try:\n    {XM}except ImportError:\n    xm = None\n", "model = model.to(xm.xla_device())\n"),
        (False, FSDP, "def later():\n    FSDP(model)\n"),
        (False, FSDP, "model = FSDP()\n"),
    )],
    ("TW147", False, FSDP + but(MADE, "optimizer = ", "model = FSDP(model)\noptimizer = ") + REST, None),
    ("TW147", False, FSDP + but(MADE, "optimizer = ", "optimizer = work.") + "model = FSDP(model)\n" + REST, None),
    ("TW147", False, FSDP + MADE + "model = FSDP(model)\n", None),
]  # fmt: skip
SUMS: list[Case] = [
    *[("TW149", expected, TRAIN + f"{words}\n", None) for expected, words in (
        (10, "    total += loss"), (False, "    total += loss.detach()"), (False, "    total += other"),
        (False, "    total -= loss"), (False, "    total = total + loss"), (False, "    loss += loss"),
        (False, "    total = 0\n    total += loss"), (False, "total += loss"), (11, "    other = 0\n    total += loss"),
        (False, "    total += loss\n    total.backward()"), (False, "    total += loss\n    (total / 2).backward()"),
        (10, "    total += loss\n    total.detach()"), (10, "    total += loss\n    backward(total)"),
    )],
    ("TW149", 6, but(TRAIN, "for x in loader:", "while True:\n    total += loss"), None),
    ("TW149", False, but(TRAIN, "for x in loader:", "while True:\n    total = 0\n    total += loss"), None),
    ("TW149", 7, but(TRAIN, "for x in loader:", "total = 0\nfor x in loader:\n    total += loss"), None),
    # A function of one step, called in the loop.
    ("TW149", True, "def step(x):\n    global total\n    loss = model(x)\n    loss.backward()\n    total += loss\n"
     "for x in loader:\n    step(x)\n", None),
    ("TW149", False, "def step(x):\n    global total\n    loss = model(x)\n    loss.backward()\n    total += loss\n"
     "    total.backward()\nfor x in loader:\n    step(x)\n", None),
    ("TW149", True, "for x in loader:\n    (loss / 2).backward()\n    total += loss\n", None),
    ("TW149", True, "def run():\n    for x in loader:\n        loss.backward()\n        total += loss\n", None),
    ("TW149", False, "def run():\n    for x in loader:\n        loss.backward()\n        total += loss\n"
     "    total.backward()\n", None),
]  # fmt: skip
CASES: list[Case] = [*NO_ZERO, *EARLY, *DROPPED, *HALVES, *LOADED, *STALE, *SUMS]


@pytest.mark.parametrize("case", CASES)
def test_a_step_of_the_loop(case: Case) -> None:
    """Check that a rule reports the script or not, with the severity or the line that the case names."""
    assert not unmet(case)
