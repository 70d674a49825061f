"""A file that the first process makes while the others wait for it, and barriers that a caller keeps some from."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.neighbour_scripts import TWO
from tests.support.training_scripts import DDP, LOOP, P4D, SMP, SMP_JOB, TORCHRUN, codes, findings

ONE: dict[str, Any] = {"instance_type": P4D, "distribution": TORCHRUN}
PAIRED = (
    DDP + "local_rank = int(os.environ['LOCAL_RANK'])\n{head}"
    "def rows(name, evaluate=False):\n    cached = '/tmp/' + name\n"
    "    if {others}:\n        {wait}\n"
    "    if os.path.exists(cached):\n        made = torch.load(cached)\n"
    "    else:\n        made = tokenized(name)\n        torch.save(made, cached)\n"
    "    if {first}:\n        {wait}\n    return made\n"
)
PLAIN = {"head": "", "others": "local_rank != 0", "first": "local_rank == 0", "wait": "dist.barrier()"}
# huggingface/transformers#1081: the first process alone evaluates, and waits in the data's second barrier for ever.
BY_FIRST = "if dist.get_rank() == 0:\n    rows('dev.pt'{given})\n"
TRAINS = "rows('train.pt')\n" + LOOP
WRITTEN = {
    "PyTorch's": {},
    "the list of an old launcher": {"others": "local_rank not in [-1, 0]", "first": "local_rank in [-1, 0]"},
    "a helper": {
        "head": "def first():\n    return local_rank == 0\n",
        "others": "not first()",
        "first": "first()",
    },
    "an attribute": {
        "head": "class Place:\n    def __init__(self):\n        self.first = local_rank == 0\nplace = Place()\n",
        "others": "not place.first",
        "first": "place.first",
    },
    "a wait of the script's own": {"head": "def wait():\n    dist.barrier()\n", "wait": "wait()"},
}


@pytest.mark.parametrize("name", list(WRITTEN))
def test_two_barriers_match_only_if_all_processes_come_to_both(name):
    data = PAIRED.format(**PLAIN | WRITTEN[name])
    assert "TW128" not in codes(data + TRAINS, ONE)
    assert "TW128" not in codes(data + TRAINS + "rows('dev.pt')\n", ONE)
    assert "TW128" in codes(data + TRAINS + BY_FIRST.format(given=""), ONE)
    assert "TW128" in codes(data + BY_FIRST.format(given="") + TRAINS, ONE)


def test_the_barrier_that_the_first_process_reaches_is_named_with_the_condition_of_the_caller():
    text = PAIRED.format(**PLAIN) + TRAINS + BY_FIRST.format(given="")
    found = [f for f in findings(text, ONE) if f.code == "TW128"]
    lines = text.split("\n")
    last = max(n for n, line in enumerate(lines, 1) if "dist.barrier()" in line)
    called = lines.index("if dist.get_rank() == 0:") + 1
    says = f"distributed.barrier runs only where `dist.get_rank() == 0` in line {called}"
    assert [(f.line, f.message) for f in found] == [(last, says)]


def test_barriers_that_the_evaluation_leaves_out_are_no_pair():
    """transformers' run_glue.py after the fix: neither barrier is reached when one process evaluates."""
    ways = {"others": "local_rank not in [-1, 0] and not evaluate", "first": "local_rank == 0 and not evaluate"}
    left_out = PAIRED.format(**PLAIN | ways) + TRAINS
    assert "TW128" not in codes(left_out + BY_FIRST.format(given=", evaluate=True"), ONE)
    assert "TW128" in codes(left_out + BY_FIRST.format(given=""), ONE)


def test_both_sides_of_a_callers_condition_may_come_to_the_same_barriers():
    each = "if dist.get_rank() == 0:\n    rows('train.pt')\nelse:\n    rows('part.pt')\n"
    assert "TW128" not in codes(PAIRED.format(**PLAIN) + each + LOOP, ONE)


def test_the_barriers_of_other_libraries():
    horovod = (
        "import os\nimport torch\nimport horovod.torch as hvd\nhvd.init()\ntorch.cuda.set_device(hvd.local_rank())\n"
        + PAIRED.removeprefix(DDP)
    )
    ways = {"others": "hvd.local_rank() != 0", "first": "hvd.local_rank() == 0", "wait": "hvd.barrier()"}
    job = {"instance_type": P4D, "distribution": {"mpi": {"enabled": True, "processes_per_host": 8}}}
    text = horovod.format(**PLAIN | ways) + "rows('train.pt')\n"
    assert "TW128" not in codes(text, job)
    assert "TW128" in codes(text + "if hvd.rank() == 0:\n    rows('dev.pt')\n", job)
    ways = {"others": "smp.local_rank() != 0", "first": "smp.local_rank() == 0", "wait": "smp.barrier()"}
    text = PAIRED.replace(DDP, "import os\n" + SMP).format(**PLAIN | ways) + "rows('train.pt')\n"
    assert "TW128" not in codes(text, SMP_JOB)
    assert "TW128" in codes(text + "if smp.rank() == 0:\n    rows('dev.pt')\n", SMP_JOB)


ACCELERATE = (
    "import os\nimport torch\nfrom accelerate import Accelerator\naccelerator = Accelerator()\n"
    "model = accelerator.prepare(model)\ndef rows(name):\n    {}:\n"
    "        if os.path.exists(name):\n            return torch.load(name)\n"
    "        made = tokenized(name)\n        torch.save(made, name)\n        return made\n"
    "rows('/tmp/train.pt')\nfor x in loader:\n    accelerator.backward(model(x))\n"
)


def test_the_context_that_lets_the_first_process_go_first_is_entered_by_all():
    """accelerate, state.py, _goes_first, and transformers, training_args.py: a barrier before, or after, the block."""
    text = ACCELERATE.format("with accelerator.local_main_process_first()")
    assert not {"TW128", "TW141"} & codes(text, ONE)
    assert "TW128" in codes(text + "if accelerator.is_main_process:\n    rows('/tmp/dev.pt')\n", ONE)


@pytest.mark.parametrize("name", list(WRITTEN))
def test_what_the_first_process_writes_while_the_others_wait_is_written_once(name):
    data = PAIRED.format(**PLAIN | WRITTEN[name])
    unasked = data.replace("if os.path.exists(cached)", "if ready(name)")
    other = data.replace("exists(cached)", "exists('/opt/ml/input/data/train')")
    last = data[: data.index("    if " + (PLAIN | WRITTEN[name])["first"] + ":\n")] + "    return made\n"
    early = data.replace("    cached =", "    found = os.path.exists('/tmp/' + name)\n    cached =")
    for job in (ONE, TWO):
        assert "TW141" not in codes(data + TRAINS, job)
        assert "TW141" in codes(unasked + TRAINS, job)
        assert "TW141" in codes(other + TRAINS, job)
        assert "TW141" in codes(last + TRAINS, job)
        assert "TW141" in codes(early.replace("if os.path.exists(cached)", "if found") + TRAINS, job)


def test_the_first_process_of_all_writes_for_its_own_host():
    ways = {"others": "dist.get_rank() != 0", "first": "dist.get_rank() == 0"}
    assert "TW141" not in codes(PAIRED.format(**PLAIN | ways) + TRAINS, ONE)
    assert "TW141" in codes(PAIRED.format(**PLAIN | ways) + TRAINS, TWO)
    for block, once in (("main_process_first()", False), ("local_main_process_first()", True)):
        found = codes(ACCELERATE.format(f"with accelerator.{block}"), TWO)
        assert ("TW141" not in found) is once
    assert "TW141" in codes(ACCELERATE.format("if True"), ONE)


def test_a_context_of_the_scripts_own_lets_the_first_process_go_first():
    head = (
        "from contextlib import contextmanager\n@contextmanager\ndef first_of_host():\n"
        "    if local_rank != 0:\n        dist.barrier()\n    yield\n    if local_rank == 0:\n        dist.barrier()\n"
    )
    made = (
        "cached = '/tmp/rows.pt'\nwith {}:\n    found = os.path.isfile(cached)\n"
        "    if not found:\n        torch.save(tokenized(), cached)\n"
    )
    script = DDP + "local_rank = int(os.environ['LOCAL_RANK'])\n" + head
    assert not {"TW128", "TW141"} & codes(script + made.format("first_of_host()") + LOOP, ONE)
    assert "TW141" in codes(script + made.format("torch.no_grad()") + LOOP, ONE)
    named = script.replace("first_of_host", "main_process_first")
    assert not {"TW128", "TW141"} & codes(named + made.format("main_process_first()") + LOOP, ONE)
