"""CUDA inside PyTorch's wheel, by the names that other programs ask for: link_framework.sh on a folder of its shape."""

from __future__ import annotations

import subprocess
from pathlib import Path

from trainwright.core.paths import templates_dir

SCRIPT = templates_dir() / "components/cuda/link_framework.sh"
SITE = "opt/venv/lib/python3.9/site-packages/torch/lib"
# Of torch 1.12.1+cu113, as public programs name them that load or package its files.
CUDA = {
    "libcudart-a7b20f20.so.11.0": "libcudart.so.11.0",
    "libcublas.so.11": "libcublas.so.11",
    "libcublasLt.so.11": "libcublasLt.so.11",
    "libcudnn.so.8": "libcudnn.so.8",
    "libcudnn_ops_infer.so.8": "libcudnn_ops_infer.so.8",
    "libnvrtc-1ea278b5.so.11.2": "libnvrtc.so.11.2",
    "libnvrtc-builtins-4730a239.so.11.3": "libnvrtc-builtins.so.11.3",
    "libnvToolsExt-24de1d56.so.1": "libnvToolsExt.so.1",
}
OTHERS = ("libtorch_cuda.so", "libc10_cuda.so", "libgomp-52f2fd74.so.1", "libcaffe2_nvrtc.so", "libshm.so")


def run(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", str(SCRIPT), str(root)], capture_output=True, text=True, check=False)


def wheel(root: Path, names: tuple[str, ...]) -> Path:
    folder = root / SITE
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_text(name)
    return root / "usr/local/cuda"


def test_each_library_has_its_own_name_and_that_of_developers(tmp_path: Path) -> None:
    home = wheel(tmp_path, (*CUDA, *OTHERS))
    assert (done := run(tmp_path)).returncode == 0, done.stderr
    links = {path.name: path.readlink() for path in (home / "lib64").iterdir()}
    # In the image, where the root folder is /.
    assert {name: str(links[name]) for name in CUDA.values()} == {v: f"/{SITE}/{k}" for k, v in CUDA.items()}
    assert str(links["libcudart.so"]) == "libcudart.so.11.0"
    assert str(links["libnvrtc.so"]) == "libnvrtc.so.11.2"
    assert not {"libtorch_cuda.so", "libc10_cuda.so", "libgomp.so.1", "libcaffe2_nvrtc.so"} & links.keys()
    assert (home / "lib").readlink() == Path("lib64")
    assert (tmp_path / "etc/ld.so.conf.d/cuda.conf").read_text() == "/usr/local/cuda/lib64\n"


def test_a_wheel_without_cuda_stops_the_build(tmp_path: Path) -> None:
    wheel(tmp_path, OTHERS)
    done = run(tmp_path)
    assert (done.returncode, done.stderr) == (1, "no CUDA runtime in PyTorch's wheel\n")
