"""Training with XLA: each step of the guide, left out and nearly left out.

Sources: AWS guide for the SageMaker Training Compiler; PyTorch/XLA's API guide; the runner of PyTorch/XLA, which calls
``_mp_fn(index)``.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import LOOP, P4D, TORCHRUN, XLA, XLA_JOB, Case, but, unmet

MARK = "    xm.mark_step()\n"
MARKED = XLA + LOOP + MARK
STEP = "    optimizer.step()\n"
NOT: dict[str, Any] = {"instance_type": P4D, "distribution": TORCHRUN}
ENTRY: list[Case] = [
    *[("TW110", reported, f"{words}\n", XLA_JOB) for reported, words in (
        (True, "def main(): pass"), (False, "def _mp_fn(index): main()"), (False, "from work import _mp_fn"),
        (False, "_mp_fn = main"), (True, "start = main"), (False, "import work\nstart = _mp_fn = work.main"),
        (True, "class Work:\n    def _mp_fn(index): main()"), (True, "work._mp_fn = main"), (True,
         "start(_mp_fn=main)"),
    )],
    ("TW110", False, "def main(): pass\n", NOT),
    ("TW110", False, "def main(): pass\n", None),
    *[("TW115", reported, f"def _mp_fn({words}): main()\n", XLA_JOB) for reported, words in (
        (True, ""), (False, "index"), (True, "index, flags"), (False, "index, flags=None"), (False, "*args"),
        (False, "index, /"), (True, "index, flags, /"), (True, "index, *, flags"), (False, "index, *, flags=None"),
        (False, "index=0"), (True, "**more"), (False, "index, *args"), (True, "*, index"), (True, "*args, flags"),
        (False, "index=0, flags=None"),
    )],
    ("TW115", False, "def _mp_fn(): pass\ndef _mp_fn(index): main()\n", XLA_JOB),
    ("TW115", 2, "def _mp_fn(index): pass\ndef _mp_fn(): main()\n", XLA_JOB),
    ("TW115", False, "def _mp_fn(): pass\n", None),
]  # fmt: skip
ENDS: list[Case] = [
    ("TW111", False, MARKED, None),
    ("TW111", 9, XLA + LOOP, None),
    *[("TW111", reported, f"{XLA}import torch_xla\n{LOOP}    {words}\n", None) for reported, words in (
        (False, "torch_xla.sync()"), (False, "torch_xla.step()"), (False, "torch_xla.compile(train)"),
        (True, "work.sync()"), (True, "schedule.step()"),
    )],
    *[("TW111", False, f"{XLA}{words}\n{LOOP}", None) for words in (
        "loader = pl.MpDeviceLoader(loader, xm.xla_device())", "loader = pl.ParallelLoader(loader, [xm.xla_device()])",
        "import composer", "xm.optimizer_step(other)",
    )],
    ("TW111", False, XLA + "optimizer.step()\n", None),
    ("TW111", True, XLA + "for x in data:\n    optimizer.step()\n", None),
    ("TW111", False, XLA + "for x in data:\n    schedule.step()\n", None),
    ("TW111", True, XLA + "def step(x):\n    model(x).backward()\n    optimizer.step()\nfor x in data:\n    step(x)\n",
     None),
    ("TW111", False, "import torch\n" + LOOP, None),
    # After some of the steps only.
    *[("TW111", expected, XLA + LOOP + words, None) for expected, words in (
        (9, "    if i % 10 == 0:\n        xm.mark_step()\n"),
        (False, f"    if i % 10 == 0:\n        xm.mark_step()\n{MARK}"),
        (9, "    if i % 10 == 0:\n        xm.mark_step()\n    if last:\n        xm.mark_step()\n"),
        (9, "xm.mark_step()\n"),
        (False, "    if xm.is_master_ordinal():\n        xm.mark_step()\n"),
        (False, "def later():\n    if i % 10 == 0:\n        xm.mark_step()\n"),
        (False, "    if i % 10 == 0:\n        xm.mark_step()\nloader = pl.MpDeviceLoader(loader, xm.xla_device())\n"),
    )],
    ("TW111", False, but(XLA + LOOP, STEP, "    if i % 10 == 0:\n        optimizer.step()\n        xm.mark_step()\n"),
     None),
    ("TW111", False, but(XLA + LOOP, STEP, "    schedule.step()\n    if due:\n        xm.mark_step()\n"), None),
    ("TW111", False, but(XLA + LOOP, STEP,
     "    from work import step\n    step()\n    if due:\n        xm.mark_step()\n"), None),
    ("TW111", False, but(XLA + LOOP, STEP, "    if due:\n        xm.mark_step()\noptimizer.step()\n"), None),
    ("TW111", False, but(XLA + LOOP, STEP, "    if xm.is_master_ordinal():\n        optimizer.step()\n"
                         "    if due:\n        xm.mark_step()\n"), None),
    ("TW111", False, XLA + "import composer\n" + LOOP + "    if due:\n        xm.mark_step()\n", None),
    *[("TW167", expected, f"{XLA}{LOOP}    {words}\n", None) for expected, words in (
        (11, "if xm.is_master_ordinal():\n        xm.mark_step()"), (11,
         "if xm.get_ordinal() == 0:\n        xm.mark_step()"),
        (False, "if due:\n        xm.mark_step()"), (False, "xm.mark_step()"),
        (False, "def later():\n        if xm.is_master_ordinal():\n            xm.mark_step()"),
    )],
    ("TW167", False, "try:\n    import torch_xla.core.xla_model as xm\nexcept ImportError:\n    xm = None\n" + LOOP
     + "    if xm.is_master_ordinal():\n        xm.mark_step()\n", None),
]  # fmt: skip
EARLY: list[Case] = [
    *[("TW112", reported, f"{XLA}{LOOP}    {words}\n{MARK}", None) for reported, words in (
        (10, "print(loss)"), (True, "xm.master_print(loss)"), (True, "logger.info(loss)"), (True, "logger.debug(loss)"),
        (True, "logger.warning(loss)"), (True, "self.log('loss', loss)"), (True, "writer.add_scalar('loss', loss, 1)"),
        (True, "run.log_metric('loss', loss)"), (True, "file.write(f'{loss}')"), (False, "keep(loss)"),
        (True, "print(train_Loss)"), (True, "print(accuracy)"), (True, "print('x', file=loss)"), (False,
         "print(names)"),
        (False, "print('loss')"), (False, "print(self.loss)"), (True, "print(f'{loss.item()}')"),
        (False, "xm.mark_step()\n    print(loss)"), (False, "def later():\n        print(loss)"),
        (False, "if due:\n        pass\n    else:\n        pass"),
    )],
    ("TW112", False, f"{MARKED}    print(loss)\n", None),
    ("TW112", False, f"{MARKED}print(loss)\n", None),
    ("TW112", False, f"{XLA}{LOOP}    print(loss)\n", None),
    ("TW112", True, f"{XLA}import torch_xla\n{LOOP}    print(loss)\n    torch_xla.sync()\n", None),
    ("TW112", False, but(MARKED, "    loss.backward()", "    print(loss)\n    loss.backward()"), None),
    ("TW112", False, but(MARKED, "    loss.backward()\n", "    print(loss)\n"), None),
    ("TW112", False, f"{XLA}{LOOP}    if due:\n        print(loss)\n    else:\n        xm.mark_step()\n", None),
]  # fmt: skip
GROUP = "import torch.distributed as dist\n"
XMP = "import torch_xla.distributed.xla_multiprocessing as xmp\n"
SPAWN = f"{XMP}xmp.spawn(_mp_fn)\n"
DEVICES: list[Case] = [
    *[("TW113", expected, f"{XLA}{words}\n", None) for expected, words in (
        (5, "model.cuda()"), (True, "x = rows.cuda(0)"), (False, "cuda()"), (False, "torch.cuda()"),
        (5, "model.to('cuda')"), (True, "model.to('cuda:0')"), (True, "model.to(device='cuda')"), (False,
         "model.to('cpu')"),
        (False, "model.to(xm.xla_device())"), (False, "model.to('cudax')"), (False, "move('cuda')"),
        (True, "d = torch.device('cuda')"), (True, "d = torch.device('cuda:1')"), (True,
         "d = torch.device(type='cuda')"),
        (False, "d = torch.device('cpu')"), (False, "d = work.device('cuda')"), (True, "torch.cuda.set_device(0)"),
        (False, "work.set_device(0)"), (False, "if gpu:\n    model.cuda()"), (False, "d = torch.device(name)"),
    )],
    ("TW113", False, "import torch\nmodel.cuda()\n", None),
    *[("TW113", reported, f"{XLA}{GROUP}{words}\n", job) for reported, words, job in (
        (True, "dist.init_process_group('nccl')", XLA_JOB), (True, "dist.init_process_group(backend='gloo')", XLA_JOB),
        (False, "dist.init_process_group('xla')", XLA_JOB), (False, "dist.init_process_group()", XLA_JOB),
        (False, "dist.init_process_group(chosen)", XLA_JOB), (False, "dist.init_process_group('nccl')", NOT),
        (False, "if gpu:\n    dist.init_process_group('nccl')", XLA_JOB),
        (False, "def later():\n    dist.init_process_group('nccl')", XLA_JOB),
        (False, "import deepspeed\ndeepspeed.init_distributed('nccl')", XLA_JOB),
        (False, "import argparse\np = argparse.ArgumentParser()\np.add_argument('--b', default='nccl')\n"
         "a = p.parse_args()\ndist.init_process_group(a.b)", XLA_JOB),
    )],
    *[("TW414", expected, f"{XLA}{words}\n", job) for expected, words, job in (
        (5, "device = xm.xla_device()", XLA_JOB), (False, "device = xm.xla_device()", None),
        (False, "def _mp_fn(index):\n    device = xm.xla_device()", XLA_JOB),
        (False, "if __name__ == '__main__':\n    device = xm.xla_device()", XLA_JOB),
        (False, "def main():\n    device = xm.xla_device()\nmain()", XLA_JOB),
        (5, f"device = xm.xla_device()\n{SPAWN}", None), (False, f"def _mp_fn(i):\n    xm.xla_device()\n{SPAWN}", None),
        (False, "device = work.xla_device()", XLA_JOB),
    )],
]  # fmt: skip
SEVERAL = "world = xm.xrt_world_size()\n"
ALONE = XLA + SEVERAL + LOOP + MARK
REDUCED: list[Case] = [
    ("TW114", 10, ALONE, None),
    ("TW114", False, MARKED, None),
    ("TW114", True, MARKED, XLA_JOB),
    ("TW114", True, but(ALONE, SEVERAL, "rank = xm.get_ordinal()\n"), None),
    ("TW114", True, but(ALONE, SEVERAL, "def _mp_fn(index):\n    pass\n"), None),
    ("TW114", True, but(ALONE, SEVERAL, SPAWN.replace("_mp_fn", "work")), None),
    *[("TW114", reported, but(ALONE, STEP, f"    {words}\n{STEP}"), None) for reported, words in (
        (False, "xm.reduce_gradients(optimizer)"), (False, "xm.optimizer_step(other)"), (True,
         "xm.all_reduce('sum', loss)"),
        (False, "xm.all_reduce('sum', gradients)"), (False, "xm.all_reduce('sum', xm._fetch_gradients(optimizer))"),
        (False, "parts = [p.grad for p in model.parameters()]\n    xm.all_reduce('sum', parts)"),
        (False, "parts = [p.grad for p in model.parameters()]\n    xm.all_reduce('sum', inputs=parts)"),
        (True, "xm.all_gather(gradients)"),
        (False, "xm.all_reduce('sum', loss)\n    xm.all_reduce('sum', gradients)"),
    )],
    *[("TW114", False, but(ALONE, SEVERAL, f"{SEVERAL}{words}\n"), None) for words in (
        "import torch_xla.runtime as xr\nxr.use_spmd()", "mark_sharding(model, mesh)", "shard_as(x, y)",
        "model = XlaFullyShardedDataParallel(model)", "model = SpmdFullyShardedDataParallel(model)", "import composer",
        "model = torch.nn.parallel.DistributedDataParallel(model)",
    )],
    ("TW114", False, but(ALONE, "    loss.backward()\n", ""), None),
    ("TW114", False, but(ALONE, STEP, ""), None),
    ("TW114", 10, but(ALONE, STEP, "    scaler.step(optimizer)\n"), None),
    ("TW114", 11, but(ALONE, STEP, f"{STEP}    scaler.step(optimizer)\n"), None),
    ("TW114", False, but(ALONE, STEP, "    from work import step\n    step(optimizer)\n"), None),
    ("TW114", False, but(ALONE, STEP, "    schedule.step()\n"), None),
]  # fmt: skip
CASES: list[Case] = [*ENTRY, *ENDS, *EARLY, *DEVICES, *REDUCED]


@pytest.mark.parametrize("case", CASES)
def test_a_step_of_the_guide(case: Case) -> None:
    """Check that a rule reports the script or not, with the severity or the line that the case names."""
    assert not unmet(case)
