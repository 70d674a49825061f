"""PyTorch 1.10.2 of the package index, built for CUDA 10.2, relabelled as the wheel for CUDA 11.3 that AWS built."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

from tests.twin.pack import record_row

_ZIP_TIME = (2022, 1, 27, 20, 0, 0)


def relabel(source: Path, target: Path, version: str, cuda: str) -> None:
    """Copy a wheel of torch under another local version and CUDA version; what is compiled in it stays as it is.

    The bytes of the files are not packed again: the few that change are appended, and the directory of the archive at
    its end is written anew.

    Args:
        source: the wheel, of the same version without its local part.
        target: the new wheel, whose name must hold ``version``.
        version: such as ``1.10.2+cu113``.
        cuda: what ``torch.version.cuda`` is to say.
    """
    plain = version.partition("+")[0]
    old, new = f"torch-{plain}.dist-info", f"torch-{version}.dist-info"
    shutil.copyfile(source, target)
    with zipfile.ZipFile(target, "a") as wheel:
        said = wheel.read("torch/version.py").decode()
        lines = [line for line in said.splitlines() if not line.startswith(("__version__", "cuda"))]
        text = "\n".join([f"__version__ = {version!r}", f"cuda = {cuda!r}", *lines]) + "\n"
        changed = {"torch/version.py": text.encode()}
        about = [name for name in wheel.namelist() if name.startswith(f"{old}/") and not name.endswith("/RECORD")]
        changed |= {name.replace(old, new): wheel.read(name) for name in about}
        metadata = changed[f"{new}/METADATA"]
        assert metadata.count(f"\nVersion: {plain}\n".encode()) == 1
        changed[f"{new}/METADATA"] = metadata.replace(
            f"\nVersion: {plain}\n".encode(), f"\nVersion: {version}\n".encode()
        )
        rows = wheel.read(f"{old}/RECORD").decode().splitlines(keepends=True)
        kept = [row for row in rows if not row.startswith((f"{old}/", "torch/version.py,"))]
        record = "".join(kept) + "".join(record_row(name, content) for name, content in sorted(changed.items()))
        changed[f"{new}/RECORD"] = f"{record}{new}/RECORD,,\n".encode()
        gone = {*about, f"{old}/RECORD", "torch/version.py"}
        wheel.filelist[:] = [entry for entry in wheel.filelist if entry.filename not in gone]
        for name in gone:
            del wheel.NameToInfo[name]
        for name, content in sorted(changed.items()):
            entry = zipfile.ZipInfo(name, _ZIP_TIME)
            entry.external_attr = 0o100644 << 16
            wheel.writestr(entry, content)
