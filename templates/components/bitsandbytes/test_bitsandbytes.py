"""bitsandbytes: its compiled library quantises, on the GPU where there is one and on the CPU where not."""

import pytest

# Of a normal distribution, 16 values at its quantiles are less than a tenth away on average.
ROUND_TRIP = """
import torch
import bitsandbytes.functional as F
torch.manual_seed(0)
data = torch.randn(64, 64, device="{device}")
packed, state = F.quantize_4bit(data, quant_type="nf4")
back = F.dequantize_4bit(packed, state)
print(packed.dtype, packed.numel(), tuple(back.shape), bool((back - data).abs().mean() < 0.1))
"""


def test_four_bits_there_and_back_on_the_cpu(python):
    # Two values in a byte: 64 * 64 / 2.
    assert python(ROUND_TRIP.format(device="cpu")).splitlines()[-1] == "torch.uint8 2048 (64, 64) True"


@pytest.mark.usefixtures("requires_gpu")
def test_four_bits_there_and_back_on_the_gpu(python):
    assert python(ROUND_TRIP.format(device="cuda")).splitlines()[-1] == "torch.uint8 2048 (64, 64) True"


@pytest.mark.usefixtures("requires_gpu")
def test_an_optimizer_in_8_bits_learns(python):
    script = """
import torch, bitsandbytes
torch.manual_seed(0)
model = torch.nn.Linear(64, 64).cuda()
optimizer = bitsandbytes.optim.Adam8bit(model.parameters(), lr=0.01, min_8bit_size=1)
x = torch.randn(128, 64, device="cuda")
losses = []
for _ in range(50):
    loss = ((model(x) - x) ** 2).mean()
    losses.append(float(loss))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(losses[-1] < 0.5 * losses[0])
"""
    assert python(script).splitlines()[-1] == "True"
