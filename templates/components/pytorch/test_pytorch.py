"""The framework: it computes, it learns, its processes talk to each other."""

import json
import re

import pytest

# Steps of one builder can have one network: two images that are proven side by side would meet there.
listens = pytest.mark.outside("it listens on a port of its own choice, and build steps may share their ports")
# Each rank writes its line at once: what print() writes in two pieces mixes with the lines of the others.
GLOO = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
value = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(value)
os.write(1, f"rank {dist.get_rank()} of {dist.get_world_size()} sum {value.item():g}\\n".encode())
dist.destroy_process_group()
"""

# A section of type 2 (SHT_SYMTAB, elf.h) is what `strip` removes; the loader reads another one. Small ones may stay.
KEPT_FOR_DEVELOPERS = """
import os, pathlib, struct, torch
site = pathlib.Path(torch.__file__).parents[1]
names = "torch/test", "torch/bin/*[tT]est*", "triton/**/*.a", "triton/FileCheck", "triton/backends/amd/lib/*.so"
found = [path for name in names for path in site.glob(name)]
for path in (*site.glob("torch/lib/*.so*"), *site.glob("triton/_C/*.so")):
    with open(path, "rb") as file:
        head = file.read(64)
        at, (size, count) = struct.unpack_from("<Q", head, 40)[0], struct.unpack_from("<HH", head, 58)
        file.seek(at)
        table = file.read(size * count)
    rows = [struct.unpack_from("<I24xQ", table, n * size + 4) for n in range(count)]  # type and size
    found += [path] * any(kind == 2 and length > 1_000_000 for kind, length in rows)
print([str(path.relative_to(site)) for path in found])
"""

# Its library and ptxas are used as they are when torch.compile makes a kernel for an A100.
TRITON = """
import pathlib, sys, tempfile, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
with tempfile.TemporaryDirectory() as folder:
    pathlib.Path(folder, "kernels.py").write_text(
        "import triton, triton.language as tl\\n@triton.jit\\ndef double(x, y):\\n"
        "    at = tl.arange(0, 64)\\n    tl.store(y + at, 2 * tl.load(x + at))\\n"
    )
    sys.path.insert(0, folder)
    import kernels
    source = ASTSource(kernels.double, {"x": "*fp32", "y": "*fp32"}, {})
    print(triton.compile(source, target=GPUTarget("cuda", 80, 32)).asm["cubin"][:4] == b"\\x7fELF")
"""


# What the profiler of triton opens, or a link to it: a library beside it, which its wheels have since 3.2, or one that
# the loader finds. Without a driver 13.1 and older say their version; cuptiGetVersion of 13.2 calls itself until the
# stack is full, and that of 13.3 and newer returns 999 (wheels of nvidia-cuda-cupti 13.0.85 to 13.5.25, 2026-11-26).
CUPTI = """
import contextlib, ctypes, importlib.metadata, pathlib, triton
version, driver, cupti = ctypes.c_uint32(), False, (0,)
with contextlib.suppress(OSError):
    driver = bool(ctypes.CDLL("libcuda.so.1"))
with contextlib.suppress(importlib.metadata.PackageNotFoundError):
    cupti = tuple(map(int, importlib.metadata.version("nvidia-cuda-cupti").split(".")))
own = sorted(pathlib.Path(triton.__file__).parent.glob("backends/nvidia/lib/cupti*/*.so*"))
older = importlib.metadata.version("triton").split(".")[:2] in (["3", "0"], ["3", "1"])
for path in [pathlib.Path("libcupti.so")] if older else own:
    library = ctypes.CDLL(str(path))
    if path.name.startswith("libcupti.so"):
        ask = library.cuptiGetVersion
        asks_driver = cupti >= (13, 2) and "triton" not in path.resolve().parts
        assert asks_driver and not driver or ask(ctypes.byref(version)) == 0 and version.value, path
        print(path.name)
"""


def test_version_and_cuda(python, plan):
    seen = json.loads(python("import json, torch; print(json.dumps([torch.__version__, torch.version.cuda]))"))
    assert seen[0].split("+")[0] == plan["version"].split("+")[0]
    assert (seen[1] or "cpu") == plan["cuda"]


def test_learns(python):
    script = """
import torch
torch.manual_seed(0)
x = torch.randn(256, 4)
y = x @ torch.tensor([[1.0], [-2.0], [3.0], [0.5]])
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(100):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
print(loss.item() < 1e-3)
"""
    assert python(script) == "True"


def test_bytecode_of_a_step_is_in_the_image(uncompiled):
    # Otherwise each process of a job compiles some 1,600 modules before its first step.
    step = "x = torch.ones(1, requires_grad=True); x.sum().backward(); torch.optim.SGD([x], lr=0.1).step()"
    assert len(uncompiled(f"import torch; {step}")) <= 5  # what a step imports depends on the processor, too


def test_nothing_is_kept_for_developers_of_torch(python, plan):
    if any(c["name"] == "pytorch" and c["provider"] != "wheel" for c in plan["components"]):
        pytest.skip("not PyTorch's own wheel")
    assert python(KEPT_FOR_DEVELOPERS) == "[]"


def test_headers_come_with_a_compiler(host, python, plan):
    if any(c["name"] == "pytorch" and c["provider"] != "wheel" for c in plan["components"]):
        pytest.skip("not PyTorch's own wheel")
    folder = python("import os, torch; print(os.path.dirname(torch.__file__))")
    has_compiler = any(c["name"] in ("compiler", "cuda-compiler") for c in plan["components"])
    assert host.file(f"{folder}/include/torch/extension.h").exists == has_compiler


def test_triton_compiles(python):
    said = python("import importlib.metadata as m; print([d.version for d in m.distributions(name='triton')])")
    if not re.match(r"\['([3-9]|\d\d)\.", said):
        pytest.skip("the framework has no triton 3")
    assert python(TRITON).splitlines()[-1] == "True"


def test_the_profiler_of_triton_finds_cupti(python):
    said = python("import importlib.metadata as m; print([d.version for d in m.distributions(name='triton')])")
    if not re.match(r"\['([3-9]|\d\d)\.", said):
        pytest.skip("the framework has no triton 3")
    assert "libcupti.so" in python(CUPTI).split()


def test_numpy_testing_works_without_numpys_tests(python):
    assert python("import numpy.testing as t; t.assert_allclose([1.0], [1.0 + 1e-9]); print('ok')") == "ok"


def test_numpy_bridge(python):
    # A torch built for numpy 1 warns at import and fails here under numpy 2.
    assert python("import numpy, torch; print(torch.from_numpy(numpy.ones(3)).sum().item())") == "3.0"


def test_workers_of_a_data_loader(python):
    script = """
import torch
from torch.utils.data import DataLoader, TensorDataset
if __name__ == "__main__":
    data = DataLoader(TensorDataset(torch.arange(64.0)), batch_size=8, num_workers=2)
    print(sum(batch.sum().item() for batch, in data))
"""
    assert python(script) == "2016.0"


@listens
def test_gloo_all_reduce_under_torchrun(host, within):
    host.check_output("printf %%s %s > /tmp/smoke_gloo.py", GLOO)
    # PyTorch 1.9 and older have the launcher under other names; the options are spelt as all of them read them.
    launchers = ["torch.distributed.run", "torch.distributed.launch --use_env"]
    found = [name for name in launchers if host.run(f"python3 -c 'import {name.split()[0]}'").rc == 0]
    launcher = "torchrun" if host.run("command -v torchrun").rc == 0 else f"python3 -m {found[0]}"
    launch = f"{launcher} --nnodes 1 --nproc_per_node 2 --master_addr 127.0.0.1 --master_port 29517 /tmp/smoke_gloo.py"
    done = within(120, f"GLOO_SOCKET_IFNAME=lo OMP_NUM_THREADS=1 {launch}; c=$?; rm -f /tmp/smoke_gloo.py; exit $c")
    assert done.rc == 0, (done.stdout + done.stderr)[-3000:]
    assert sorted(line for line in done.stdout.splitlines() if line.startswith("rank")) == [
        "rank 0 of 2 sum 3",
        "rank 1 of 2 sum 3",
    ]


@pytest.mark.usefixtures("requires_gpu")
def test_gpu_computes(python):
    script = "import torch; a = torch.ones(64, 64, device='cuda'); print((a @ a).sum().item())"
    assert python(script) == "262144.0"
