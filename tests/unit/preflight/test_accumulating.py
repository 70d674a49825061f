"""no_sync is for the batches after which the optimizer does not step, whichever way the condition is written.

Source: PyTorch's documentation of DistributedDataParallel.no_sync.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import DDP, P4D, TORCHRUN, codes

JOB: dict[str, Any] = {"instance_type": P4D, "instance_count": 2, "distribution": TORCHRUN}
HEAD = (
    DDP + "from contextlib import nullcontext\nmodel = DDP(torch.nn.Linear(2, 2).cuda())\n"
    "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
)
LOOP = (
    HEAD + "for i, x in enumerate(loader):\n    last = (i + 1) % 4 == 0\n"
    "    with {around}:\n        model(x).sum().backward()\n"
)
SKIPPED = LOOP + "    if {skip}:\n        continue\n    optimizer.step()\n    optimizer.zero_grad()\n"
UNDER = LOOP + "    if {step}:\n        optimizer.step()\n        optimizer.zero_grad()\n"
FUNCTION = HEAD + (
    "def update():\n    optimizer.step()\n    optimizer.zero_grad()\n"
    "for i, x in enumerate(loader):\n    last = (i + 1) % 4 == 0\n"
    "    with {around}:\n        model(x).sum().backward()\n    if last:\n        update()\n"
)
# All but the last of the parts of a batch are within no_sync, and the whole of it is under one condition.
PARTS = HEAD + (
    "for x in loader:\n    if several:\n        for part in x[:-1]:\n            with model.no_sync():\n"
    "                model(part).sum().backward()\n        model(x[-1]).sum().backward()\n"
    "        optimizer.step()\n        optimizer.zero_grad()\n"
)
# The step of the accumulated batches comes before the first of the next ones.
BEFORE = HEAD + (
    "for i, x in enumerate(loader):\n    first = i % 2 == 0\n    if first:\n        optimizer.step()\n"
    "        optimizer.zero_grad()\n    with model.no_sync() if first else nullcontext():\n"
    "        model(x).sum().backward()\n"
)
BY_HAND = SKIPPED.replace(
    "    optimizer.step()", "    for p in model.parameters():\n        dist.all_reduce(p.grad)\n    optimizer.step()"
)
ALTERNATING = HEAD + (
    "last = False\nfor x in loader:\n    last = not last\n    with {around}:\n        model(x).sum().backward()\n"
    "    if last:\n        optimizer.step()\n        optimizer.zero_grad()\n"
)


@pytest.mark.parametrize(
    "script",
    [
        SKIPPED.format(around="model.no_sync() if last else nullcontext()", skip="not last"),
        SKIPPED.format(around="nullcontext() if not last else model.no_sync()", skip="not last"),
        SKIPPED.format(around="model.no_sync() if last else nullcontext()", skip="(i + 1) % 4"),
        SKIPPED.format(around="model.no_sync() if last else nullcontext()", skip="(i + 1) % 4 != 0"),
        UNDER.format(around="model.no_sync() if (i + 1) % 4 == 0 else nullcontext()", step="last"),
        UNDER.format(around="model.no_sync() if not (i + 1) % 4 else nullcontext()", step="(i + 1) % 4 == 0"),
        FUNCTION.format(around="model.no_sync() if last else nullcontext()"),
        ALTERNATING.format(around="model.no_sync() if last else nullcontext()"),
    ],
)
def test_the_batch_before_the_step_is_not_reduced(script: str) -> None:
    assert "TW496" in codes(script, JOB), script


@pytest.mark.parametrize(
    "script",
    [
        SKIPPED.format(around="nullcontext() if last else model.no_sync()", skip="not last"),
        SKIPPED.format(around="model.no_sync() if not last else nullcontext()", skip="not last"),
        SKIPPED.format(around="model.no_sync() if (i + 1) % 4 else nullcontext()", skip="(i + 1) % 4"),
        SKIPPED.format(around="model.no_sync() if other else nullcontext()", skip="not last"),
        UNDER.format(around="model.no_sync() if (i + 1) % 4 != 0 else nullcontext()", step="last"),
        UNDER.format(around="model.no_sync() if i % 4 == 0 else nullcontext()", step="last"),
        FUNCTION.format(around="nullcontext() if last else model.no_sync()"),
        ALTERNATING.format(around="nullcontext() if last else model.no_sync()"),
        PARTS,
        BEFORE,
        BY_HAND.format(around="model.no_sync() if last else nullcontext()", skip="not last"),
    ],
)
def test_the_batch_before_the_step_is_reduced(script: str) -> None:
    assert "TW496" not in codes(script, JOB), script
