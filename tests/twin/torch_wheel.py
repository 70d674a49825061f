"""Wheels of the package index, relabelled as those for CUDA 11.3 that AWS or PyTorch built."""

from __future__ import annotations

import re
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path

from tests.twin.pack import record_row

_ZIP_TIME = (2022, 1, 27, 20, 0, 0)


# What torch loads first, for all others to find it (torch/__init__.py, _load_global_deps).
DEPENDENCIES = "torch/lib/libtorch_global_deps.so"


def relabel_torch(source: Path, target: Path, version: str, cuda: str, more: Mapping[str, bytes]) -> None:
    """Copy a wheel of torch under another local version and CUDA version; what else is compiled in it stays as it is.

    Args:
        source: the wheel, of the same version without its local part, or of a newer one.
        target: the new wheel, whose name must hold ``version``.
        version: such as ``1.10.2+cu113``.
        cuda: what ``torch.version.cuda`` is to say.
        more: files that it gets, by their paths in the wheel.
    """
    with zipfile.ZipFile(source) as wheel:
        said = wheel.read("torch/version.py").decode()
    lines = [line for line in said.splitlines() if not line.startswith(("__version__", "cuda"))]
    text = "\n".join([f"__version__ = {version!r}", f"cuda = {cuda!r}", *lines]) + "\n"
    _rewrite(source, target, version, {"torch/version.py": text.encode(), **more})


def relabel_torchvision(source: Path, target: Path) -> None:
    """Copy a wheel of torchvision, which then takes a torch that is built for another CUDA version."""
    path = "torchvision/extension.py"
    with zipfile.ZipFile(source) as wheel:
        text = wheel.read(path).decode()
    check = "if t_major != tv_major or t_minor != tv_minor:"
    assert text.count(check) == 1
    _rewrite(source, target, source.name.split("-")[1], {path: text.replace(check, "if t_major < tv_major:").encode()})


def _rewrite(source: Path, target: Path, version: str, changes: Mapping[str, bytes]) -> None:
    """A wheel with other content for some of its files, and perhaps with another local version.

    The bytes of the others are not packed again: what changes is appended, and the directory at the end of the archive
    is written anew.
    """
    name, plain = source.name.split("-")[:2]
    old, new = f"{name}-{plain}.dist-info", f"{name}-{version}.dist-info"
    shutil.copyfile(source, target)
    with zipfile.ZipFile(target, "a") as wheel:
        about = [path for path in wheel.namelist() if path.startswith(f"{old}/") and not path.endswith("/RECORD")]
        changed = dict(changes) | {path.replace(old, new): wheel.read(path) for path in about}
        metadata, said_version = changed[f"{new}/METADATA"], f"\nVersion: {plain}\n".encode()
        assert metadata.count(said_version) == 1
        metadata = metadata.replace(said_version, f"\nVersion: {version}\n".encode())
        # Neither AWS's wheel nor PyTorch's own requires CUDA: it is in the image, or in the wheel.
        changed[f"{new}/METADATA"] = re.sub(rb"(?m)^Requires-Dist: nvidia-.*\n", b"", metadata)
        rows = wheel.read(f"{old}/RECORD").decode().splitlines(keepends=True)
        kept = [row for row in rows if not row.startswith((f"{old}/", *(f"{path}," for path in changes)))]
        record = "".join(kept) + "".join(record_row(path, content) for path, content in sorted(changed.items()))
        changed[f"{new}/RECORD"] = f"{record}{new}/RECORD,,\n".encode()
        gone = {*about, f"{old}/RECORD", *(changes.keys() & set(wheel.namelist()))}
        wheel.filelist[:] = [entry for entry in wheel.filelist if entry.filename not in gone]
        for path in gone:
            del wheel.NameToInfo[path]
        for path, content in sorted(changed.items()):
            entry = zipfile.ZipInfo(path, _ZIP_TIME)
            entry.external_attr = 0o100644 << 16
            wheel.writestr(entry, content)
