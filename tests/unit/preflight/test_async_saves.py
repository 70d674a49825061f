"""Checkpoints that SMP v2 writes beside the training: the last of them has to be waited for.

Source: AWS reference of SMP v2, torch.sagemaker.distributed.checkpoint.state_dict_saver.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, TORCHRUN, Case, but, unmet

PART = {"enabled": True, "parameters": {"hybrid_shard_degree": 8}}
JOB: dict[str, Any] = {"instance_type": P4D, "distribution": {"smdistributed": {"modelparallel": PART}, **TORCHRUN}}
SCRIPT = """
import os
import torch
import torch.distributed as dist
import torch.sagemaker as tsm
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.sagemaker.distributed.checkpoint.state_dict_saver import async_save, maybe_finalize_async_calls
class Keeper:
    def __init__(self, model, root):
        self.model, self.root = model, root
    def keep(self, step):
        maybe_finalize_async_calls(blocking=True)
        async_save({{"model": self.model.state_dict()}}, checkpoint_id=os.path.join(self.root, str(step)))
    def finish(self):
        maybe_finalize_async_calls(blocking=True)
dist.init_process_group("nccl")
tsm.init()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = FSDP(torch.nn.Linear(2, 2), device_id=torch.cuda.current_device(), sync_module_states=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
keeper = Keeper(model, "/opt/ml/checkpoints")
for step, x in enumerate(loader):
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
    if step % 100 == 0:
        keeper.keep(step)
{end}
dist.destroy_process_group()
"""
WAIT = "        maybe_finalize_async_calls(blocking=True)\n"
ONCE = but(SCRIPT, f"    def finish(self):\n{WAIT}", "")
AFTER = but(ONCE, WAIT, "", "str(step)))\n", f"str(step)))\n{WAIT}")
CASES: list[Case] = [
    *[("TW581", "warning", ONCE.format(end=end), JOB) for end in (
        "", "dist.barrier()", "maybe_finalize_async_calls(blocking=False)", "maybe_finalize_async_calls(False)",
        "keeper.keep('last')", "maybe_finalize_async_calls(blocking=True)\nkeeper.keep('last')",
    )],
    ("TW581", "warning", SCRIPT.format(end=""), JOB),
    ("TW581", "warning", but(ONCE, WAIT, "").format(end=""), JOB),
    ("TW581", "error", but(ONCE, '"/opt/ml/checkpoints"', 'os.environ["SM_MODEL_DIR"]').format(end=""), JOB),
    ("TW581", "error", but(ONCE, "checkpoint_id=os.path.join(self.root", 'os.path.join(os.environ["SM_MODEL_DIR"]')
     .format(end=""), JOB),
    ("TW581", "warning", but(ONCE, "checkpoint_id=", "storage_writer=").format(end=""), JOB),
    *[("TW581", False, SCRIPT.format(end=end), JOB) for end in (
        "keeper.finish()", "import atexit\natexit.register(keeper.finish)", "if keeper.root:\n    keeper.finish()",
        "keeper.finish()\ndef keep_rates(rates):\n    async_save({{'rates': rates}}, checkpoint_id='/tmp/rates')",
    )],
    *[("TW581", False, ONCE.format(end=end), JOB) for end in (
        "maybe_finalize_async_calls()", "maybe_finalize_async_calls(blocking=last)",
        "keeper.keep('last')\nmaybe_finalize_async_calls(process_group=group)",
        "hooks = {'end': finish}\ndef finish():\n    maybe_finalize_async_calls(blocking=True)",
    )],
    ("TW581", False, AFTER.format(end=""), JOB),
    ("TW581", False, but(ONCE, "import async_save", "import save as async_save").format(end=""), JOB),
    ("TW581", False, but(ONCE, "async_save(", "async_save(queue=AsyncCallsQueue(), state_dict=").format(end=""), JOB),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_last_checkpoint(case: Case) -> None:
    assert not unmet(case)
