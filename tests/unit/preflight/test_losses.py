"""Outputs to which a softmax or a sigmoid was applied, and losses that apply it themselves.

Source: PyTorch's documentation of CrossEntropyLoss, NLLLoss and BCEWithLogitsLoss.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import Case, but, unmet

ONE: dict[str, Any] = {"instance_type": "ml.g5.2xlarge"}
NET = (
    "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\nimport torchvision\n"
    "from collections import OrderedDict\nclass Net(nn.Module):\n    def __init__(self):\n"
    "        super().__init__()\n        self.fc = {fc}\n        self.act = {act}\n"
    "    def forward(self, x{more}):\n        x = self.fc(x)\n        {forward}\n"
    "net = {net}\nloss_fn = {loss}\noptimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
    "for x, y in loader:\n    optimizer.zero_grad()\n    out = net(x)\n    {step}\n    loss.backward()\n"
    "    optimizer.step()\n"
)
LINEAR = "nn.Linear(2, 2)"


def net(forward: str = "return x", *edits: str, **given: str) -> str:
    """A training of a model that ends in some way."""
    usual = {"fc": LINEAR, "act": "nn.Softmax(dim=1)", "more": "", "net": "Net()", "loss": "nn.CrossEntropyLoss()"}
    return but(NET.format(forward=forward, **{**usual, "step": "loss = loss_fn(out, y)", **given}), *edits)


SOFT = "return F.softmax(x, dim=1)"
ROW = "nn.Sequential(nn.Linear(2, 2), nn.Softmax(dim=1))"
NAMED = "nn.Sequential(OrderedDict([('fc', nn.Linear(2, 2)), ('out', {})]))"
GROWN = "nn.Sequential(*[nn.Linear(2, 2), nn.Softmax(dim=1)])"
CE, NLL, BCE = "nn.CrossEntropyLoss()", "nn.NLLLoss()", "nn.BCEWithLogitsLoss()"
RESNET = "torchvision.models.resnet18()\nnet.fc = {}"
STEP = "def step(model, x, y):\n    logits = model(x)\n    return F.cross_entropy(logits, y)\nnet = Net()"
LIGHTNING = (
    "import lightning as L\nimport torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
    "class Net(L.LightningModule):\n    def __init__(self):\n        super().__init__()\n"
    "        self.fc = nn.Linear(2, 2)\n    def forward(self, x):\n        return {}\n"
    "    def training_step(self, batch, i):\n        x, y = batch\n        return F.cross_entropy(self(x), y)\n"
    "L.Trainer().fit(Net())\n"
)
CASES: list[Case] = [
    ("TW465", reported, script, ONE)
    for reported, script in (
        (20, net(SOFT)),
        ("warning", net(SOFT)),
        (True, net("return torch.softmax(x, 1)")),
        (True, net("return x.softmax(-1)")),
        (True, net("return self.act(x)")),
        (True, net("return nn.Softmax(dim=1)(x)")),
        (True, net("x = F.softmax(x, 1)\n        return x.view(-1, 2)")),
        (True, net(fc=ROW)),
        (True, net(fc=GROWN)),
        (True, net(fc=NAMED.format("nn.Softmax(dim=1)"))),
        (True, net(fc=f"nn.Sequential(nn.Linear(2, 2), {ROW})")),
        (True, net(net=ROW)),
        (True, net(net=f"nn.parallel.DistributedDataParallel({ROW})")),
        (True, net(SOFT, net="nn.parallel.DistributedDataParallel(Net())")),
        (True, net(SOFT, net="torch.compile(Net().cuda())")),
        (True, net(net=RESNET.format(ROW))),
        (True, net(SOFT, step="loss = F.cross_entropy(out, y)")),
        (True, net(SOFT, step="loss = F.cross_entropy(input=out, target=y)")),
        (True, net(SOFT, "net = Net()", STEP, step="loss = step(net, x, y)")),
        (True, net(step="out = F.softmax(out, 1)\n    loss = loss_fn(out, y)")),
        (True, net(step="loss = loss_fn(torch.softmax(net(x), -1), y)")),
        (True, net(SOFT, step="with torch.autocast('cuda'):\n        loss = loss_fn(out.float(), y)")),
        (True, net(SOFT, loss=NLL)),
        (True, net(SOFT, step="loss = F.nll_loss(out, y)")),
        (True, net("return torch.sigmoid(x)", loss=BCE)),
        (True, net(act="nn.Sigmoid()", forward="return self.act(x)", loss=BCE)),
        (True, net("return x.sigmoid()", step="loss = F.binary_cross_entropy_with_logits(out, y)")),
        (True, LIGHTNING.format("self.fc(x).softmax(1)")),
        (False, LIGHTNING.format("self.fc(x)")),
        (False, net()),
        (False, net("return F.log_softmax(x, dim=1)", loss=NLL)),
        (False, net("return F.log_softmax(x, dim=1)")),
        (False, net("return torch.log(F.softmax(x, dim=1))", loss=NLL)),
        (False, net(SOFT, step="loss = loss_fn(torch.log(out), y)")),
        (False, net("return torch.sigmoid(x)", loss="nn.BCELoss()")),
        (False, net(fc=NAMED.format("nn.LogSoftmax(dim=1)"), loss=NLL)),
        (False, net(fc="nn.Sequential(nn.Softmax(dim=1), nn.Linear(2, 2))")),
        (False, net(net=RESNET.format(LINEAR))),
        (False, net(net="torchvision.models.resnet18()")),
        # For a metric, or as the target.
        (False, net(step="loss = loss_fn(out, y)\n    print(F.softmax(out, 1).argmax(1))")),
        (False, net(step="loss = F.cross_entropy(out, F.softmax(teacher(x), 1))")),
        (False, net(step="loss = loss_fn(out, y)", forward="return x\n    def predict(self, x):\n        " + SOFT)),
        # In evaluation alone, or if it is asked for.
        (False, net("return x if self.training else F.softmax(x, 1)")),
        (False, net("if not self.training:\n            x = F.softmax(x, 1)\n        return x")),
        (False, net("if self.training:\n            return x\n        " + SOFT)),
        (False, net("return F.softmax(x, 1) if probabilities else x", more=", probabilities=False")),
        (False, net("return x, F.softmax(x, 1)", step="loss = loss_fn(out[0], y)")),
        # Attention, gates.
        (False, net("return F.softmax(x, 1) @ x")),
        (False, net("return x * torch.sigmoid(x)", loss=BCE)),
        (False, net("return torch.bmm(F.softmax(x, 1), x)")),
        (False, net(SOFT, "class Net", "class Other(nn.Module):\n    def forward(self, x):\n        pass\nclass Net",
                    "net = Net()", "net = Other()")),
    )
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_a_loss_gets_what_it_expects(case: Case) -> None:
    assert not unmet(case), unmet(case)
