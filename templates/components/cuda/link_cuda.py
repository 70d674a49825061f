"""Make /usr/local/cuda below a root folder out of links into the CUDA wheels there, and put it on the loader path.

CUDA 13 wheels hold one tree (``nvidia/cu13``), earlier ones a folder per library (``nvidia/cublas/lib``, ...).
"""

import os
import sys
import sysconfig
from pathlib import Path

ROOT = Path(sys.argv[1] if len(sys.argv) > 1 else "/")
HOME = ROOT / "usr/local/cuda"
NVIDIA = ROOT / sysconfig.get_paths()["purelib"].lstrip("/") / "nvidia"


def link(target: Path, name: Path) -> None:
    """A relative link; the first of several candidates for a name wins."""
    if not name.is_symlink() and not name.exists():
        name.symlink_to(os.path.relpath(target, name.parent))


def main() -> None:
    for kind in ("lib64", "include", "bin"):
        (HOME / kind).mkdir(parents=True, exist_ok=True)
    for package in sorted(p for p in NVIDIA.iterdir() if p.is_dir()):
        for library in sorted((package / "lib").glob("*.so*")):
            link(library, HOME / "lib64" / library.name)
        for header in sorted((package / "include").glob("*")):
            link(header, HOME / "include" / header.name)
    # The wheels have no development links, which -lcudart and dlopen("libcudart.so") ask for.
    for library in sorted((HOME / "lib64").glob("*.so.*")):
        link(library, HOME / "lib64" / (library.name.split(".so.")[0] + ".so"))
    link(HOME / "lib64", HOME / "lib")
    loader = ROOT / "etc/ld.so.conf.d"
    loader.mkdir(parents=True, exist_ok=True)
    (loader / "cuda.conf").write_text("/usr/local/cuda/lib64\n")


main()
