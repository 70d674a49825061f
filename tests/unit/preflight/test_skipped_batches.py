"""An exception in one process: the batch that it skips is one whose gradients the others reduce.

Source: PyTorch's documentation of DistributedDataParallel, whose backward is a collective; NVIDIA-NeMo/Automodel #2468.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import DDP, P4D, TORCHRUN, but, findings

JOB: dict[str, Any] = {"instance_type": P4D, "distribution": TORCHRUN}
HEAD = (
    DDP.replace("model = DDP(model)\n", "")
    + "model = DDP(torch.nn.Linear(2, 2).cuda())\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    "sampler = DistributedSampler(data)\nloader = DataLoader(data, sampler=sampler)\nskipped = 0\n"
)
TRIED = HEAD + (
    "for x in loader:\n    try:\n        loss = model(x.cuda()).sum()\n        loss.backward()\n"
    "    except {caught}:\n        {then}\n    optimizer.step()\n    optimizer.zero_grad()\n"
)
FORWARD = HEAD + (
    "for x in loader:\n    try:\n        loss = model(x.cuda()).sum()\n    except {caught}:\n        {then}\n"
    "    loss.backward()\n    optimizer.step()\n    optimizer.zero_grad()\n"
)
HELPER = HEAD + (
    "def step(x):\n    try:\n        model(x).sum().backward()\n    except {caught}:\n        {then}\n    return True\n"
    "for x in loader:\n    step(x.cuda())\n    optimizer.step()\n    optimizer.zero_grad()\n"
)
AROUND = HEAD + (
    "def step(x):\n    model(x).sum().backward()\n"
    "for x in loader:\n    try:\n        step(x.cuda())\n    except {caught}:\n        {then}\n"
    "    optimizer.step()\n    optimizer.zero_grad()\n"
)
MEMORY = "torch.cuda.OutOfMemoryError"
COUNTED = "skipped += 1\n        optimizer.zero_grad()\n        continue"
CERTAIN = "if 'out of memory' in str(error):\n            torch.cuda.empty_cache()\n            continue\n        raise"
EITHER = "if 'memory' not in str(error):\n            raise\n        torch.cuda.empty_cache()\n        continue"
APART = [
    TRIED.format(caught=MEMORY, then=COUNTED),
    TRIED.format(caught="torch.OutOfMemoryError as error", then="print(error)\n        del loss\n        continue"),
    TRIED.format(caught="RuntimeError as error", then=CERTAIN),
    TRIED.format(caught="RuntimeError as error", then=EITHER),
    TRIED.format(caught="(ValueError, FloatingPointError)", then="skipped += 1"),
    TRIED.format(caught="Exception", then="pass"),
    FORWARD.format(caught=MEMORY, then=COUNTED),
    HELPER.format(caught=MEMORY, then="return False"),
    HELPER.format(caught=MEMORY, then="torch.cuda.empty_cache()"),
    AROUND.format(caught=MEMORY, then=COUNTED),
]
AGREED = "told = torch.ones(1).cuda()\n        dist.all_reduce(told)\n        continue"
TOGETHER = [
    TRIED.format(caught=MEMORY, then="raise"),
    TRIED.format(caught=MEMORY, then="print('the batch does not fit')\n        raise"),
    TRIED.format(caught="StopIteration", then="continue"),
    TRIED.format(caught="KeyboardInterrupt", then="continue"),
    TRIED.format(
        caught="RuntimeError",
        then="if dist.get_world_size() > 1:\n            raise\n        skipped += 1\n        continue",
    ),
    # Each process says whether it has failed before any of them calls backward.
    FORWARD.format(caught=MEMORY, then=AGREED),
    FORWARD.format(caught=MEMORY, then="tell_others()\n        continue").replace(
        "for x in", "def tell_others():\n    dist.all_reduce(torch.ones(1).cuda())\nfor x in"
    ),
    but(
        FORWARD.format(caught=MEMORY, then="failed.fill_(1)"),
        "    try:\n",
        "    failed = torch.zeros(1).cuda()\n    try:\n",
        "    loss.backward()\n",
        "    dist.all_reduce(failed)\n    if failed.item():\n        continue\n    loss.backward()\n",
    ),
    # What is only evaluated reduces nothing.
    FORWARD.format(caught=MEMORY, then="continue").replace("    loss.backward()\n", "    print(loss)\n"),
    # One attempt after the other, each from the start.
    HEAD + "size = 64\nwhile size:\n    try:\n        for x in batches(size):\n"
    "            model(x.cuda()).sum().backward()\n"
    "            optimizer.step()\n        break\n    except RuntimeError:\n        size //= 2\n        continue\n",
]


def reported(script: str, job: dict[str, Any]) -> bool:
    return any(each.code == "TW401" and "skips the batch" in each.message for each in findings(script, job))


@pytest.mark.parametrize("script", APART)
def test_a_batch_that_one_process_skips(script: str) -> None:
    assert reported(script, JOB), script
    assert not reported(script, {"instance_type": "ml.g5.2xlarge"}), script


@pytest.mark.parametrize("script", TOGETHER)
def test_a_failure_that_all_processes_know_of(script: str) -> None:
    assert not reported(script, JOB), script
