"""What fully_shard's model returns as its state are the shards of one process, until something joins them.

Source: pytorch/examples, distributed/FSDP2/checkpoint.py, which joins each parameter's shards by full_tensor().
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, TORCHRUN, Case, but, unmet

JOB: dict[str, Any] = {"instance_type": P4D, "distribution": TORCHRUN}
HEAD = (
    "import os\nimport torch\nimport torch.distributed as dist\n"
    "from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict\n"
    "from torch.distributed.fsdp import fully_shard\nfrom torch.distributed.tensor import DTensor\n"
    "dist.init_process_group('nccl')\ntorch.cuda.set_device(int(os.environ['LOCAL_RANK']))\ntorch.manual_seed(1)\n"
    "model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)).cuda()\n"
    "for layer in model:\n    fully_shard(layer)\nfully_shard(model)\n"
)
SAVE = "if dist.get_rank() == 0:\n    torch.save(state, '/opt/ml/model/model.pt')\n"
EACH = "state = {name: shard.cpu() for name, shard in model.state_dict().items()}\n"
INSIDE = (
    "def export(net, folder):\n    if dist.get_rank() == 0:\n"
    "        torch.save({'model': net.state_dict(), 'epoch': 3}, os.path.join(folder, 'model.pt'))\n"
    "export(model, '/opt/ml/model')\n"
)
LOOP = "state = {}\nfor name, shard in model.state_dict().items():\n    state[name] = shard.full_tensor().cpu()\n"
CASES: list[Case] = [
    ("TW430", "error", HEAD + "state = model.state_dict()\n" + SAVE, JOB),
    ("TW430", "error", HEAD + EACH + SAVE, JOB),
    ("TW430", "error", HEAD + but(EACH, "shard.cpu()", "shard.detach().to('cpu', torch.bfloat16)") + SAVE, JOB),
    ("TW430", "error", HEAD + but(EACH, "name: shard", "name.removeprefix('module.'): shard") + SAVE, JOB),
    ("TW430", "error", HEAD + INSIDE, JOB),
    (
        "TW430",
        "error",
        HEAD + but(INSIDE, "net.state_dict()", "{k: v.cpu() for k, v in net.state_dict().items()}"),
        JOB,
    ),
    ("TW430", False, HEAD + but(EACH, "shard.cpu()", "shard.full_tensor().cpu()") + SAVE, JOB),
    ("TW430", False, HEAD + LOOP + SAVE, JOB),
    (
        "TW430",
        False,
        HEAD + but(EACH, "shard.cpu()", "(shard.full_tensor() if isinstance(shard, DTensor) else shard).cpu()") + SAVE,
        JOB,
    ),
    ("TW430", False, HEAD + but(EACH, "shard.cpu()", "shard.redistribute(placements=whole).to_local()") + SAVE, JOB),
    ("TW430", False, "from work import whole\n" + HEAD + "state = whole(model.state_dict())\n" + SAVE, JOB),
    ("TW430", False, "from work import whole\n" + HEAD + but(EACH, "shard.cpu()", "whole(shard)") + SAVE, JOB),
    (
        "TW430",
        False,
        HEAD + "state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))\n" + SAVE,
        JOB,
    ),
    # Each process writes its own shards.
    (
        "TW430",
        False,
        HEAD + EACH + "rank = dist.get_rank()\ntorch.save(state, f'/opt/ml/checkpoints/shard-{rank}.pt')\n",
        JOB,
    ),
    # A model that is not sharded.
    ("TW430", False, but(HEAD, "fully_shard(layer)", "pass", "fully_shard(model)\n", "") + EACH + SAVE, JOB),
    ("TW430", False, HEAD + EACH + SAVE, {"instance_type": "ml.g5.xlarge"}),
]


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_the_shards_of_one_process(case: Case) -> None:
    assert not unmet(case), unmet(case)
