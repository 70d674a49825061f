"""Batches that are drawn by chance: by one seed they are the same in every process.

Sources: PyTorch's notes on reproducibility and its documentation of torch.Generator; NumPy's of default_rng; nanoGPT's
train.py, whose seed has the rank as its offset.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, TORCHRUN, codes, parser

JOB: dict[str, Any] = {"instance_type": P4D, "instance_count": 2, "distribution": TORCHRUN}
BEGIN = (
    "import os, random\nimport numpy as np\nimport torch\nimport torch.distributed as dist\n"
    "from torch.nn.parallel import DistributedDataParallel as DDP\n"
    + parser("'--seed', type=int, default=1")
    + "dist.init_process_group('nccl')\nrank = dist.get_rank()\ntorch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n"
    "model = DDP(torch.nn.Linear(64, 1).cuda())\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
)
SEEDED = BEGIN + "torch.manual_seed(1)\n"
DATA = "tokens = np.memmap('/opt/ml/input/data/training/tokens.bin')\n"
STEP = "    model(x.cuda()).mean().backward()\n    optimizer.step()\n    optimizer.zero_grad()\n"
LOOP = "for step in range(1000):\n    x = {}\n" + STEP


def drawn(draw: str, seed: str = "", *, data: str = DATA) -> str:
    """A training on what a function returns."""
    return BEGIN + f"{seed}\n{data}def batch():\n    {draw}\n" + LOOP.format("batch()")


TORCH = (
    "starts = torch.randint(len(tokens) - 64, (8,))\n    return torch.stack([cut(tokens[s:s + 64]) for s in starts])"
)
NUMPY = TORCH.replace("torch.randint(len(tokens) - 64, (8,))", "np.random.randint(0, len(tokens) - 64, 8)")
ONE_BY_ONE = (
    "rows = []\n    for each in range(8):\n        start = random.randrange(len(tokens) - 64)\n"
    "        rows.append(cut(tokens[start:start + 64]))\n    return torch.stack(rows)"
)
SAMPLED = "return rows[random.sample(range(len(rows)), 8)]"
ROWS = "rows = torch.load('/opt/ml/input/data/training/rows.pt')\n"
WITH = "starts = torch.randint(len(tokens) - 64, (8,), generator=chance)\n    return cut(tokens[starts])"
CLASS = """
class Windows:
    def __init__(self, tokens, seed):
        self.tokens = tokens
        self.chance = np.random.{made}
    def draw(self):
        starts = self.chance.{draw}(len(self.tokens) - 64, size=8)
        return torch.stack([cut(self.tokens[s:s + 64]) for s in starts])
windows = Windows(tokens, {seed})
"""
GENERATOR = (
    "\ndef batches(chance):\n    while True:\n        yield cut(tokens[chance.integers(len(tokens) - 64, size=8)])\n"
)
SHUFFLED = (
    "for epoch in range(9):\n    order = {}\n    for start in range(0, len(rows), 8):\n"
    "        x = rows[order[start:start + 8]]\n" + STEP.replace("    ", "        ")
)


def of_class(made: str = "default_rng(seed)", draw: str = "integers", seed: str = "args.seed") -> str:
    return BEGIN + DATA + CLASS.format(made=made, draw=draw, seed=seed) + LOOP.format("windows.draw()")


def of_generator(seed: str) -> str:
    text = f"{BEGIN}{DATA}{GENERATOR}stream = batches(np.random.default_rng({seed}))\n"
    return text + LOOP.format("next(stream)")


ALIKE = [
    drawn(TORCH, "torch.manual_seed(1337)"),
    drawn(TORCH, "torch.manual_seed(args.seed)"),
    drawn(TORCH, "import transformers\ntransformers.set_seed(args.seed)"),
    drawn(TORCH, "def fix(seed):\n    torch.manual_seed(seed)\nfix(args.seed)"),
    drawn(NUMPY, "np.random.seed(args.seed)"),
    drawn(ONE_BY_ONE, "random.seed(7)"),
    drawn(SAMPLED, "random.seed(7)", data=ROWS),
    drawn(WITH, "chance = torch.Generator().manual_seed(args.seed)"),
    drawn(WITH, "chance = torch.Generator()\nchance.manual_seed(args.seed)"),
    of_class(),
    of_class("RandomState(seed)", "randint"),
    of_class(seed="1337"),
    of_generator("args.seed"),
    SEEDED + ROWS + SHUFFLED.format("torch.randperm(len(rows))"),
]
APART = [
    drawn(TORCH),  # no seed: each process has one of its own
    drawn(TORCH, "torch.manual_seed(1337 + rank)"),
    drawn(TORCH, "torch.manual_seed(args.seed)\nbuild()\ntorch.manual_seed(args.seed + rank)"),
    drawn(TORCH, "args.seed += rank\ntorch.manual_seed(args.seed)"),
    drawn(TORCH, "import accelerate\naccelerate.utils.set_seed(args.seed, device_specific=True)"),
    drawn(TORCH, "torch.manual_seed(seed_of_process())"),
    drawn(TORCH, "torch.manual_seed(int.from_bytes(os.urandom(4)))"),
    drawn(TORCH, "np.random.seed(args.seed)"),  # of another library
    drawn(NUMPY, "np.random.seed(args.seed + 100 * rank)"),
    drawn(ONE_BY_ONE, "random.seed(7 + rank)"),
    drawn(SAMPLED, "random.seed(7)", data=ROWS + "rows = rows[rank::dist.get_world_size()]\n"),
    drawn(TORCH, "torch.manual_seed(1)", data="tokens = np.memmap(f'/opt/ml/input/data/training/{rank}.bin')\n"),
    drawn(TORCH.replace("for s in starts", "for s in starts.chunk(16)[rank]"), "torch.manual_seed(1)"),
    drawn(WITH, "chance = torch.Generator().manual_seed(args.seed + rank)"),
    of_class(seed="args.seed + rank"),
    of_class(seed="[args.seed, rank]"),
    of_generator("args.seed + rank"),
    SEEDED + ROWS + SHUFFLED.format("torch.randperm(len(rows))[rank::dist.get_world_size()]"),
    # What is drawn for batches of a loader: a crop, a time step.
    SEEDED + "for x in train_loader:\n    i = torch.randint(len(x) - 8, (1,))\n    x = x[i:i + 8]\n" + STEP,
    SEEDED + "for step in range(9):\n    t = torch.randint(0, 100, (8,))\n    x = noise[t] * rows(step)\n" + STEP,
    SEEDED + "for step in range(9):\n    x = rows(step)\n    x = x[torch.randperm(len(x))]\n" + STEP,
    # What each process has made itself.
    drawn("return buffer[random.sample(range(len(buffer)), 8)]", "random.seed(7)", data="buffer = Buffer()\n"),
    # An evaluation on the same samples in every process.
    SEEDED + DATA + "@torch.no_grad()\ndef batch():\n    " + TORCH + "\n"
    "for step in range(9):\n    x = rows(step)\n" + STEP + "    print(model(batch()))\n",
]  # fmt: skip


@pytest.mark.parametrize("text", ALIKE)
def test_the_same_samples_in_every_process(text: str) -> None:
    assert "TW551" in codes(text, JOB), text
    assert "TW551" not in codes(text, {"instance_type": "ml.g5.xlarge"}), text


@pytest.mark.parametrize("text", APART)
def test_samples_of_its_own_in_each_process(text: str) -> None:
    assert "TW551" not in codes(text, JOB), text
