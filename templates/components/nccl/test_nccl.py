"""NCCL: one copy, the one torch was built with."""

import json

import pytest


def test_one_copy(probe):
    files = [file["real"] for file in probe["libraries"].get("libnccl", [])]
    assert len(files) == 1, f"which of them a process gets depends on who loads it first: {files}"


def test_torch_and_library_agree(python, probe):
    path = probe["libraries"]["libnccl"][0]["real"]
    script = f"""
import ctypes, json, torch
n = ctypes.c_int()
ctypes.CDLL({path!r}).ncclGetVersion(ctypes.byref(n))
v = n.value
print(json.dumps([[v // 10000, v % 10000 // 100, v % 100], list(torch.cuda.nccl.version())[:3]]))
"""
    library, built_with = json.loads(python(script))
    assert library == built_with


def test_backend_is_compiled_in(python):
    assert python("import torch.distributed as d; print(d.is_nccl_available())") == "True"


@pytest.mark.usefixtures("requires_gpu")
def test_all_reduce(python):
    script = """
import os, torch, torch.distributed as dist
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29518", RANK="0", WORLD_SIZE="1", NCCL_SOCKET_IFNAME="lo")
dist.init_process_group("nccl")
value = torch.ones(4, device="cuda")
dist.all_reduce(value)
torch.cuda.synchronize()
print(value.sum().item())
dist.destroy_process_group()
"""
    assert python(script).splitlines()[-1] == "4.0"
