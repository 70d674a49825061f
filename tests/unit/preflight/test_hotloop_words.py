"""What slows down every step: ways to fetch, print and save, and steps that wait for the device anyway.

Sources: AWS guide for the SageMaker Training Compiler, best practices; PyTorch's guide on pin_memory and non_blocking;
PyTorch's documentation of torch.autograd.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, XLA, XLA_JOB, Case, unmet

HEAD = "import logging, math, sys\nimport numpy as np\nimport torch\nfrom torch.utils.data import DataLoader\n"
ITEM = "total = loss.item()"
GPU: dict[str, Any] = {"instance_type": P4D}
CPU: dict[str, Any] = {"instance_type": "ml.c5.xlarge"}


def step(*lines: str, before: str = "", loop: str = "for batch in loader:", head: str = HEAD) -> str:
    """A training loop with more lines."""
    body = "".join(f"    {line}\n" for line in ("loss = model(batch)", "loss.backward()", "optimizer.step()", *lines))
    return f"{head}{before}{loop}\n{body}"


FETCHED: list[Case] = [
    *[("TW150", expected, step(line), None) for expected, line in (
        ("note", ITEM), (9, ITEM), (True, "loss.tolist()"), (True, "output.tolist()"), (True,
         "outputs.detach().cpu().numpy()"),
        (True, "Loss.tolist()"), (True, "Outputs.tolist()"),
        (False, "names.tolist()"), (False, "loss.item(3)"), (False, "item()"), (True, "names.item()"),
        (False, "np.mean(names).item()"), (False, "numpy.mean(names).item()"), (False, "names.numpy().item()"),
        (False, "if i % 10 == 0:\n        loss.item()"), (True, "if rank == 0:\n        loss.item()"),
        (False, "loss.detach()"), (False, "def later():\n        loss.item()"),
    )],
    ("TW150", "warning", step(ITEM, head=XLA), None),
    ("TW150", "warning", step(ITEM), XLA_JOB),
    ("TW150", True, step(ITEM), GPU),
    ("TW150", False, step(ITEM), CPU),
    ("TW150", True, step(ITEM, head=XLA), CPU),
    # A pass of the loop is an epoch.
    ("TW150", False, step(ITEM, loop="for epoch in range(3):"), None),
    ("TW150", False, step(ITEM, loop="for Epoch in range(3):"), None),
    ("TW150", True, step(ITEM, loop="for epoch, batch in loader:"), None),
    ("TW150", True, step(ITEM, loop="while running:"), None),
    ("TW150", False, step(loop="if True:") + ITEM + "\n", None),
]  # fmt: skip
WAITS: list[Case] = [
    *[("TW150", reported, step(ITEM, line), None) for reported, line in (
        # Something shows a value at each step.
        (False, "progress_bar(loss)"), (False, "progressbar(loss)"), (False, "bar.set_description(loss)"),
        (False, "bar.set_description_str(loss)"), (False, "bar.set_postfix(loss=total)"), (False, "print_once(loss)"),
        (False, "bar.set_postfix_str(loss)"), (True, "bar.set_color(loss)"), (True, "print(total)"), (True,
         "blueprint(x)"),
        (True, "master_print(total)"), (True, "bar.update()"),
        (False, "torch.cuda.synchronize()"), (True, "work.synchronize()"),
        # Another value goes to the host.
        (False, "names.cpu().numpy()"), (True, "names.numpy()"), (True, "names.cpu().tolist()"),
        (True, "outputs.cpu().numpy()"), (True, "names.cpu()"),
        (False, "rows = batch[: lengths.max().item()]"), (True, "rows = batch[: lengths.max()]"),
        # It decides whether the step goes on.
        (False, "if not math.isfinite(total):\n        break"), (False, "if total > 9:\n        sys.exit(1)"),
        (False, "if total > 9:\n        raise ValueError"), (False, "if total > 9:\n        continue"),
        (False, "assert total < 9"), (True, "if total > 9:\n        print(total)"), (True,
         "if other > 9:\n        break"),
        (False, "if loss.item() > 9:\n        break"), (True, "assert other < 9"), (True,
         "if total > 9:\n        exits()"),
        (False, "if torch.isnan(loss):\n        continue"), (False, "if torch.isinf(loss):\n        continue"),
        (False, "if not torch.isfinite(loss):\n        continue"), (False, "if loss.isnan():\n        continue"),
        (True, "if torch.isnan(loss):\n        count += 1"), (True, "if work.isnan(loss):\n        continue"),
        # It is in the text of a progress bar.
        (False, "bar.desc = f'{loss.item()}'"), (False, "bar.desc = f'{total}'"), (True, "bar.desc = f'{other}'"),
        (True, "bar.name = f'{total}'"), (True, "desc = f'{total}'"),
        (False, "mean += loss.item()\n    bar.desc = str(mean)"), (True, "mean += 1\n    bar.desc = str(mean)"),
    )],
    ("TW150", "warning", step(ITEM, "bar.set_postfix(loss=total)", head=XLA), None),
    ("TW150", False, "def run():\n    " + step(ITEM, "if total > 9:\n        return", head="").replace("\n", "\n    "),
     None),
]  # fmt: skip
LOADER = "loader = DataLoader(data)\n"
WORKERS = "loader = DataLoader(data, num_workers=4)\n"
PLACED = "model = model.cuda()\n"


def moved(line: str, loader: str = WORKERS, loop: str = "for batch in loader:") -> str:
    """A loop that copies its batch in this way."""
    return step(line, ITEM, before=loader + PLACED, loop=loop)


COPIES: list[Case] = [
    # Nothing is moved: the batches are in main memory, and so is the model.
    ("TW150", False, step(ITEM, before=LOADER), None),
    *[("TW150", reported, step(ITEM, before=f"{LOADER}{line}\n"), None) for reported, line in (
        (True, PLACED), (True, "model.to(device)"), (True, "model = accelerator.prepare(model)"),
        (True, "torch.set_default_device('cuda')"), (True, "torch.set_default_tensor_type(kind)"),
        (True, "model = work.initialize(model)"), (True, "model = work.wrap(model)"), (True,
         "model = fabric.setup(model)"),
        (False, "model = work.freeze(model)"), (False, "def later():\n    model.cuda()"),
        (True, "x = torch.ones(1, device='cuda')"), (False, "x = torch.ones(1, device='cpu')"),
        (False, "def later():\n    torch.ones(1, device='cuda')"), (True, "import composer"),
    )],
    # A copy that waits for the device ends the step before; others prepare the next batch meanwhile.
    *[("TW150", reported, moved(line), None) for reported, line in (
        (False, "batch = batch.cuda()"), (False, "batch = batch.to(device)"), (False, "batch = batch.to('cuda')"),
        (False, "batch = batch.to(torch.device('cuda'))"), (False, "batch = batch.to(device=device)"),
        (True, "batch = batch.cuda(non_blocking=True)"), (True, "batch = batch.to(device, non_blocking=True)"),
        (True, "batch = batch.to(device, True)"), (True, "batch = batch.to(torch.float16)"), (True, "batch.to('cpu')"),
        (True, "batch = batch.to()"), (True, "weights = weights.cuda()"), (True, "weights = weights.to(device)"),
        (True, "batch = batch.pin_memory()"), (True, "cuda(batch)"),
        (False, "x = batch['x']\n    x = x.cuda()"), (False, "x, y = batch\n    y = y.cuda()"),
        (False, "x, y = batch.x, other\n    x = x.cuda()"), (False, "x = next(batches)\n    x = x.cuda()"),
        (True, "x = batches.next()\n    x = x.cuda()"), (True, "x = other['x']\n    x = x.cuda()"),
        (False, "batch = {k: v.to(device) for k, v in batch.items()}"), (False, "x = [v.cuda() for v in batch]"),
        (False, "x = [v.cuda() for v in batch.values()]"), (True, "x = [v.cuda() for v in other]"),
        (True, "x = work(batch)\n    x = x.cuda()"),
    )],
    ("TW150", False, moved("y = y.cuda()", loop="for x, y in loader:"), None),
    ("TW150", True, moved("batch = batch.cuda()", LOADER), None),
    ("TW150", True, moved("batch = batch.cuda()", "loader = DataLoader(data, num_workers=0)\n"), None),
    ("TW150", False, moved("batch = batch.cuda()", "loader = DataLoader(data, **{'num_workers': 4})\n"), None),
    ("TW150", True, moved("batch = batch.cuda()", "loader = DataLoader(data, **{'pin_memory': 4})\n"), None),
    ("TW150", True, moved("batch = batch.cuda()", "loader = DataLoader(data, **options)\n"), None),
    ("TW150", True, moved("batch = batch.cuda()", ""), None),
    ("TW150", False, moved("batch = batch.cuda()", f"{WORKERS}other = DataLoader(data)\n"), None),
    ("TW150", True, moved("batch = batch.cuda()", f"{WORKERS}a = DataLoader(data)\n", "for batch in given:"), None),
    ("TW150", False, moved("batch = batch.cuda()", WORKERS, "for batch in given:"), None),
    # A function of one step gets the batch.
    ("TW150", False, f"{HEAD}{WORKERS}{PLACED}def work(x):\n    x = x.cuda()\n    model(x).backward()\n"
     "    return loss.item()\nfor batch in loader:\n    work(batch)\n", None),
    ("TW150", True, f"{HEAD}{WORKERS}{PLACED}def work(x):\n    y = w.cuda()\n    loss = model(x)\n    loss.backward()\n"
     "    return loss.item()\nfor batch in loader:\n    work(batch)\n", None),
]  # fmt: skip
SHOWN: list[Case] = [
    *[("TW151", expected, step(line), None) for expected, line in (
        ("note", "print(loss)"), (9, "print(loss)"), (True, "master_print(loss)"), (True, "xm.master_print(loss)"),
        (False, "print()"), (False, "print(loss, end='')"), (False, "print(loss, end='\\r')"), (True,
         "print(loss, end='\\n')"),
        (True, "logger.info(loss)"), (True, "logging.warning(loss)"), (True, "log.error(loss)"), (True,
         "LOG.critical(loss)"),
        (False, "logger.debug(loss)"), (False, "meter.info(loss)"), (False, "info(loss)"), (False, "pprint(loss)"),
        (False, "if i % 10 == 0:\n        print(loss)"), (True, "if rank == 0:\n        print(loss)"),
    )],
    ("TW151", "warning", step("print(loss)", head=XLA), None),
    *[("TW152", expected, step(line), None) for expected, line in (
        ("warning", "torch.save(state, path)"), (9, "model.save_pretrained(path)"), (True,
         "engine.save_checkpoint(path)"),
        (True, "accelerator.save_state(path)"), (True, "trainer.save_model(path)"), (False, "torch.load(path)"),
        (False, "if i % 10 == 0:\n        torch.save(state, path)"),
    )],
    ("TW152", True, step("xm.save(state, path)", head=XLA), None),
    *[("TW153", expected, f"run({words})\n", job) for expected, words, job in (
        ("note", "logging_steps=1", None), ("note", "log_every_n_steps=1", None), ("warning", "save_steps=1", None),
        ("warning", "eval_steps=1", None), ("warning", "checkpoint_frequency=1", None), (False, "logging_steps=2",
         None),
        ("warning", "logging_steps=1", XLA_JOB), (False, "logging_steps=n", None), (False, "epochs=1", None),
    )],
    ("TW153", False, "ProfilerHook(save_steps=1)\n", None),
    *[("TW154", expected, f"import torch\n{words}\n", None) for expected, words in (
        (2, "torch.autograd.set_detect_anomaly(True)"), (2, "torch.autograd.set_detect_anomaly(mode=True)"),
        (False, "torch.autograd.set_detect_anomaly(False)"), (False, "torch.autograd.set_detect_anomaly(debug)"),
        (False, "if debug:\n    torch.autograd.set_detect_anomaly(True)"),
        (3, "if __name__ == '__main__':\n    torch.autograd.set_detect_anomaly(True)"),
        (2, "with torch.autograd.detect_anomaly():\n    train()"), (False, "with work.detect_anomaly():\n    train()"),
        (2, "with torch.autograd.profiler.emit_nvtx():\n    train()"),
        (2, "with torch.autograd.profiler.emit_nvtx(enabled=True):\n    train()"),
        (False, "with torch.autograd.profiler.emit_nvtx(enabled=debug):\n    train()"),
        (False, "with torch.autograd.profiler.emit_nvtx(enabled=False):\n    train()"),
        (False, "with torch.autograd.profiler.emit_nvtx(False):\n    train()"),
        (False, "if debug:\n    with torch.autograd.detect_anomaly():\n        train()"),
        (False, "with torch.autograd.no_grad():\n    train()"),
    )],
]  # fmt: skip
CASES: list[Case] = [*FETCHED, *WAITS, *COPIES, *SHOWN]


@pytest.mark.parametrize("case", CASES)
def test_what_each_step_does(case: Case) -> None:
    """Check that a rule reports the script or not, with the severity or the line that the case names."""
    assert not unmet(case)
