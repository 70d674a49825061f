"""The compiler of the image makes a program that runs, and torch.compile can use it."""

import pytest


def test_compiles_and_runs_a_program(host):
    source = '#include <cstdio>\\nint main() { std::puts(\\"compiled\\"); }'
    done = host.run(f'cd "$(mktemp -d)" && printf "{source}" > a.cpp && g++ -o a a.cpp && ./a')
    assert done.rc == 0, done.stderr
    assert done.stdout.strip() == "compiled"


def test_torch_compile(host, plan):
    if not any(c["name"] == "pytorch" for c in plan["components"]):
        pytest.skip("no PyTorch in this image")
    script = "import torch; print(float(torch.compile(lambda x: x * 2 + 1)(torch.ones(3)).sum()))"
    done = host.run(f"cd /tmp && python3 -c '{script}'")
    assert done.rc == 0, done.stderr[-2000:]
    assert done.stdout.strip().splitlines()[-1] == "9.0"
