"""What a library or a machine cannot do, as its documentation says, and beside it the right way that is nearest."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, TORCHRUN, codes

P3 = "ml.p3.16xlarge"
SMP_JOB: dict[str, Any] = {
    "instance_type": P3,
    "distribution": {"smdistributed": {"modelparallel": {"enabled": True, "parameters": {}}}, "mpi": {"enabled": True}},
}
ONE: dict[str, Any] = {"instance_type": P4D}
TRAINIUM: dict[str, Any] = {"instance_type": "ml.trn1.32xlarge", "distribution": TORCHRUN}
SMP = (
    "import torch\nimport smdistributed.modelparallel.torch as smp\nfrom torch.nn.parallel import "
    "DistributedDataParallel as DDP\nfrom apex.optimizers import FusedAdam\nfrom apex import amp\nsmp.init()\n"
    "torch.cuda.set_device(smp.local_rank())\nnet = torch.nn.Linear(2, 2)\n{}\n"
    "@smp.step\ndef step(model, x):\n    loss = model(x).sum()\n    model.backward(loss)\n    return loss\n"
    "for x in loader:\n    {}\n"
)
WRAPPED = "model = smp.DistributedModel({})\noptimizer = smp.DistributedOptimizer({}(model.parameters()))"
PLAIN = WRAPPED.format("net", "torch.optim.Adam")
TURN = "optimizer.zero_grad()\n    loss = step(model, x.cuda()).reduce_mean()\n    optimizer.step()"
LOOP = (
    "import torch, os\nfrom torchvision import transforms, datasets\nfrom torch.nn.utils.rnn import pad_sequence\n"
    "from torch.utils.data import DataLoader\nnet = torch.nn.Linear(2, 2)\ndevice = {}\nmodel = net.to(device)\n{}\n"
    "optimizer = torch.optim.Adam(model.parameters())\nfor x, y in loader:\n    optimizer.zero_grad()\n    {}\n"
    "    loss.backward()\n    optimizer.step()\ntorch.save({}.state_dict(), os.environ['SM_MODEL_DIR'] + '/m.pt')\n"
)
CUDA, ANY = "torch.device('cuda')", "torch.device('cuda' if torch.cuda.is_available() else 'cpu')"
LOSS = "loss = torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device))"
TRANSFORMED = (
    "tf = transforms.Lambda(lambda t: {})\n"
    "loader = DataLoader(datasets.MNIST('d', transform=tf), batch_size=8, num_workers={})"
)
XLA = "import torch_xla.core.xla_model as xm\n"
LONGEST = "fill(batch, max(len(each) for each in batch))"
COLLATED = (
    "def collate(batch):\n    return {}\n"
    "loader = DataLoader(torch.load('d.pt'), batch_size=8, drop_last=True, collate_fn=collate)"
)

WAYS = {
    "DDP in the model parallel library": (
        ("TW498", SMP_JOB),
        SMP.format(WRAPPED.format("DDP(net)", "torch.optim.Adam"), TURN),
        SMP.format(PLAIN, TURN),
    ),
    "DDP around the model parallel library": (
        ("TW498", SMP_JOB),
        SMP.format(PLAIN + "\nwhole = DDP(model)", TURN),
        SMP.format(PLAIN + "\nother = DDP(torch.nn.Linear(2, 2))", TURN),
    ),
    "a script module": (
        ("TW498", SMP_JOB),
        SMP.format(WRAPPED.format("torch.jit.script(net)", "torch.optim.Adam"), TURN),
        SMP.format(PLAIN + "\nexported = torch.jit.script(torch.nn.Linear(2, 2))", TURN),
    ),
    "an optimizer of apex": (
        ("TW498", SMP_JOB),
        SMP.format(WRAPPED.format("net", "FusedAdam"), TURN),
        SMP.format(WRAPPED.format("net", "smp.optimizers.FusedAdam"), TURN),
    ),
    "amp of apex": (
        ("TW498", SMP_JOB),
        SMP.format(PLAIN + "\nmodel, optimizer = amp.initialize(model, optimizer)", TURN),
        SMP.format(PLAIN + "\nscaler = smp.amp.GradScaler()", TURN),
    ),
    "gradients of the step function that are cleared": (
        ("TW138", SMP_JOB),
        SMP.format(PLAIN, "loss = step(model, x.cuda())\n    optimizer.zero_grad()\n    optimizer.step()"),
        SMP.format(PLAIN, "loss = step(model, x.cuda())\n    optimizer.step()\n    optimizer.zero_grad()"),
    ),
    "indices for a loss": (
        ("TW499", ONE),
        LOOP.format(CUDA, "", LOSS.replace("model(x.to(device))", "model(x.to(device)).argmax(1).float()"), "model"),
        LOOP.format(CUDA, "", f"{LOSS}\n    hits = model(x.to(device)).argmax(1).float()", "model"),
    ),
    "indices for a loss that is shown alone": (
        ("TW499", ONE),
        LOOP.format(
            CUDA, "criterion = torch.nn.MSELoss()", "loss = criterion(model(x.cuda()).argmax(1).float(), y)", "model"
        ),
        LOOP.format(
            CUDA,
            "criterion = torch.nn.MSELoss()",
            f"{LOSS}\n    shown = criterion(model(x.cuda()).argmax(1).float(), y)",
            "model",
        ),
    ),
    "names of a compiled model": (
        ("TW443", ONE),
        LOOP.format(CUDA, "model = torch.compile(model)", LOSS, "model"),
        LOOP.format(CUDA, "model = torch.compile(model)", LOSS, "net"),
    ),
    "names of a compiled model that serving compiles as well": (
        ("TW443", ONE),
        LOOP.format(CUDA, "model = torch.compile(model)", LOSS, "model"),
        LOOP.format(CUDA, "model = torch.compile(model)", LOSS, "model")
        + "def model_fn(folder):\n    model = torch.compile(torch.nn.Linear(2, 2))\n"
        "    model.load_state_dict(torch.load(folder + '/m.pt'))\n    return model\n",
    ),
    "CUDA in a transform of a worker": (
        ("TW486", ONE),
        LOOP.format(CUDA, TRANSFORMED.format("t.to('cuda')", 4), LOSS, "model"),
        LOOP.format(CUDA, TRANSFORMED.format("t.to('cuda')", 0), LOSS, "model"),
    ),
    "a transform in main memory": (
        ("TW486", ONE),
        LOOP.format(CUDA, TRANSFORMED.format("t.cuda()", 4), LOSS, "model"),
        LOOP.format(CUDA, TRANSFORMED.format("t.to(torch.float32)", 4), LOSS, "model"),
    ),
    "batches as long as their longest sample": (
        ("TW170", TRAINIUM),
        XLA + LOOP.format("xm.xla_device()", COLLATED.format("pad_sequence(batch)"), LOSS, "model"),
        XLA + LOOP.format("xm.xla_device()", COLLATED.format("torch.stack(batch)"), LOSS, "model"),
    ),
    "batches as long as the longest sample may be": (
        ("TW170", TRAINIUM),
        XLA + LOOP.format("xm.xla_device()", COLLATED.format(LONGEST), LOSS, "model"),
        XLA + LOOP.format("xm.xla_device()", COLLATED.format("fill(pad_sequence(batch), MAX_LEN)"), LOSS, "model"),
    ),
    "a GPU on Trainium": (
        ("TW500", TRAINIUM),
        LOOP.format(ANY, "", LOSS, "model"),
        XLA + LOOP.format("xm.xla_device()", "", LOSS, "model"),
    ),
    "a GPU or Trainium": (
        ("TW500", TRAINIUM),
        XLA + LOOP.format(ANY, "", LOSS, "model"),
        XLA + LOOP.format(f"{ANY[:-1]}) if cuda else xm.xla_device()", "", LOSS, "model"),
    ),
}


@pytest.mark.parametrize("name", WAYS)
def test_the_mistake_is_reported_and_the_right_way_is_not(name):
    (code, job), wrong, right = WAYS[name]
    assert code in codes(wrong, job)
    assert code not in codes(right, job)


def test_a_script_that_asks_for_a_gpu_on_a_gpu_is_right():
    assert "TW500" not in codes(LOOP.format(ANY, "", LOSS, "model"), ONE)
