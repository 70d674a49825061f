"""A resumed training whose schedule of learning rates starts again, and the ways in which it goes on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, codes, findings, parser

SPOT: dict[str, Any] = {
    "instance_type": P4D,
    "spot": True,
    "max_wait": 172800,
    "max_run": 86400,
    "checkpoint": {"s3_uri": "s3://bucket/kept", "local_path": "/opt/ml/checkpoints"},
}
BEGIN = (
    "import os\nimport torch\nimport transformers\nfrom torch.optim import lr_scheduler\n"
    "path = '/opt/ml/checkpoints/last.pt'\nnet = torch.nn.Linear(8, 2)\n"
    "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
)
MADE = "decay = lr_scheduler.CosineAnnealingLR(optimizer, 90)\n"
RESTORE = (
    "first = 0\nif os.path.exists(path):\n    kept = torch.load(path)\n    net.load_state_dict(kept['net'])\n"
    "    optimizer.load_state_dict(kept['optimizer'])\n    first = kept['epoch'] + 1\n"
)
TRAIN = (
    "for epoch in range(first, 90):\n    for x in loader:\n        optimizer.zero_grad()\n"
    "        net(x).mean().backward()\n        optimizer.step()\n    decay.step()\n"
    "    state = {'epoch': epoch, 'net': net.state_dict(), 'optimizer': optimizer.state_dict()}\n"
    "    torch.save(state, path)\n"
)
WRONG = BEGIN + MADE + RESTORE + TRAIN
SCHEDULES = {
    "steps": "lr_scheduler.StepLR(optimizer, 30)",
    "one after the other": "lr_scheduler.SequentialLR(optimizer, [lr_scheduler.LinearLR(optimizer), "
    "lr_scheduler.CosineAnnealingLR(optimizer, 85)], [5])",
    "one cycle": "lr_scheduler.OneCycleLR(optimizer, 0.1, 90)",
    "a function of the epoch": "lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.95**epoch)",
    "transformers'": "transformers.get_linear_schedule_with_warmup(optimizer, 100, 9000)",
    "transformers', by name": "transformers.get_scheduler('cosine', optimizer, 100, 9000)",
}


@pytest.mark.parametrize("name", list(SCHEDULES))
def test_a_schedule_that_nothing_restores_starts_again(name):
    made = f"decay = {SCHEDULES[name]}\n"
    assert "TW556" in codes(BEGIN + made + RESTORE + TRAIN, SPOT)
    assert "TW556" in codes(BEGIN + RESTORE + made + TRAIN, SPOT)


def test_a_job_that_keeps_no_checkpoints_may_never_resume():
    elsewhere = WRONG.replace("/opt/ml/checkpoints", "/opt/ml/input/data/weights")
    found = findings(elsewhere, {"instance_type": P4D})
    assert [f.severity for f in found if f.code == "TW556"] == ["warning"]


def test_the_schedule_is_named_with_its_steps():
    (found,) = [f for f in findings(WRONG, SPOT) if f.code == "TW556"]
    lines = WRONG.split("\n")
    assert found.severity == "error"
    assert found.line == lines.index(MADE.strip()) + 1
    stepped = lines.index("    decay.step()") + 1
    named = ("`lr_scheduler.CosineAnnealingLR(optimizer, 90)`", f"line {stepped} ", "`first`")
    assert [each for each in named if each not in found.message] == []


PLACES = {
    "a function that loads": (
        "def resume():\n    if not os.path.exists(path):\n        return 0\n    kept = torch.load(path)\n"
        "    net.load_state_dict(kept['net'])\n    optimizer.load_state_dict(kept['optimizer'])\n"
        "    return kept['epoch'] + 1\nfirst = resume()\n",
        TRAIN,
    ),
    "an attribute": (RESTORE + "class Place:\n    pass\nrun = Place()\nrun.first = kept['epoch']\n", "run.first"),
    "a loop of steps": (RESTORE.replace("first = ", "step = ").replace("'epoch'", "'step'"), "while"),
}


@pytest.mark.parametrize("name", list(PLACES))
def test_the_place_at_which_training_resumes(name):
    restore, train = PLACES[name]
    if train == "run.first":
        train = TRAIN.replace("first", "run.first")
    elif train == "while":
        train = TRAIN.replace("for epoch in range(first, 90)", "while step < 90").replace(
            "'epoch': epoch", "'step': step"
        )
        train = train.replace("    decay.step()", "    step += 1\n    decay.step()")
    assert "TW556" in codes(BEGIN + MADE + restore + train, SPOT)
    again = restore + "if first:\n    decay.load_state_dict(kept['decay'])\n"
    assert "TW556" not in codes(BEGIN + MADE + again + train, SPOT)


def test_a_class_that_trains():
    text = (
        BEGIN + "class Run:\n    def __init__(self):\n        self.done = 0\n"
        "        self.decay = lr_scheduler.StepLR(optimizer, 30)\n"
        "        if os.path.exists(path):\n            self.restore()\n"
        "    def restore(self):\n        kept = torch.load(path)\n        net.load_state_dict(kept['net'])\n"
        "        optimizer.load_state_dict(kept['optimizer'])\n        self.done = kept['epoch']\n{}"
        "    def train(self):\n        for epoch in range(self.done, 90):\n            for x in loader:\n"
        "                net(x).mean().backward()\n                optimizer.step()\n            self.decay.step()\n"
        "Run().train()\n"
    )
    assert "TW556" in codes(text.format(""), SPOT)
    assert "TW556" not in codes(text.format("        self.decay.load_state_dict(kept['decay'])\n"), SPOT)


def made(words: str) -> str:
    return BEGIN + RESTORE + f"decay = {words}\n" + TRAIN


LOADED = "if first:\n    decay.load_state_dict(kept['decay'])\n"
WAYS = {
    "its state": BEGIN + MADE + RESTORE + LOADED + TRAIN,
    "its state, in a list of all": BEGIN
    + MADE
    + RESTORE
    + "for part, name in ((net, 'net'), (decay, 'decay')):\n    part.load_state_dict(kept[name])\n"
    + TRAIN,
    "the object itself": BEGIN + MADE + RESTORE + "if first:\n    decay = kept['scheduler']\n" + TRAIN,
    "a library's function": BEGIN + "import keeper\n" + MADE + RESTORE + "keeper.restore(path, decay)\n" + TRAIN,
    "the last epoch": made("lr_scheduler.CosineAnnealingLR(optimizer, 90, last_epoch=first - 1)"),
    "the last epoch, set later": BEGIN + MADE + RESTORE + "decay.last_epoch = first - 1\n" + TRAIN,
    "the steps that are past": BEGIN + MADE + RESTORE + "for _ in range(first):\n    decay.step()\n" + TRAIN,
    "the epoch at each step": BEGIN + MADE + RESTORE + TRAIN.replace("decay.step()", "decay.step(epoch)"),
    "a schedule of the rest": made("lr_scheduler.CosineAnnealingLR(optimizer, 90 - first)"),
    "a schedule of the rest, in a function": BEGIN
    + RESTORE
    + "def schedule(of, epochs):\n    return lr_scheduler.CosineAnnealingLR(of, epochs)\n"
    + "rest = 90 - first\ndecay = schedule(optimizer, rest)\n"
    + TRAIN,
    "a function that adds the first epoch": made("lr_scheduler.LambdaLR(optimizer, lambda e: 0.95 ** (e + first))"),
    "a function of the epoch of the loop": BEGIN
    + RESTORE
    + "def rate(_):\n    return 0.95**first\ndecay = lr_scheduler.LambdaLR(optimizer, rate)\n"
    + TRAIN,
    "rates that the script sets": (BEGIN + MADE + RESTORE + TRAIN).replace(
        "    decay.step()\n",
        "    for group in optimizer.param_groups:\n        group['lr'] = 0.95**epoch\n    decay.step()\n",
    ),
    "a factor of the last rate": made("lr_scheduler.ExponentialLR(optimizer, 0.95)"),
    "a rate by the metric": BEGIN
    + "decay = lr_scheduler.ReduceLROnPlateau(optimizer)\n"
    + RESTORE
    + TRAIN.replace("decay.step()", "decay.step(loss)"),
    "a constant rate": made("transformers.get_constant_schedule(optimizer)"),
    "training begins anew": WRONG.replace("range(first, 90)", "range(90)"),
    "weights of another training": BEGIN
    + MADE
    + "first = 0\nnet.load_state_dict(torch.load('/opt/ml/input/data/model/net.pt'))\n"
    + TRAIN,
}


@pytest.mark.parametrize("name", list(WAYS))
def test_a_schedule_that_goes_on_or_has_nothing_to_go_on_with(name):
    assert "TW556" not in codes(WAYS[name], SPOT)


def test_a_factor_of_a_rate_that_is_not_restored_starts_again():
    text = WAYS["a factor of the last rate"].replace("    optimizer.load_state_dict(kept['optimizer'])\n", "")
    assert "TW556" in codes(text, SPOT)


def test_libraries_keep_the_schedule_themselves():
    for name in ("accelerate", "deepspeed", "lightning"):
        assert "TW556" not in codes(f"import {name}\n{WRONG}", SPOT)


def test_a_job_without_checkpoints_does_not_resume_from_them():
    assert "TW556" not in codes(WRONG, {"instance_type": P4D})
    assert "TW556" in codes(WRONG.replace("/opt/ml/checkpoints", "/opt/ml/input/data/before"), {"instance_type": P4D})
    asked = parser("'--resume', type=int, default=0")
    text = WRONG.replace("path = ", asked + "path = ").replace("if os.path.exists(path)", "if args.resume")
    assert "TW556" not in codes(text, SPOT)
    assert "TW556" in codes(text, {**SPOT, "hyperparameters": {"resume": 1}})
