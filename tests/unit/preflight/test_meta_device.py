"""FSDP initialises a model on the meta device by a function that it is given, or by the model's own.

Sources: torch/distributed/fsdp/_init_utils.py, _materialize_meta_module; AWS guide of SMP v2, Delayed parameter
initialization.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, TORCHRUN, but, codes

JOB: dict[str, Any] = {"instance_type": P4D, "instance_count": 2, "distribution": TORCHRUN}
SCRIPT = """
import os
import torch
import torch.distributed as dist
from accelerate import init_empty_weights
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.manual_seed(1)
def build(config):
    with init_empty_weights():
        return AutoModelForCausalLM.from_config(config)
def shard(model):
    return FSDP(model, device_id=torch.cuda.current_device())
model = shard(build(LlamaConfig()))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for batch in loader:
    optimizer.zero_grad()
    model(**batch).loss.backward()
    optimizer.step()
"""
EMPTY, MADE, SHARD = "with init_empty_weights():", "AutoModelForCausalLM.from_config(config)", "FSDP(model, "


@pytest.mark.parametrize(
    "text",
    [
        SCRIPT,
        but(SCRIPT, EMPTY, "with torch.device('meta'):"),
        but(SCRIPT, MADE, "LlamaForCausalLM(config)"),
        but(SCRIPT, SHARD, f"{SHARD}sync_module_states=False, "),
    ],
)
def test_nothing_makes_the_parameters(text):
    assert "TW588" in codes(text, JOB)


@pytest.mark.parametrize(
    "text",
    [
        but(SCRIPT, SHARD, f"{SHARD}param_init_fn=begin, "),
        but(SCRIPT, SHARD, f"{SHARD}**options, "),
        but(SCRIPT, EMPTY, "with torch.device('cuda'):"),
        but(SCRIPT, EMPTY, "with torch.device('meta' if dist.get_rank() else 'cpu'):"),
        but(SCRIPT, EMPTY, "if True:"),
        but(SCRIPT, "    return FSDP", "    model.to_empty(device='cuda')\n    return FSDP"),
        but(SCRIPT, "    return FSDP", "    model.load_state_dict(torch.load(path), assign=True)\n    return FSDP"),
        but(SCRIPT, MADE, "torch.nn.Linear(8, 8)"),
    ],
)
def test_something_makes_the_parameters(text):
    assert "TW588" not in codes(text, JOB)
