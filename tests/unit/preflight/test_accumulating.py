"""no_sync is for the batches after which the optimizer does not step, whichever way the condition is written.

Source: PyTorch's documentation of DistributedDataParallel.no_sync.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import DDP, P4D, TORCHRUN, codes, findings

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


# A number of accumulated batches that the job sets, in conditions that count in other ways.
COUNTED = HEAD + (
    "import argparse\nfrom contextlib import ExitStack\np = argparse.ArgumentParser()\n"
    "p.add_argument('--accumulate', type=int, default=4)\nargs = p.parse_args()\nn = args.accumulate\n"
)
BEGIN = COUNTED + "for i, x in enumerate(loader):\n"
BACKWARD = "model(x).sum().backward()\n"
UPDATE = "        optimizer.step()\n        optimizer.zero_grad()\n"
LAST = "(i + 1) % n == 0"
WITH = BEGIN + "    with {around}:\n        " + BACKWARD + "    if {step}:\n" + UPDATE
SKIP = (
    BEGIN + "    if i >= usable:\n        break\n    with model.no_sync() if {held} else nullcontext():\n        "
    f"{BACKWARD}    if {{skip}}:\n        continue\n{UPDATE.replace('        ', '    ')}"
)
STACK = BEGIN + (
    "    with ExitStack() as stack:\n        if {held}:\n            stack.enter_context(model.no_sync())\n"
    "        " + BACKWARD + "    if " + LAST + ":\n" + UPDATE
)
NAMED = BEGIN + "    {named}\n    with held:\n        " + BACKWARD + "    if " + LAST + ":\n" + UPDATE
BY_HAND_COUNTED = COUNTED + (
    "count = 0\nfor x in loader:\n    {early}\n    with model.no_sync() if count % n else nullcontext():\n        "
    + BACKWARD
    + "    {late}\n    if count % n == 0:\n"
    + UPDATE
)
BRANCHES = (
    BEGIN + "    if {held}:\n        with model.no_sync():\n            " + BACKWARD + "    else:\n        " + BACKWARD
)
BRANCHES += "    if " + LAST + ":\n" + UPDATE
INNER = COUNTED + (
    "for x in loader:\n    for part in range(n):\n        with nullcontext() if {last} else model.no_sync():\n"
    "            model(x[part]).sum().backward()\n    optimizer.step()\n    optimizer.zero_grad()\n"
)
PARAMETER = COUNTED + (
    "def train(every):\n    for i, x in enumerate(loader):\n"
    "        with model.no_sync() if {held} else nullcontext():\n"
    f"            {BACKWARD}        if (i + 1) % every == 0:\n            optimizer.step()\ntrain(args.accumulate)\n"
)
ACCELERATE = (
    "import torch\nfrom accelerate import Accelerator\nfrom contextlib import nullcontext\n"
    "accelerator = Accelerator()\n"
    "model = torch.nn.Linear(2, 2)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n"
    "for i, x in enumerate(loader):\n    with accelerator.no_sync(model) if {held} else nullcontext():\n"
    "        accelerator.backward(model(x).sum())\n    if (i + 1) % 4 == 0:\n" + UPDATE
)
SHARDED = WITH.replace("model = DDP(torch", "model = torch.distributed.fsdp.FullyShardedDataParallel(torch")
SCALED = WITH.replace("sum().backward", "sum()).backward").replace("model(x)", "scaler.scale(model(x)")
SCALED = SCALED.replace("optimizer.step()", "scaler.step(optimizer)").replace("for i,", "scaler = GradScaler()\nfor i,")
OTHER_MODEL = WITH.replace("for i,", "other = DDP(model)\nsecond = torch.optim.SGD(other.parameters(), lr=1)\nfor i,")
OTHER_MODEL = OTHER_MODEL.replace("        optimizer.step", "        second.step").replace("DDP(model)", "DDP(make())")
ELSEWHERE = WITH.replace("for i,", "def update():\n    optimizer.step()\n    optimizer.zero_grad()\nfor i,")
ELSEWHERE = ELSEWHERE.replace(UPDATE, "        update()\n")
TWICE = WITH.replace("    if ", "    model(x).mean().backward()\n    if ")
FIRST = "model.no_sync() if i % n else nullcontext()"
OR_AT_END = LAST + " or i + 1 == len(loader)"


@pytest.mark.parametrize(
    "script",
    [
        WITH.format(around=FIRST, step=LAST),
        WITH.format(around="nullcontext() if not i % n else model.no_sync()", step="not (i + 1) % args.accumulate"),
        WITH.format(around="nullcontext() if i % args.accumulate == 0 else model.no_sync()", step="i % n == n - 1"),
        WITH.format(around="model.no_sync() if n > 1 and i % n > 0 else nullcontext()", step=LAST),
        WITH.format(around="model.no_sync() if hasattr(model, 'no_sync') and i % n else nullcontext()", step=LAST),
        WITH.format(around=FIRST, step=OR_AT_END),
        SKIP.format(held="i % n", skip="(i + 1) % n != 0"),
        STACK.format(held="i % n != 0"),
        NAMED.format(named=f"held = {FIRST}"),
        NAMED.format(named="held = nullcontext()\n    if i % n:\n        held = model.no_sync()"),
        BY_HAND_COUNTED.format(early="", late="count += 1"),
        BRANCHES.format(held="i % n"),
        INNER.format(last="part == 0"),
        PARAMETER.format(held="i % every"),
        ACCELERATE.format(held="i % 4 != 0"),
        SHARDED.format(around=FIRST, step=LAST),
        SCALED.format(around=FIRST, step=LAST),
        ELSEWHERE.format(around=FIRST, step=LAST),
    ],
)
def test_a_step_after_a_batch_that_is_not_reduced(script: str) -> None:
    assert "TW496" in codes(script, JOB), script
    assert "TW496" not in codes(script, JOB | {"hyperparameters": {"accumulate": 1}}) or "% 4" in script, script


@pytest.mark.parametrize(
    "script",
    [
        WITH.format(around="model.no_sync() if (i + 1) % n else nullcontext()", step=LAST),
        WITH.format(around="model.no_sync() if i % n != n - 1 else nullcontext()", step=LAST),
        WITH.format(
            around="nullcontext() if (i + 1) % args.accumulate == 0 else model.no_sync()", step="i % n == n - 1"
        ),
        WITH.format(around=f"nullcontext() if {OR_AT_END} else model.no_sync()", step=OR_AT_END),
        WITH.format(around="model.no_sync() if (i + 1) % n and i < len(loader) - 1 else nullcontext()", step=OR_AT_END),
        WITH.format(around=FIRST, step="i % n == 0"),
        # Steps that each process makes for itself, and conditions that are not known.
        WITH.format(around=FIRST, step="True"),
        WITH.format(around=FIRST, step="due(i)"),
        WITH.format(around=FIRST, step=LAST + " and ready"),
        WITH.format(around="model.no_sync() if waits(i) else nullcontext()", step=LAST),
        SKIP.format(held="(i + 1) % n", skip="(i + 1) % n != 0"),
        STACK.format(held="(i + 1) % n != 0"),
        NAMED.format(named="held = model.no_sync() if (i + 1) % n else nullcontext()"),
        BY_HAND_COUNTED.format(early="count += 1", late=""),
        BRANCHES.format(held="(i + 1) % n"),
        INNER.format(last="part == n - 1"),
        PARAMETER.format(held="(i + 1) % every"),
        ACCELERATE.format(held="(i + 1) % 4 != 0"),
        SHARDED.format(around="model.no_sync() if (i + 1) % n else nullcontext()", step=LAST),
        OTHER_MODEL.format(around=FIRST, step=LAST),
        TWICE.format(around=FIRST, step=LAST),
        # The weights are averaged instead.
        WITH.format(around=FIRST, step=LAST) + "    for p in model.parameters():\n        dist.all_reduce(p)\n",
        ELSEWHERE.format(around="model.no_sync() if (i + 1) % n else nullcontext()", step=LAST),
    ],
)
def test_a_step_after_a_batch_that_is_reduced(script: str) -> None:
    assert "TW496" not in codes(script, JOB), script


def test_the_last_batch_of_a_loader_is_not_reduced() -> None:
    """Of a loader whose length is no multiple, the rest is stepped within no_sync."""
    script = WITH.format(around="model.no_sync() if (i + 1) % n else nullcontext()", step=OR_AT_END)
    assert [(f.severity, "the last batch" in f.message) for f in findings(script, JOB) if f.code == "TW496"] == [
        ("warning", True)
    ]
