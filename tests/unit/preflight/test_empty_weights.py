"""What to_empty makes room for has to be initialised or loaded before it is trained.

Source: PyTorch's documentation of Module.to_empty and of the meta device; pytorch/examples, distributed/FSDP2.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, TORCHRUN, but, findings

JOB: dict[str, Any] = {"instance_type": P4D, "instance_count": 2, "distribution": TORCHRUN}
ROOM = "model.to_empty(device='cuda')"
SCRIPT = (
    "import os\nimport torch\nimport torch.distributed as dist\nfrom torch import nn\n"
    "from torch.distributed.fsdp import fully_shard\n"
    "dist.init_process_group('nccl')\ntorch.cuda.set_device(int(os.environ['LOCAL_RANK']))\ntorch.manual_seed(1)\n"
    "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.body = nn.Linear(8, 8)\n        self.apply(self.begin)\n"
    "    @staticmethod\n    def begin(module):\n        if isinstance(module, nn.Linear):\n"
    "            nn.init.normal_(module.weight)\n"
    "    def init_weights(self):\n        self.body.reset_parameters()\n"
    "    def forward(self, x):\n        return self.body(x)\n"
    "with torch.device('meta'):\n    model = Net()\n"
    f"fully_shard(model)\n{ROOM}\n"
    "optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)\n"
    "schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)\n"
    "for x in loader:\n    loss = model(x.cuda()).sum()\n    optimizer.zero_grad()\n    loss.backward()\n"
    "    nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n    optimizer.step()\n    schedule.step()\n"
)
HELPER = but(SCRIPT, ROOM, f"def place(model):\n    {ROOM}\n    return model\nmodel = place(model)")
EMPTY = [
    SCRIPT,
    HELPER,
    but(SCRIPT, "fully_shard(model)\n", "", ROOM, "model = fully_shard(model.to_empty(device='cuda'))"),
    but(SCRIPT, "fully_shard(model)\n", "", ROOM, f"{ROOM}\nmodel = nn.parallel.DistributedDataParallel(model)"),
    but(SCRIPT, "with torch.device('meta'):\n    model = Net()", "model = Net().to('meta')"),
    but(SCRIPT, "with torch.device('meta'):\n    model = Net()", "model = nn.Linear(8, 8, device='meta')"),
    but(SCRIPT, "fully_shard(model)", "model.init_weights()\nfully_shard(model)"),
]
KEPT = "'/opt/ml/checkpoints/last.pt'"
EMPTY.append(
    but(
        SCRIPT,
        "for x in loader",
        f"if os.path.exists({KEPT}):\n    model.load_state_dict(torch.load({KEPT}))\nfor x in loader",
    )
)
GROUPS = (
    "def groups(model):\n    decay = [p for p in model.parameters() if p.dim() >= 2]\n"
    "    plain = [p for name, p in model.named_parameters() if name.endswith('bias') or p.size(0) == 1]\n"
    "    return [{'params': decay, 'weight_decay': 0.1}, {'params': plain, 'weight_decay': 0.0}]\n"
)
EMPTY.append(
    but(
        SCRIPT,
        "optimizer = torch.optim.AdamW(model.parameters()",
        f"{GROUPS}optimizer = torch.optim.AdamW(groups(model)",
    )
)
FIRST = "'/opt/ml/input/data/first/w.pt'"
FILLED = [
    but(SCRIPT, ROOM, f"{ROOM}\nif os.path.exists({FIRST}):\n    model.load_state_dict(torch.load({FIRST}))"),
    but(
        SCRIPT,
        ROOM,
        f"{ROOM}\nif os.path.exists({KEPT}):\n    model.load_state_dict(torch.load({KEPT}))\n"
        "else:\n    model.init_weights()",
    ),
    but(SCRIPT, ROOM, "model.cuda()"),
    *(
        but(SCRIPT, ROOM, f"{ROOM}\n{fill}")
        for fill in (
            "model.init_weights()",
            "model.apply(Net.begin)",
            "for each in model.modules():\n    if hasattr(each, 'reset_parameters'):\n        each.reset_parameters()",
            "kept.restore()",
            "for p in model.parameters():\n    nn.init.normal_(p)",
            "for p in model.parameters():\n    p.data.uniform_(-1, 1)",
            "for p in model.parameters():\n    dist.broadcast(p, 0)",
            "model.load_state_dict(torch.load('/opt/ml/input/data/first/w.pt'))",
            "from torch.distributed.checkpoint.state_dict import set_model_state_dict\n"
            "set_model_state_dict(model, torch.load('/opt/ml/input/data/first/w.pt'))",
            "import torch.distributed.checkpoint as dcp\nstate = {'net': model.state_dict()}\n"
            "dcp.load(state, checkpoint_id='/opt/ml/input/data/first')",
            "from safetensors.torch import load_model\nload_model(model, '/opt/ml/input/data/first/w.safetensors')",
            "from work import begin\nbegin(model)",
            "from work import begin\nbegin([model.body])",
        )
    ),
    # The wrapper sends the weights of the first process to all others.
    but(
        SCRIPT,
        f"fully_shard(model)\n{ROOM}",
        f"if dist.get_rank() != 0:\n    {ROOM}\nmodel = nn.parallel.DistributedDataParallel(model)",
    ),
    but(
        SCRIPT,
        f"fully_shard(model)\n{ROOM}",
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
        f"if dist.get_rank() != 0:\n    {ROOM}\nmodel = FSDP(model, sync_module_states=True)",
    ),
    but(
        SCRIPT,
        f"fully_shard(model)\n{ROOM}",
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
        "def room(module):\n    module.to_empty(device='cuda', recurse=False)\n    module.reset_parameters()\n"
        "model = FSDP(model, param_init_fn=room)",
    ),
    # A script that only generates is given its weights by another part.
    SCRIPT.partition("optimizer =")[0] + "print(model(x))\n",
]


def reported(script: str) -> bool:
    return any(each.code == "TW540" for each in findings(script, JOB))


@pytest.mark.parametrize("script", EMPTY)
def test_nothing_fills_the_room_that_to_empty_makes(script: str) -> None:
    assert reported(script), script


@pytest.mark.parametrize("script", FILLED)
def test_weights_are_initialised_loaded_or_sent(script: str) -> None:
    assert not reported(script), script
