"""A checkpoint's names are those of the model that loads it; strict=False leaves out all others without a word.

Source: PyTorch's documentation of load_state_dict: with strict=False, keys that do not match are ignored.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import DDP, P4D, TORCHRUN, codes

JOB: dict[str, Any] = {"instance_type": P4D, "distribution": TORCHRUN, "checkpoint": {"s3_uri": "s3://b/c"}}
SCRIPT = (
    DDP.replace("model = DDP(model)\n", "")
    + """
plain = torch.nn.Linear(2, 2).cuda()
model = DDP(plain)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
PATH = "/opt/ml/checkpoints/last.pt"
def save(target, net, epoch):
    parts = {{"net": {saved}.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}}
    torch.save(parts, target + ".part")
    os.replace(target + ".part", target)
def restore(source, net):
    kept = torch.load(source, map_location="cpu")
    {load}
    optimizer.load_state_dict(kept["optimizer"])
    return kept["epoch"] + 1
start = restore(PATH, model) if os.path.exists(PATH) else 0
sampler = DistributedSampler(data)
loader = DataLoader(data, sampler=sampler)
for epoch in range(start, 9):
    sampler.set_epoch(epoch)
    for x in loader:
        model(x.cuda()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    if dist.get_rank() == 0:
        save(PATH, model, epoch)
    dist.barrier()
"""
)
OTHERS = [
    ("net.module", "net.load_state_dict(kept['net'])"),
    ("net.module", "net.load_state_dict(kept['net'], strict=False)"),
    ("net.module", "weights = kept['net']\n    net.load_state_dict(weights, False)"),
    ("net.module", "net.load_state_dict(kept.pop('net'), strict=False, assign=True)"),
    ("plain", "missing, extra = net.load_state_dict(kept.get('net'), strict=False)"),
    ("net", "net.module.load_state_dict(kept['net'], strict=False)"),
    ("net", "plain.load_state_dict(kept['net'], False)"),
]
SAME = [
    ("net.module", "net.module.load_state_dict(kept['net'], strict=False)"),
    ("net", "net.load_state_dict(kept['net'], strict=False)"),
    ("plain", "plain.load_state_dict(kept['net'], False)"),
    ("net.module", "net.load_state_dict({'module.' + name: each for name, each in kept['net'].items()})"),
    ("net.module", "net.load_state_dict({names[k]: each for k, each in kept['net'].items()}, strict=False)"),
    ("net.module", "net.load_state_dict(torch.load('/opt/ml/input/data/first/w.pt')['net'], strict=False)"),
    (
        "net.module",
        "try:\n        net.load_state_dict(kept['net'])\n"
        "    except RuntimeError:\n        net.module.load_state_dict(kept['net'])",
    ),
]


@pytest.mark.parametrize(("saved", "load"), OTHERS)
def test_names_of_the_wrapper_or_of_the_model_in_it(saved: str, load: str) -> None:
    assert "TW497" in codes(SCRIPT.format(saved=saved, load=load), JOB)


@pytest.mark.parametrize(("saved", "load"), SAME)
def test_names_that_are_the_same_or_may_be(saved: str, load: str) -> None:
    assert "TW497" not in codes(SCRIPT.format(saved=saved, load=load), JOB)


AVERAGES = """
import copy
from torch import nn
from torch.optim.swa_utils import AveragedModel
def build():
    return nn.Linear(2, 2)
class Average:
    def __init__(self, net, decay):
        self.net, self.decay = copy.deepcopy(net).eval(), decay
    def update(self, net):
        for mine, theirs in zip(self.net.parameters(), net.parameters()):
            mine.data.lerp_(theirs.data, 1 - self.decay)
plain = build().cuda()
model = DDP(plain)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{average}
for epoch in range(9):
    for x in loader:
        model(x.cuda()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
{use}
"""
FILE = "os.path.join(os.environ['SM_MODEL_DIR'], 'm.pt')"
READ = (
    "torch.save(average.{0}state_dict(), "
    + FILE
    + ")\nfresh = build()\nfresh.load_state_dict(torch.load("
    + FILE
    + "))"
)
DIRECT = "fresh = build()\nfresh.load_state_dict({})"
COPY, AVERAGED = "average = copy.deepcopy(model)", "average = AveragedModel(model)"
OWN = "average = Average(model, 0.99)"


def of_averages(average: str, use: str) -> str:
    """A training that keeps an average of the model, and what it does with it in the end."""
    return DDP.replace("model = DDP(model)\n", "") + AVERAGES.format(average=average, use=use)


@pytest.mark.parametrize(
    ("average", "use"),
    [
        (COPY, DIRECT.format("average.state_dict()")),
        (COPY, READ.format("")),
        (AVERAGED, DIRECT.format("average.state_dict()")),
        (AVERAGED, DIRECT.format("average.module.state_dict()")),
        (AVERAGED, READ.format("")),
        ("average = AveragedModel(plain)", DIRECT.format("average.state_dict()")),
        (OWN, DIRECT.format("average.net.state_dict()")),
        (OWN, "state = average.net.state_dict()\n" + DIRECT.format("state")),
        ("", DIRECT.format("model.state_dict()")),
    ],
)
def test_averages_of_a_wrapped_model(average: str, use: str) -> None:
    """sming256/OpenTAD #44: the average was copied from DistributedDataParallel."""
    assert "TW497" in codes(of_averages(average, use), JOB)


@pytest.mark.parametrize(
    ("average", "use"),
    [
        ("average = copy.deepcopy(model.module)", DIRECT.format("average.state_dict()")),
        ("average = copy.deepcopy(plain)", READ.format("")),
        (COPY, DIRECT.format("average.module.state_dict()")),
        (COPY, "model.load_state_dict(average.state_dict())"),
        ("average = AveragedModel(plain)", DIRECT.format("average.module.state_dict()")),
        (AVERAGED, DIRECT.format("average.module.module.state_dict()")),
        ("average = AveragedModel(plain)", "model.load_state_dict(average.state_dict(), strict=False)"),
        ("average = Average(model.module, 0.99)", DIRECT.format("average.net.state_dict()")),
        (COPY, DIRECT.format("{k[7:]: v for k, v in average.state_dict().items()}")),
        (COPY, DIRECT.format("average.module.state_dict() if wrapped else average.state_dict()")),
    ],
)
def test_averages_with_the_names_of_the_model(average: str, use: str) -> None:
    assert "TW497" not in codes(of_averages(average, use), JOB)
