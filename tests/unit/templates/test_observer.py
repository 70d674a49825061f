"""What the observer writes about a script, and how it is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support.observer import observed
from trainwright.rehearse import observer_files
from trainwright.rehearse.verdict import waiting_for


def test_the_observer_tells_of_a_rank_and_its_end(tmp_path: Path) -> None:
    (one,) = observed(tmp_path, "print('well')", RANK="3", WORLD_SIZE="4", LOCAL_RANK="1", SECRET="no")
    assert one.argv[1:] == ("train.py", "--word")
    assert (one.rank, one.world_size, one.local_rank) == (3, 4, 1)
    assert one.ended
    assert not one.error
    assert "SECRET" not in one.environment


def test_the_observer_tells_what_ended_a_script(tmp_path: Path) -> None:
    (one,) = observed(tmp_path, "def deep():\n    raise ValueError('enough')\ndeep()\n")
    assert one.error.splitlines()[-1] == "ValueError: enough"
    assert "in deep" in one.error
    assert one.error_at >= one.started


def test_the_observer_tells_of_the_worlds_that_a_script_joins(tmp_path: Path) -> None:
    """Stand-ins with the names of the real modules: the hooks find modules by name alone."""
    for name, text in {
        "torch/__init__.py": "float64 = 0\ndef tensor(values, dtype):\n    return list(values)\n",
        "torch/distributed/__init__.py": "from .distributed_c10d import *\n",
        "torch/distributed/distributed_c10d.py": (
            "def init_process_group(backend):\n    return 'made'\n"
            "def get_rank():\n    return 1\n"
            "def get_world_size():\n    return 2\n"
            "def get_backend():\n    return 'gloo'\n"
            "def all_reduce(value):\n    value[0] = 3.0\n"
        ),
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    script = "import torch.distributed as dist\nassert dist.init_process_group('gloo') == 'made'\n"
    (one,) = observed(tmp_path, script)
    assert not one.error
    assert one.world_sizes == {"torch": 2}
    assert one.reduced == {"torch": 3.0}


def test_the_observer_never_ends_a_script(tmp_path: Path) -> None:
    """A world that cannot be looked at is the observer's trouble alone."""
    (tmp_path / "torch/distributed").mkdir(parents=True)
    (tmp_path / "torch/__init__.py").write_text("")
    (tmp_path / "torch/distributed/__init__.py").write_text("")
    (tmp_path / "torch/distributed/distributed_c10d.py").write_text("def init_process_group():\n    return 1\n")
    script = "import torch.distributed.distributed_c10d as d\nassert d.init_process_group() == 1\nopen('ok', 'w')\n"
    (one,) = observed(tmp_path, script)
    assert (tmp_path / "ok").exists()
    assert one.ended
    assert not one.world_sizes


def test_the_observer_gives_stacks_when_it_is_asked(tmp_path: Path) -> None:
    script = f"""
import os, threading, time
def sleeps():
    time.sleep(60)
threading.Thread(target=sleeps, daemon=True).start()
time.sleep(0.2)
def asks():
    os.kill(os.getpid(), {observer_files.STACKS})
asks()
"""
    (one,) = observed(tmp_path, script)
    assert "in sleeps" in one.stack
    assert waiting_for(one.stack) == f"asks ({tmp_path}/train.py:8)"


_EVENTS = st.dictionaries(
    st.sampled_from(["e", "t", "parent", "argv", "cwd", "env", "host", "library", "size", "sum", "text"]),
    st.one_of(
        st.sampled_from(["start", "joined", "reduced", "error", "signal", "end"]),
        st.integers(),
        st.sampled_from(["", "x", "1.5", None, 0.5, [], {}, ["a"], {"RANK": "1"}]),
    ),
)


@given(st.lists(_EVENTS))
def test_facts_that_make_no_sense_end_nothing(events: list[dict[str, Any]]) -> None:
    observer_files.process(1, events)


@given(st.binary(max_size=400))
def test_facts_of_a_killed_process_are_read_as_far_as_they_go(tmp_path_factory: Any, tail: bytes) -> None:
    folder = tmp_path_factory.mktemp("facts")
    good = json.dumps({"e": "start", "t": 1.0, "parent": 1, "argv": ["x"], "env": {"RANK": "0"}})
    (folder / "7.jsonl").write_bytes(good.encode() + b"\n" + tail)
    (one,) = observer_files.processes(folder)
    assert (one.pid, one.rank) == (7, 0)
