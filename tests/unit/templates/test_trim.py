"""What is taken out of torch's wheels: trim.sh on a folder with the shape of theirs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from trainwright.core.paths import templates_dir

SCRIPT = templates_dir() / "components/pytorch/trim.sh"

# From the RECORD of torch 2.13.0+cpu, torch 2.15.0 and triton 3.9.0, a few of each kind.
KEPT = [
    "torch/__init__.py",
    "torch/testing/_internal/common_utils.py",
    "torch/bin/protoc",
    "torch/bin/torch_shm_manager",
    "torch/lib/libtorch_cpu.so",
    "torch/lib/libgomp-24e2ab19.so.1",
    "torch/_C.cpython-313-x86_64-linux-gnu.so",
    "torchgen/model.py",
    "triton/_C/libtriton.so",
    "triton/backends/nvidia/bin/ptxas",
    "triton/backends/nvidia/lib/cupti/libcupti.so",
    "numpy/_core/lib/libnpymath.a",
]
LEFT_OUT = [
    "torch/test/test_jit",
    "torch/bin/test_api",
    "torch/bin/test_lazy",
    "triton/backends/nvidia/lib/cupti/libcupti_static.a",
    "triton/backends/nvidia/lib/cupti-blackwell/libnvperf_host_static.a",
]


HEADERS = ["torch/include/ATen/ATen.h", "torch/share/cmake/Torch/TorchConfig.cmake"]


@pytest.mark.parametrize("more", [[], ["headers"]])
def test_what_developers_of_torch_need_is_left_out(tmp_path: Path, more: list[str]) -> None:
    kept = KEPT if more else [*KEPT, *HEADERS]
    site, programs, stripped = tmp_path / "site", tmp_path / "bin", tmp_path / "stripped"
    for name in KEPT + HEADERS + LEFT_OUT:
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(name)
    programs.mkdir()
    (programs / "strip").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {stripped}\n')
    (programs / "strip").chmod(0o755)
    subprocess.run(["sh", SCRIPT, site, *more], check=True, env={"PATH": f"{programs}:/usr/bin:/bin"})
    assert sorted(str(path.relative_to(site)) for path in site.rglob("*") if path.is_file()) == sorted(kept)
    said = stripped.read_text().splitlines()
    assert said[0] == "--strip-unneeded"
    files = [line for line in said if not line.startswith("--")]
    assert sorted(files) == [
        "torch/lib/libgomp-24e2ab19.so.1",
        "torch/lib/libtorch_cpu.so",
        "triton/_C/libtriton.so",
        "triton/backends/nvidia/lib/cupti/libcupti.so",
    ]


def test_a_wheel_without_triton(tmp_path: Path) -> None:
    (tmp_path / "torch/lib").mkdir(parents=True)
    subprocess.run(["sh", SCRIPT, tmp_path], check=True)
