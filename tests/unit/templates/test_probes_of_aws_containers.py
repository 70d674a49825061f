"""The probes of base images, run on the files that AWS's Dockerfiles put where a probe looks.

A layout is what the Dockerfile of one container says, read in aws/deep-learning-containers: where things are, what they
are called, and the environment. What a compiled library answers is compiled here.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.probe_program import probe_program
from trainwright.catalog.catalog import load_catalog
from trainwright.catalog.image_line import BASE

COMPONENTS = load_catalog().components
OPENMPI, EFA, PLUGIN = "/opt/amazon/openmpi", "/opt/amazon/efa", "/opt/amazon/ofi-nccl"


@dataclass(frozen=True)
class Layout:
    """One container: what it must be found to hold, and how it is laid out.

    Attributes:
        versions: of components.
        plugin: the file of NCCL's plugin for EFA.
        nccl: the file of NCCL, ``{purelib}`` is Python's folder of packages.
        cuda: the runtime's file.
        paths: ``LD_LIBRARY_PATH``.
        wrapper: what ``mpirun`` is, with the real one beside it.
        gdrcopy: files of GDRCopy's library; the first has the content, others link to it unless they are ``copies``.
    """

    versions: dict[str, str]
    plugin: str
    nccl: str
    cuda: str
    paths: str
    wrapper: str
    gdrcopy: tuple[str, ...] = ()
    copies: bool = False


# Written by scripts/docker/common/install_efa_amzn2023.sh, and by the Dockerfiles for Ubuntu alike.
BY_PATH = f'{OPENMPI}/bin/mpirun.real --allow-run-as-root "$@"'
BY_NAME = 'mpirun.real --allow-run-as-root "$@"'  # of TensorFlow
SITE = "{purelib}/nvidia/nccl/lib"

LAYOUTS = {
    # docker/pytorch/Dockerfile.cuda, f1e622e4, 2026-07-22, with the arguments of 2.13 (pytorch/2.13.0-cu133). COPY of
    # /usr/local/lib/libgdrapi.so* makes files of links (moby/moby#40449).
    "pytorch 2.13 on Amazon Linux 2023": Layout(
        versions={
            "cuda": "13.3",
            "efa": "1.49.0",
            "openmpi": "4.1.7",
            "aws-ofi-nccl": "1.20.0",
            "nccl": "2.29.7",
            "gdrcopy": "2.6",
        },
        plugin=f"{PLUGIN}/lib64/libnccl-net-ofi.so",
        nccl=f"{SITE}/libnccl.so.2",
        cuda="/usr/local/cuda/lib64/libcudart.so.13.3.0",
        paths=f"{SITE}:{PLUGIN}/lib64:{OPENMPI}/lib:{OPENMPI}/lib64:{EFA}/lib:{EFA}/lib64:/usr/local/cuda/lib64:/usr/local/lib",
        wrapper=BY_PATH,
        gdrcopy=("libgdrapi.so.2.6", "libgdrapi.so.2", "libgdrapi.so"),
        copies=True,
    ),
    # docker/tensorflow/2.21/Dockerfile.cuda, bd790b3b, 2026-07-09: Open MPI compiled, NCCL copied from its wheel.
    "tensorflow 2.21 on Amazon Linux 2023": Layout(
        versions={"cuda": "12.9", "efa": "1.49.0", "openmpi": "4.1.8", "aws-ofi-nccl": "1.20.0", "nccl": "2.30.7"},
        plugin=f"{PLUGIN}/lib64/libnccl-net-ofi.so",
        nccl="/usr/local/cuda/lib64/libnccl.so.2",
        cuda="/usr/local/cuda/lib64/libcudart.so.12.9.79",
        paths=f"{OPENMPI}/lib:{EFA}/lib:{PLUGIN}/lib64:/usr/local/cuda/lib64:/usr/local/lib",
        wrapper=BY_NAME,
    ),
    # pytorch/training/docker/2.6/py3/cu126/Dockerfile.gpu, dd3ba464, 2026-01-28: GDRCopy and NCCL are compiled, and the
    # plugin is not on the loader's path.
    "pytorch 2.6 on Ubuntu": Layout(
        versions={
            "cuda": "12.6",
            "efa": "1.38.0",
            "openmpi": "4.1.7",
            "aws-ofi-nccl": "1.13.2",
            "nccl": "2.23.4",
            "gdrcopy": "2.5",
        },
        plugin=f"{PLUGIN}/lib/x86_64-linux-gnu/libnccl-net.so",
        nccl="/usr/local/lib/libnccl.so.2",
        cuda="/usr/local/cuda/lib64/libcudart.so.12.6.77",
        paths=f"{OPENMPI}/lib:{EFA}/lib:/lib/x86_64-linux-gnu:/usr/local/lib",
        wrapper=BY_PATH,
        gdrcopy=("libgdrapi.so.2.5", "libgdrapi.so.2", "libgdrapi.so"),
    ),
    # pytorch/training/docker/2.8/py3/cu129/Dockerfile.gpu, 9efd525e, 2026-07-16: NCCL is in PyTorch's wheel; GDRCopy is
    # v2.5.1, whose library says 2.5.
    "pytorch 2.8 on AWS's base": Layout(
        versions={
            "cuda": "12.9",
            "efa": "1.43.1",
            "openmpi": "4.1.7",
            "aws-ofi-nccl": "1.16.2",
            "nccl": "2.27.3",
            "gdrcopy": "2.5",
        },
        plugin=f"{PLUGIN}/lib/x86_64-linux-gnu/libnccl-net.so",
        nccl=f"{SITE}/libnccl.so.2",
        cuda="/usr/local/cuda/lib64/libcudart.so.12.9.79",
        paths=f"/usr/local/lib:{PLUGIN}/lib/x86_64-linux-gnu:{OPENMPI}/lib:{EFA}/lib:/usr/local/cuda/lib64",
        wrapper=BY_PATH,
        gdrcopy=("libgdrapi.so.2.5", "libgdrapi.so.2", "libgdrapi.so"),
    ),
    # tensorflow/training/docker/2.19/py3/cu125/Dockerfile.gpu, d9590225, 2026-02-16: libnccl2 is a package.
    "tensorflow 2.19 on Ubuntu": Layout(
        versions={"cuda": "12.5", "efa": "1.40.0", "openmpi": "4.1.8", "aws-ofi-nccl": "1.14.2", "nccl": "2.22.3"},
        plugin=f"{PLUGIN}/lib/x86_64-linux-gnu/libnccl-net.so",
        nccl="/usr/lib/x86_64-linux-gnu/libnccl.so.2",
        cuda="/usr/local/cuda/lib64/libcudart.so.12.5.82",
        paths=f"/usr/local/lib:{OPENMPI}/lib/:{EFA}/lib/:/usr/lib/x86_64-linux-gnu",
        wrapper=BY_NAME,
    ),
    # pytorch/training/docker/2.3/py3/cu121/Dockerfile.gpu, 1059e445, 2024-05-24: the plugin is conda's, of any
    # version.
    "pytorch 2.3 with conda": Layout(
        versions={
            "cuda": "12.1",
            "efa": "1.32.0",
            "openmpi": "4.1.6",
            "aws-ofi-nccl": "1.9.1",
            "nccl": "2.21.5",
            "gdrcopy": "2.4",
        },
        plugin="/opt/conda/lib/libnccl-net.so",
        nccl="/usr/local/lib/libnccl.so.2",
        cuda="/usr/local/cuda/lib64/libcudart.so.12.1.55",
        paths=f"{OPENMPI}/lib/:{EFA}/lib/:/opt/conda/lib:/usr/local/lib",
        wrapper=BY_PATH,
        gdrcopy=("libgdrapi.so.2.4", "libgdrapi.so.2", "libgdrapi.so"),
    ),
    # pytorch/training/docker/1.13/py3/cu117/Dockerfile.gpu, fbd46a1e, 2024-07-26: Open MPI and the plugin are compiled.
    "pytorch 1.13 with conda": Layout(
        versions={
            "cuda": "11.7",
            "efa": "1.19.0",
            "openmpi": "4.1.1",
            "aws-ofi-nccl": "1.4.0",
            "nccl": "2.14.3",
            "gdrcopy": "2.3",
        },
        plugin="/usr/local/lib/libnccl-net.so",
        nccl="/usr/local/lib/libnccl.so.2",
        cuda="/usr/local/cuda/lib64/libcudart.so.11.7.99",
        paths=f"{OPENMPI}/lib/:{EFA}/lib/:/opt/conda/lib:/usr/local/lib",
        wrapper=BY_PATH,
        gdrcopy=("libgdrapi.so.2.3", "libgdrapi.so.2", "libgdrapi.so"),
    ),
}


program = pytest.fixture(scope="module")(probe_program)


def library(file: Path, source: str) -> None:
    """Compile a shared library."""
    file.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cc", "-shared", "-x", "c", "-o", file, "-"], input=source, text=True, check=True)


def script(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)


def lay_out(layout: Layout, root: Path) -> Mapping[str, str]:
    """Write the files of a container below a folder; its environment."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", root / "opt/venv"], check=True)
    (purelib,) = (root / "opt/venv/lib").glob("python3*/site-packages")

    def at(path: str) -> Path:
        return Path(path.replace("{purelib}", str(purelib))) if path.startswith("{") else root / path.lstrip("/")

    has = layout.versions
    # The last line of efa_installer.sh's record, as of every release that AWS's containers have.
    at(EFA).mkdir(parents=True)
    at("/opt/amazon/efa_installed_packages").write_text(f"# EFA installer version: {has['efa']}\n")
    # Open MPI 4.1, orte/orted/orted_submit.c: the project is Open MPI only if the program is called mpirun.
    said = f"mpirun.real (OpenRTE) {has['openmpi']}\n\nReport bugs to http://www.open-mpi.org/community/help/"
    script(at(f"{OPENMPI}/bin/mpirun.real"), f"#!/bin/sh\ncat <<'END'\n{said}\nEND\n")
    script(at(f"{OPENMPI}/bin/mpirun"), f"#!/bin/bash\n{layout.wrapper.replace('/opt/', f'{root}/opt/')}\n")
    script(at(f"{OPENMPI}/bin/orted"), "#!/bin/sh\n")
    at(layout.plugin).parent.mkdir(parents=True, exist_ok=True)
    at(layout.plugin).write_bytes(
        b"\0%s:%d NET/OFI Initializing aws-ofi-nccl " + has["aws-ofi-nccl"].encode() + b"\n\0"
    )
    major, minor, patch = map(int, has["nccl"].split("."))
    number = major * 10000 + minor * 100 + patch  # NCCL_VERSION of nccl.h
    library(at(layout.nccl), f"int ncclGetVersion(int *version) {{ *version = {number}; return 0; }}")
    at(layout.cuda).parent.mkdir(parents=True, exist_ok=True)
    at(layout.cuda).touch()
    at(layout.cuda).with_name("libcudart.so").symlink_to(at(layout.cuda))
    for name in layout.gdrcopy:
        file, first = at(f"/usr/local/lib/{name}"), at(f"/usr/local/lib/{layout.gdrcopy[0]}")
        if name == layout.gdrcopy[0] or layout.copies:
            # src/gdrapi.c of NVIDIA/gdrcopy.
            major, minor = map(int, has["gdrcopy"].split("."))
            says = f"{{ *major = {major}; *minor = {minor}; }}"
            library(file, f"void gdr_runtime_get_version(int *major, int *minor) {says}")
        else:
            file.symlink_to(first.name)
    programs = (at("/opt/venv/bin"), at(f"{OPENMPI}/bin"), "/usr/sbin", "/usr/bin", "/sbin", "/bin")
    loader = ":".join(str(at(folder)) for folder in layout.paths.split(":"))
    return {"PATH": ":".join(map(str, programs)), "LD_LIBRARY_PATH": loader}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_probe_finds_what_the_container_has(
    name: str, program: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = LAYOUTS[name]
    for key, value in lay_out(layout, tmp_path).items():
        monkeypatch.setenv(key, value)
    found = {component: looked_for(component, program, tmp_path) for component in layout.versions}
    assert {component: facts.get("version", facts) for component, facts in found.items()} == layout.versions


def looked_for(component: str, program: ModuleType, root: Path) -> Mapping[str, str]:
    """What the probe of a component finds in a base image whose files are in a folder."""
    own = COMPONENTS[component].component
    steps = [step.as_json() for step in own.providers[BASE].probe or own.probe]
    for step in steps:
        for kind in step.keys() & {"run", "python"}:
            for folder in ("/opt/", "/usr/local/"):
                step[kind] = (step[kind] or "").replace(folder, f"{root}{folder}")
    facts: Mapping[str, str] = program.facts([{"component": component, **step} for step in steps])[component]
    return facts


# Conda keeps a file for each package, called after its name, version and build. The first is in conda_env_setup.sh
# (aws-samples/awsome-distributed-training, 44701fda, 3.test_cases/17.SM-modelparallelv2, 2024-03-28); of the second, a
# later state of that script has the pattern 2.3.1=sm_py3.11_cuda12.1_*smp_2.4.0* alone.
@pytest.mark.parametrize(
    ("build", "version"),
    [
        ("pytorch-2.2.0-sm_py3.10_cuda12.1_cudnn8.9.5_nccl_pt_2.2_tsm_2.2_cuda12.1_0", "2.2"),
        ("pytorch-2.3.1-sm_py3.11_cuda12.1_cudnn8.9.5_nccl_pt_2.3_smp_2.4.0_cuda12.1_0", "2.4.0"),
        ("pytorch-2.3.1-py3.11_cuda12.1_cudnn8.9.2_0", None),  # PyTorch's own
    ],
)
def test_model_parallel_2_is_in_conda_s_pytorch(
    build: str, version: str | None, program: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conda = tmp_path / "opt/conda"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", conda], check=True)
    (conda / "conda-meta").mkdir()
    (conda / "conda-meta" / f"{build}.json").write_text("{}")
    monkeypatch.setenv("PATH", f"{conda}/bin:/usr/bin:/bin")
    assert looked_for("smdistributed-modelparallel", program, tmp_path).get("version") == version


def test_model_parallel_1_is_a_package(program: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "opt/conda"], check=True)
    (site,) = (tmp_path / "opt/conda/lib").glob("python3*/site-packages")
    info = site / "smdistributed_modelparallel-1.15.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: smdistributed-modelparallel\nVersion: 1.15.0\n")
    monkeypatch.setenv("PATH", f"{tmp_path}/opt/conda/bin:/usr/bin:/bin")
    assert looked_for("smdistributed-modelparallel", program, tmp_path)["version"] == "1.15.0"
