"""Backward passes: more than Horovod's optimizer takes, and through freed graphs, beside the nearest right ways.

Sources: horovod/torch/optimizer.py, _make_hook: AssertionError "Gradients were computed more than
backward_passes_per_step times before call to step()"; PyTorch's DCGAN tutorial: netD(fake.detach()); PyTorch's
documentation of Tensor.backward: the graph is freed unless retain_graph=True; accelerate 0.25, optimizer.py: zero_grad
of a prepared optimizer acts only where gradients are synchronised, utils/deepspeed.py: with DeepSpeed it does nothing;
huggingface/accelerate #1299.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, Case, but, unmet

MPI: dict[str, Any] = {
    "instance_type": P4D,
    "instance_count": 2,
    "distribution": {"mpi": {"enabled": True, "processes_per_host": 8}},
}
HVD = (
    "import torch\nimport horovod.torch as hvd\nhvd.init()\ntorch.cuda.set_device(hvd.local_rank())\n"
    "model = torch.nn.Linear(2, 2).cuda()\nopt = torch.optim.SGD(model.parameters(), lr=0.1 * hvd.size())\n"
    "opt = hvd.DistributedOptimizer(opt, named_parameters=model.named_parameters())\n"
    "hvd.broadcast_parameters(model.state_dict(), 0)\nhvd.broadcast_optimizer_state(opt, 0)\n"
    "for x in loader:\n    opt.zero_grad()\n    model(x).sum().backward()\n    {more}\n    opt.step()\n"
)
NAMED = "named_parameters=model.named_parameters()"
SECOND = "model(-x).sum().backward()"


def hvd(more: str, *edits: str) -> str:
    """A loop with more between its backward pass and the step."""
    return but(HVD.format(more=more), *edits)


COUNTED = ("for x in loader", "for i, x in enumerate(loader)")
FOURTH = "    if i % 4 == 3:\n        opt.step()"
OPTION = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--more', type=float, default={})\n"
CASES: list[Case] = [
    ("TW415", 13, hvd(SECOND), MPI),
    ("TW415", "error", hvd("(0.5 * model(-x).sum()).backward()"), MPI),
    ("TW415", True, hvd("torch.cuda.synchronize()\n    " + SECOND), MPI),
    ("TW415", True, hvd(SECOND, NAMED, f"{NAMED}, backward_passes_per_step=1"), MPI),
    ("TW415", True, hvd(f"{SECOND}\n    {SECOND}", NAMED, f"{NAMED}, backward_passes_per_step=2"), MPI),
    ("TW415", True, hvd(SECOND, "model(x).sum().backward()", "model(x).sum().backward(retain_graph=True)"), MPI),
    ("TW415", True, hvd("def more(y):\n        model(y).sum().backward()\n    more(-x)"), MPI),
    ("TW415", True, hvd("for loss in (model(-x).sum(), model(2 * x).sum()):\n        loss.backward()"), MPI),
    # Under a condition it is so only sometimes; by an argument's default, always.
    ("TW415", "warning", hvd(f"if chosen:\n        {SECOND}"), MPI),
    ("TW415", "error", OPTION.format(0.5) + hvd(f"if p.parse_args().more > 0:\n        {SECOND}"), MPI),
    ("TW415", False, OPTION.format(0.0) + hvd(f"if p.parse_args().more > 0:\n        {SECOND}"), MPI),
    # Every fourth step, before the pass as well as after it.
    ("TW415", True, hvd("pass", *COUNTED, "    opt.step()", FOURTH), MPI),
    ("TW415", True, hvd("pass", *COUNTED, "    opt.step()\n", "", "    opt.zero_grad()", FOURTH), MPI),
    ("TW415", False, hvd(SECOND, NAMED, "model.named_parameters(), hvd.Compression.none, 2"), MPI),
    ("TW415", False, hvd("pass"), MPI),
    ("TW415", False, hvd(SECOND, NAMED, f"{NAMED}, backward_passes_per_step=2"), MPI),
    ("TW415", False, hvd(SECOND, NAMED, f"{NAMED}, backward_passes_per_step=passes"), MPI),
    ("TW415", False, hvd(SECOND, NAMED, f"{NAMED}, **more"), MPI),
    ("TW415", False, hvd(f"opt.step()\n    opt.zero_grad()\n    {SECOND}"), MPI),
    ("TW415", False, hvd(f"opt.synchronize()\n    {SECOND}"), MPI),
    # One of the two.
    ("TW415", False, hvd(f"pass\n    if chosen:\n        {SECOND}\n    else:\n        model(x).sum().backward()",
                         "model(x).sum().backward()\n    pass", "pass"), MPI),
    # The other pass may be for the parameters of the other optimizer.
    ("TW415", False, hvd("net(x).sum().backward()", "for x", "other = torch.optim.SGD(net.parameters())\nfor x"), MPI),
    ("TW415", False, hvd(SECOND), {"instance_type": "ml.g5.2xlarge"}),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_a_step_has_as_many_passes_as_its_optimizer_takes(case: Case) -> None:
    assert not unmet(case), unmet(case)


ONE: dict[str, Any] = {"instance_type": "ml.g5.2xlarge"}
GAN = (
    "import itertools\nimport torch\nimport torch.nn as nn\n{head}\nG, D = nn.Linear(2, 2), nn.Linear(2, 1)\n"
    "criterion = nn.BCEWithLogitsLoss()\nopt_d = torch.optim.Adam(D.parameters())\n"
    "opt_g = torch.optim.Adam({params})\nfor real in loader:\n    fake = {fake}\n    opt_d.zero_grad()\n"
    "    loss_d = {loss_d}\n    {backward}\n    opt_d.step()\n    opt_g.zero_grad()\n    {again}\n"
    "    loss_g = {loss_g}\n    loss_g.backward()\n    opt_g.step()\n"
)


def gan(*edits: str, **given: str) -> str:
    """A step of two networks; the discriminator's loss reaches the generator."""
    usual = {
        "head": "",
        "params": "G.parameters()",
        "fake": "G(torch.randn(8, 2))",
        "loss_d": "criterion(D(torch.cat([real, fake])), label)",
        "backward": "loss_d.backward()",
        "again": "",
        "loss_g": "criterion(D(fake), ones)",
    }
    return but(GAN.format(**{**usual, **given}), *edits)


SUMMED = "criterion(D(real), ones) + criterion(D(fake), zeros)"
PLACED = "G(torch.randn(8, 2)).to('cuda').view(-1, 2)"
SCALED = "scaler = torch.cuda.amp.GradScaler()"
OWN = (
    "import torch\nimport torch.nn as nn\nclass Run:\n    def __init__(self):\n"
    "        self.G, self.D = nn.Linear(2, 2), nn.Linear(2, 1)\n"
    "        self.opt_g = torch.optim.Adam(self.G.parameters())\n"
    "        self.opt_d = torch.optim.Adam(self.D.parameters())\n    def forward(self):\n"
    "        self.fake = self.G(self.noise)\n    def of_d(self):\n        self.opt_d.zero_grad()\n"
    "        (-self.D({fake}).mean() + self.D(self.real).mean()).backward()\n        self.opt_d.step()\n"
    "    def of_g(self):\n        self.opt_g.zero_grad()\n        self.D(self.fake).mean().backward()\n"
    "        self.opt_g.step()\nrun = Run()\nfor run.real in loader:\n    run.forward()\n    run.of_d()\n"
    "    {again}\n    run.of_g()\n"
)
TWO = (
    "import torch\nnet = torch.nn.Linear(2, 2)\nopt = torch.optim.SGD(net.parameters(), lr=0.1)\n{head}\n"
    "for x in loader:\n    opt.zero_grad()\n    {steps}\n    opt.step()\n"
)


def two(steps: str, head: str = "") -> str:
    """A step of one network with several losses."""
    return TWO.format(steps=steps.replace("; ", "\n    "), head=head)


LOSS = "def loss(x):\n    return net(x).sum()"
FREED: list[Case] = [
    ("TW447", reported, script, ONE)
    for reported, script in (
        (18, gan()),
        ("error", gan()),
        (True, gan(loss_d=SUMMED)),
        (True, gan(loss_d=f"({SUMMED}) / 2")),
        (True, gan(fake=PLACED)),
        (True, gan(loss_d="-torch.mean(D(real)) + torch.mean(D(fake))", loss_g="-torch.mean(D(fake))")),
        (True, gan(params="itertools.chain(G.parameters(), E.parameters())")),
        (True, gan(params="list(G.parameters()) + list(E.parameters())")),
        (True, gan("Adam(D.parameters())\n", "Adam(D.parameters())\nG = nn.DataParallel(G)\n")),
        (True, gan(head=SCALED, backward="scaler.scale(loss_d).backward()")),
        (True, gan(head="from accelerate import Accelerator\naccelerator = Accelerator()",
                   backward="accelerator.backward(loss_d)")),
        (True, gan(loss_d="of_d(real, fake)", head="def of_d(real, fake):\n    return criterion(D(fake), zeros)")),
        (True, gan(fake="make(8)", head="def make(size):\n    return G(torch.randn(size, 2))")),
        (True, OWN.format(fake="self.fake", again="")),
        (True, two("out = net(x); out.sum().backward(); out.mean().backward()")),
        (True, two("out = net(x); a = out.sum(); b = out.std(); a.backward(); (a + b).backward()")),
        (True, two("a = loss(x); a.backward(); b = 2 * a; b.backward()", LOSS)),
        (True, two("out = net(x); a = sum([out.sum(), out.mean()]); a.backward(); out.std().backward()")),
        (True, two("out = net(x); out.backward(ones); out.sum().backward()")),
        (True, gan(backward="loss_d.backward(retain_graph=False)")),
        (True, but(OWN.format(fake="self.fake", again=""), "(-self.D(self.fake).mean() + self.D(self.real).mean())",
                   "self.criterion(self.D(self.fake), zeros)", "self.opt_g = ",
                   "self.criterion = nn.BCEWithLogitsLoss()\n        self.opt_g = ")),
        (False, gan(loss_d="criterion(D(torch.cat([real, fake.detach()])), label)")),
        (False, gan(backward="loss_d.backward(**options)")),
        (False, two("first.backward(); second.backward()")),
        (False, gan(backward="loss_d.backward(retain_graph=kept)")),
        (False, gan(loss_d=SUMMED.replace("D(fake)", "D(fake.detach())"))),
        (False, gan(loss_d=SUMMED.replace("D(fake)", "D(fake.data)"))),
        (False, gan(loss_d="criterion(D(torch.cat([real, fake]).detach()), label)")),
        (False, gan(fake="G(torch.randn(8, 2)).detach()")),
        (False, gan(again="fake = G(torch.randn(8, 2))")),
        (False, gan(loss_g="criterion(D(G(torch.randn(8, 2))), ones)")),
        (False, gan(backward="loss_d.backward(retain_graph=True)")),
        (False, gan(backward="loss_d.backward(None, True)")),
        (False, gan(backward="loss_d.backward(create_graph=True)")),
        (False, gan("    fake = G", "    with torch.no_grad():\n        fake = G")),
        (False, gan(loss_d="criterion(D(pool(fake)), zeros)", head="from images import pool")),
        (False, OWN.format(fake="self.fake.detach()", again="")),
        (False, OWN.format(fake="self.fake", again="run.forward()")),
        (False, two("a = net(x).sum(); a.backward(); b = net(-x).sum(); b.backward()")),
        (False, two("a = net(x).sum(); b = net(-x).sum(); a.backward(); b.backward()")),
        (False, two("a = loss(x); a.backward(); b = loss(-x); b.backward()", LOSS)),
        (False, two("a = loss(x); b = loss(-x); a.backward(); b.backward()", LOSS)),
        (False, two("outs = [net(y) for y in x]; outs[0].sum().backward(); outs[1].sum().backward()")),
        (False, two("outs = [loss(y) for y in x]; outs[0].backward(); outs[1].backward()", LOSS)),
        # Features of a network that is not trained have no graph.
        (False, two("out = other(x); (net(x) + out).sum().backward(); (net(-x) + out).sum().backward()",
                    "other = torch.nn.Linear(2, 2)")),
        (False, two("out = net(x); out.sum().backward() if first else out.mean().backward()")),
    )
]  # fmt: skip


@pytest.mark.parametrize("case", FREED, ids=range(len(FREED)))
def test_a_graph_serves_one_backward_pass(case: Case) -> None:
    assert not unmet(case), unmet(case)


ACCUMULATED = OPTION.format(1).replace("float", "int") + (
    "import torch\nfrom accelerate import Accelerator\nfrom accelerate.utils import GradientAccumulationPlugin\n"
    "args = p.parse_args()\n"
    "accelerator = Accelerator(gradient_accumulation_steps={number})\nnet = torch.nn.Linear(2, 2)\n"
    "opt = torch.optim.SGD(net.parameters(), lr=0.1)\nnet, opt, loader = accelerator.prepare(net, opt, loader)\n"
    "for x in loader:\n    {before}\n    with accelerator.accumulate(net):\n        {first}\n"
    "        accelerator.backward(net(x).sum())\n        opt.step()\n        {last}\n"
)


def accumulated(*edits: str, **given: str) -> str:
    """A loop of Accelerate that steps after several batches."""
    usual = {"number": "4", "before": "pass", "first": "opt.zero_grad()", "last": "pass"}
    return but(ACCUMULATED.format(**{**usual, **given}), *edits)


AS_CLASS = (
    "import torch\nfrom accelerate import Accelerator\nclass Run:\n    def __init__(self, passes):\n"
    "        self.acc = Accelerator(gradient_accumulation_steps=passes)\n        net = torch.nn.Linear(2, 2)\n"
    "        opt = torch.optim.SGD(net.parameters(), lr=0.1)\n        self.net, self.opt = self.acc.prepare(net, opt)\n"
    "    def work(self, x):\n        self.opt.zero_grad(set_to_none=True)\n        loss = self.net(x).sum()\n"
    "        self.acc.backward(loss)\n        self.opt.step()\n    def run(self, data):\n        for x in data:\n"
    "            with self.acc.accumulate(self.net):\n                self.work(x)\nRun(8).run(data)\n"
)
PLUGIN = "gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps={})"
JOB_OF_FOUR: dict[str, Any] = {**ONE, "hyperparameters": {"more": 4}}
CLEARED: list[Case] = [
    ("TW138", "error", accumulated(), ONE),
    ("TW138", "error", accumulated(last="opt.zero_grad()"), ONE),
    ("TW138", "error", accumulated(first="net.zero_grad()"), ONE),
    ("TW138", 10, AS_CLASS, ONE),
    ("TW138", "error", accumulated(number="args.more"), JOB_OF_FOUR),
    ("TW138", "error", accumulated("gradient_accumulation_steps=4", PLUGIN.format(4)), ONE),
    ("TW138", "warning", accumulated(number="passes"), ONE),
    ("TW138", False, accumulated(first="pass", last="opt.zero_grad()"), ONE),
    # Before the block, it acts in the first batch of each step.
    ("TW138", False, accumulated(before="opt.zero_grad()", first="pass"), ONE),
    ("TW138", False, accumulated(number="1"), ONE),
    ("TW138", False, accumulated(number="args.more"), ONE),
    ("TW138", False, accumulated("gradient_accumulation_steps=4", ""), ONE),
    ("TW138", False, accumulated("gradient_accumulation_steps=4", PLUGIN.format(1)), ONE),
    ("TW138", False, accumulated("steps=4", "steps=4, deepspeed_plugin=plugin"), ONE),
    ("TW138", False, accumulated(), {**ONE, "environment": {"ACCELERATE_USE_DEEPSPEED": "true"}}),
    ("TW138", False, accumulated("accelerator.accumulate(net)", "accelerator.autocast()"), ONE),
    # A step of the batches before comes first.
    ("TW138", False, accumulated("        opt.step()\n", "", first="opt.step()\n        opt.zero_grad()"), ONE),
    ("TW138", False, accumulated(first="other.zero_grad()"), ONE),
]


@pytest.mark.parametrize("case", CLEARED, ids=range(len(CLEARED)))
def test_accumulated_gradients_are_kept_for_the_step(case: Case) -> None:
    assert not unmet(case), unmet(case)
