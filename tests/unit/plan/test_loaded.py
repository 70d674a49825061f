"""The NCCL and cuDNN that frameworks really load: in the plan, its labels, and what the probe must find."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from trainwright.catalog.catalog import load_catalog
from trainwright.plan.plan import Plan
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve

CATALOG = load_catalog()
INSIDE, BASE = "inside its wheel", "of the base image"


def plan_of(framework: str, cuda: str, version: str) -> Plan:
    return resolve(make_request(framework=framework, cuda=cuda, version=version), CATALOG)


# PyTorch 2.6.0's metadata pins nvidia-nccl-cu12 2.21.5 and nvidia-cudnn-cu12 9.1.0.70; that of +cu11x wheels neither,
# and theirs is the cuDNN that pytorch/builder installs (common/install_cuda.sh of release/1.13, 2.0 and 2.1; #1000).
# AWS's builds use the system's (aws/deep-learning-containers#3964); TensorFlow compiles NCCL in (its BUILD files).
@pytest.mark.parametrize(
    ("framework", "cuda", "version", "nccl", "cudnn"),
    [
        ("pytorch", "cu124", "2.6.0", "2.21.5", "9.1.0.70"),
        ("pytorch", "cu118", "2.0.1", INSIDE, "8.7.0.84"),
        ("pytorch", "cu118", "2.1.0", INSIDE, "8.7.0.84"),
        ("pytorch", "cu116", "1.13.0", INSIDE, "8.3.2.44"),
        ("pytorch", "cu113", "1.10.2", "2.10.3", BASE),
        ("tensorflow", "cu112", "2.8.4", INSIDE, BASE),
        ("tensorflow", "cu125", "2.18.0", "2.23.4", "9.3.0.75"),
    ],
)
def test_what_a_framework_loads(framework, cuda, version, nccl, cudnn):
    plan = plan_of(framework, cuda, version)
    assert plan.loads == {"nccl": nccl, "cudnn": cudnn}
    assert plan.labels["io.trainwright.loads.nccl"] == nccl
    assert plan.labels["io.trainwright.loads.cudnn"] == cudnn


# A build of TensorFlow says the series of the cuDNN that it is made for (get_build_info of tensorflow/cu129: "9").
@pytest.mark.parametrize(
    ("cuda", "version", "series"), [("cu125", "2.18.0", "9*"), ("cu112", "2.8.4", "*"), ("cu129", "2.21.0", "9*")]
)
def test_tensorflow_is_made_for_the_cudnn_that_it_loads(cuda, version, series):
    found = {e.fact: e.value for e in plan_of("tensorflow", cuda, version).expect if e.component == "tensorflow"}
    assert found["cudnn"] == series


def test_without_cuda_there_is_neither():
    assert plan_of("pytorch", "cpu", "2.13.0").loads == {}


def test_the_probe_must_find_what_locked_wheels_bring():
    found = {e.fact: e.value for e in plan_of("pytorch", "cu124", "2.6.0").expect if e.component == "pytorch"}
    assert (found["nccl"], found["cudnn"]) == ("2.21.5", "9.1.0")
    unknown = {e.fact: e.value for e in plan_of("pytorch", "cu118", "2.0.1").expect if e.component == "pytorch"}
    assert (unknown["nccl"], unknown["cudnn"]) == ("*", "8.7.0")


@pytest.mark.parametrize(
    ("framework", "cuda", "version", "told"),
    [
        ("pytorch", "cu118", "2.0.1", True),
        ("tensorflow", "cu112", "2.8.4", True),
        ("pytorch", "cu113", "1.10.2", False),
    ],
)
def test_a_plan_says_of_which_nccl_the_framework_has_no_use(framework, cuda, version, told):
    plan = plan_of(framework, cuda, version)
    nccl = plan.component("nccl")
    assert nccl
    assert any(f"loads the nccl {INSIDE}, not nccl {nccl.version}" in n for n in plan.notices) == told


# aws/deep-learning-containers, f1e622e4, docker/pytorch/Dockerfile.cuda: FROM nvidia/cuda:13.3.0, torch of cu130.
@pytest.mark.parametrize(("version", "both"), [("2.13.0", True), ("2.12.1", False), ("2.10.0", False)])
@pytest.mark.parametrize("base", ["nvidia", "dlc"])
def test_a_plan_says_where_the_toolkit_is_of_another_cuda(version, both, base):
    plan = resolve(make_request(framework="pytorch", version=version, base=base, cuda="cu130"), CATALOG)
    (toolkit,) = [c.version for c in plan.components if c.name == "cuda"]
    assert (plan.cuda, toolkit) == ("13.0", "13.3" if both else "13.0")
    told = [n for n in plan.notices if "13.0" in n and "13.3" in n and "cu133" in n]
    assert len(told) == both


# CUDNN_VERSION in NVIDIA's cudnn_version.h: up to 8 major * 1000 + minor * 100 + patch, since 9 major * 10000 + …
@pytest.mark.parametrize(
    ("number", "said"), [(7605, "7.6.5"), (8902, "8.9.2"), (90100, "9.1.0"), (91002, "9.10.2"), (None, "")]
)
def test_the_probe_reads_cudnn_s_number(tmp_path: Path, number, said):
    (tmp_path / "torch.py").write_text(
        f"""
import types
version = types.SimpleNamespace(cuda=None)
__version__ = "2.6.0+cu124"
backends = types.SimpleNamespace(cudnn=types.SimpleNamespace(version=lambda: {number}))
cuda = types.SimpleNamespace(nccl=types.SimpleNamespace(is_available=lambda _: False), is_available=lambda: False)
distributed = types.SimpleNamespace(is_gloo_available=lambda: True)
"""
    )
    script = CATALOG.components["pytorch"].component.probe[0].python
    assert script
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["cudnn"] == said
