"""Models that are frozen or saved before training, and the measure by which a Trainer keeps the best one."""

from __future__ import annotations

import pytest

from tests.support.training_scripts import P4D, codes, findings

JOB = {"instance_type": P4D}
TRAINED = """
import os
import torch
import torchvision
model = torchvision.models.resnet18().cuda()
teacher = torchvision.models.resnet50().cuda()
{frozen}
optimizer = torch.optim.SGD({of}.parameters(), lr=0.1)
path = os.path.join(os.environ["SM_MODEL_DIR"], "model.pt")
{before}
for x in data:
    optimizer.zero_grad()
    loss = model(x).sum()
    loss.backward()
    optimizer.step()
{after}
"""
LOOP = "for p in model.parameters():\n    p.requires_grad = False"
NAMED = "for name, p in model.named_parameters():\n    p.requires_grad = 'fc' in name"
SAVE = "torch.save(model.state_dict(), path)"


@pytest.mark.parametrize(
    ("frozen", "reported"),
    [
        (LOOP, True),
        (LOOP.replace("= False", "_(False)").replace("requires_grad _", "requires_grad_"), True),
        ("model.requires_grad_(False)", True),
        ("model.requires_grad_(True)", False),
        ("model.requires_grad_(False)\nmodel.fc.requires_grad_(True)", False),
        (LOOP + "\nmodel.fc = torch.nn.Linear(512, 2).cuda()", False),
        (LOOP.replace("model.", "teacher."), False),
        (LOOP.replace("model.", "model.layer1."), False),
        (NAMED, False),
        (LOOP + "\n    if p.ndim == 1:\n        p.requires_grad = True", False),
        ("if frozen:\n    model.requires_grad_(False)", False),
        ("from peft import get_peft_model\nmodel.requires_grad_(False)\nmodel = get_peft_model(model, config)", False),
    ],
)
def test_a_model_whose_parameters_are_all_frozen(frozen: str, reported: bool) -> None:
    """torch/csrc/autograd: element 0 of tensors does not require grad and does not have a grad_fn."""
    script = TRAINED.format(frozen=frozen, of="model", before="", after=SAVE)
    assert ("TW492" in codes(script, JOB)) is reported


def test_a_frozen_model_beside_the_trained_one() -> None:
    both = "optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)"
    script = TRAINED.format(frozen="head = torch.nn.Linear(1, 1)\n" + LOOP, of="model", before="", after=SAVE)
    joined = script.replace("optimizer = torch.optim.SGD(model.parameters(), lr=0.1)", both)
    assert "TW492" not in codes(joined, JOB)


@pytest.mark.parametrize(
    ("before", "after", "reported"),
    [
        (SAVE, "", True),
        (SAVE, SAVE, False),
        ("", SAVE, False),
        (SAVE, "tokenizer.save_pretrained(os.environ['SM_MODEL_DIR'])", True),
        (SAVE.replace("path", "'/opt/ml/checkpoints/first.pt'"), SAVE, False),
        ("def keep():\n    " + SAVE + "\nkeep()", "", True),
        ("def keep():\n    " + SAVE, "keep()", False),
    ],
)
def test_the_model_is_saved_when_it_is_trained(before: str, after: str, reported: bool) -> None:
    """SageMaker's container contract: what SM_MODEL_DIR contains at the end is the result."""
    found = findings(TRAINED.format(frozen="", of="model", before=before, after=after), JOB)
    assert any(f.code == "TW145" and "before the training" in f.message for f in found) is reported


@pytest.mark.parametrize(
    ("metric", "given", "reported"),
    [
        ("wer", "", True),  # transformers, training_args.py: greater_is_better is true unless the name ends with "loss"
        ("eval_cer", "", True),
        ("wer", ", greater_is_better=False", False),
        ("wer", ", greater_is_better=None", True),
        ("eval_loss", "", False),
        ("eval_loss", ", greater_is_better=True", True),
        ("accuracy", "", False),
        ("f1", ", greater_is_better=False", True),
        ("score", ", greater_is_better=False", False),
    ],
)
def test_the_best_of_a_trainer_is_not_the_worst(metric: str, given: str, reported: bool) -> None:
    script = (
        "from transformers import Trainer, TrainingArguments\n"
        "args = TrainingArguments('/opt/ml/model', load_best_model_at_end=True, eval_strategy='epoch', "
        f"save_strategy='epoch', metric_for_best_model='{metric}'{given})\n"
        "trainer = Trainer(model, args, train_dataset=data, eval_dataset=held, compute_metrics=measure)\n"
        "trainer.train()\ntrainer.save_model('/opt/ml/model')\n"
    )
    assert any(f.code == "TW157" and "worst" in f.message for f in findings(script, JOB)) is reported
