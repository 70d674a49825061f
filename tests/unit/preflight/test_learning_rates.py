"""Learning rates that are scaled too late, and schedules that are too short for what steps them.

Sources: torch/optim/optimizer.py, which takes the rate when it is made; PyTorch's documentation of CosineAnnealingLR,
OneCycleLR and SequentialLR, and of transformers' get_linear_schedule_with_warmup: all count the calls of ``step``.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import DDP, P4D, TORCHRUN, codes

JOB: dict[str, Any] = {"instance_type": P4D, "instance_count": 2, "distribution": TORCHRUN}
ARGUMENTS = (
    "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr', type=float, default=0.1)\n"
)
BEGIN = ARGUMENTS + "args = parser.parse_args()\n" + DDP + "world = dist.get_world_size()\n"
MADE = "optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)\n"
LOOP = "for x in loader:\n    model(x).sum().backward()\n    optimizer.step()\n    optimizer.zero_grad()\n"

LATE = [
    MADE + "args.lr *= world\n",
    MADE + "args.lr = args.lr * world\n",
    MADE + "args.lr = dist.get_world_size() * args.lr\nprint(f'rate {args.lr}')\n",
    MADE + "args.lr *= world\nif dist.get_rank() == 0:\n    logger.info('rate %g', args.lr)\n",
    "optimizer = torch.optim.AdamW(model.parameters(), args.lr)\nargs.lr = args.lr * world\n",
    "lr = args.lr\noptimizer = torch.optim.AdamW(model.parameters(), lr)\nlr *= world\n",
]
RIGHT = [
    "args.lr *= world\n" + MADE,
    MADE + "args.lr *= world\nfor group in optimizer.param_groups:\n    group['lr'] = args.lr\n",
    MADE + "args.lr *= world\noptimizer = torch.optim.SGD(model.parameters(), lr=args.lr)\n",
    MADE + "args.lr *= world\nschedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=9)\n",
    MADE + "args.lr *= world\ndef warm_up(step):\n    optimizer.param_groups[0]['lr'] = args.lr * min(1, step / 500)\n",
    MADE + "args.lr *= 0.1\n",
    MADE + "args.batch = args.lr * world\n",
    "optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * world)\nargs.lr *= world\n",
    "for fold in range(3):\n    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)\n    args.lr *= world\n",
]


@pytest.mark.parametrize("text", LATE)
def test_a_rate_that_is_scaled_after_the_optimizer_has_no_effect(text: str) -> None:
    assert "TW521" in codes(BEGIN + text + LOOP, JOB), text


@pytest.mark.parametrize("text", RIGHT)
def test_a_rate_that_the_optimizer_gets(text: str) -> None:
    assert "TW521" not in codes(BEGIN + text + LOOP, JOB), text


PER_BATCH = """
from types import MappingProxyType
from torch.optim import lr_scheduler
from transformers import get_linear_schedule_with_warmup
parser.add_argument('--epochs', type=int, default=90)
parser.add_argument('--warmup_epochs', type=int, default=5)
args = parser.parse_args()
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def made(optimizer, length):
    return lr_scheduler.CosineAnnealingLR(optimizer, length)
schedule = {schedule}
for epoch in range(args.epochs):
    for step, x in enumerate(loader):
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        {inner}
    {outer}
"""
SHORT = [
    "lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)",
    "lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs - args.warmup_epochs)",
    "lr_scheduler.CosineAnnealingLR(optimizer, T_max=vars(args)['epochs'])",
    "lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=args.epochs)",
    "made(optimizer, args.epochs)",
    "{'cosine': made}['cosine'](optimizer, args.epochs)",
    "MappingProxyType({'cosine': lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=args.epochs)})['cosine'](optimizer)",
    "lr_scheduler.StepLR(optimizer, 9) if chosen else lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)",
    "lr_scheduler.SequentialLR(optimizer, [lr_scheduler.LinearLR(optimizer, total_iters=500), "
    "lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)], milestones=[500])",
    "get_linear_schedule_with_warmup(optimizer, 0, args.epochs)",
]
LONG = [
    "lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(loader))",
    "made(optimizer, args.epochs * len(loader))",
    "lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps_per_epoch)",
    "lr_scheduler.StepLR(optimizer, args.epochs)",
]


@pytest.mark.parametrize("schedule", SHORT)
def test_a_schedule_of_epochs_is_not_stepped_at_every_batch(schedule: str) -> None:
    assert "TW502" in codes(ARGUMENTS + DDP + PER_BATCH.format(schedule=schedule, inner="schedule.step()", outer=""))
    right = PER_BATCH.format(schedule=schedule, inner="pass", outer="schedule.step()")
    assert "TW502" not in codes(ARGUMENTS + DDP + right), right


@pytest.mark.parametrize("schedule", LONG)
def test_a_schedule_of_all_steps(schedule: str) -> None:
    text = PER_BATCH.format(schedule=schedule, inner="schedule.step()", outer="")
    assert "TW502" not in codes(ARGUMENTS + DDP + text)


@pytest.mark.parametrize(
    ("reported", "inner"),
    [
        (True, "if schedule is not None:\n            schedule.step()"),
        (True, "if schedule:\n            schedule.step()"),
        (False, "if (step + 1) % len(loader) == 0:\n            schedule.step()"),
        (False, "if each_batch:\n            schedule.step()"),
        (False, "schedule.step(epoch + step / len(loader))"),
    ],
)
def test_when_a_schedule_is_stepped(reported: bool, inner: str) -> None:
    text = ARGUMENTS + DDP + PER_BATCH.format(schedule=SHORT[0], inner=inner, outer="")
    assert ("TW502" in codes(text)) is reported


def test_a_schedule_that_is_stepped_with_its_optimizer() -> None:
    text = PER_BATCH.format(schedule=SHORT[0], inner="", outer="")
    update = "        optimizer.step()\n        optimizer.zero_grad()\n"
    assert update in text
    grouped = "        if step % 4 == 3:\n            optimizer.step()\n            optimizer.zero_grad()\n"
    text = ARGUMENTS + DDP + text.replace(update, grouped + "            schedule.step()\n")
    assert "TW502" in codes(text)
    assert "TW502" not in codes(text.replace("args.epochs)", "args.epochs * len(loader) // 4)"))


# Each process's validation loss, over its own share (horovod/horovod #1095).
PLATEAU = (
    DDP
    + "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    + "schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)\n"
    + "def divided(rows):\n    sampler = DistributedSampler(rows)\n"
    + "    return DataLoader(rows, sampler=sampler), sampler\n"
    + "loader, sampler = divided(training)\nheld_out, _ = divided(validation)\n"
    + "for epoch in range(9):\n    sampler.set_epoch(epoch)\n    for x in loader:\n        model(x).sum().backward()\n"
    + "        optimizer.step()\n{validate}    schedule.step(value)\n"
)
VALIDATED = (
    "    total, seen = torch.zeros(1).cuda(), torch.zeros(1).cuda()\n"
    "    with torch.no_grad():\n        for x in held_out:\n            total += model(x).sum(){item}\n"
    "            seen += {number}\n{joined}    value = {value}\n"
)
LISTED = (
    "    losses = []\n    with torch.inference_mode():\n        for x in held_out:\n"
    "            losses.append(model(x).sum().item())\n{joined}    value = {value}\n"
)
BOTH = "    dist.all_reduce(total)\n    dist.all_reduce(seen)\n"


@pytest.mark.parametrize(
    ("reported", "validate"),
    [
        # The mean is taken after the block that keeps no graph.
        (True, VALIDATED.format(item=".item()", number="len(x)", joined="", value="total / seen")),
        (True, VALIDATED.format(item=".item() * len(x)", number="len(x)", joined="", value="total / seen")),
        (True, VALIDATED.format(item="", number="x.size(0)", joined="", value="(total / seen).item()")),
        (True, VALIDATED.format(item="", number="1", joined="", value="total.item() / len(held_out)")),
        (True, VALIDATED.format(item="", number="1", joined="", value="total")),
        (True, LISTED.format(joined="", value="sum(losses) / len(losses)")),
        (True, LISTED.format(joined="    import numpy\n", value="numpy.mean(losses)")),
        (False, VALIDATED.format(item="", number="len(x)", joined=BOTH, value="total / seen")),
        (False, VALIDATED.format(item="", number="len(x)", joined="    dist.broadcast(total, 0)\n", value="total")),
        (
            False,
            LISTED.format(
                joined="    mean = torch.tensor(losses).mean().cuda()\n    dist.all_reduce(mean)\n", value="mean.item()"
            ),
        ),
        (False, "    value = model(x).sum().item()\n"),
    ],
)
def test_a_plateau_of_the_own_share(reported: bool, validate: str) -> None:
    script = PLATEAU.format(validate=validate)
    assert ("TW511" in codes(script, JOB)) is reported, script
    whole = script.replace("held_out, _ = divided(validation)", "held_out = DataLoader(validation)")
    assert "TW511" not in codes(whole, JOB)


PER_EPOCH = """
from torch.optim import lr_scheduler
from transformers import get_linear_schedule_with_warmup
parser.add_argument('--epochs', type=int, default=90)
parser.add_argument('--each-epoch', action='store_true')
args = parser.parse_args()
loader = DataLoader(data, 32, shuffle=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
steps = args.epochs * len(loader)
schedule = {schedule}
def train(loader):
    for step, x in enumerate(loader):
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        {inner}
for epoch in range(args.epochs):
    train(loader)
    {outer}
"""
IN_BATCHES = [
    "lr_scheduler.OneCycleLR(optimizer, 0.1, epochs=args.epochs, steps_per_epoch=len(loader))",
    "lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=len(loader) * args.epochs)",
    "lr_scheduler.OneCycleLR(optimizer, 0.1, steps)",
    "lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)",
    "get_linear_schedule_with_warmup(optimizer, 500, steps)",
]
IN_EPOCHS = [
    "lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=args.epochs)",
    "lr_scheduler.OneCycleLR(optimizer, 0.1, epochs=args.epochs, steps_per_epoch=1)",
    "lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)",
    "lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps // len(loader))",
    "lr_scheduler.StepLR(optimizer, 30)",
]


def per_epoch(schedule: str, inner: str = "pass", outer: str = "schedule.step()") -> str:
    return ARGUMENTS + DDP + PER_EPOCH.format(schedule=schedule, inner=inner, outer=outer)


@pytest.mark.parametrize("schedule", IN_BATCHES)
def test_a_schedule_over_all_batches_is_stepped_at_every_batch(schedule: str) -> None:
    """pytorch/pytorch #65417: of a schedule of epochs * steps_per_epoch steps, only the first few were made."""
    assert "TW583" in codes(per_epoch(schedule), JOB)
    assert "TW583" in codes(per_epoch(schedule, outer="if schedule is not None:\n        schedule.step()"), JOB)
    assert "TW583" not in codes(per_epoch(schedule, "schedule.step()", "pass"), JOB)


@pytest.mark.parametrize("schedule", IN_EPOCHS)
def test_a_schedule_of_epochs_is_stepped_once_in_each(schedule: str) -> None:
    assert "TW583" not in codes(per_epoch(schedule), JOB)


@pytest.mark.parametrize(
    ("inner", "outer"),
    [
        ("if not args.each_epoch:\n            schedule.step()", "if args.each_epoch:\n        schedule.step()"),
        ("pass", "for _ in loader:\n        schedule.step()"),
        ("pass", "schedule.step(epoch * len(loader))"),
        ("pass", "if epoch > 5:\n        schedule.step()"),
        ("adjust(schedule, step)\n        schedule.step()", "schedule.step()"),
    ],
)
def test_a_schedule_that_is_stepped_in_another_way(inner: str, outer: str) -> None:
    assert "TW583" not in codes(per_epoch(IN_BATCHES[0], inner, outer), JOB)


def test_parts_of_a_batch_are_no_batches() -> None:
    """Where each batch is divided into parts, the loop around that over the parts is the one over the batches."""
    parts = """
loader = DataLoader(data, 32, shuffle=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, epochs=1, steps_per_epoch=len(loader))
for batch in loader:
    for part in batch.chunk(4):
        model(part).sum().backward()
    optimizer.step()
    schedule.step()
"""
    assert "TW583" not in codes(DDP + parts, JOB)
