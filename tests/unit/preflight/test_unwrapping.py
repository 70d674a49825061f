"""The ways of public scripts to take DistributedDataParallel off a model before they call the model's own methods."""

from __future__ import annotations

import pytest

from tests.support.training_scripts import DDP, P4D, TORCHRUN, codes

TWO = {"instance_type": P4D, "instance_count": 2, "distribution": TORCHRUN}
MADE = "from transformers import AutoModel\nplain = AutoModel.from_pretrained('m').cuda()\n"
HEAD = DDP.replace("model = DDP(model)\n", "") + MADE
WRAPPED = HEAD + "model = DDP(plain)\n"
SAVES = "if dist.get_rank() == 0:\n    {}.save_pretrained('/opt/ml/model')\n"
MAYBE = HEAD + "model = plain\nif dist.get_world_size() > 1:\n    model = DDP(model)\n"

TAKEN_OFF = {
    "hasattr": "m = model.module if hasattr(model, 'module') else model\n" + SAVES.format("m"),
    "isinstance": "m = model.module if isinstance(model, DDP) else model\n" + SAVES.format("m"),
    "not hasattr": "m = model if not hasattr(model, 'module') else model.module\n" + SAVES.format("m"),
    "a flag": "m = model.module if args.distributed else model\n" + SAVES.format("m"),
    "getattr": "m = getattr(model, 'module', model)\n" + SAVES.format("m"),
    "a statement": "if args.distributed:\n    m = model.module\nelse:\n    m = model\n" + SAVES.format("m"),
    "a statement without else": "m = model\nif args.distributed:\n    m = model.module\n" + SAVES.format("m"),
    "a function": "def inner(m):\n    if hasattr(m, 'module'):\n        return m.module\n    return m\n"
    + SAVES.format("inner(model)"),
    "a function that calls itself": "def inner(m):\n    if hasattr(m, 'module'):\n        return inner(m.module)\n"
    "    else:\n        return m\n" + SAVES.format("inner(model)"),
    "a method's argument": "def save(model, path):\n    m = model.module if hasattr(model, 'module') else model\n"
    "    m.save_pretrained(path)\nif dist.get_rank() == 0:\n    save(model, '/opt/ml/model')\n",
}
LEFT_ON = {
    "as it is": "m = model\n" + SAVES.format("m"),
    "the wrapper in both branches": "m = model if args.fast else model\n" + SAVES.format("m"),
    "a function that gives it back": "def inner(m):\n    return m\n" + SAVES.format("inner(model)"),
}
PUT_ON = {
    "a statement": MAYBE,
    "an expression": HEAD + "model = DDP(plain) if dist.get_world_size() > 1 else plain\n",
    "a function": HEAD
    + "def wrap(m):\n    if args.distributed:\n        return DDP(m)\n    return m\nmodel = wrap(plain)\n",
    "in a function, under a condition": HEAD
    + "def wrap(m):\n    return DDP(m)\nmodel = plain\nif args.distributed:\n    model = wrap(model)\n",
}

PREPARED = (
    MADE
    + "from accelerate import Accelerator\naccelerator = Accelerator()\n"
    + "opt = torch.optim.SGD(plain.parameters())\nmodel, opt = accelerator.prepare(plain, opt)\n"
)
PREPARES = "model, opt = plain, opt\nif several:\n    model, opt = accelerator.prepare(model, opt)\n"


@pytest.mark.parametrize("rest", TAKEN_OFF.values(), ids=TAKEN_OFF)
@pytest.mark.parametrize("head", [WRAPPED, MAYBE], ids=["wrapped", "wrapped under a condition"])
def test_a_model_without_its_wrapper_is_none_of_the_wrapper(head, rest):
    assert "TW148" not in codes(head + rest, TWO)


@pytest.mark.parametrize("rest", LEFT_ON.values(), ids=LEFT_ON)
def test_the_wrapper_has_no_methods_of_the_model(rest):
    assert "TW148" in codes(WRAPPED + rest, TWO)


@pytest.mark.parametrize("head", PUT_ON.values(), ids=PUT_ON)
def test_a_wrapper_that_is_put_on_under_a_condition_stays_one(head):
    assert "TW148" in codes(head + SAVES.format("model"), TWO)


def test_accelerates_wrapper_is_taken_off_likewise():
    head = "import torch\nimport torch.distributed as dist\n" + PREPARED
    off = "m = model.module if hasattr(model, 'module') else model\n"
    assert "TW148" in codes(head + SAVES.format("model"), TWO)
    assert "TW148" not in codes(head + off + SAVES.format("m"), TWO)


def test_what_accelerate_prepares_under_a_condition_is_wrapped():
    head = "import torch\nimport torch.distributed as dist\n" + PREPARED.rpartition("model, opt")[0] + PREPARES
    assert "TW148" in codes(head + SAVES.format("model"), TWO)
