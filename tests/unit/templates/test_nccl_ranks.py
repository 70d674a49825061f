"""The image test of two ranks, without GPUs: its scripts run with a torch that only says what it was asked."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from trainwright.core.paths import templates_dir

TEST = runpy.run_path(str(templates_dir() / "components" / "nccl" / "test_nccl.py"))
TORCH = """
import os, sys
class cuda:
    device_count = staticmethod(lambda: int(os.environ["GPUS"]))
    set_device = synchronize = staticmethod(lambda *_: None)
class Value:
    def __init__(self, number): self.number = number
    def min(self): return self
    max = min
    def item(self): return self.number
def full(shape, number, device): return Value(number)
"""
DIST = """
import os, sys
names = ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "WORLD_SIZE", "RANK")
def init_process_group(backend):
    print(backend, *(os.environ[name] for name in names))
    if os.environ["RANK"] == os.environ.get("FAILS"): sys.exit(7)
def broadcast(value, src):
    value.number = src + 1.0
def destroy_process_group(): pass
"""


def two_ranks(folder: Path, **environment: str) -> object:
    (folder / "torch" / "distributed").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text(TORCH)
    (folder / "torch" / "distributed" / "__init__.py").write_text(DIST)
    own = {**os.environ, "PYTHONPATH": str(folder), **environment}
    done = subprocess.run(
        [sys.executable, "-c", TEST["TWO_RANKS"]], env=own, cwd=folder, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_each_rank_gets_the_tensor_of_the_first(tmp_path):
    ended, said = two_ranks(tmp_path, GPUS="2")
    assert ended == [0, 0]
    # NCCL's documentation, Environment Variables: neither peer to peer nor shared memory leaves the network.
    assert [text.splitlines() for text in said] == [[f"nccl 1 1 2 {rank}", "holds 1.0 1.0"] for rank in (0, 1)]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_fails_is_seen(tmp_path, rank):
    ended, said = two_ranks(tmp_path, GPUS="2", FAILS=str(rank))
    assert ended[rank] == 7
    assert "holds" not in said[rank]


def test_one_gpu_is_too_few(tmp_path):
    assert two_ranks(tmp_path, GPUS="1") is None


def test_it_asks_for_gpus():
    marks = TEST["test_a_large_broadcast_goes_over_the_network"].pytestmark
    assert {name for mark in marks for name in mark.args} == {"requires_gpu", "torch"}
