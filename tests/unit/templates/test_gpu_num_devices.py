"""What tells torch/XLA how many GPUs there are: the device files, what CUDA is told to show, and who comes first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainwright.core.paths import templates_dir

FOLDER = templates_dir() / "components" / "torch-xla"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    import gpu_num_devices  # type: ignore[import-not-found]

    return gpu_num_devices


@pytest.fixture
def devices(tmp_path: Path) -> str:
    """Four GPUs, and what lies beside them."""
    for name in ("nvidia0", "nvidia1", "nvidia2", "nvidia3", "nvidiactl", "nvidia-uvm", "nvidia-caps", "null"):
        (tmp_path / name).touch()
    return str(tmp_path)


@pytest.mark.parametrize(
    ("chosen", "count"),
    [
        (None, "4"),
        ("0,1", "2"),
        ("GPU-8932f937-d72c, 3", "2"),
        ("2", "1"),
        ("0,-1,1", "1"),
        ("0,1,2,3,4,5,6,7", "4"),
        ("", None),
        ("-1", None),
    ],
)
def test_counts_what_cuda_would_show(module: Any, devices: str, chosen: str | None, count: str | None) -> None:
    environment = {} if chosen is None else {"CUDA_VISIBLE_DEVICES": chosen}
    module.export(environment, devices)
    assert environment.get("GPU_NUM_DEVICES") == count


def test_leaves_alone_what_somebody_said(module: Any, devices: str) -> None:
    environment = {"GPU_NUM_DEVICES": "8"}
    module.export(environment, devices)
    assert environment["GPU_NUM_DEVICES"] == "8"


def test_says_nothing_without_gpus(module: Any, tmp_path: Path) -> None:
    environment: dict[str, str] = {}
    module.export(environment, str(tmp_path))
    module.export(environment, str(tmp_path / "missing"))
    assert environment == {}


def test_every_python_process_runs_it_and_hands_it_on(tmp_path: Path, devices: str) -> None:
    # As the image has it: a .pth file in site-packages; here a user's site folder stands for that.
    site = tmp_path / "base" / "lib" / "python{}.{}".format(*sys.version_info[:2]) / "site-packages"
    site.mkdir(parents=True)
    source = (FOLDER / "gpu_num_devices.py").read_text().replace('devices="/dev"', f"devices={devices!r}")
    (site / "gpu_num_devices.py").write_text(source)
    (site / "gpu_num_devices.pth").write_text("import gpu_num_devices; gpu_num_devices.export()\n")
    script = "import os, subprocess; subprocess.run(['/bin/sh', '-c', 'echo $GPU_NUM_DEVICES'])"
    environment = {**os.environ, "PYTHONUSERBASE": str(tmp_path / "base")}
    environment.pop("GPU_NUM_DEVICES", None)
    python = Path(sys.base_prefix) / "bin" / "python3"
    done = subprocess.run([python, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "4\n"
