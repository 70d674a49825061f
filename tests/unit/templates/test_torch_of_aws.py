"""AWS's builds of PyTorch ask the system for MKL, OpenMP and CUPTI: the images and the twin have them."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.twin.standins import SHAPES, TORCH_NEEDS, linked_library
from tests.twin.torch_wheel import DEPENDENCIES, relabel_torch
from trainwright.catalog.catalog import load_catalog
from trainwright.catalog.image_line import Line, version_key
from trainwright.catalog.wheel_lock import Lock
from trainwright.core.paths import templates_dir
from trainwright.plan.dockerfile import stages
from trainwright.plan.rendered import render_dockerfile
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve

CATALOG = load_catalog()
FOLDER = templates_dir() / "components" / "pytorch"
LINES = [e for e in CATALOG.lines if (s := e.line.components.get("pytorch")) and s.provider == "aws"]
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")


def test_there_are_old_and_new_ones():
    assert {version_key(each.line.version) < (1, 11) for each in LINES} == {True, False}


@pytest.mark.parametrize("entry", LINES, ids=lambda entry: entry.name)
def test_mkl_is_there_up_to_1_10(entry: Line):
    """With the names that its libraries had before MKL 2022 (aws/deep-learning-containers#1670)."""
    locked = {p.name: p.version for p in Lock.load(entry.lock_path).packages if "pytorch" in p.components}
    old = version_key(entry.line.version) < (1, 11)
    assert locked.get("mkl") == ("2021.4.0" if old else None)
    assert ("intel-openmp" in locked) == old


@pytest.mark.parametrize(("cuda", "version", "mkl"), [("cu113", "1.10.2", True), ("cu117", "1.13.1", False)])
def test_the_image_has_what_torch_asks_for(cuda, version, mkl):
    plan = resolve(make_request(framework="pytorch", cuda=cuda, version=version), CATALOG)
    made = {stage.name: "\n".join(stage.instructions) for stage in stages(render_dockerfile(plan, CATALOG))}
    assert " libgomp1 " in made["os"]
    assert "take_cupti.sh /opt/cupti/lib" in made["pytorch"]
    assert "&& on-loader-path cupti /opt/cupti/lib && settle /opt/cupti" in made["pytorch"]
    assert "COPY --from=pytorch /out/ /" in made["packages"]
    assert ("link_mkl.sh /out" in made["pytorch-layer"]) == mkl


def test_cupti_is_taken_by_the_name_that_programs_ask_for(tmp_path):
    real = tmp_path / "cuda/targets/lib/libcupti.so.2021.1.1"
    real.parent.mkdir(parents=True)
    real.write_bytes(b"not a library")
    listed = tmp_path / "cuda/extras/CUPTI/lib64/libcupti.so.11.3"
    listed.parent.mkdir(parents=True)
    listed.symlink_to(real)
    take = ["sh", str(FOLDER / "take_cupti.sh"), str(tmp_path / "out"), str(tmp_path / "cuda")]
    subprocess.run(take, capture_output=True, check=True)
    assert (tmp_path / "out" / real.name).read_bytes() == b"not a library"


def test_a_toolkit_without_cupti_is_an_error(tmp_path):
    take = ["sh", str(FOLDER / "take_cupti.sh"), str(tmp_path / "out"), str(tmp_path)]
    done = subprocess.run(take, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "-devel-" in done.stderr


def test_mkl_has_its_older_names_as_well(tmp_path):
    lib = tmp_path / "opt" / "venv" / "lib"
    lib.mkdir(parents=True)
    (lib / "libmkl_core.so.1").write_bytes(b"core")
    subprocess.run(["sh", str(FOLDER / "link_mkl.sh"), str(tmp_path)], check=True)
    assert (lib / "libmkl_core.so").read_bytes() == b"core"
    assert (tmp_path / "etc/ld.so.conf.d/mkl.conf").read_text() == "/opt/venv/lib\n"


@needs_gcc
def test_the_twin_s_torch_needs_what_aws_s_does(tmp_path):
    source, target = tmp_path / "torch-1.10.2-cp39-cp39-linux_x86_64.whl", tmp_path / "torch-1.10.2+cu113-cp39.whl"
    with zipfile.ZipFile(source, "w") as wheel:
        wheel.writestr("torch/version.py", "__version__ = '1.10.2'\ncuda = '10.2'\n")
        wheel.writestr(DEPENDENCIES, b"of the package index")
        wheel.writestr("torch-1.10.2.dist-info/METADATA", "Name: torch\nVersion: 1.10.2\n")
        wheel.writestr("torch-1.10.2.dist-info/RECORD", f"torch/version.py,,\n{DEPENDENCIES},,\n")
    library = linked_library(SHAPES / "torch" / "global_deps.c", Path(DEPENDENCIES).name, TORCH_NEEDS)
    relabel_torch(source, target, "1.10.2+cu113", "11.3", {DEPENDENCIES: library})
    with zipfile.ZipFile(target) as wheel:
        inside = wheel.read(DEPENDENCIES)
    for name in ("libmkl_intel_lp64.so.1", "libgomp.so.1", "libcupti.so.11.3"):
        assert name.encode() + b"\0" in inside
