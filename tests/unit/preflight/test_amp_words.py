"""Mixed precision: each wrong order of the steps and the nearest correct one.

Source: PyTorch's documentation of automatic mixed precision, and its examples of several losses and optimizers.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import LOOP, P4D, XLA, codes

ONE: dict[str, Any] = {"instance_type": P4D}
MADE = "import torch\nscaler = torch.cuda.amp.GradScaler({})\noptimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
HEAD = MADE.format("")
BACKWARD = "scaler.scale(loss).backward()"
STEP, UPDATE, UNSCALE = "scaler.step(optimizer)", "scaler.update()", "scaler.unscale_(optimizer)"
CLIP = "torch.nn.utils.clip_grad_norm_(parameters, 1)"
COUNT = "if i % 4 == 0:\n    "


def batches(*lines: str, after: str = "", head: str = HEAD, loop: str = "for i, x in enumerate(loader):") -> str:
    """A loop over batches, with lines in it and after it."""
    inner = "".join(f"    {line}\n" for each in ("loss = model(x)", *lines) for line in each.split("\n"))
    return f"{head}{loop}\n{inner}{after}\n"


def epochs(text: str) -> str:
    """The same within a loop over epochs."""
    head, loop, rest = text.partition("for i")
    return f"{head}for epoch in range(3):\n    " + (loop + rest).replace("\n", "\n    ") + "\n"


UPDATES: list[tuple[str, bool, str, dict[str, Any] | None]] = [
    ("TW429", False, batches(BACKWARD, STEP, UPDATE), ONE),
    ("TW429", True, batches(BACKWARD, STEP, after=UPDATE), ONE),
    ("TW429", True, epochs(batches(BACKWARD, STEP, after=UPDATE)), ONE),
    ("TW429", True, batches(BACKWARD, STEP, f"for part in x:\n    {UPDATE}"), ONE),
    ("TW429", False, batches(BACKWARD, STEP, UPDATE, after=UPDATE), ONE),
    ("TW429", False, batches(BACKWARD, STEP), ONE),
    ("TW429", False, batches(BACKWARD, after=UPDATE), ONE),
    ("TW429", False, "import accelerate\n" + batches(BACKWARD, STEP, after=UPDATE), ONE),
    # A scaler that is switched off, or that was not read.
    ("TW429", False, batches(BACKWARD, STEP, after=UPDATE, head=MADE.format("enabled=False")), ONE),
    ("TW429", True, batches(BACKWARD, STEP, after=UPDATE, head=MADE.format("enabled=True")), ONE),
    ("TW429", True, batches(BACKWARD, STEP, after=UPDATE, head=MADE.format("enabled=half")), ONE),
    ("TW429", True, batches(BACKWARD, STEP, after=UPDATE, head=MADE.format("init_scale=1024")), ONE),
    ("TW429", False, batches(BACKWARD, STEP, after=UPDATE, head=HEAD + MADE.format("enabled=False")), ONE),
    ("TW429", False, batches(BACKWARD, STEP, after=UPDATE, head="import torch\n"), ONE),
    ("TW429", False, HEAD + "def never_called(loss):\n    for x in loader:\n        "
     + f"{BACKWARD}\n        {STEP}\n    {UPDATE}\n", ONE),
    ("TW429", False, batches(BACKWARD, STEP) + f"def never_called():\n    {UPDATE}\n", ONE),
    # One update for the steps of several optimizers.
    ("TW429", False, batches(BACKWARD, "for opt in optimizers:\n    scaler.step(opt)", UPDATE), ONE),
    ("TW429", False, batches(BACKWARD, "for n, opt in enumerate(optimizers):\n    scaler.step(opt)", UPDATE), ONE),
    ("TW429", False, batches(BACKWARD, "for n in range(2):\n    scaler.step(optimizers[n])", UPDATE), ONE),
    ("TW429", False, batches("for opt in optimizers:\n    loss(x).backward()\n    scaler.step(opt)", UPDATE), ONE),
    # A loop that is left after the step makes one.
    ("TW429", True, batches(BACKWARD, STEP, after=UPDATE, loop="while True:"), ONE),
    ("TW429", False, batches(BACKWARD, STEP, "if done:\n    break", after=UPDATE), ONE),
    ("TW429", False, epochs(batches(BACKWARD, STEP, "if done:\n    break", after=UPDATE)), ONE),
    ("TW429", True, batches(BACKWARD, STEP, "if bad:\n    continue", after=UPDATE), ONE),
    ("TW429", True, batches(BACKWARD, STEP, "for y in x:\n    if done:\n        break", after=UPDATE), ONE),
    # Gradients that are added up over several batches.
    ("TW429", True, batches(BACKWARD, COUNT + STEP, UPDATE), ONE),
    ("TW429", True, batches(BACKWARD, "if not i % 4:\n    " + STEP, UPDATE), ONE),
    ("TW429", False, batches(BACKWARD, f"{COUNT}{STEP}\n    {UPDATE}"), ONE),
    ("TW429", False, batches(BACKWARD, COUNT + STEP, COUNT + UPDATE), ONE),
    ("TW429", False, batches(BACKWARD, "if finite:\n    " + STEP, UPDATE), ONE),
    ("TW429", False, batches(BACKWARD, COUNT + STEP, "if grown:\n    " + UPDATE), ONE),
    ("TW429", False, batches(BACKWARD, "if (i + 1) % len(loader) == 0:\n    " + STEP, after=UPDATE), ONE),
    ("TW429", False, batches(BACKWARD, UNSCALE, COUNT + STEP, UPDATE), ONE),
    ("TW429", True, batches(BACKWARD, f"{COUNT}{UNSCALE}\n    {STEP}", UPDATE), ONE),
    ("TW429", True, batches(BACKWARD, "other.unscale_(optimizer)", COUNT + STEP, UPDATE), ONE),
    ("TW429", True, batches(BACKWARD, COUNT + STEP, UPDATE) + f"def never_called():\n    {UNSCALE}\n", ONE),
]  # fmt: skip


def order(*lines: str) -> str:
    return "import torch\n" + "\n".join(lines) + "\n"


ORDERS: list[tuple[str, bool, str, dict[str, Any] | None]] = [
    ("TW130", True, order(BACKWARD, CLIP, STEP, UPDATE), None),
    ("TW130", False, order(BACKWARD, UNSCALE, CLIP, STEP, UPDATE), None),
    ("TW130", False, order("loss.backward()", CLIP, STEP, UPDATE), None),
    ("TW130", False, order("picture.scale(2)", "loss.backward()", CLIP, STEP, UPDATE), None),
    ("TW130", True, order(BACKWARD, "other.unscale_(optimizer)", CLIP, STEP, UPDATE), None),
    ("TW132", True, order(BACKWARD, "optimizer.step()", UPDATE), None),
    ("TW132", True, XLA + order(BACKWARD, "xm.optimizer_step(optimizer)", UPDATE), None),
    ("TW132", True, order(BACKWARD, "optimizer.step()", UNSCALE, UPDATE), None),
    # torch/amp/grad_scaler.py: step skips what unscale_ found to be infinite; the optimizer itself does not.
    ("TW132", True, order(BACKWARD, UNSCALE, "optimizer.step()", UPDATE), None),
    ("TW132", False, "import torch_xla\n" + order(BACKWARD, UNSCALE, "optimizer.step()", UPDATE), None),
    ("TW132", False, order("picture.scale(2)", "loss.backward()", "optimizer.step()"), None),
    ("TW132", False, order("scaler.get_scale()", "loss.backward()", "optimizer.step()"), None),
    ("TW133", True, order(BACKWARD, STEP), None),
    ("TW133", True, order(BACKWARD, STEP, "meter.update(1)"), None),
    ("TW133", True, order(BACKWARD, STEP, "scaler.get_scale()"), None),
    ("TW133", False, order(BACKWARD, STEP, UPDATE), None),
    ("TW134", True, order("loss.backward()", STEP, UPDATE), None),
    ("TW134", True, order("picture.scale(2)", "loss.backward()", STEP, UPDATE), None),
    ("TW134", False, order(STEP, UPDATE, "loss.backward()"), None),
    # --- clipped after the step: not where a backward comes between, or another step follows
    ("TW131", True, order("loss.backward()", "optimizer.step()", CLIP), None),
    ("TW131", True, order("loss.backward()", "optimizer.step()", CLIP, "other.backward()"), None),
    ("TW131", False, order("loss.backward()", "optimizer.step()", "other.backward()", CLIP), None),
    ("TW131", False, order("loss.backward()", "optimizer.step()", CLIP, "optimizer.step()"), None),
    ("TW131", False, order("optimizer.step()", CLIP, "loss.backward()"), None),
    ("TW131", True, order(f"loss.backward(); optimizer.step(); {CLIP}"), None),
    ("TW131", False, order(f"loss.backward(); {CLIP}; optimizer.step()"), None),
    ("TW130", False, order(f"{BACKWARD}; {UNSCALE}; {CLIP}; {STEP}; {UPDATE}"), None),
    ("TW130", True, order(f"{BACKWARD}; {CLIP}; {UNSCALE}; {STEP}; {UPDATE}"), None),
    ("TW131", False, "import torch" + LOOP + CLIP + "\n", None),
    ("TW131", False, "import torch" + LOOP.replace("    optimizer", f"    {CLIP}\n    optimizer"), None),
    ("TW131", True, order(BACKWARD, STEP, UNSCALE, UPDATE), None),
    # --- torch_xla
    ("TW135", True, XLA + order(BACKWARD, UNSCALE, "xm.reduce_gradients(optimizer)", STEP, UPDATE), None),
    ("TW135", True, XLA + order(BACKWARD, CLIP, "xm.all_reduce('sum', gradients)", STEP, UPDATE), None),
    ("TW135", False, XLA + order(BACKWARD, "xm.reduce_gradients(optimizer)", UNSCALE, STEP, UPDATE), None),
    ("TW135", False, XLA + order(BACKWARD, UNSCALE, "xm.all_reduce('sum', loss)", STEP, UPDATE), None),
    ("TW135", False, XLA + order("import torch.distributed as dist", BACKWARD, UNSCALE,
                                 "dist.all_reduce(gradients)", STEP, UPDATE), None),
    ("TW135", False, XLA + order(STEP, UPDATE, "xm.reduce_gradients(optimizer)", BACKWARD), None),
    ("TW136", True, XLA + order(BACKWARD, "xm.mark_step()", STEP, UPDATE), None),
    ("TW136", True, XLA + order(BACKWARD, STEP, "meter.update(1)", "xm.mark_step()", UPDATE), None),
    ("TW136", False, XLA + order(BACKWARD, STEP, UPDATE, "xm.mark_step()"), None),
    ("TW136", False, XLA + order(BACKWARD, STEP, UPDATE, "xm.mark_step()", UPDATE), None),
    ("TW136", False, XLA + order("xm.mark_step()", BACKWARD, STEP, UPDATE), None),
]  # fmt: skip


@pytest.mark.parametrize(("code", "reported", "script", "job"), [*UPDATES, *ORDERS])
def test_a_wrong_order_is_reported_and_a_right_one_is_not(
    code: str, reported: bool, script: str, job: dict[str, Any] | None
) -> None:
    found = codes(script, job)
    assert (code in found) == reported, (found, script)
