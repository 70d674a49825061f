"""NCCL: one copy, the one torch was built with."""

import json

import pytest


@pytest.fixture
def torch(plan):
    if not any(c["name"] == "pytorch" for c in plan["components"]):
        pytest.skip("no PyTorch in this image")


@pytest.fixture
def of_the_container(plan):
    """AWS's containers keep it where they like."""
    if any(c["name"] == "nccl" and c["provider"] == "base" for c in plan["components"]):
        pytest.skip("NCCL is the base image's")


@pytest.fixture
def library(probe):
    """The NCCL that the loader gives, or the one of the wheels."""
    named = probe["libraries"].get("libnccl", [])
    assert named, "no NCCL in this image"
    return next((file["real"] for file in named if file["on_loader_path"]), named[0]["real"])


@pytest.mark.usefixtures("of_the_container")
def test_one_copy(probe):
    files = [file["real"] for file in probe["libraries"].get("libnccl", [])]
    assert len(files) == 1, f"which of them a process gets depends on who loads it first: {files}"


@pytest.mark.usefixtures("of_the_container")
def test_it_is_found_by_name(python):
    python("import ctypes; ctypes.CDLL('libnccl.so.2').ncclGetVersion")


@pytest.mark.usefixtures("torch", "of_the_container")
def test_torch_and_library_agree(python, library):
    script = f"""
import ctypes, glob, json, os, subprocess, torch
parts = glob.glob(os.path.dirname(torch.__file__) + "/lib/libtorch*.so")
linked = subprocess.run(["ldd", *parts], stdout=subprocess.PIPE, universal_newlines=True).stdout
n = ctypes.c_int()
ctypes.CDLL({library!r}).ncclGetVersion(ctypes.byref(n))
v, limit = n.value, 10000 if n.value >= 10000 else 1000
built_with = torch.cuda.nccl.version()
if isinstance(built_with, int):
    limit_of_torch = 10000 if built_with >= 10000 else 1000
    built_with = (built_with // limit_of_torch, built_with % limit_of_torch // 100, built_with % 100)
print(json.dumps(["libnccl" in linked, [v // limit, v % limit // 100, v % 100], list(built_with)[:3]]))
"""
    is_linked, has, built_with = json.loads(python(script))
    if not is_linked:
        pytest.skip("torch has an NCCL inside and does not load this one")
    assert has == built_with


@pytest.mark.usefixtures("torch")
def test_backend_is_compiled_in(python):
    assert python("import torch.distributed as d; print(d.is_nccl_available())") == "True"


@pytest.mark.usefixtures("requires_gpu", "torch")
def test_all_reduce_and_broadcast(python):
    script = """
import os, torch, torch.distributed as dist
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29518", RANK="0", WORLD_SIZE="1", NCCL_SOCKET_IFNAME="lo")
dist.init_process_group("nccl")
value = torch.ones(4, device="cuda")
dist.all_reduce(value)
# Larger than any buffer: a plugin that hung here passed every reduction (aws/deep-learning-containers#6551).
dist.broadcast(torch.ones(64 * 1024 * 1024, device="cuda"), src=0)
torch.cuda.synchronize()
print(value.sum().item())
dist.destroy_process_group()
"""
    assert python(script).splitlines()[-1] == "4.0"
