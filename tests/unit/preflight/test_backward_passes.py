"""Backward passes of a step: more than Horovod's optimizer takes, beside the nearest right ways.

Source: horovod/torch/optimizer.py, _make_hook: AssertionError "Gradients were computed more than
backward_passes_per_step times before call to step()".
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
