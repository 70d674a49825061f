"""A process that goes by its own clock stops at another step than the others, unless they agree.

Sources: PyTorch's documentation of torch.distributed; PyTorch Lightning, callbacks/timer.py; transformers,
trainer_callback.py: TrainerControl is each process's own.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import DDP, P4D, TORCHRUN, codes

JOB: dict[str, Any] = {"instance_type": P4D, "instance_count": 2, "distribution": TORCHRUN}
ALONE: dict[str, Any] = {"instance_type": "ml.g5.2xlarge"}
HEAD = (
    DDP + "import time\nfrom datetime import datetime\nfrom helpers import any_process\nbegin = time.time()\n"
    "model = DDP(torch.nn.Linear(2, 2).cuda())\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    "def late():\n    return time.time() - begin > 3600\n"
)
STEP = "model(x).sum().backward()\n    optimizer.step()\n    optimizer.zero_grad()\n"


def loop(*lines: str) -> str:
    """A loop that trains, with these lines after the step."""
    return HEAD + f"for x in loader:\n    {STEP}" + "".join(f"    {line}\n" for line in lines)


LOOPS_APART = [
    loop("if time.time() - begin > 3600:", "    break"),
    loop("if late():", "    break"),
    loop("stop = late()", "if stop:", "    break"),
    loop("stop = False", "if time.monotonic() > end:", "    stop = True", "if stop:", "    break"),
    loop("if (datetime.now() - first).total_seconds() > 60:", "    break"),
    loop("if torch.tensor(late()).cuda().item():", "    break"),
    HEAD + f"while time.time() - begin < 3600:\n    {STEP}",
    HEAD + f"while not done and time.perf_counter() < end:\n    {STEP}",
    loop("if time.time() - saved > 600:", "    dist.barrier()", "    saved = time.time()"),
]
LOOPS_TOGETHER = [
    loop("stop = torch.tensor(late()).cuda()", "dist.all_reduce(stop)", "if stop.item():", "    break"),
    loop("stop = [late()]", "dist.broadcast_object_list(stop)", "if stop[0]:", "    break"),
    loop("if any_process(late()):", "    break"),
    loop("stop = any_process(late())", "if stop:", "    break"),
    loop("if time.time() - shown > 60:", "    print(x)", "    shown = time.time()"),
    loop("took = time.time() - begin", "if took > 0 and dist.get_rank() == 0:", "    print(len(x) / took)"),
    HEAD + "while time.time() - begin < 60 and not os.path.exists(path):\n    time.sleep(1)\n" + loop(),
    HEAD + "for x in loader:\n    if time.time() - begin > 60:\n        break\n    print(x)\n",
]
CALLBACK = (
    "import time\nimport torch\nimport torch.distributed as dist\n"
    "from transformers import Trainer, TrainerCallback, TrainingArguments\n"
    "class Budget(TrainerCallback):\n    def __init__(self, seconds):\n        self.end = time.time() + seconds\n"
    "    def on_step_end(self, args, state, control, **kwargs):\n        {body}\n        return control\n"
    "trainer = Trainer(model=net, args=TrainingArguments('/opt/ml/checkpoints'), callbacks=[Budget(60)])\n"
    "trainer.train()\ntrainer.save_model('/opt/ml/model')\n"
)


def callback(*lines: str) -> str:
    """A callback of the Trainer that does this after each step."""
    return CALLBACK.format(body="\n        ".join(lines))


STOP = "control.should_training_stop = True"
CALLBACKS_APART = [
    callback("if time.time() > self.end:", f"    {STOP}"),
    callback("control.should_training_stop = time.time() > self.end"),
    callback("left = self.end - time.time()", "if left < 0:", f"    {STOP}"),
    callback("if time.time() > self.end:", "    control.should_save = True"),
    callback("if time.time() <= self.end:", "    return control", STOP),
]
CALLBACKS_TOGETHER = [
    callback("stop = torch.tensor(int(time.time() > self.end), device=args.device)", "dist.broadcast(stop, 0)",
             "if stop.item():", f"    {STOP}"),
    callback("stop = [time.time() > self.end]", "dist.broadcast_object_list(stop, 0)", "if stop[0]:", f"    {STOP}"),
    callback("if state.global_step > 100:", f"    {STOP}"),
    callback("if time.time() > self.end:", "    control.should_log = True"),
    callback("if time.time() > self.end:", "    self.end = time.time() + 60", "    print(state.global_step)"),
]  # fmt: skip


@pytest.mark.parametrize("script", LOOPS_APART + CALLBACKS_APART)
def test_each_process_stops_by_its_own_clock(script: str) -> None:
    assert "TW516" in codes(script, JOB), script
    assert "TW516" not in codes(script, ALONE), script


@pytest.mark.parametrize("script", LOOPS_TOGETHER + CALLBACKS_TOGETHER)
def test_the_processes_agree_on_the_time_or_go_on(script: str) -> None:
    assert "TW516" not in codes(script, JOB), script
