"""A model whose layers SMP splits: which processes read which rows, gather its state and save it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, SMP, TORCHRUN, codes, findings

STATE = "model.state_dict()"
PARTS = "smp.save(model.local_state_dict(), '/opt/ml/checkpoints/m.pt', partial=True)"


def job(tensor: int, **more: Any) -> dict[str, Any]:
    parallel = {"enabled": True, "parameters": {"tensor_parallel_degree": tensor, "ddp": True} | more}
    launched = {"smdistributed": {"modelparallel": parallel}, "mpi": {"enabled": True, "processes_per_host": 8}}
    return {"instance_type": P4D, "distribution": launched}


WAYS = {
    "as it is": "if {first}:\n    {call}\n",
    "a function that returns": "def save():\n    if not ({first}):\n        return\n    {call}\nsave()\n",
    "a method": (
        "class Saver:\n    def __init__(self):\n        self.first = {first}\n"
        "    def __call__(self):\n        if self.first:\n            {call}\nSaver()()\n"
    ),
    "a function that asks": "def first():\n    return {first}\nif first():\n    {call}\n",
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("call", [STATE, "optimizer.state_dict()", PARTS])
def test_all_tensor_parallel_processes_take_part(way, call):
    """AWS guide, Instructions for Checkpointing with Tensor Parallelism: rdp_rank() == 0, not dp_rank() == 0."""

    def found(first: str, tensor: int) -> bool:
        return "TW559" in codes(SMP + way.format(first=first, call=call), job(tensor))

    assert found("smp.dp_rank() == 0", 2)
    assert not found("smp.rdp_rank() == 0", 2)
    assert not found("smp.dp_rank() // smp.tp_size() == 0", 2)
    assert not found("smp.dp_rank() == 0", 1)
    assert not found("smp.dp_rank() == 0 or smp.rdp_rank() == 0", 2)


def test_processes_of_other_numbers():
    assert "TW559" in codes(f"{SMP}if smp.dp_rank() != 0:\n    pass\nelse:\n    {STATE}\n", job(4))
    assert "TW559" in codes(f"{SMP}if not smp.dp_rank():\n    {STATE}\n", job(4))
    assert "TW559" not in codes(f"{SMP}if smp.rdp_rank() != 0:\n    pass\nelse:\n    {STATE}\n", job(4))
    assert "TW559" not in codes(f"{SMP}if not smp.rdp_rank():\n    {STATE}\n", job(4))


def test_states_that_are_not_split():
    """A scheduler's state is whole in each process; without tensor parallelism the other branch is taken."""
    assert "TW559" not in codes(f"{SMP}if smp.dp_rank() == 0:\n    schedule.state_dict()\n", job(2))
    other = (
        f"if smp.tp_size() > 1:\n    if smp.rdp_rank() == 0:\n        {STATE}\nelif smp.dp_rank() == 0:\n    {STATE}\n"
    )
    assert "TW559" not in codes(SMP + other, job(2))
    chosen = f"first = smp.rdp_rank() if smp.tp_size() > 1 else smp.dp_rank()\nif first == 0:\n    {STATE}\n"
    assert "TW559" not in codes(SMP + chosen, job(2))


def test_the_remedy_for_an_optimizer_is_to_save_parts():
    """The same guide: full checkpointing of optimizer states is not supported."""
    script = SMP + "if smp.dp_rank() == 0:\n    optimizer.state_dict()\n"
    (found,) = [f for f in findings(script, job(2)) if f.code == "TW559"]
    assert "local_state_dict()" in (found.remedy or "")


SHARES = {
    "as it is": "sampler = DistributedSampler(data, {count}, {rank})\n",
    "a function": (
        "def sampled(dataset, count, rank):\n    return DistributedSampler(dataset, num_replicas=count, rank=rank)\n"
        "sampler = sampled(data, {count}, {rank})\n"
    ),
    "a class": (
        "class Data:\n    def __init__(self):\n        self.count, self.rank = {count}, {rank}\n"
        "    def sampler(self):\n        return DistributedSampler(data, self.count, self.rank)\nData().sampler()\n"
    ),
}
GROUPS = {"count": "smp.rdp_size()", "rank": "smp.rdp_rank()"}
PROCESSES = {"count": "smp.dp_size()", "rank": "smp.dp_rank()"}


def share(way: str, numbers: dict[str, str], given: dict[str, Any], before: str = "") -> str | None:
    script = f"from torch.utils.data.distributed import DistributedSampler\n{SMP}{before}{way.format(**numbers)}"
    return next((found.severity for found in findings(script, given) if found.code == "TW175"), None)


@pytest.mark.parametrize("way", SHARES.values(), ids=SHARES)
def test_a_prescaled_batch_is_that_of_a_tensor_parallel_group(way):
    """smd_model_parallel_general.rst, Prescaled Batch: the same batch for all tp_ranks of a group, by rdp_*."""
    prescaled = job(4, prescaled_batch=True)
    assert share(way, PROCESSES, prescaled) == "error"
    assert share(way, GROUPS, prescaled) is None
    by_hand = {"count": "smp.dp_size() // smp.tp_size()", "rank": "smp.dp_rank() // smp.tp_size()"}
    assert share(way, by_hand, prescaled) is None
    assert share(way, PROCESSES, job(4)) is None
    assert share(way, PROCESSES, job(1, prescaled_batch=True)) is None
    assert share(way, GROUPS, job(4)) == "warning"
    assert share(way, GROUPS, job(1)) is None


def test_a_script_that_asks_whether_the_batch_is_prescaled():
    """As transformers, TrainingArguments.world_size and process_index."""
    asked = {name: f"{PROCESSES[name]} if not smp.state.cfg.prescaled_batch else {GROUPS[name]}" for name in PROCESSES}
    for given in (job(4), job(4, prescaled_batch=True)):
        assert share(SHARES["as it is"], asked, given) is None
    own = "smp.init({'prescaled_batch': True})\n"
    assert share(SHARES["as it is"], GROUPS, job(4), own) is None


SECOND = """
import os
import torch
import torch.distributed as dist
import torch.sagemaker as tsm
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType
from torch.sagemaker.distributed.checkpoint import state_dict_saver as saver
from transformers import AutoModelForCausalLM
dist.init_process_group("nccl")
tsm.init()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = tsm.transform(AutoModelForCausalLM.from_config(config))
{wrap}
FIRST, PLACE = dist.get_rank() == 0, "/opt/ml/checkpoints/1"
{save}
"""
PARALLEL = {"enabled": True, "parameters": {"tensor_parallel_degree": 8}}
V2 = {"instance_type": P4D, "distribution": {"smdistributed": {"modelparallel": PARALLEL}, **TORCHRUN}}
SHARDED = "model = FSDP(model, device_id=torch.cuda.current_device())"
ALONE = {
    "state": "if FIRST:\n    torch.save(model.state_dict(), 'm.pt')",
    "within": "with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):\n    if FIRST:\n"
    "        state = model.state_dict()",
    "saver": "state = model.state_dict()\nif FIRST:\n    saver.save({'model': state}, checkpoint_id=PLACE)",
    "function": "def save(model):\n    if not FIRST:\n        return\n    torch.save(model.state_dict(), PLACE)\n"
    "save(model)",
}
TOGETHER = {
    "state": "state = model.state_dict()\nif FIRST:\n    torch.save(state, 'm.pt')",
    "saver": "saver.save({'model': model.state_dict()}, checkpoint_id=PLACE)\nif FIRST:\n    print('saved')",
    "both": "if FIRST:\n    torch.save(model.state_dict(), 'm.pt')\nelse:\n    model.state_dict()",
}


@pytest.mark.parametrize("wrap", [SHARDED, "model = model.cuda()"], ids=["sharded", "split"])
@pytest.mark.parametrize("save", ALONE.values(), ids=ALONE)
def test_the_second_version_gathers_in_all_processes(save, wrap):
    """AWS guide, Tensor parallelism (SMP v2): it runs on top of FSDP, whose state is gathered by all processes."""
    assert "TW128" in codes(SECOND.format(wrap=wrap, save=save), V2)


@pytest.mark.parametrize("save", TOGETHER.values(), ids=TOGETHER)
def test_the_second_version_saves_in_one(save):
    assert "TW128" not in codes(SECOND.format(wrap=SHARDED, save=save), V2)
