"""Weights of classes in a step function of the model parallel library, which splits its arguments."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, codes

SCRIPT = """
import torch
import torch.nn as nn
import torch.nn.functional as F
import smdistributed.modelparallel.torch as smp
smp.init()
torch.cuda.set_device(smp.local_rank())
model = smp.DistributedModel(nn.Linear(4, 8))
optimizer = smp.DistributedOptimizer(torch.optim.Adam(model.parameters()))
class Frequencies:
    def inverse(self):
        return torch.ones(8, device="cuda")
{step}
def one_pass(model, batch, target, rare=None):
    loss = {loss}
    model.backward(loss)
    return loss
for x, y in loader:
    optimizer.zero_grad()
    one_pass(model, x.cuda(), y.cuda(){given}).reduce_mean()
    optimizer.step()
"""
LOSS = "F.cross_entropy(model(batch), target, weight=rare)"
GIVEN = ", Frequencies().inverse()"


def job(parts: int) -> dict[str, Any]:
    parallel = {"enabled": True, "parameters": {"pipeline_parallel_degree": 2, "microbatches": parts, "ddp": True}}
    launched = {"smdistributed": {"modelparallel": parallel}, "mpi": {"enabled": True, "processes_per_host": 8}}
    return {"instance_type": P4D, "distribution": launched}


@pytest.mark.parametrize(
    ("wrong", "step", "loss", "given", "parts"),
    [
        (True, "@smp.step", LOSS, GIVEN, 4),
        (True, "@smp.step()", "nn.CrossEntropyLoss(rare)(model(batch), target)", GIVEN, 4),
        (True, "@smp.step(detach_outputs=True)", "F.nll_loss(model(batch), target, rare)", GIVEN, 2),
        (True, "@smp.step", LOSS, ", rare=Frequencies().inverse()", 4),
        (False, "@smp.step(non_split_inputs=['rare'])", LOSS, GIVEN, 4),
        (False, "@smp.step", LOSS, GIVEN, 1),
        (False, "@smp.step", LOSS, "", 4),
        (False, "@smp.step", "F.mse_loss(model(batch) * rare, target)", GIVEN, 4),
    ],
)
def test_weights_of_classes_are_not_samples(wrong, step, loss, given, parts):
    """SageMaker Python SDK, smp.step: tensors are split along their first dimension, but for non_split_inputs."""
    script = SCRIPT.format(step=step, loss=loss, given=given)
    assert ("TW553" in codes(script, job(parts))) is wrong
