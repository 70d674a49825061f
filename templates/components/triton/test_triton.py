"""Triton: it compiles a kernel to machine code, which needs no GPU, and runs one where there is a GPU."""

import pytest

# Triton reads the source of a kernel, so it has to be a file.
KERNEL = """
import torch, triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)

"""
COMPILE = """
kinds = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"}
made = triton.compile(ASTSource(fn=add, signature=kinds, constexprs={"BLOCK": 128}), target=GPUTarget("cuda", 90, 32))
print(".target sm_90" in made.asm["ptx"], made.asm["cubin"][:4])
"""
RUN = """
x, y = torch.arange(1000.0, device="cuda"), torch.ones(1000, device="cuda")
out = torch.empty_like(x)
add[(triton.cdiv(1000, 128),)](x, y, out, 1000, BLOCK=128)
print(bool((out == x + 1).all()))
"""


def run(host, script):
    host.check_output("printf %%s %s > /tmp/smoke_triton.py", script)
    done = host.run("cd /tmp && python3 smoke_triton.py; c=$?; rm -f smoke_triton.py; exit $c")
    assert done.rc == 0, done.stderr[-2000:]
    return done.stdout.strip().splitlines()[-1]


def test_a_kernel_is_compiled_for_hopper(host):
    assert run(host, KERNEL + COMPILE) == "True b'\\x7fELF'"


@pytest.mark.usefixtures("requires_gpu")
def test_a_kernel_runs(host):
    assert run(host, KERNEL + RUN) == "True"
