"""Archives that come out the same to the byte from the same content, so that a builder's cache holds between runs."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

EPOCH = 1_600_000_000
_ZIP_TIME = (2020, 9, 13, 12, 26, 40)
Files = Mapping[str, bytes]


def tree(folder: Path, values: Mapping[str, str] | None = None) -> dict[str, bytes]:
    """The files of a folder by their relative paths; ``@NAME@`` is replaced by the value of that name."""
    found = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts):
        content = path.read_bytes()
        for name, value in (values or {}).items():
            content = content.replace(f"@{name}@".encode(), value.encode())
        found[str(path.relative_to(folder))] = content
    return found


def _executable(content: bytes) -> bool:
    return content.startswith((b"#!", b"\x7fELF"))


def tar_gz(target: Path, top: str, files: Files) -> None:
    """A compressed tarball with one folder on top, as release archives have it."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in sorted(files):
            entry = tarfile.TarInfo(f"{top}/{name}")
            entry.size, entry.mtime = len(files[name]), EPOCH
            entry.mode = 0o755 if _executable(files[name]) else 0o644
            archive.addfile(entry, io.BytesIO(files[name]))
    target.write_bytes(gzip.compress(raw.getvalue(), compresslevel=6, mtime=EPOCH))


def record_row(name: str, content: bytes) -> str:
    """The row of a file in a wheel's RECORD."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"


def wheel(target: Path, files: Files, scripts: Files) -> None:
    """A wheel of the distribution, version and tags that its file name says.

    Args:
        target: the wheel.
        files: what goes into site-packages.
        scripts: programs, by their names.
    """
    name, version, python, abi, platform = target.name.removesuffix(".whl").split("-")
    about, data = f"{name}-{version}.dist-info", f"{name}-{version}.data/scripts"
    content = dict(files) | {f"{data}/{program}": text for program, text in scripts.items()}
    content[f"{about}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()
    tag = f"Tag: {python}-{abi}-{platform}\n"
    content[f"{about}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: twin\nRoot-Is-Purelib: false\n{tag}".encode()
    rows = "".join(record_row(path, content[path]) for path in sorted(content))
    content[f"{about}/RECORD"] = f"{rows}{about}/RECORD,,\n".encode()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in content.items():
            entry = zipfile.ZipInfo(path, _ZIP_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if _executable(text) else 0o100644) << 16
            archive.writestr(entry, text)


def sha256_of(path: Path) -> str:
    """The sha256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
