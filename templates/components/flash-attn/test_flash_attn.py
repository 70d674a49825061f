"""FlashAttention: its extension fits this PyTorch, and attention is computed where there is a GPU."""

import pytest

# Half precision has 11 bits: results and gradients of attention over 128 keys differ by thousandths.
SAME_AS_TORCH = """
import torch
from flash_attn import flash_attn_func
torch.manual_seed(0)
pairs = []
for dtype, near in ((torch.float16, 5e-3), (torch.bfloat16, 4e-2)):
    for width in (64, 128):
        ours = [torch.randn(2, 128, 4, width, device="cuda", dtype=dtype, requires_grad=True) for _ in range(3)]
        theirs = [each.detach().clone().requires_grad_() for each in ours]
        one = flash_attn_func(*ours, causal=True)
        flipped = [each.transpose(1, 2) for each in theirs]
        other = torch.nn.functional.scaled_dot_product_attention(*flipped, is_causal=True).transpose(1, 2)
        given = torch.randn_like(one)
        one.backward(given)
        other.backward(given)
        pairs += [(one, other, near)] + [(a.grad, b.grad, near) for a, b in zip(ours, theirs)]
print(all(torch.allclose(a, b, atol=near) for a, b, near in pairs))
"""


def test_its_extension_has_its_functions(python):
    script = """
import torch, flash_attn_2_cuda
print(all(hasattr(flash_attn_2_cuda, name) for name in ("fwd", "varlen_fwd", "bwd", "varlen_bwd", "fwd_kvcache")))
"""
    assert python(script).splitlines()[-1] == "True"


def test_it_is_imported_without_a_gpu(python):
    assert python("from flash_attn import flash_attn_func; print(flash_attn_func.__name__)") == "flash_attn_func"


@pytest.mark.usefixtures("requires_gpu")
def test_attention_and_its_gradients_are_those_of_pytorch(python):
    assert python(SAME_AS_TORCH).splitlines()[-1] == "True"
