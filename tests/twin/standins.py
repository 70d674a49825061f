"""The archives of the twin: for each that a build of the recipe downloads, one that can be made here."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.twin.pack import sha256_of, tar_gz, tree, wheel
from tests.twin.torch_wheel import DEPENDENCIES, relabel_torch, relabel_torchvision
from trainwright.engine.setup import ensure_tool

SHAPES = Path(__file__).with_name("shapes")
PYTHON = "3.9"  # Debian 11 has it where Ubuntu 20.04 has 3.8
TORCH, TORCHVISION = "1.10.2", "0.11.3"
# The files of the package index that two stand-ins are made of.
INDEX_FILES = {
    "torch": (TORCH, "fbaf18c1b3e0b31af194a9d853e3739464cf982d279df9d34dd18f1c2a471878"),
    "torchvision": (TORCHVISION, "eca0b0f7a0e462bdecf7926d89faae6dcd51da418ca0cf70e725981ed775a11b"),
}


class BrokenShape(AssertionError):
    """The recipe wants an archive that no stand-in is there for."""


@dataclass(frozen=True)
class StandIn:
    """One archive of the twin: whose it is, what it is called, what it is made of."""

    component: str
    file: str
    made_of: str
    path: Path

    @property
    def sha256(self) -> str:
        return sha256_of(self.path)


@dataclass(frozen=True)
class Inputs:
    """What stand-ins are made from beside the files in this folder."""

    metis: Path  # Debian's archive of METIS's sources
    wheels: Path  # a folder for wheels of the package index
    values: Mapping[str, str]  # of the twin: versions of what Debian 11 has


Maker = Callable[[Path, str, Inputs], str]


def _shape(name: str, top: str, **more: str) -> Maker:
    """A maker that packs a folder of ``shapes/``; ``{version}`` in ``top`` and ``more`` is filled in."""

    def make(target: Path, version: str, inputs: Inputs) -> str:
        values = {"VERSION": version, **inputs.values, **{k: v.format(version=version) for k, v in more.items()}}
        values |= dict(zip(("MAJOR", "MINOR", "PATCH"), version.split("."), strict=False))
        tar_gz(target, top.format(version=version), tree(SHAPES / name, values))
        return f"a project of the same shape (tests/twin/shapes/{name})"

    return make


def _metis(target: Path, version: str, inputs: Inputs) -> str:
    """Upstream's archive again: Debian's holds the same sources in another folder."""
    files = {}
    with tarfile.open(inputs.metis) as source:
        for entry in source:
            content = source.extractfile(entry) if entry.isreg() else None
            if content is not None:
                files[entry.name.partition("/")[2]] = content.read()
    tar_gz(target, f"metis-{version}", files)
    return "the real sources, out of Debian's source package"


def _boost(target: Path, version: str, inputs: Inputs) -> str:
    major, minor, patch = (int(part) for part in version.split("."))
    number = str(major * 100_000 + minor * 100 + patch)
    return _shape("boost", f"boost_{version.replace('.', '_')}", NUMBER=number, SHORT=f"{major}_{minor}")(
        target, version, inputs
    )


# What AWS's torch asks the system for and that of the package index has built in: MKL (its conda package is in every
# Dockerfile of AWS's up to 1.13; aws/deep-learning-containers#1670), GCC's OpenMP, CUPTI (pytorch/vision#5635).
_MKL = ("libmkl_intel_lp64.so.1", "libmkl_gnu_thread.so.1", "libmkl_core.so.1")
TORCH_NEEDS = (*_MKL, "libgomp.so.1", "libcupti.so.11.3")


def _torch(target: Path, version: str, inputs: Inputs) -> str:
    source = _from_index("torch", inputs.wheels)
    dependencies = linked_library(SHAPES / "torch" / "global_deps.c", "libtorch_global_deps.so", TORCH_NEEDS)
    relabel_torch(source, target, target.name.split("-")[1], "11.3", {DEPENDENCIES: dependencies})
    return "the real wheel of the package index, which is built for CUDA 10.2, relabelled; needs MKL, libgomp and CUPTI"


def _torchvision(target: Path, version: str, inputs: Inputs) -> str:
    relabel_torchvision(_from_index("torchvision", inputs.wheels), target)
    return "the real wheel of the package index, which is built for CUDA 10.2; it does not compare that with torch's"


def _from_index(name: str, folder: Path) -> Path:
    """A wheel of the package index that this machine's pip is set up for."""
    version, sha256 = INDEX_FILES[name]
    found = from_index(name, version, folder)
    assert sha256_of(found) == sha256, found.name
    return found


def from_index(name: str, version: str, folder: Path) -> Path:
    """A wheel of the package index that this machine's pip is set up for, downloaded into a folder."""
    argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    argv += ["--python-version", PYTHON, "--platform", "manylinux1_x86_64", "--dest", str(folder), f"{name}=={version}"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (found,) = folder.glob(f"{name.replace('-', '_')}-{version}-*.whl")
    return found


def linked_library(source: Path, name: str, needed: Sequence[str]) -> bytes:
    """A shared library that names others as needed, which are there only where it is loaded."""
    ensure_tool("gcc", print)
    with tempfile.TemporaryDirectory(prefix="twin-") as scratch:
        folder = Path(scratch)
        for soname in needed:
            stub = ["gcc", "-shared", "-nostdlib", f"-Wl,-soname,{soname}", "-x", "c", "/dev/null", "-o", soname]
            subprocess.run(stub, cwd=folder, check=True)
        words = [
            "gcc",
            "-shared",
            "-fPIC",
            "-O2",
            "-nostdlib",
            "-Wl,--no-as-needed,--build-id=none",
            f"-Wl,-soname,{name}",
        ]
        subprocess.run([*words, "-o", name, str(source), *needed], cwd=folder, check=True)
        return (folder / name).read_bytes()


def _smp(target: Path, version: str, inputs: Inputs) -> str:
    files = {k: v for k, v in tree(SHAPES / "smp", {"VERSION": version}).items() if k.startswith("smdistributed/")}
    library = linked_library(SHAPES / "smp" / "smplib.c", "libsmplib.so", ("libmetis.so", "librmm.so"))
    wheel(target, files | {"smdistributed/modelparallel/libsmplib.so": library}, {})
    return "a wheel of the same name and tags; its library is linked to METIS and RMM"


def _smddp(target: Path, version: str, inputs: Inputs) -> str:
    shape = tree(SHAPES / "smddp", {"VERSION": version})
    needed = ("libboost_filesystem.so.1.73.0", "libmpi.so.40", "libnccl.so.2", "libcudart.so.11.0")
    library = linked_library(SHAPES / "smddp" / "smddpcpp.c", "libsmddpcpp.so", needed)
    files = {k: v for k, v in shape.items() if k.startswith("smdistributed/")}
    scripts = {k.removeprefix("scripts/"): v for k, v in shape.items() if k.startswith("scripts/")}
    wheel(target, files | {"smdistributed/dataparallel/lib/libsmddpcpp.so": library}, scripts)
    return "a wheel of the same name and tags; its library is linked to Boost, MPI, NCCL and the CUDA runtime"


# By component and by how the name of the file begins.
MAKERS: dict[tuple[str, str], Maker] = {
    ("efa", "aws-efa-installer"): _shape("efa", "aws-efa-installer"),
    ("nccl", ""): _shape("nccl", "nccl-{version}-1"),
    ("aws-ofi-nccl", ""): _shape("ofi", "aws-ofi-nccl-{version}-aws"),
    ("metis", ""): _metis,
    ("rmm", "cnmem"): _shape("cnmem", "cnmem-37896cc9bfc6536a8c878a1e675835c22d827821"),
    ("rmm", "spdlog"): _shape("spdlog", "spdlog-1.6.0"),
    ("rmm", "thrust"): _shape("thrust", "thrust-1.9.10"),
    ("rmm", "cub"): _shape("cub", "cub-1.9.10"),
    ("rmm", "rmm"): _shape("rmm", "rmm-{version}"),
    ("boost", ""): _boost,
    ("pytorch", "torch-"): _torch,
    ("torchvision", "torchvision-"): _torchvision,
    ("smdistributed-modelparallel", ""): _smp,
    ("smdistributed-dataparallel", ""): _smddp,
}


def make(component: str, version: str, file: str, folder: Path, inputs: Inputs) -> StandIn:
    """Make the stand-in of one archive.

    Args:
        component: whose archive it is.
        version: of the component.
        file: its name in the recipe; wheels are made for the twin's Python.
        folder: takes it.
        inputs: what it may be made of.

    Raises:
        BrokenShape: there is no stand-in for such a file.
    """
    for (owner, begins), maker in MAKERS.items():
        if owner == component and file.startswith(begins):
            target = folder / file.replace("cp38", f"cp{PYTHON.replace('.', '')}")
            return StandIn(component, target.name, maker(target, version, inputs), target)
    raise BrokenShape(f"{component}: no stand-in for {file}")
