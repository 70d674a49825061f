"""A model that is evaluated in the loop of its training, and goes back to training or not.

Source: PyTorch's documentation of nn.Module.train and eval: the mode stays until the next call.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import Case, but, unmet

ONE: dict[str, Any] = {"instance_type": "ml.g5.2xlarge"}
EPOCHS = (
    "import torch\nimport torch.nn.functional as F\nclass Net(torch.nn.Module):\n    def __init__(self):\n"
    "        super().__init__()\n        self.fc = torch.nn.Linear(2, 2)\n    def forward(self, x):\n"
    "        return F.dropout(self.fc(x), training=self.training)\n"
    "def test(model):\n    {eval}\n    with torch.no_grad():\n        for x in held:\n            model(x)\n"
    "    {back}\n"
    "net = Net().cuda()\noptimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
    "{once}\nfor epoch in range(9):\n    {each}\n    for i, x in enumerate(loader):\n        net(x).sum().backward()\n"
    "        optimizer.step()\n        optimizer.zero_grad()\n        {batch}\n    {end}\n"
)


def epochs(*edits: str, **given: str) -> str:
    """A training whose model is in training once, and is tested after each epoch."""
    usual = {"eval": "model.eval()", "back": "", "once": "net.train()", "each": "", "batch": "", "end": "test(net)"}
    return but(EPOCHS.format(**{**usual, **given}), *edits)


TRAIN = "def train(model, rows):\n    for x in rows:\n        pass\n"
WITH = (
    "import contextlib\n@contextlib.contextmanager\ndef evaluating(model):\n    model.eval()\n    yield\n    model.{}\n"
)
SWITCH = (
    "class Run:\n    def __init__(self, net):\n        self.net = net\n    def test(self):\n        self.net.eval()\n"
)
CASES: list[Case] = [
    ("TW408", reported, script, ONE)
    for reported, script in (
        (10, epochs()),
        ("warning", epochs()),
        (True, epochs(once="")),
        (True, epochs(eval="model.train(False)")),
        (True, epochs(eval="model.train(mode=False)")),
        (True, epochs(end="if epoch % 2:\n        test(net)")),
        (True, epochs(eval="pass", end="net.eval()\n    test(net)")),
        (True, epochs(eval="pass", end="net = net.eval()\n    test(net)")),
        # A function is called train, and does not call the method.
        (True, epochs(each="train(net, held)", once=f"{TRAIN}net.train()")),
        (True, epochs(eval="pass", once=WITH.format("eval()"), end="with evaluating(net):\n        test(net)")),
        (True, epochs(once=f"{SWITCH}run = Run(net)", end="run.test()")),
        # The batches after the first test of an epoch.
        (True, epochs(each="net.train()", batch="if i % 100 == 0:\n            test(net)", end="")),
        (True, epochs(each="net.train()", batch="if i % 100 == 0:\n            net.eval()\n            test(net)",
                      end="", eval="pass")),
        (False, epochs(each="net.train()")),
        (False, epochs(each="net = net.train()")),
        (False, epochs(each="net.train(True)")),
        (False, epochs(back="model.train()")),
        (False, epochs(end="test(net)\n    net.train()")),
        (False, epochs(back="model.train(mode)", eval="mode = model.training\n    model.eval()")),
        (False, epochs(each="net.training = True")),
        (False, epochs(each="for part in net.modules():\n        part.train()")),
        (False, epochs(each="train(net, held)", once=TRAIN.replace("pass", "model.train()"))),
        (False, epochs(eval="pass", once=WITH.format("train()"), end="with evaluating(net):\n        test(net)")),
        (False, epochs(once=f"{SWITCH}run = Run(net)", each="net.train()", end="run.test()")),
        (False, epochs(each="net.train()", batch="if i % 100 == 0:\n            test(net)\n            net.train()",
                       end="")),
        (False, epochs(each="net.train()", batch="net.train()\n        if i % 9 == 0:\n            test(net)", end="")),
        (False, epochs(each="net.train()", batch="if i % 100 == 0:\n            test(net)\n            break", end="")),
        (False, epochs(each="net.train()", batch="if i == len(loader) - 1:\n            test(net)", end="")),
        # Another model than the one that is trained, or a copy.
        (False, epochs(end="import copy\n    test(copy.deepcopy(net))")),
        (False, epochs(end="other = Net()\n    test(other)")),
        (False, epochs(end="pass")),
        # After the training.
        (False, epochs(end="pass\ntest(net)")),
        # Nothing differs between the modes.
        (False, epochs("F.dropout(self.fc(x), training=self.training)", "self.fc(x)")),
    )
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_a_model_trains_in_training(case: Case) -> None:
    assert not unmet(case), unmet(case)
