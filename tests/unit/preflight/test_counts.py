"""Numbers of one process, or of one host, beside those of the whole job.

Sources: Accelerate, scheduler.py; huggingface/diffusers #3954, huggingface/accelerate #2926.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, TORCHRUN, codes

JOB: dict[str, Any] = {"instance_type": P4D, "instance_count": 2, "distribution": TORCHRUN}
ONE: dict[str, Any] = {"instance_type": "ml.g5.2xlarge"}
BEGIN = (
    "import math\nimport torch\nfrom accelerate import Accelerator\nfrom transformers import get_scheduler\n"
    "from transformers import get_linear_schedule_with_warmup\naccelerator = Accelerator({given})\n"
    "model = torch.nn.Linear(2, 2)\noptimizer = torch.optim.AdamW(model.parameters(), lr=0.1)\n"
    "loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)\n"
)
PREPARE = "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n"
LOOP = (
    "for epoch in range(3):\n    for x in loader:\n        accelerator.backward(model(x).sum())\n"
    "        optimizer.step()\n        schedule.step()\n        optimizer.zero_grad()\n"
)
PREPARED = "schedule = accelerator.prepare(schedule)\n"


def of(length: str) -> str:
    """A schedule of this length."""
    return f"schedule = get_scheduler('linear', optimizer, 10, {length})\n"


def script(*parts: str, given: str = "") -> str:
    """A loop of Accelerate with a schedule."""
    return BEGIN.format(given=given) + "".join(parts) + LOOP


SHORT = [
    script(PREPARE, of("3 * len(loader)"), PREPARED),
    script(PREPARE, "steps = 3 * math.ceil(len(loader) / 4)\n", of("steps"), PREPARED),
    script(PREPARE, "steps = max(1, int(3 * len(loader)))\n", of("num_training_steps=steps"), PREPARED),
    script(PREPARE, "schedule = get_linear_schedule_with_warmup(optimizer, 0, len(loader))\n", PREPARED),
    script(PREPARE, "schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, epochs=3, "
           "steps_per_epoch=len(loader))\n", PREPARED),
    script(PREPARE, "schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3 * len(loader))\n",
           "schedule = accelerator.prepare_scheduler(schedule)\n"),
    script("loader = accelerator.prepare(loader)\n", of("3 * len(loader)"),
           "model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)\n"),
    script(PREPARE, of("3 * len(loader)"), PREPARED, given="split_batches=False"),
]  # fmt: skip
WHOLE = [
    script(PREPARE, of("3 * len(loader)")),
    script("steps = 3 * len(loader)\n", PREPARE, of("steps"), PREPARED),
    script(of("3 * len(loader)"), PREPARE, PREPARED),
    script(PREPARE, of("3 * len(loader) * accelerator.num_processes"), PREPARED),
    script(PREPARE, "steps = 3 * len(loader)\nsteps *= accelerator.num_processes\n", of("steps"), PREPARED),
    script(PREPARE, "each = len(loader) * accelerator.num_processes\n", of("3 * math.ceil(each / 4)"), PREPARED),
    script(PREPARE, "n = accelerator.num_processes\n", of("num_training_steps=n * (3 * len(loader))"), PREPARED),
    script(PREPARE, of("3 * len(loader)"), PREPARED, given="split_batches=True"),
    script(PREPARE, of("3 * len(loader)"), PREPARED, given="step_scheduler_with_optimizer=False"),
    script(PREPARE, of("3 * len(loader)"), PREPARED, given="split_batches=args.split"),
    script(PREPARE, of("3 * len(loader)"), PREPARED, given="**settings"),
    script("from accelerate.utils import DataLoaderConfiguration\n"
           "accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(split_batches=True))\n",
           PREPARE, of("3 * len(loader)"), PREPARED),
    script(PREPARE, of("1000"), PREPARED, "print(len(loader))\n"),
    script("import deepspeed\n", PREPARE, of("3 * len(loader)"), PREPARED),
]  # fmt: skip


@pytest.mark.parametrize("text", SHORT)
def test_a_schedule_of_the_batches_of_one_process_ends_too_early(text: str) -> None:
    assert "TW517" in codes(text, JOB), text
    assert "TW517" not in codes(text, ONE), text


@pytest.mark.parametrize("text", WHOLE)
def test_a_schedule_of_the_steps_that_are_made_is_left_alone(text: str) -> None:
    assert "TW517" not in codes(text, JOB), text
