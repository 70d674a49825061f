"""Optimizers, schedules and scalers that go on in one process alone, and ways to let all of them go on.

Sources: PyTorch's documentation of DistributedDataParallel; pytorch/tutorials #2433.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import DDP, P4D, TORCHRUN, but, codes

JOB: dict[str, Any] = {"distribution": TORCHRUN, "instance_type": P4D}
SCRIPT = (
    DDP
    + """
CHECKPOINT = "/opt/ml/checkpoints/last.pt"
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
net = torch.nn.Linear(8, 8).to(device)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)
scaler = torch.amp.GradScaler("cuda")
def restore(net, optimizer):
    start = torch.zeros(1, dtype=torch.long, device=device)
    if dist.get_rank() == 0 and os.path.exists(CHECKPOINT):
        kept = torch.load(CHECKPOINT, map_location=device)
        net.load_state_dict(kept["net"])
        optimizer.load_state_dict(kept["optimizer"])
        start += kept["epoch"] + 1
    dist.broadcast(start, src=0)
    return int(start.item())
first = restore(net, optimizer)
model = DDP(net)
for epoch in range(first, 9):
    for x in loader:
        optimizer.zero_grad()
        scaler.scale(model(x.to(device)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    schedule.step()
    if dist.get_rank() == 0:
        torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, CHECKPOINT)
"""
)
LOAD = 'optimizer.load_state_dict(kept["optimizer"])'
ADAM = "torch.optim.AdamW(net.parameters(), lr=1e-3)"
SENT = "    dist.broadcast(start, src=0)\n"
BEFORE = "if dist.get_rank() == 0 and os"
WEIGHTS = "    for p in net.parameters():\n        dist.broadcast(p.data, 0)\n"
OBJECTS = "    sent = [optimizer.state_dict()]\n    dist.broadcast_object_list(sent, src=0)\n"
STATES = "    for each in optimizer.state.values():\n        dist.broadcast(each['exp_avg'], 0)\n"


@pytest.mark.parametrize(
    ("wrong", "script"),
    [
        (True, SCRIPT),
        (True, but(SCRIPT, LOAD, 'schedule.load_state_dict(kept["schedule"])')),
        (True, but(SCRIPT, LOAD, 'scaler.load_state_dict(kept["scaler"])')),
        (True, but(SCRIPT, ADAM, "torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)")),
        (True, but(SCRIPT, SENT, SENT + WEIGHTS)),
        (True, but(SCRIPT, SENT, "    dist.broadcast_object_list([int(start)], src=0)\n")),
        (True, but(SCRIPT, BEFORE, "if int(os.environ['LOCAL_RANK']) == 0 and os")),
        (True, but(SCRIPT, BEFORE, "if args.resume and dist.get_rank() == 0 and os")),
        (False, but(SCRIPT, BEFORE, "if os")),
        (False, but(SCRIPT, ADAM, "torch.optim.SGD(net.parameters(), lr=0.1)")),
        (False, but(SCRIPT, SENT, SENT + STATES)),
        (False, but(SCRIPT, SENT, SENT + "    broadcast_optimizer(optimizer)\n")),
        (
            False,
            but(
                SCRIPT,
                SENT,
                OBJECTS + "    optimizer.load_state_dict(sent[0])\n",
            ),
        ),
        (
            False,
            but(
                SCRIPT,
                SENT,
                OBJECTS + "    fill(optimizer, sent)\n",
            ),
        ),
        (
            False,
            but(
                SCRIPT,
                SENT,
                "    else:\n        optimizer.load_state_dict(torch.load(CHECKPOINT)['optimizer'])\n" + SENT,
            ),
        ),
        (
            False,
            but(
                SCRIPT,
                "        scaler.step(optimizer)\n",
                "        if dist.get_rank() == 0:\n            scaler.step(optimizer)\n",
            ),
        ),
        (False, but(SCRIPT, LOAD, "pass")),
    ],
)
def test_states_that_one_process_restores(wrong, script):
    assert ("TW571" in codes(script, JOB)) is wrong


def test_a_process_alone_restores_all():
    assert "TW571" not in codes(SCRIPT, {"instance_type": "ml.g5.2xlarge"})
