"""The bench of finer layers: which wheels are in a layer, and what a change of some of them sends again."""

from __future__ import annotations

import json

import pytest

from bench.splits import layers_of, owners_of, sent_again
from tests.support.proofs import line_of
from trainwright.catalog.catalog import open_catalog
from trainwright.plan.of_line import plan_of

TORCH = {"name": "torch", "sha256": "a", "size": 900, "components": ["pytorch", "torchvision"]}
CUBLAS = {"name": "nvidia-cublas", "sha256": "b", "size": 600, "components": ["cuda", "pytorch"]}
NVCC = {"name": "nvidia-cuda-nvcc", "sha256": "c", "size": 50, "components": ["efa"]}
MKL = {"name": "mkl", "sha256": "d", "components": ["pytorch", "rmm"]}
VISION = {"name": "torchvision", "sha256": "e", "size": 8, "components": ["torchvision"]}


def test_a_wheel_is_in_the_layer_of_its_owner_and_what_only_builds_is_in_none() -> None:
    owners = {"torch": "pytorch", "nvidia-cublas": "cuda", "nvidia-cuda-nvcc": ""}
    found = layers_of([TORCH, CUBLAS, NVCC, MKL, VISION], ["efa", "cuda", "pytorch", "rmm"], owners)
    assert found == {"pytorch": {"a": 900, "d": 0}, "cuda": {"b": 600}}


@pytest.mark.parametrize("line", ["pytorch/cu132", "pytorch/cpu"])
def test_the_layers_of_a_line_are_those_of_its_plan(line: str) -> None:
    catalog = open_catalog()
    entry = line_of(line, catalog)
    plan = plan_of(entry, catalog)
    packages = json.loads(entry.path.with_name("lock.json").read_text())["packages"]
    owners = owners_of(plan, catalog)
    assert [name for name, owner in owners.items() if not owner] == [
        name for name in owners if name.startswith(("nvidia-cuda-crt", "nvidia-cuda-nvcc", "nvidia-nvml-dev"))
    ], "what libfabric is compiled with"
    planned = {
        c.name: {s.sha256: s.size for s in c.sources if owners.get((s.package or "").partition("==")[0])}
        for c in plan.components
    }
    assert layers_of(packages, [c.name for c in plan.components], owners) == {k: v for k, v in planned.items() if v}


def test_a_change_of_one_wheel_sends_the_whole_layer_or_that_wheel() -> None:
    before = {"a": 900, "b": 600}
    assert sent_again(before, {"a": 900, "c": 650}) == (1550, 650)
    assert sent_again(before, {"a": 900}) == (900, 0)
    assert sent_again(before, dict(before)) == (0, 0)
