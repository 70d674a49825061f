"""The best value so far, as Lightning's and Keras's ModelCheckpoint begin it, and as scripts do."""

from __future__ import annotations

import pytest

from tests.support.training_scripts import P4D, findings

ONE = {"instance_type": P4D}
TRAINED = (
    "import os\nimport torch\nmodel = torch.nn.Linear(1, 1).cuda()\nopt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    "folder = os.environ['SM_MODEL_DIR']\n{first}\nfor epoch in range(3):\n    for x in data:\n"
    "        opt.zero_grad()\n        model(x.cuda()).sum().backward()\n        opt.step()\n"
    "    val_loss, accuracy = measure(model)\n"
    "    if {test}:\n        best = {value}\n        torch.save(model.state_dict(), os.path.join(folder, 'model.pt'))\n"
    "{last}"
)
LAST = "torch.save(model.state_dict(), os.path.join(folder, 'last.pt'))\n"
SMALLER, LARGER = ("val_loss < best", "val_loss"), ("accuracy > best", "accuracy")
IN_CLASS = (
    "import torch\nclass Best:\n    def __init__(self):\n        self.best = {first}\n"
    "    def __call__(self, model, eval_loss):\n        if self.best > eval_loss:\n            self.best = eval_loss\n"
    "            torch.save(model.state_dict(), '/opt/ml/model/m.pt')\nkeep = Best()\nfor x in data:\n"
    "    loss = model(x)\n    loss.backward()\n    opt.step()\n    keep(model, loss.item())\n"
)


def severity(script: str) -> str | None:
    return next((f.severity for f in findings(script, ONE) if f.code == "TW592"), None)


@pytest.mark.parametrize(
    ("first", "compared", "last", "expected"),
    [
        ("best = 0.0", SMALLER, "", "error"),
        ("best = 0", ("best > val_loss", "val_loss"), "", "error"),
        ("best = 0.0", ("val_loss <= best and epoch > 1", "val_loss"), "", None),  # another condition decides, too
        ("best = 0.0", SMALLER, LAST, "warning"),
        ("best = float('-inf')", SMALLER, "", "error"),
        ("best = -float('inf')", SMALLER, "", "error"),
        ("best = float('inf')", LARGER, "", "error"),
        ("import math\nbest = math.inf", LARGER, "", "error"),
        ("best = float('inf')", SMALLER, "", None),
        ("best = -float('-inf')", SMALLER, "", None),
        ("best = float('-inf')", LARGER, "", None),
        ("best = 0.0", LARGER, "", None),
        ("best = 1e9", SMALLER, "", None),
        ("best = 0.0", ("accuracy < best", "accuracy"), "", None),  # it may be negative: a likelihood, a reward
        ("best = 0.0", ("val_loss < best or epoch == 0", "val_loss"), "", None),
        ("best = 0.0\nbest = measure(model)[0]", SMALLER, "", None),
        ("best = 0.0\nif resume:\n    best = torch.load('c.pt')['best']", SMALLER, "", "error"),
        ("best = 0.0\nfor best in data:\n    pass", SMALLER, "", None),
        ("best = 0.0", ("val_loss < best", "accuracy"), "", None),  # not the value that was compared
    ],
)
def test_where_the_best_value_begins(first: str, compared: tuple[str, str], last: str, expected: str | None) -> None:
    test, value = compared
    assert severity(TRAINED.format(first=first, test=test, value=value, last=last)) == expected


@pytest.mark.parametrize(("first", "expected"), [("0.0", "error"), ("float('inf')", None), ("None", None)])
def test_of_an_object(first: str, expected: str | None) -> None:
    assert severity(IN_CLASS.format(first=first)) == expected


def test_a_function_that_nothing_calls() -> None:
    script = TRAINED.format(first="best = 0.0", test=SMALLER[0], value=SMALLER[1], last="")
    head, _, loop = script.partition("best = 0.0")
    inner = "\n".join("    " + line for line in ("best = 0.0" + loop).splitlines())
    assert severity(head + "def never():\n" + inner + "\n") is None


def test_a_name_of_another_function() -> None:
    script = TRAINED.format(first="best = float('inf')", test=SMALLER[0], value=SMALLER[1], last="")
    assert severity(script + "def other():\n    best = 0.0\n    return best\n") is None
