"""Lightning: manual optimization beside the Trainer's options, and the interval of a schedule.

Sources: lightning, trainer/configuration_validator.py; Lightning-AI/pytorch-lightning #19774, #9300.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, TORCHRUN, codes, findings

JOB: dict[str, Any] = {"instance_type": P4D, "distribution": TORCHRUN, "hyperparameters": {"clip": 0.5}}
MANUAL = """
import argparse
import lightning as L
import torch

class Base(L.LightningModule):
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())

class Net({base}):
    {field}
    def __init__(self, by_hand=False):
        super().__init__()
        {init}
        self.layer = torch.nn.Linear(8, 8)

    def training_step(self, batch, index):
        optimizer = self.optimizers()
        loss = self.layer(batch).sum()
        self.manual_backward(loss)
        optimizer.step()

parser = argparse.ArgumentParser()
parser.add_argument("--clip", type=float, default=0.0)
args = parser.parse_args()
trainer = L.Trainer(devices=8, {options})
trainer.{call}
"""
BY_HAND = {
    "base": "Base",
    "field": "pass",
    "init": "self.automatic_optimization = False",
    "options": "gradient_clip_val=1.0",
    "call": "fit(Net(), loader)",
}
PROPERTY = "@property\n    def automatic_optimization(self):\n        {}\n"


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"options": "gradient_clip_val=args.clip"},
        {"options": "accumulate_grad_batches=4"},
        {"options": "**{'gradient_clip_val': 1, 'max_epochs': 3}"},
        {"init": "pass", "field": "automatic_optimization = False"},
        {"init": "pass", "field": PROPERTY.format("return False")},
        {"call": "fit(model=Net(), train_dataloaders=loader)"},
        {"base": "L.LightningModule"},
    ],
    ids=["clip", "argument", "accumulate", "options", "field", "property", "named", "no base"],
)
def test_a_trainer_that_is_to_do_what_the_module_does_by_hand(changed):
    found = [f.severity for f in findings(MANUAL.format(**BY_HAND | changed), JOB) if f.code == "TW578"]
    assert found == ["error"]


@pytest.mark.parametrize(
    "changed",
    [
        {"init": "pass"},
        {"init": "self.automatic_optimization = True"},
        {"init": "self.automatic_optimization = not by_hand"},
        {"options": "max_epochs=3"},
        {"options": "gradient_clip_val=0"},
        {"options": "gradient_clip_val=None, accumulate_grad_batches=1"},
        {"options": "gradient_clip_algorithm='norm'"},
        {"options": "gradient_clip_val=CLIP"},
        {"call": "test(Net(), loader)"},
        {"call": "fit(make(), loader)"},
        {"init": "if by_hand:\n            self.automatic_optimization = False"},
        {"init": "pass", "field": PROPERTY.format("if self.by_hand:\n            return False\n        return True")},
        {"init": "pass", "field": PROPERTY.format("return not self.by_hand")},
        {"call": "fit(Net() if DEBUG else Base(), loader)"},
    ],
)
def test_a_trainer_that_leaves_it_to_the_module(changed):
    assert "TW578" not in codes(MANUAL.format(**BY_HAND | changed), JOB)


def test_a_value_that_only_the_job_decides():
    text = MANUAL.format(**BY_HAND | {"options": "gradient_clip_val=args.clip"})
    assert "TW578" not in codes(text, {**JOB, "hyperparameters": {"clip": 0.0}})
    assert "TW578" not in codes(text)


SCHEDULED = """
import lightning.pytorch as pl
import torch
from torch.optim import lr_scheduler as rates
from transformers import get_cosine_schedule_with_warmup

class Net(pl.{base}):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def training_step(self, batch, index):
        return self.layer(batch).sum()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.1)
        {made}
        return {returned}

trainer = pl.Trainer(devices=8, max_epochs=20)
trainer.fit(Net(), loader)
{more}
"""
TOTAL = "self.trainer.estimated_stepping_batches"
PARTS = (
    f"total = int({TOTAL})\n        warmup = rates.LinearLR(optimizer, 0.1, total_iters=int(0.1 * total))\n"
    "        decay = rates.CosineAnnealingLR(optimizer, T_max=total - int(0.1 * total))\n"
    "        schedule = rates.SequentialLR(optimizer, [warmup, decay], milestones=[int(0.1 * total)])"
)
CHAINED = "ChainedScheduler([warmup, decay])"
IN_DICT = '{"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule}}'
RETURNED = {
    "base": "LightningModule",
    "made": f"schedule = rates.OneCycleLR(optimizer, max_lr=0.1, total_steps={TOTAL})",
    "returned": IN_DICT,
    "more": "",
}


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"returned": '{"optimizer": optimizer, "lr_scheduler": schedule}'},
        {"returned": "[optimizer], [schedule]"},
        {"returned": '[optimizer], [{"scheduler": schedule, "name": "rate"}]'},
        {"returned": '{"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "epoch"}}'},
        {"returned": '{"optimizer": optimizer, "lr_scheduler": schedule, "interval": "step"}'},
        {"made": f"total = {TOTAL}\n        schedule = rates.CosineAnnealingLR(optimizer, total)"},
        {"made": "schedule = rates.OneCycleLR(optimizer, 0.1, epochs=20, steps_per_epoch=len(loader))"},
        {"made": f"schedule = get_cosine_schedule_with_warmup(optimizer, 100, {TOTAL})"},
        {"made": f"total = {TOTAL}\n        schedule = rates.LambdaLR(optimizer, lambda step: 1 - min(step, total))"},
        {"made": PARTS},
        {"made": PARTS.replace("[warmup, decay]", "schedulers=[warmup, decay]")},
        {"made": PARTS.replace("SequentialLR(optimizer, [warmup, decay], milestones=[int(0.1 * total)])", CHAINED)},
        {"more": "other = rates.SequentialLR(optimizer, made_elsewhere(optimizer), milestones=[3])"},
    ],
    ids=[
        "dict",
        "bare",
        "lists",
        "in a list",
        "epoch",
        "outside",
        "cosine",
        "per epoch",
        "transformers",
        "lambda",
        "two",
        "by name",
        "chained",
        "beside another",
    ],
)
def test_a_schedule_over_all_batches_that_is_stepped_per_epoch(changed):
    found = [f.severity for f in findings(SCHEDULED.format(**RETURNED | changed), JOB) if f.code == "TW579"]
    assert found == ["error"]


STEP = '{"scheduler": schedule, "interval": "step"}'


@pytest.mark.parametrize(
    "changed",
    [
        {"returned": f'{{"optimizer": optimizer, "lr_scheduler": {STEP}}}'},
        {"returned": f"[optimizer], [{STEP}]"},
        {"returned": "[optimizer], [dict(scheduler=schedule, interval='step')]"},
        {"returned": "optimizer"},
        {"returned": f"settings(optimizer, schedule, {STEP})"},
        {"returned": '{"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, **options}}'},
        {"made": "schedule = rates.CosineAnnealingLR(optimizer, self.trainer.max_epochs)"},
        {"made": f"schedule = rates.CosineAnnealingLR(optimizer, {TOTAL} // len(loader))"},
        {"made": "schedule = rates.OneCycleLR(optimizer, 0.1, epochs=20, steps_per_epoch=1)"},
        {"made": "schedule = rates.OneCycleLR(optimizer, 0.1, total_steps=20)"},
        {"made": PARTS, "returned": f'{{"optimizer": optimizer, "lr_scheduler": {STEP}}}'},
        {"more": "def after(module):\n    module.lr_schedulers().step()\n"},
        {"more": "def by_hand(net):\n    net.automatic_optimization = False\n"},
        {"returned": "optimizer", "more": f"rate = rates.LinearLR(other, total_iters={TOTAL[5:]})"},
        {"base": "Callback"},
        {
            "made": f'{RETURNED["made"]}\n        settings = {{"scheduler": schedule}}\n'
            '        settings["interval"] = "step"',
            "returned": '{"optimizer": optimizer, "lr_scheduler": settings}',
        },
    ],
)
def test_a_schedule_that_is_stepped_as_often_as_it_is_long(changed):
    assert "TW579" not in codes(SCHEDULED.format(**RETURNED | changed), JOB)
