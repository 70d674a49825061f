"""Transformer Engine: its three packages belong together and load; on a GPU its layers compute what PyTorch's do."""

import json

import pytest

# The driver is the host's; it is there when a job runs on a GPU.
OF_THE_HOST = "libcuda.so.1"

# bfloat16 has 8 bits of precision: two results of sums over 256 products differ by a few hundredths at most.
SAME_AS_TORCH = """
import torch, transformer_engine.pytorch as te
torch.manual_seed(0)
theirs = torch.nn.Linear(256, 128, device="cuda", dtype=torch.bfloat16)
ours = te.Linear(256, 128, params_dtype=torch.bfloat16)
with torch.no_grad():
    ours.weight.copy_(theirs.weight)
    ours.bias.copy_(theirs.bias)
one = torch.randn(64, 256, device="cuda", dtype=torch.bfloat16, requires_grad=True)
other = one.detach().clone().requires_grad_()
theirs(one).sum().backward()
ours(other).sum().backward()
pairs = [(ours(other), theirs(one)), (other.grad, one.grad), (ours.weight.grad, theirs.weight.grad)]
print(all(torch.allclose(a.float(), b.float(), rtol=0.05, atol=0.05) for a, b in pairs))
"""

# Eight bits of floating point have 3 bits of precision: a tenth away on average is too much for it to have computed.
EIGHT_BITS = """
import torch, transformer_engine.pytorch as te
from transformer_engine.common.recipe import DelayedScaling
if not te.fp8.check_fp8_support()[0]:
    print("this GPU has none")
    raise SystemExit
torch.manual_seed(0)
layer = te.Linear(256, 128, bias=False, params_dtype=torch.bfloat16)
data = torch.randn(64, 256, device="cuda", dtype=torch.bfloat16)
with te.fp8_autocast(enabled=True, fp8_recipe=DelayedScaling()):
    layer(data)
    result = layer(data)
result.sum().backward()
exact = data.float() @ layer.weight.float().T
print(bool((result.float() - exact).abs().mean() < 0.1 * exact.abs().mean()) and layer.weight.grad is not None)
"""


def test_its_packages_have_one_version(python):
    # Importing it compares them, too, and fails; this says which differs.
    script = """
import importlib.metadata, json, re
names = {re.sub("[-_.]+", "-", d.metadata["Name"]).lower(): d.version for d in importlib.metadata.distributions()}
print(json.dumps({name: v for name, v in names.items() if name.startswith("transformer-engine")}))
"""
    found = json.loads(python(script).splitlines()[-1])
    assert len(found) == 3
    assert len({*found.values()}) == 1, found


def test_its_core_is_of_the_image_s_cuda(python, plan):
    script = """
import importlib.metadata
names = [d.metadata["Name"].replace("-", "_") for d in importlib.metadata.distributions()]
print(*(name for name in names if name.startswith("transformer_engine_cu")))
"""
    assert python(script).splitlines()[-1] == f"transformer_engine_cu{plan['cuda'].split('.')[0]}"


def test_it_is_imported_without_a_gpu(python):
    script = """
import transformer_engine.pytorch as te, transformer_engine_torch
print(te.Linear.__name__, hasattr(transformer_engine_torch, "generic_gemm"))
"""
    assert python(script).splitlines()[-1] == "Linear True"


def test_nothing_is_missing(host, python):
    # As it is when PyTorch has loaded the libraries of CUDA: those are in folders of the environment.
    script = """
import torch, transformer_engine.common as common
print(common._get_shared_object_file("core"))
"""
    core = python(script).splitlines()[-1]
    lines = host.check_output("ldd %s", core).splitlines()
    missing = {line.split()[0] for line in lines if "not found" in line} - {OF_THE_HOST}
    loaded = python(f"import torch, ctypes; [ctypes.CDLL(name) for name in {sorted(missing)!r}]; print(True)")
    assert loaded.splitlines()[-1] == "True"


@pytest.mark.usefixtures("requires_gpu")
def test_a_layer_computes_what_pytorch_s_does(python):
    assert python(SAME_AS_TORCH).splitlines()[-1] == "True"


@pytest.mark.usefixtures("requires_gpu")
def test_a_layer_in_8_bits(python):
    said = python(EIGHT_BITS).splitlines()[-1]
    if said == "this GPU has none":
        pytest.skip("the GPU has no 8-bit floating point")
    assert said == "True"
