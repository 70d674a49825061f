"""NCCL: one copy, the one torch was built with."""

import json
import re

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


@pytest.fixture
def chosen(plan):
    gpus = next(c.get("gpus", []) for c in plan["components"] if c["name"] == "nccl")
    if not gpus:
        pytest.skip("the image has machine code for all GPUs")
    return [tuple(map(int, gpu.split("."))) for gpu in gpus]


@pytest.fixture
def architectures(host, python):
    """``architectures(path)``: for each, how often NVIDIA's program finds machine code for it in a library."""
    found = python("import importlib.util as u; print(getattr(u.find_spec('triton'), 'origin', None) or '')")
    tool = found.rpartition("/")[0] + "/backends/nvidia/bin/cuobjdump"
    if not host.file(tool).exists:
        pytest.skip("the framework brings no cuobjdump")

    def count(path):
        found = re.findall(r"\.sm_(\d+)[a-z]?\.cubin", host.check_output("%s --list-elf %s", tool, path))
        return {name: found.count(name) for name in set(found)}

    return count


@pytest.mark.usefixtures("of_the_container")
def test_one_copy(probe):
    files = [file["real"] for file in probe["libraries"].get("libnccl", [])]
    assert len(files) == 1, f"which of them a process gets depends on who loads it first: {files}"


@pytest.mark.usefixtures("of_the_container")
def test_it_is_found_by_name(python):
    python("import ctypes; ctypes.CDLL('libnccl.so.2').ncclGetVersion")


@pytest.mark.usefixtures("torch")
def test_machine_code_is_for_the_chosen_gpus(chosen, architectures, library, python):
    of_torch = python("import os, torch; print(os.path.dirname(torch.__file__))") + "/lib/libtorch_cuda.so"
    for path in (library, of_torch):
        found = architectures(path)
        kept = set()
        for major, minor in chosen:
            runs = {each for each in found if int(each) // 10 == major and int(each) % 10 <= minor}
            assert runs, f"{path} has no machine code for {major}.{minor}"
            kept |= runs & {f"{major}{minor}"} or runs
        # A unit that was compiled for other GPUs alone stays as it is; there are few of them.
        assert all(found[each] < min(found[own] for own in kept) for each in set(found) - kept), (path, found)


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
    """One rank: NCCL starts on the GPU, and its kernels run. Nothing is sent."""
    script = """
import os, torch, torch.distributed as dist
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29518", RANK="0", WORLD_SIZE="1", NCCL_SOCKET_IFNAME="lo")
dist.init_process_group("nccl")
value = torch.ones(4, device="cuda")
dist.all_reduce(value)
dist.broadcast(value, src=0)
torch.cuda.synchronize()
print(value.sum().item())
dist.destroy_process_group()
"""
    assert python(script).splitlines()[-1] == "4.0"


RANK = """
import os, torch, torch.distributed as dist
rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
value = torch.full((128 * 1024 * 1024,), rank + 1.0, device="cuda")
dist.broadcast(value, src=0)
torch.cuda.synchronize()
print("holds", value.min().item(), value.max().item(), flush=True)
dist.destroy_process_group()
"""
# A GPU for each rank, as NCCL takes none twice. Each writes to a file: a full pipe would stop it.
TWO_RANKS = f"""
import json, os, subprocess, sys, tempfile, time, torch
if torch.cuda.device_count() < 2:
    print(json.dumps(None))
    sys.exit()
own = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT="29519", WORLD_SIZE="2", NCCL_SOCKET_IFNAME="lo")
own.update(NCCL_P2P_DISABLE="1", NCCL_SHM_DISABLE="1", NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,NET")
ranks, said, until = [], [], time.monotonic() + 150
for rank in range(2):
    said.append(tempfile.TemporaryFile("w+"))
    with_rank = dict(own, RANK=str(rank), LOCAL_RANK=str(rank))
    command = [sys.executable, "-c", {RANK!r}]
    ranks.append(subprocess.Popen(command, env=with_rank, stdout=said[-1], stderr=subprocess.STDOUT))
while time.monotonic() < until and any(one.poll() is None for one in ranks):
    time.sleep(0.2)
ended = [one.poll() for one in ranks]
for one in ranks:
    one.kill()
for file in said:
    file.seek(0)
print(json.dumps([ended, [file.read()[-20000:] for file in said]]))
"""


@pytest.mark.usefixtures("requires_gpu", "torch")
def test_a_large_broadcast_goes_over_the_network(python):
    """Between hosts it hung with aws-ofi-nccl 1.18.0, which passed every reduction (aws/deep-learning-containers#6551,
    #6668). Two GPUs of one host talk by its network only if they may not do so directly."""
    found = json.loads(python(TWO_RANKS, seconds=200).splitlines()[-1])
    if found is None:
        pytest.skip("needs a GPU more: two ranks, each on its own")
    ended, said = found
    assert ended == [0, 0], said
    assert all("holds 1.0 1.0" in text for text in said), said
    # As NCCL says of each channel (src/transport/net.cc): [send] via NET/Socket/0, or via NET/AWS Libfabric/0.
    assert any("via NET/" in text for text in said), said
