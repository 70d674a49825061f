"""What is taken out of packages: `trim` and `share_cupti.sh` on folders with the shape of real wheels."""

from __future__ import annotations

import base64
import csv
import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tests.support.programs import load_program
from trainwright.core.paths import templates_dir

SHARE_CUPTI = templates_dir() / "components/pytorch/share_cupti.sh"

# From the RECORD of torch 2.13.0+cpu, numpy 2.4.6, scipy 1.17.1, triton 3.2.0, 3.5.1 and 3.9.0, a few of each kind.
KEPT = [
    "numpy/_core/tests/__init__.py",
    "numpy/_core/tests/_natype.py",
    "scipy/stats/_stats_py.py",
    "torch/__init__.py",
    "torch/testing/_internal/common_utils.py",
    "torch/fx/passes/tests/test_pass_manager.py",  # torch's own modules were not searched
    "torch/bin/torch_shm_manager",
    "torch/lib/libtorch_cpu.so",
    "triton/_C/libtriton.so",
    "triton/backends/nvidia/bin/ptxas",
    "triton/backends/nvidia/lib/cupti/libcupti.so",
    "triton/backends/amd/compiler.py",
    "werkzeug/test.py",
]
LEFT_OUT = [
    "numpy/_core/tests/test_dtype.py",
    "numpy/_core/tests/data/umath-validation-set-sin.csv",
    "scipy/stats/tests/test_stats.py",
    "scipy/stats/tests/data/nist_anova/SmLs09.dat",
    "torch/test/test_jit",
    "torch/bin/test_api",
    "torch/bin/TCPStoreTest",
    "torch/lib/libtorchbind_test.so",
    "triton/FileCheck",
    "triton/backends/nvidia/lib/cupti/libcupti_static.a",
    "triton/backends/amd/lib/libtriton_amd_codegen.so",
    "triton/instrumentation/libGPUInstrumentationTestLib.so",
]
COMPILER_ONLY = ["torch/include/ATen/ATen.h", "torch/bin/protoc-3.13.0.0", "triton/backends/nvidia/bin/nvdisasm"]


@pytest.fixture(scope="module")
def trim() -> ModuleType:
    return load_program("tools/python/trim")


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A library with symbols, compiled here."""
    source, made = tmp_path / "it.c", tmp_path / "it.so"
    names = "".join(f"static int hidden_{n}(void) {{ return {n}; }}\n" for n in range(300))
    calls = " + ".join(f"hidden_{n}()" for n in range(300))
    source.write_text(f"{names}int answer(void) {{ return {calls} - 44808; }}\n")
    subprocess.run(["gcc", "-g", "-O0", "-shared", "-fPIC", "-o", made, source], check=True)
    return made


def patterns(*, compiles: bool) -> list[str]:
    """The patterns in the template of torch."""
    text = (templates_dir() / "components/pytorch/Dockerfile.j2").read_text()
    lists = dict(re.findall(r"{% set (_\w+) = \[(.*?)\] %}", text, re.DOTALL))
    return re.findall(r'"([^"]+)"', lists["_developers"] + ("" if compiles else lists["_compilers"]))


@pytest.mark.parametrize("compiles", [False, True])
def test_what_jobs_do_not_need_is_left_out(trim: ModuleType, tmp_path: Path, compiles: bool) -> None:
    for name in KEPT + LEFT_OUT + COMPILER_ONLY:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    trim.main(str(tmp_path), patterns(compiles=compiles))
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert found == sorted(KEPT + COMPILER_ONLY * compiles)


def test_symbols_go_and_the_library_still_works(trim: ModuleType, library: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "pkg-1.dist-info").mkdir(parents=True)
    mine = Path(shutil.copy(library, site / "it.so"))
    mine.chmod(0o555)
    (site / "pkg-1.dist-info/RECORD").write_text("it.so,sha256=x,1\ngone.py,sha256=y,2\npkg-1.dist-info/RECORD,,\n")
    trim.main(str(site), [])
    assert mine.stat().st_size < library.stat().st_size - 16384 and mine.stat().st_mode & 0o777 == 0o555
    assert b"hidden_7" in library.read_bytes() and b"hidden_7" not in mine.read_bytes()
    assert ctypes.CDLL(str(mine)).answer() == sum(range(300)) - 44808
    rows = list(csv.reader((site / "pkg-1.dist-info/RECORD").open()))
    digest = base64.urlsafe_b64encode(hashlib.sha256(mine.read_bytes()).digest()).decode().rstrip("=")  # PEP 376
    assert rows == [["it.so", f"sha256={digest}", str(mine.stat().st_size)], ["pkg-1.dist-info/RECORD", "", ""]]
    assert not list(site.glob("*.stripped"))


@pytest.mark.parametrize("ruin", ["changes a byte", "moves a segment", "fails"])
def test_a_library_that_strip_would_ruin_stays(
    trim: ModuleType, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ruin: str
) -> None:
    broken = {
        "changes a byte": "data[5000] ^= 1",
        "moves a segment": "at = int.from_bytes(data[32:40], 'little'); data[at + 8] ^= 16",
        "fails": "sys.exit(1)",
    }[ruin]
    program = tmp_path / "bin/strip"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nimport sys\ndata = bytearray(open(sys.argv[-1], 'rb').read())\n{broken}\n"
        "open(sys.argv[-2], 'wb').write(data)\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    site = tmp_path / "site"
    site.mkdir()
    mine = Path(shutil.copy(library, site / "it.so"))
    trim.main(str(site), [])
    assert mine.read_bytes() == library.read_bytes() and [path.name for path in site.iterdir()] == ["it.so"]


def test_layers_of_components_are_trimmed_and_the_users_are_not() -> None:
    environment = Environment(loader=FileSystemLoader(templates_dir()), undefined=StrictUndefined)
    environment.filters["filled"] = lambda text, *_: text
    macros = environment.from_string(
        '{% import "macros.j2" as docker with context %}{{ docker.install(c, without=["a/b"]) }}'
    )
    install = [macros.render(plan=None, c={"name": name, "wheels": True, "gpus": ()}) for name in ("metis", "user")]
    assert "&& /opt/tools/trim 'a/b' \\\n    && settle" in re.sub(r"\s*\n\s*", "\n    ", install[0])
    assert "trim" not in install[1] and "/opt/tools/into-layer" in install[1]


CUPTI = "triton/backends/nvidia/lib/cupti"


@pytest.mark.parametrize(
    ("cuda", "folder", "expected"),
    [
        ("12", "nvidia/cuda_cupti/lib", "nvidia/cuda_cupti/lib/libcupti.so.12"),  # PyTorch 2.6.0's wheels
        ("13", "nvidia/cu13/lib", f"{CUPTI}/libcupti.so.12"),  # triton 3.9.0 has one for each; this is the older
    ],
)
def test_one_cupti(tmp_path: Path, cuda: str, folder: str, expected: str) -> None:
    for path in (f"{folder}/libcupti.so.{cuda}", f"{folder}/libnvperf_host.so"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("NVIDIA's")
    for name in ("libcupti.so", "libcupti.so.12", "libcupti.so.2024.1.0", "libnvperf_host.so"):
        (tmp_path / CUPTI).mkdir(parents=True, exist_ok=True)
        (tmp_path / CUPTI / name).write_text("triton's")
    subprocess.run(["sh", SHARE_CUPTI, tmp_path, cuda], check=True)
    for name in ("libcupti.so", "libcupti.so.12", "libcupti.so.2024.1.0"):
        assert (tmp_path / CUPTI / name).resolve() == tmp_path / expected, name
    assert (tmp_path / CUPTI / "libnvperf_host.so").read_text() == ("NVIDIA's" if cuda == "12" else "triton's")


def test_without_triton(tmp_path: Path) -> None:
    subprocess.run(["sh", SHARE_CUPTI, tmp_path, "12"], check=True)
    assert not list(tmp_path.iterdir())
