"""DeepSpeed returns from a checkpoint what the script kept there, under the keys that it was kept with.

Sources: DeepSpeed, runtime/engine.py, save_checkpoint and load_checkpoint; deepspeedai/DeepSpeed #636.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, TORCHRUN, findings

JOB: dict[str, Any] = {"instance_type": P4D, "distribution": TORCHRUN}
SCRIPT = """
import os
import deepspeed
import torch
DIR = "/opt/ml/checkpoints"
net = torch.nn.Linear(8, 8)
engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=CONFIG)
{read}
for epoch in range(first, 9):
    for batch in loader:
        engine.backward(engine(batch).sum())
        engine.step()
    {save}
"""
SAVE = "engine.save_checkpoint(DIR, client_state={'last_epoch': epoch, 'seen': 3})"
READ = "_, kept = engine.load_checkpoint(DIR)\nfirst = kept['epoch'] + 1"
BY_HELPER = """
def restore(engine):
    path, kept = engine.load_checkpoint(DIR)
    return kept
kept = restore(engine)
first = kept["epoch"]
"""
BY_TUPLE = """
def restore(engine):
    return engine.load_checkpoint(DIR)
path, kept = restore(engine)
first = kept["epoch"]
"""
IN_PAIR = """
def restore(engine):
    _, kept = engine.load_checkpoint(DIR)
    return engine, kept
engine, state = restore(engine)
first = state["epoch"]
"""
IN_CLASS = """
class Run:
    def restore(self):
        _, self.kept = engine.load_checkpoint(DIR)
    def first(self):
        return self.kept["epoch"]
run = Run()
run.restore()
first = run.first()
"""


def severities(read: str, save: str = SAVE) -> list[str]:
    return [each.severity for each in findings(SCRIPT.format(read=read, save=save), JOB) if each.code == "TW586"]


@pytest.mark.parametrize(
    "read",
    [
        READ,
        READ.replace("_, kept = engine.load_checkpoint(DIR)", "kept = engine.load_checkpoint(DIR)[1]"),
        BY_HELPER,
        BY_TUPLE,
        IN_PAIR,
        IN_CLASS,
    ],
    ids=["here", "by place", "helper", "tuple", "pair", "class"],
)
def test_a_key_that_no_checkpoint_has(read):
    assert severities(read) == ["error"]
    assert not severities(read, SAVE.replace("last_epoch", "epoch"))


def test_a_default_hides_the_other_key():
    assert severities(READ.replace("kept['epoch']", "kept.get('epoch', 0)")) == ["warning"]


def test_a_state_that_is_made_before():
    made = "state = {'seen': 3}\n    state['last_epoch'] = epoch\n    engine.save_checkpoint(DIR, None, state)"
    assert severities(READ, made) == ["error"]
    assert not severities(READ, made.replace("last_epoch", "epoch"))


@pytest.mark.parametrize(
    ("read", "save"),
    [
        (READ, "engine.save_checkpoint(DIR, client_state=state_of(run))"),
        (READ, "engine.save_checkpoint(DIR, client_state={**more, 'seen': 3})"),
        (READ, f"{SAVE}\n    engine.save_checkpoint(DIR, client_state={{'epoch': epoch}})"),
        (READ, "engine.save_checkpoint(DIR)"),
        (READ.replace("kept['epoch']", "kept['global_samples']"), SAVE),
        (READ.replace("first = kept", "kept['epoch'] = 4\nfirst = kept"), SAVE),
        (READ.replace("first = kept", "kept.update(more)\nfirst = kept"), SAVE),
        (READ.replace("first = kept", "kept = upgraded(kept)\nfirst = kept"), SAVE),
        (READ.replace("first = ", "first = 0\nif 'epoch' in kept:\n    first = "), SAVE),
        (READ.replace("first = ", "try:\n    first = ") + "\nexcept KeyError:\n    first = 0", SAVE),
        ("kept, _ = engine.load_checkpoint(DIR)\nfirst = int(kept['epoch'])", SAVE),
        (READ.replace("engine.load", "other.load"), SAVE),
    ],
)
def test_what_may_be_there(read, save):
    assert not severities(read, save)
