"""A state that is empty but in the first process says which process this is.

Sources: PyTorch's documentation of FullStateDictConfig (rank0_only) and of StateDictOptions (full_state_dict with
cpu_offload); NCAR/miles-credit #21.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, TORCHRUN, Case, but, unmet

JOB: dict[str, Any] = {"instance_type": P4D, "distribution": TORCHRUN}
HEAD = (
    "import os\nimport torch\nimport torch.distributed as dist\n"
    "from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_state_dict\n"
    "from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel as FSDP, StateDictType\n"
    "dist.init_process_group('nccl')\ntorch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n"
    "model = FSDP(torch.nn.Linear(8, 8).cuda())\n"
)
CONFIG = "FullStateDictConfig(offload_to_cpu=True, rank0_only=True)"
WITH = (
    f"config = {CONFIG}\nwith FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):\n"
    "    state = model.state_dict()\n"
)
HELPER = (
    "def gathered(net):\n    with FSDP.state_dict_type(net, StateDictType.FULL_STATE_DICT, state_dict_config="
    f"{CONFIG}):\n        return net.state_dict()\nstate = gathered(model)\n"
)
SET = f"FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT, {CONFIG})\nstate = model.state_dict()\n"
NEWER = "options = StateDictOptions(full_state_dict=True, cpu_offload=True)\n"
STATE = NEWER + "state = get_model_state_dict(model, options=options)\n"
PAIR = NEWER + "state, optim = get_state_dict(model, optimizer, options=options)\n"
SAVE = "if {test}:\n    torch.save(state, '/opt/ml/model/model.pt')\n"
RETURN = "def save():\n    if not state:\n        return\n    torch.save(state, '/opt/ml/model/model.pt')\nsave()\n"
WAIT = "if state:\n    dist.barrier()\n"
AFTER = "whole = model.state_dict()\nif whole:\n    torch.save(whole, '/opt/ml/model/model.pt')\n"
CASES: list[Case] = [
    ("TW141", True, HEAD + WITH + "torch.save(state, '/opt/ml/model/model.pt')\n", JOB),
    ("TW141", True, HEAD + WITH + SAVE.format(test="found"), JOB),
    ("TW141", True, HEAD + WITH + SAVE.format(test="len(state) > 1"), JOB),
    *(
        ("TW141", False, HEAD + made + SAVE.format(test=test), JOB)
        for made in (WITH, HELPER, SET)
        for test in ("state", "len(state) > 0", "len(state)", "len(state) != 0")
    ),
    ("TW141", False, HEAD + WITH + RETURN, JOB),
    ("TW141", False, HEAD + WITH + RETURN.replace("not state", "len(state) == 0"), JOB),
    # After the block, each process has a part of its own.
    ("TW141", True, HEAD + WITH + AFTER, JOB),
    *(("TW128", True, HEAD + made + WAIT, JOB) for made in (WITH, HELPER, SET, STATE, PAIR)),
    ("TW128", False, but(HEAD + WITH + WAIT, "rank0_only=True", "rank0_only=False"), JOB),
    ("TW128", False, but(HEAD + STATE + WAIT, ", cpu_offload=True", ""), JOB),
    ("TW128", False, HEAD + "state = model.state_dict()\n" + WAIT, JOB),
]


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_a_state_that_only_the_first_process_has(case: Case) -> None:
    assert not unmet(case), unmet(case)
