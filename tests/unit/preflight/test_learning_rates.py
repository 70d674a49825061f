"""A learning rate that is scaled too late: PyTorch's optimizers take it when they are made."""

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
