"""SageMaker's model parallel library: each step of its guide, left out and nearly left out.

Source: AWS guide for model-parallel training scripts, versions 1 and 2.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import LOOP, P4D, SMP, SMP_JOB, TORCHRUN, Case, but, unmet

STEP = """
@smp.step
def step(model, x):
    loss = model(x)
    model.backward(loss)
    return loss
"""
GOOD = SMP + STEP + "for x in loader:\n    loss = step(model, x)\n    optimizer.step()\n"
INIT = "smp.init()\n"
DEVICE = "torch.cuda.set_device(smp.local_rank())\n"
V2 = "import torch\nimport torch.sagemaker as tsm\ntsm.init()\n"


def job(**parameters: Any) -> dict[str, Any]:
    """A job with the library's first version, and these of its parameters."""
    part = {"enabled": True, "parameters": parameters}
    return SMP_JOB | {"distribution": {"smdistributed": {"modelparallel": part}, "mpi": {"enabled": True}}}


def second(**parameters: Any) -> dict[str, Any]:
    part = {"enabled": True, "parameters": parameters}
    return {"instance_type": P4D, "distribution": {"smdistributed": {"modelparallel": part}, **TORCHRUN}}


NOT: dict[str, Any] = {"instance_type": P4D, "distribution": TORCHRUN}
USED: list[Case] = [
    ("TW109", False, GOOD, SMP_JOB),
    ("TW109", True, "import torch\n" + LOOP, SMP_JOB),
    ("TW109", False, "import torch\nimport composer\n" + LOOP, SMP_JOB),
    ("TW109", 3, GOOD, NOT),
    ("TW109", 2, V2, NOT),
    ("TW109", False, GOOD, None),
    ("TW109", False, V2, second()),
    ("TW109", False, "import torch\n" + LOOP, NOT),
    ("TW109", False, "import torch\nif large:\n    import smdistributed.modelparallel.torch as smp\n" + LOOP, NOT),
    ("TW105", False, GOOD, SMP_JOB),
    ("TW105", 3, but(GOOD, INIT, ""), SMP_JOB),
    ("TW105", 3, but(GOOD, INIT, ""), None),
    ("TW105", True, but(GOOD, INIT, "import wandb\nwandb.init()\n"), SMP_JOB),
    ("TW105", False, but(GOOD, INIT, "from work import SMPTrainer\nSMPTrainer()\n"), SMP_JOB),
    ("TW105", 2, but(V2, "tsm.init()\n", ""), second()),
    ("TW105", False, V2, second()),
    ("TW105", False, "if large:\n    import smdistributed.modelparallel.torch as smp\n" + LOOP, None),
    ("TW105", True, "if large:\n    import smdistributed.modelparallel.torch as smp\n" + LOOP, SMP_JOB),
]  # fmt: skip
UNMADE = "model = smp.DistributedModel(model)\noptimizer = smp.DistributedOptimizer(optimizer)\n"
WRAPPED: list[Case] = [
    ("TW106", False, GOOD, SMP_JOB),
    ("TW106", 4, but(GOOD, "smp.DistributedModel(model)", "model"), SMP_JOB),
    ("TW106", 4, but(GOOD, "smp.DistributedOptimizer(optimizer)", "optimizer"), SMP_JOB),
    ("TW106", True, but(GOOD, UNMADE, ""), SMP_JOB),
    ("TW106", False, but(SMP, UNMADE, ""), SMP_JOB),
    ("TW106", True, but(SMP, "smp.DistributedOptimizer(optimizer)", "optimizer"), SMP_JOB),
    ("TW106", 3, V2, second(tensor_parallel_degree=2)),
    ("TW106", 3, V2, second(expert_parallel_degree=2)),
    ("TW106", False, V2, second(tensor_parallel_degree=1, expert_parallel_degree=1)),
    ("TW106", False, V2, second()),
    ("TW106", False, V2, second(hybrid_shard_degree=2)),
    ("TW106", False, V2 + "model = tsm.transform(model)\n", second(tensor_parallel_degree=2)),
    ("TW106", False, but(V2, "tsm.init()\n", ""), second(tensor_parallel_degree=2)),
    ("TW106", False, V2, None),
    ("TW106", False, GOOD, job(tensor_parallel_degree=2)),
    ("TW107", False, GOOD, SMP_JOB),
    ("TW107", 4, but(GOOD, DEVICE, ""), SMP_JOB),
    *[("TW107", reported, but(GOOD, DEVICE, f"{words}\n"), SMP_JOB) for reported, words in (
        (False, "model.to(smp.local_rank())"), (False, "model.cuda(smp.local_rank())"), (True, "model.cuda()"),
        (False, "device = torch.device('cuda', smp.local_rank())"), (False, "device = torch.device(smp.local_rank())"),
        (False, "device = f'cuda:{n}'"), (True, "device = torch.device('cuda')"), (True, "model.to(smp.rank())"),
        (True, "model.run(smp.local_rank())"),
    )],
    ("TW107", False, but(V2, "tsm.init()", "tsm.init()\nmodel.cuda()"), second()),
    ("TW107", False, "import smdistributed.modelparallel.tensorflow as smp\nsmp.init()\n", SMP_JOB),
]  # fmt: skip
BACK = "    model.backward(loss)\n"
PASSED: list[Case] = [
    *[("TW108", expected, but(GOOD, BACK, f"{words}\n"), SMP_JOB) for expected, words in (
        (False, "    model.backward(loss)"), (12, "    loss.backward()"), (True, "    self.Loss.backward()"),
        (False, "    loss.backward(ones)"), (False, "    out.backward()"),
        (12, "    optimizer.step()\n    model.backward(loss)"), (False,
         "    schedule.step()\n    model.backward(loss)"),
        (False, "    optimizer.zero_grad()\n    model.backward(loss)"),
        (False, "    from work import step\n    step()\n    model.backward(loss)"),
    )],
    ("TW108", True, but(GOOD, "@smp.step", "@smp.step()", BACK, "    loss.backward()\n"), SMP_JOB),
    ("TW108", False, but(GOOD, "@smp.step", "@work.timed", BACK, "    loss.backward()\n"), SMP_JOB),
    ("TW108", False, but(GOOD, "@smp.step", "@step", BACK, "    loss.backward()\n"), SMP_JOB),
    ("TW108", False, but(GOOD, "@smp.step", "@work.step", BACK, f"    optimizer.step()\n{BACK}"), SMP_JOB),
    ("TW108", False, SMP + LOOP, SMP_JOB),
    ("TW116", False, GOOD, SMP_JOB),
    ("TW116", 11, SMP + LOOP, SMP_JOB),
    ("TW116", False, but(SMP, "smp.DistributedModel(model)", "model") + LOOP, SMP_JOB),
    ("TW116", False, SMP + "work = smp.step(train)\n" + LOOP, SMP_JOB),
    ("TW116", False, SMP, SMP_JOB),
    ("TW116", True, but(GOOD, "@smp.step", "@work.timed"), SMP_JOB),
    ("TW116", True, SMP + "with work.step():\n    prepare()\n" + LOOP, SMP_JOB),
    ("TW116", False, but(GOOD, "@smp.step", "@step_of", "import torch\n",
                         "import torch\nfrom smdistributed.modelparallel.torch import step as step_of\n"), SMP_JOB),
    ("TW116", True, GOOD + "for x in more:\n    if small:\n        model.backward(loss)\n        break\n"
     "    else:\n        prepare()\n", SMP_JOB),
    ("TW107", False, but(GOOD, DEVICE, "model.to(smp.local_rank(), kind)\n"), SMP_JOB),
    *[("TW116", reported, GOOD + words, SMP_JOB) for reported, words in (
        (18, "for x in more:\n    model.backward(loss)\n"),
        (False, "for x in more:\n    model.backward()\n"),
        (False, "for x in more:\n    other.backward(loss)\n"),
        (False, "for x in more:\n    from work import backward\n    backward(loss)\n"),
        (False, "def later(model):\n    model.backward(loss)\n"),
        (False, "for x in more:\n    model.backward(loss)\nwork = smp.step(train)\n"),
        (False, "if small:\n    model.backward(loss)\n"),
        (True, "for x in more:\n    if last:\n        model.backward(loss)\n        break\n"),
        (True, "while True:\n    if last:\n        model.backward(loss)\n        break\n"),
        (True, "while running:\n    model.backward(loss)\n"),
        (True, "def rest(model):\n    if last:\n        model.backward(loss)\n        return\nrest(model)\n"),
        (True, "for x in more:\n    if last:\n        model.backward(loss)\n        raise ValueError\n"),
        (False, "for x in more:\n    if last:\n        model.backward(loss)\n        print(x)\n"),
        (False, "for x in more:\n    if small:\n        model.backward(loss)\n    else:\n        step(model, x)\n"),
        (False, "y = model.backward(loss) if small else step(model, x)\n"),
    )],
]  # fmt: skip
OUTPUT: list[Case] = [
    *[("TW117", reported, but(GOOD, "    optimizer.step()\n", f"    {words}\n"), SMP_JOB) for reported, words in (
        (16, "total += loss.item()"), (True, "loss.cpu()"), (True, "loss.backward()"), (True, "loss.detach()"),
        (True, "loss.numpy()"), (True, "float(loss)"), (True, "int(loss)"), (False, "print(loss)"),
        (False, "str(loss)"), (False, "other.item()"), (False, "float(other)"), (False,
         "from work import item\n    item()"),
        (False, "loss.reduce_mean().item()"), (False, "loss.concat().cpu()"), (False, "loss.stack().cpu()"),
        (False, "loss.reduce_sum().item()"), (False, "loss.merge().cpu()"), (False, "float(loss.reduce_mean())"),
        *[(False, f"if smp.rank() > 4:\n        loss = loss.{name}()\n    {use}")
          for name in ("reduce_mean", "concat", "stack", "reduce_sum", "merge") for use in ("loss.item()",
           "float(loss)")],
        (True, "if smp.rank() > 4:\n        loss = loss.other()\n    loss.item()"),
    )],
    *[("TW119", reported, f"{GOOD}{words}\n", SMP_JOB) for reported, words in (
        (17, "scaler = torch.cuda.amp.GradScaler()"), (True, "scaler = torch.amp.GradScaler()"),
        (False, "scaler = smp.amp.GradScaler()"), (False, "import work\nscaler = work.GradScaler()"),
        (False, "scaler = torch.cuda.amp.autocast()"),
    )],
    *[("TW413", reported, f"{GOOD}import torch.utils.data\n{words}\n", parameters) for reported, words, parameters in (
        (True, "torch.utils.data.DataLoader(data, batch_size=10)", job(microbatches=4)),
        (True, "torch.utils.data.DataLoader(data, 10)", job(microbatches=4)),
        (False, "torch.utils.data.DataLoader(data, batch_size=8)", job(microbatches=4)),
        (False, "torch.utils.data.DataLoader(data, batch_size=1)", job(microbatches=4)),
        (True, "torch.utils.data.DataLoader(data, batch_size=2)", job(microbatches=4)),
        (False, "torch.utils.data.DataLoader(data, batch_size=n)", job(microbatches=4)),
        (False, "torch.utils.data.DataLoader(data)", job(microbatches=4)),
        (False, "torch.utils.data.DataLoader(data, batch_size=10)", job(microbatches=1)),
        (True, "torch.utils.data.DataLoader(data, batch_size=5)", job(microbatches=2)),
        (False, "torch.utils.data.DataLoader(data, batch_size=10)", job()),
        (False, "torch.utils.data.DataLoader(data, batch_size=10)", None),
        (False, "torch.utils.data.DataLoader(data, batch_size=3)", job(microbatches=1)),
        (False, "def later():\n    torch.utils.data.DataLoader(data, batch_size=10)", job(microbatches=4)),
        (False, "work.batches(data, batch_size=10)", job(microbatches=4)),
    )],
]  # fmt: skip
PART, WHOLE = "model.local_state_dict()", "model.state_dict()"
SAVED: list[Case] = [
    ("TW118", expected, f"{GOOD}{words}\n", SMP_JOB) for expected, words in (
        (False, f"smp.save({PART}, path, partial=True)"),
        (False, f"smp.save({PART}, path, True)"),
        (False, f"smp.save({PART}, path)"),
        (False, f"if smp.dp_rank() == 0:\n    smp.save({PART}, path, partial=True)"),
        (18, f"if smp.rank() == 0:\n    smp.save({PART}, path, partial=True)"),
        (True, f"if smp.rank() == 0:\n    smp.save({WHOLE}, path, partial=True)"),
        (True, f"if smp.rank() == 0:\n    smp.save({WHOLE}, path, True)"),
        (True, f"if smp.rank() == 0:\n    smp.save(obj={PART}, f=path)"),
        (False, f"if smp.rank() == 0:\n    smp.save({WHOLE}, path)"),
        (False, f"if smp.rank() == 0:\n    smp.save({WHOLE}, path, partial=False)"),
        (False, f"if smp.rank() == 0:\n    work.save({PART}, path)"),
        (True, f"torch.save({PART}, path)"), (True, f"torch.save(obj={PART}, f=path)"),
        (False, f"torch.save({PART}, f'{{path}}_{{smp.rank()}}')"), (False, f"torch.save({WHOLE}, path)"),
        (True, f"if smp.rank() == 0:\n    torch.save({PART}, path)"),
        (True, f"smp.save({PART}, path, partial=False)"), (True, f"smp.save({PART}, path, False)"),
        (False, f"smp.save({PART}, path, partial=chosen)"), (False, "smp.save(f=path)"),
    )
]  # fmt: skip
STAGES, PARTS, BOTH = (
    job(pipeline_parallel_degree=2), job(tensor_parallel_degree=4), job(partitions=2, tensor_parallel_degree=2)
)  # fmt: skip
HELD = (
    "class Place:\n    def __init__(self):\n        self.replica = smp.dp_rank()\n"
    "        self.device = torch.device('cuda', self.replica)\n"
)
DEVICES: list[Case] = [
    *[
        ("TW107", True, but(GOOD, DEVICE, words), STAGES)
        for words in (
            "torch.cuda.set_device(smp.dp_rank())\n",
            "torch.cuda.set_device(smp.rdp_rank())\n",
            "torch.cuda.set_device(f'cuda:{smp.dp_rank()}')\n",
            HELD + "torch.cuda.set_device(Place().device)\n",
            DEVICE + "rows = rows.to(torch.device('cuda', smp.dp_rank()))\n",
            DEVICE + "rows = rows.cuda(smp.dp_rank())\n",
        )
    ],
    ("TW107", True, but(GOOD, "smp.local_rank()", "smp.dp_rank()"), BOTH),
    ("TW107", True, but(GOOD, "smp.local_rank()", "smp.rdp_rank()"), PARTS),
    *[
        ("TW107", False, but(GOOD, DEVICE, words), STAGES)
        for words in (
            DEVICE,
            DEVICE + "rows = rows.to('cuda')\nprint(smp.dp_rank())\n",
            HELD + "place = Place()\n" + DEVICE,
            DEVICE + "sampler = DistributedSampler(data, smp.dp_size(), smp.dp_rank())\n",
            DEVICE + "def later():\n    torch.cuda.set_device(smp.dp_rank())\n",
        )
    ],
    ("TW107", True, but(GOOD, "smp.local_rank()", "smp.dp_rank()"), STAGES | {"instance_count": 2}),
    (
        "TW107",
        False,
        but(GOOD, "smp.local_rank()", "smp.dp_rank()"),
        job(pipeline_parallel_degree=2, placement_strategy="spread") | {"instance_count": 2},
    ),
    # Processes of tensor parallelism alone have different data.
    ("TW107", False, but(GOOD, "smp.local_rank()", "smp.dp_rank()"), PARTS),
    ("TW107", False, but(GOOD, "smp.local_rank()", "smp.dp_rank()"), job(ddp=True)),
    ("TW107", False, but(GOOD, "smp.local_rank()", "smp.dp_rank()"), None),
]
CASES: list[Case] = [*USED, *WRAPPED, *PASSED, *OUTPUT, *SAVED, *DEVICES]


@pytest.mark.parametrize("case", CASES)
def test_a_step_of_the_guide(case: Case) -> None:
    """Check that a rule reports the script or not, with the severity or the line that the case names."""
    assert not unmet(case)
