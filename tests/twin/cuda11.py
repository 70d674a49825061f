"""The twin of the line of CUDA 11.3 on Debian 11: all is real but PyTorch's own wheel, which no package index has.

What stands in for it is torch 1.13.1 of the package index, built for CUDA 11.7, under the other name.

    python -m tests.twin.cuda11 FOLDER --archives ARCHIVES
    ./invoke prove pytorch/cu113 --twin --catalog FOLDER/catalog --site FOLDER/trainwright.toml

ARCHIVES has RMM and what it is compiled with, as ``./invoke archives --write`` makes them from upstream's tags.
"""

from __future__ import annotations

import argparse
import shutil
import zipfile
from pathlib import Path

import yaml

from tests.twin.pack import sha256_of
from tests.twin.standins import from_index
from tests.twin.torch_wheel import relabel_torch
from trainwright.core.data_files import read_yaml
from trainwright.core.paths import images_dir, templates_dir

LINE = "pytorch/cu113"
VERSION, CUDA, FILE = "1.12.1", "11.3", "torch-1.12.1+cu113-cp39-cp39-linux_x86_64.whl"
# The first release whose wheel in the package index is for CUDA 11, and what that requires: the libraries that
# PyTorch's own wheel has inside. Its runtime has a hash in its name there.
NEWER = "1.13.1"
LIBRARIES = {
    "nvidia-cuda-runtime-cu11": "11.7.99",
    "nvidia-cublas-cu11": "11.10.3.66",
    "nvidia-cudnn-cu11": "8.5.0.96",
    "nvidia-cuda-nvrtc-cu11": "11.7.99",
}
HASHED = {"libcudart.so.11.0": "libcudart-a7b20f20.so.11.0"}


def make(folder: Path, archives: Path) -> Path:
    """Make the catalog, the mirror of archives and the site file.

    Args:
        folder: takes them.
        archives: the archives of RMM.

    Returns:
        The stand-in.
    """
    mirror, wheels = folder / "mirror", folder / "wheels"
    for each in (mirror, wheels):
        each.mkdir(parents=True)
    for archive in sorted(archives.glob("*.tar.gz")):
        shutil.copy2(archive, mirror)
    inside = {}
    for name, version in LIBRARIES.items():
        with zipfile.ZipFile(from_index(name, version, wheels)) as wheel:
            for path in (Path(each) for each in wheel.namelist() if ".so" in each):
                inside[f"torch/lib/{HASHED.get(path.name, path.name)}"] = wheel.read(str(path))
    relabel_torch(from_index("torch", NEWER, wheels), mirror / FILE, f"{VERSION}+cu113", CUDA, inside)
    shutil.rmtree(wheels)
    shutil.copytree(images_dir() / LINE, folder / "catalog/images" / LINE)
    _component(folder / "catalog/templates/components/pytorch", sha256_of(mirror / FILE))
    (folder / "trainwright.toml").write_text(f'artifact_mirror = "{mirror.resolve()}"\nlocks = "locks"\n')
    return mirror / FILE


def _component(target: Path, sha256: str) -> None:
    """The shipped component with another checksum for one file, and the cuDNN in it."""
    source = templates_dir() / "components/pytorch"
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    data = read_yaml(source / "component.yaml")
    builds = data["providers"]["index"]["versions"][VERSION]["builds"]
    ((build, row),) = [(build, each) for build in builds for each in build["sources"] if each["file"] == FILE]
    row["sha256"], build["holds"] = sha256, {"cudnn": LIBRARIES["nvidia-cudnn-cu11"]}
    (target / "component.yaml").write_text(yaml.safe_dump(data, sort_keys=False, allow_unicode=True))


if __name__ == "__main__":
    words = argparse.ArgumentParser()
    words.add_argument("folder", type=Path)
    words.add_argument("--archives", type=Path, required=True)
    made = make(**vars(words.parse_args()))
    print(f"{made}  the wheel of torch {NEWER} of the package index with what it requires inside, relabelled")
