"""The interpreter: which processes reach a call, and what is known of its arguments."""

from __future__ import annotations

import pytest

from tests.support.training_scripts import read
from trainwright.script.events import Event, JobStart
from trainwright.script.flow import Interpreter
from trainwright.script.paths import root_of, roots
from trainwright.script.reader import Script

RANK = "import os\nimport torch.distributed as dist\n"
TORCHRUN = JobStart("torchrun", 2, 8, 8)


def calls(text: str, launch: JobStart = TORCHRUN) -> list[Event]:
    module = read(RANK + text)
    return Interpreter(Script((module,), (), (module.name,)), launch).run()


def call(text: str, last: str = "f", launch: JobStart = TORCHRUN) -> Event:
    return next(event for event in calls(text, launch) if event.last.lstrip("?") == last)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("if dist.get_rank() == 0:\n    f()", "one"),
        ("if not dist.get_rank():\n    f()", "one"),
        ("if dist.get_rank() != 0:\n    pass\nelse:\n    f()", "one"),
        ("if dist.get_rank() > 0:\n    f()", "others"),
        ("rank = int(os.environ['RANK'])\nmain = rank == 0\nif main and True:\n    f()", "one"),
        ("def main():\n    if dist.get_rank() != 0:\n        return\n    f()\nmain()", "one"),
        ("def first():\n    return dist.get_rank() == 0\nif first():\n    f()", "one"),
        ("class T:\n    def __init__(self):\n        self.rank = dist.get_rank()\n"
         "    def go(self):\n        if self.rank == 0:\n            f()\nT().go()", "one"),
        ("s = None\nif dist.get_rank() == 0:\n    s = make()\nif s is not None:\n    f()", "one"),
        ("if int(os.environ['LOCAL_RANK']) == 0:\n    f()", "host"),
        ("if dist.get_rank() in (0, -1):\n    f()", "one"),
        ("if dist.get_rank() % 2:\n    f()", "others"),
        ("if dist.get_world_size() == n:\n    f()", "world"),
        ("if step % 10 == 0:\n    f()", "other"),
        ("import torch.multiprocessing as mp\ndef run(rank):\n    if rank == 0:\n        f()\n"
         "mp.spawn(run, nprocs=8)", "host"),
    ],
)  # fmt: skip
def test_which_processes_reach_a_call(text, kind):
    guards = call(text).guards
    assert (guards[-1].kind if guards else None) == kind


@pytest.mark.parametrize(
    "text",
    [
        "if dist.get_world_size() > 1:\n    pass\nelse:\n    f()",
        "import torch\nif not torch.cuda.is_available():\n    f()",
        "import json\nhosts = json.loads(os.environ['SM_HOSTS'])\nif len(hosts) == 1:\n    f()",
        "if 'a' == 'b':\n    f()",
    ],
)
def test_what_the_job_rules_out_does_not_run(text):
    assert not [event for event in calls(text) if event.last == "?f" and not event.detached]


def test_one_process_has_every_rank_of_zero():
    text = "if dist.get_rank() == 0:\n    f()\nelse:\n    g()"
    alone = JobStart("process", 1, 1, 1)
    assert call(text, launch=alone).guards == ()
    assert not [event for event in calls(text, alone) if event.last == "?g"]


@pytest.mark.parametrize(
    ("text", "root"),
    [
        ("p = os.path.join(os.environ['SM_MODEL_DIR'], 'a')", {"model"}),
        ("p = f\"{os.environ['SM_OUTPUT_DATA_DIR']}/a\"", {"output"}),
        ("p = '/tmp/' + name", {"tmp"}),
        ("import argparse\na = argparse.ArgumentParser()\n"
         "a.add_argument('--d', default=os.environ.get('SM_MODEL_DIR'))\n"
         "p = os.path.join(a.parse_args().d, 'x')", {"model"}),
        ("p = os.path.join(folder, 'a')", set()),
        ("p = os.path.join(os.environ['SM_MODEL_DIR'], '/tmp/x')", {"tmp"}),
        ("from pathlib import Path\np = Path('/opt/ml/checkpoints') / 'x'", {"checkpoint"}),
    ],
)  # fmt: skip
def test_where_a_path_leads(text, root):
    event = call(text + "\nf(p)")
    assert roots(event.args[0]) == root


@pytest.mark.parametrize(
    ("text", "root"),
    [
        ("/opt/ml/model/a", "model"),
        ("/opt/ml/models", "elsewhere"),
        ("s3://b", "remote"),
        ("a/b", "relative"),
        ("", ""),
    ],
)
def test_root_of_a_path(text, root):
    assert root_of(text) == root


def test_a_function_without_end_ends():
    assert calls("def f(n):\n    return f(n + 1) + f(n + 2)\nf(0)\nwhile True:\n    f(1)\n")


def test_many_calls_end():
    chain = "\n".join(f"def f{i}(x):\n    return f{i + 1}(x) + f{i + 1}(x + 1)" for i in range(60))
    assert len(calls(chain + "\ndef f60(x):\n    return x\nf0(1)\n")) < 20_000
