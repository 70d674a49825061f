"""Mistakes that unseen scripts hid, and beside each the right way that is nearest."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import DDP, LOOP, P4D, TORCHRUN, codes

TWO: dict[str, Any] = {"instance_type": P4D, "instance_count": 2, "distribution": TORCHRUN}
SHARE = (
    DDP
    + "rank, world = dist.get_rank(), dist.get_world_size()\nvalid = torch.load('v.pt')\n"
    + "held = DataLoader(torch.utils.data.Subset(valid, range(rank, len(valid), world)), batch_size=8)\n"
)
COUNTED = (
    "hits, seen = torch.zeros(1, device='cuda'), 0\nfor x, y in held:\n"
    "    hits += (model(x.cuda()).argmax(1) == y.cuda()).sum()\n    seen += y.size(0)\n"
)
REDUCED = SHARE + COUNTED + "{}\ndist.all_reduce(mean)\nprint(mean{})\n"
STOPPED = (
    SHARE
    + "def held_out(net, batches):\n    total, seen = torch.zeros((), device='cuda'), 0\n    for x, y in batches:\n"
    "        total += loss_of(net(x.cuda()), y.cuda())\n        seen += 1\n    {}return (total / seen).item()\n"
    "best, stale = float('inf'), 0\nfor epoch in range(9):\n"
    + LOOP.replace("\n", "\n    ")
    + "\n    value = held_out(model.module, held)\n    if value < best:\n        best, stale = value, 0\n    else:\n"
    "        stale += 1\n    if stale > 3:\n        break\n"
)
VISIBLE = (
    "import os\n{}import torch\nimport torch.distributed as dist\n"
    "from torch.nn.parallel import DistributedDataParallel as DDP\nlocal_rank = int(os.environ['LOCAL_RANK'])\n"
    "torch.cuda.set_device({})\ndist.init_process_group('nccl')\nmodel = DDP(torch.nn.Linear(2, 2).cuda())\n" + LOOP
)
ONE_GPU = "os.environ['CUDA_VISIBLE_DEVICES'] = os.environ['LOCAL_RANK']\n"
NET = (
    "import os\nimport torch\nimport torch.distributed as dist\nfrom torch.nn.parallel import "
    "DistributedDataParallel as DDP\nclass Net(torch.nn.Module):\n    pass\ndist.init_process_group('nccl')\n"
    "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))\nmodel = DDP(Net().cuda())\n"
    + LOOP
    + "{}\nnet = Net()\nnet.load_state_dict({})\n"
)
HEADED = NET.replace("    pass\n", "    def __init__(self):\n        self.head = torch.nn.Linear(2, 2)\n").format(
    "{}", "torch.load(os.environ['SM_CHANNEL_TRAIN'] + '/n.pt')"
)
RATED = (
    "import argparse, torch\np = argparse.ArgumentParser()\np.add_argument('--rate', default='1e-3'{})\n"
    "args = p.parse_args()\n{}model = torch.nn.Linear(2, 2)\n"
    "optimizer = torch.optim.SGD(model.parameters(), lr=args.rate)\n" + LOOP
)
SHOWN = (
    SHARE
    + "with torch.no_grad():\n    "
    + COUNTED.replace("\n", "\n    ")
    + "{}\nif rank == 0:\n    print(f'{{mean}}')\n"
)
NAMED = "torch.save({{'model': {}.state_dict()}}, 'c.pt')"
WHOLE = "torch.save({}.state_dict(), 'c.pt')"

ENVIRONED = "import os\nenv = os.environ\nfolder = env['{}']\n"
RESUMED = (
    "import os\nimport torch\nmodel = torch.nn.Linear(2, 2).cuda()\n"
    "optimizer = torch.optim.SGD(model.parameters(), lr=1)\n"
    "path = '/opt/ml/checkpoints/last.pt'\n{}for epoch in range(9):\n"
    + LOOP.replace("\n", "\n    ")
    + "\n    torch.save({{'model': model.state_dict(), 'optimizer': optimizer.state_dict()}}, path)\n"
)
LOADED = (
    "if os.path.exists(path):\n    kept = torch.load(path)\n    model.load_state_dict(kept['model'])\n"
    "    optimizer.load_state_dict(kept['optimizer'])\n"
)
TRAINIUM = (
    "import torch\nimport torch.distributed as dist\nimport torch_xla.core.xla_model as xm\n"
    "import torch_xla.distributed.parallel_loader as pl\nimport torch_xla.distributed.xla_backend\n"
    "dist.init_process_group('xla')\nmodel = torch.nn.Linear(2, 2).to(xm.xla_device())\n"
    "optimizer = torch.optim.SGD(model.parameters(), lr=1)\nfor x, y in pl.MpDeviceLoader(batches, xm.xla_device()):\n"
    "    optimizer.zero_grad()\n    model(x).sum().backward()\n    {}\n"
)
PARTS = (
    "parts = {{'model': model, 'optimizer': optimizer}}\nif os.path.exists(path):\n    kept = torch.load(path)\n"
    "    for name, part in parts.items():\n        {}\n"
)
BACKEND = (
    "import argparse, os, torch\nimport torch.distributed as dist\np = argparse.ArgumentParser()\n"
    "from torch.nn.parallel import DistributedDataParallel as DDP\np.add_argument('--backend', default='{}')\n"
    "args = p.parse_args()\ndist.init_process_group(args.backend)\n"
    "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))\nmodel = DDP(torch.nn.Linear(2, 2).cuda())\n" + LOOP
)
REGISTERED = (
    "import importlib\nimport torch.distributed as dist\nbackend = 'smddp'\nif backend == 'smddp':\n"
    "    importlib.import_module('{}')\ndist.init_process_group(backend)\n"
)
TOKENIZED = (
    "import os\nfrom transformers import AutoTokenizer, Trainer, TrainingArguments\n"
    "tokenizer = AutoTokenizer.from_pretrained('b')\ntrainer = Trainer(m, TrainingArguments('/opt/ml/checkpoints'))\n"
    "trainer.train()\ntokenizer.save_pretrained(os.environ['SM_MODEL_DIR'])\n"
    "with open(os.environ['SM_MODEL_DIR'] + '/scores.txt', 'w') as f:\n    f.write('1')\n{}"
)
WAYS: dict[str, tuple[str, str, str]] = {
    "means of shares that are summed": (
        "TW505",
        REDUCED.format("mean = hits / seen", ""),
        REDUCED.format("mean = hits / seen", " / world"),
    ),
    "a mean and a one, which are summed together": (
        "TW505",
        REDUCED.format("mean = torch.tensor([hits / seen, 1.0])", "[0]"),
        REDUCED.format("mean = torch.tensor([hits / seen, 1.0])", "[0] / mean[1]"),
    ),
    "sums over the number of all samples": (
        "TW505",
        REDUCED.format("mean = hits / len(held.dataset)", ""),
        REDUCED.format("mean = hits / len(valid)", ""),
    ),
    "the end of training by one's own share": (
        "TW401",
        STOPPED.format(""),
        STOPPED.format("dist.all_reduce(total)\n    "),
    ),
    "the only GPU by its old number": (
        "TW506",
        VISIBLE.format(ONE_GPU, "local_rank"),
        VISIBLE.format(ONE_GPU, "0"),
    ),
    "a GPU by its number where all are seen": (
        "TW506",
        VISIBLE.format(ONE_GPU, "local_rank"),
        VISIBLE.format("os.environ['CUDA_VISIBLE_DEVICES'] = ','.join(map(str, range(8)))\n", "local_rank"),
    ),
    "names of the wrapper for a model": (
        "TW497",
        NET.format(NAMED.format("model"), "torch.load('c.pt')['model'], strict=False"),
        NET.format(NAMED.format("model.module"), "torch.load('c.pt')['model'], strict=False"),
    ),
    "a layer of the model in a wrapper": (
        "TW148",
        HEADED.format("print(model.head)"),
        HEADED.format("print(model.module.head, model.training, model.device)"),
    ),
    "a variable that nobody sets, read under a name": (
        "TW164",
        ENVIRONED.format("SM_OUTPUT_ARTIFACTS_DIR"),
        ENVIRONED.format("SM_OUTPUT_DATA_DIR"),
    ),
    "a checkpoint that nothing loads": ("TW454", RESUMED.format(""), RESUMED.format(LOADED)),
    "parts of a checkpoint that a loop loads": (
        "TW454",
        RESUMED.format(PARTS.format("print(name)")),
        RESUMED.format(PARTS.format("part.load_state_dict(kept[name])")),
    ),
    "the backend of a default that the job leaves": ("TW406", BACKEND.format("gloo"), BACKEND.format("nccl")),
    "a backend that a name registers": (
        "TW126",
        REGISTERED.format("json"),
        REGISTERED.format("smdistributed.dataparallel.torch.torch_smddp"),
    ),
    "a tokenizer and a text in place of a model": (
        "TW145",
        TOKENIZED.format(""),
        TOKENIZED.format("trainer.save_model(os.environ['SM_MODEL_DIR'])\n"),
    ),
    "gradients that torchrun's processes keep to themselves": (
        "TW114",
        TRAINIUM.format("optimizer.step()\n    xm.mark_step()"),
        TRAINIUM.format("xm.optimizer_step(optimizer)"),
    ),
    "a text as the rate": ("TW195", RATED.format("", ""), RATED.format("", "args.rate = float(args.rate)\n")),
    "a text with a type": ("TW195", RATED.format(", type=str", ""), RATED.format(", type=float", "")),
    "the metric of a share, shown by one process": (
        "TW507",
        SHOWN.format("mean = hits / seen"),
        SHOWN.format("dist.all_reduce(hits)\n    mean = hits / len(valid)"),
    ),
    "a file with names of the wrapper for a model": (
        "TW497",
        NET.format(WHOLE.format("model"), "torch.load('c.pt')"),
        NET.format(WHOLE.format("model.module"), "torch.load('c.pt')"),
    ),
}


@pytest.mark.parametrize("name", WAYS)
def test_the_mistake_is_reported_and_the_right_way_is_not(name):
    code, wrong, right = WAYS[name]
    job = TWO | {"checkpoint": {"s3_uri": "s3://b/c"}}
    assert code in codes(wrong, job)
    assert code not in codes(right, job)


def test_weights_of_another_file_may_have_other_names():
    pretrained = "torch.load(os.environ['SM_CHANNEL_TRAIN'] + '/c.pt')['model']"
    assert "TW497" not in codes(NET.format(NAMED.format("model"), pretrained), TWO)


def test_a_tokenizer_saved_beside_arguments_that_no_trainer_uses():
    """The loop is the script's own; what TrainingArguments name is written by nobody."""
    script = TOKENIZED.partition("trainer =")[0] + "arguments = TrainingArguments('/opt/ml/checkpoints')\n"
    script += "import torch\nmodel = torch.nn.Linear(2, 2)\n" + LOOP
    script += "tokenizer.save_pretrained(os.environ['SM_MODEL_DIR'])\n"
    assert "TW145" not in codes(script, TWO)


def test_a_hyperparameter_that_differs_in_a_dash_is_left_out():
    script = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--learning_rate', type=float)\n"
    script += "args, rest = p.parse_known_args()\n"
    assert "TW193" in codes(script, TWO | {"hyperparameters": {"learning-rate": 0.1}})
    assert "TW193" not in codes(script, TWO | {"hyperparameters": {"learning_rate": 0.1, "other": 1}})


# argparse's documentation of parse_known_args: what no argument takes is in the second value.
LENIENT = (
    "import argparse, os\np = argparse.ArgumentParser()\np.add_argument('--learning_rate', type=float)\n"
    "p.add_argument('--epochs', type=int)\nargs, rest = p.parse_known_args()\n"
)


@pytest.mark.parametrize(
    ("given", "script", "reported"),
    [
        ({"lr": 0.1}, LENIENT, True),
        ({"num_epochs": 3}, LENIENT, True),
        ({"lr": 0.1, "learning_rate": 0.1}, LENIENT, False),
        ({"lr": 0.1}, LENIENT + "print(rest)\n", False),
        ({"lr": 0.1}, LENIENT + "print(os.environ['SM_HP_LR'])\n", False),
        ({"seed": 1}, LENIENT, False),
        ({"lr": 0.1}, LENIENT.replace("args, rest = p.parse_known_args()", "args = p.parse_known_args()[0]"), True),
    ],
)
def test_a_hyperparameter_in_short_is_left_out(given: dict[str, object], script: str, reported: bool) -> None:
    assert ("TW193" in codes(script, TWO | {"hyperparameters": given})) == reported


def test_an_optimizer_of_torch_xla_that_splits_its_state_reduces_gradients():
    script = TRAINIUM.replace("torch.optim.SGD", "ZeroRedundancyOptimizer").replace(
        "dist.init", "from torch_xla.distributed.zero_redundancy_optimizer import ZeroRedundancyOptimizer\ndist.init"
    )
    assert "TW114" not in codes(script.format("optimizer.step()\n    xm.mark_step()"), TWO)


def test_lengths_of_ctc_may_stay_in_main_memory():
    """They are for cuDNN to read there (PyTorch's documentation of CTCLoss)."""
    script = (
        "import torch\nfrom torch.utils.data import DataLoader\nmodel = torch.nn.Linear(2, 2).cuda()\n"
        "loss_of = torch.nn.{}()\noptimizer = torch.optim.SGD(model.parameters(), lr=1)\n"
        "for x, y, lengths in DataLoader(torch.load('d.pt'), batch_size=8):\n    optimizer.zero_grad()\n"
        "    loss_of(model(x.cuda()), y.cuda(), lengths).backward()\n    optimizer.step()\n"
    )
    assert "TW459" not in codes(script.format("CTCLoss"), TWO)
    assert "TW459" in codes(script.format("TripletMarginLoss"), TWO)
