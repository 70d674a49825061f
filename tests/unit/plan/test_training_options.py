"""Options for training large models: which lines have them, what decides their versions, and why others do not."""

from __future__ import annotations

import pytest

from trainwright.catalog.catalog import load_catalog
from trainwright.core.errors import Conflict
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve

CATALOG = load_catalog()
# `Requires-Dist: triton==...` in the metadata of the torch wheels for Linux (2.14.1: `triton~=3.8.0`).
TRITON = {
    ("cu126", "2.7.1"): "3.3.1",
    ("cu128", "2.9.1"): "3.5.1",
    ("cu128", "2.10.0"): "3.6.0",
    ("cu130", "2.11.0"): "3.6.0",
    ("cu130", "2.12.1"): "3.7.1",
    ("cu130", "2.13.0"): "3.7.1",
    ("cu130", "2.14.1"): "3.8.0",
    ("cu132", "2.15.0"): "3.9.0",
}
LINES = [*({"cuda": cuda, "version": version} for cuda, version in TRITON), {"cuda": "cpu"}]
ON_PYTHON_313 = {"cuda": "cpu", "python": "3.13"}


def plan_of(cuda: str, **words):
    return resolve(make_request(framework="pytorch", cuda=cuda, base="debian", **words), CATALOG)


def refused(cuda: str, **words) -> str:
    with pytest.raises(Conflict) as caught:
        plan_of(cuda, **words)
    return " ".join(row["evidence"] for row in caught.value.details["rows"])


@pytest.mark.parametrize("line", LINES, ids=lambda line: "-".join(line.values()))
def test_every_line_has_bitsandbytes_and_deepspeed(line):
    plan = plan_of(**line, with_="bitsandbytes,deepspeed")
    owners = {s.package.partition("==")[0]: c.name for c in plan.components for s in c.sources if s.package}
    # Each package is in one layer: torch and NumPy stay with the framework.
    assert owners["bitsandbytes"] == "bitsandbytes" and owners["deepspeed"] == owners["hjson"] == "deepspeed"
    assert owners["torch"] == owners["numpy"] == "pytorch"


@pytest.mark.parametrize("added", ["bitsandbytes", "deepspeed", "huggingface"])
def test_an_option_does_not_replace_the_cpu_build_of_torch(added):
    """Each asks for torch, of which the package index has the build with CUDA alone."""
    plan = plan_of(**ON_PYTHON_313, with_=added)
    named = {s.package.partition("==")[0] for c in plan.components for s in c.sources if s.package}
    assert added == "huggingface" or added in named
    assert not {name for name in named if name.startswith(("torch", "nvidia-", "triton"))}


@pytest.mark.parametrize(("line", "version"), TRITON.items())
def test_triton_is_the_one_that_torch_pins(line, version):
    cuda, framework = line
    plan = plan_of(cuda, version=framework, with_="triton")
    assert plan.component("triton").version == version
    # With the option or without, it is in the framework's layer, where what only developers of torch use is left out.
    for each in (plan, plan_of(cuda, version=framework)):
        assert f"triton=={version}" in {s.package for s in each.component("pytorch").sources}


def test_triton_changes_only_with_pytorch():
    assert "pins the Triton" in refused("cu130", with_="triton", set_=["triton=3.5.0"], allow_unproven=True)


def test_xformers_goes_with_cuda_12_alone():
    assert plan_of("cu128", version="2.9.1", with_="xformers").component("xformers").version == "0.0.33.post2"
    assert plan_of("cu128", with_="xformers").component("xformers").version == "0.0.35"
    assert "libcudart.so.12" in refused("cu130", with_="xformers")


@pytest.mark.parametrize(("name", "said"), [("horovod", "C++17"), ("apex", "another project")])
def test_what_no_line_has_is_explained(name, said):
    assert said in refused("cu130", with_=name)


@pytest.mark.parametrize("cuda", ["cu126", "cu128", "cu130", "cu132"])
def test_transformer_engine_has_the_core_of_its_cuda(cuda):
    # METADATA of transformer_engine: its extras core-cu12 and core-cu13 ask for the same version of the core.
    plan = plan_of(cuda, with_="transformer-engine")
    version = plan.component("transformer-engine").version
    owners = {s.package: c.name for c in plan.components for s in c.sources if s.package}
    core = f"transformer-engine-{cuda[:4]}=={version}"
    assert owners[core] == owners[f"transformer-engine-torch=={version}"] == "transformer-engine"
    assert [s.package for s in plan.component("transformer-engine").sdists] == [f"transformer-engine-torch=={version}"]
    # It does not enlarge the layers of others, but for the headers that CUDA's own headers include.
    for name in ("cuda", "pytorch"):
        more = {s.package for s in plan.component(name).sources} - {
            s.package for s in plan_of(cuda).component(name).sources
        }
        assert {package.partition("==")[0] for package in more} <= {"nvidia-cuda-cccl", "nvidia-cuda-cccl-cu12"}


@pytest.mark.parametrize("name", ["flash-attn", "nccl-tests"])
def test_what_nvcc_compiles_brings_nvcc(name):
    plan = plan_of("cu130", with_=name)
    assert {"cuda-compiler", name} <= {c.name for c in plan.components}
    with pytest.raises(Conflict) as caught:
        plan_of("cu130", with_=name, without="cuda-compiler")
    assert f"{name} requires cuda-compiler" in {row["constraint"] for row in caught.value.details["rows"]}


def test_nothing_else_is_brought():
    names = {c.name for c in plan_of("cu130").components}
    assert {c.name for c in plan_of("cu130", with_="deepspeed").components} - names == {"deepspeed"}
