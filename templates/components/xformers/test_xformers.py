"""xformers: its compiled operators fit this PyTorch, and attention is computed where there is a GPU."""

import pytest


def test_operators_are_registered(python):
    # A build for another PyTorch or CUDA is imported with a warning, and has none of them. Attention is PyTorch's or
    # Triton's own; what the wheel compiles is csrc/sparse24 (xformers v0.0.33.post2 and v0.0.35, sparse24_pack.cu).
    script = """
import torch, xformers.ops
name = "xformers::sparse24_sparsify_both_ways"
print(torch._C._dispatch_has_kernel(name) and torch._C._dispatch_has_kernel_for_dispatch_key(name, "CUDA"))
"""
    assert python(script).splitlines()[-1] == "True"


@pytest.mark.usefixtures("requires_gpu")
def test_attention_is_that_of_pytorch(python):
    script = """
import torch, xformers.ops
torch.manual_seed(0)
q, k, v = (torch.randn(2, 32, 4, 64, device="cuda", dtype=torch.float16) for _ in range(3))
ours = xformers.ops.memory_efficient_attention(q, k, v)
theirs = torch.nn.functional.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2)
print(bool(torch.allclose(ours, theirs, atol=2e-3)))
"""
    assert python(script).splitlines()[-1] == "True"
