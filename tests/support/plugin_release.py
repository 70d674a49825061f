"""A stand-in for the release of aws-ofi-nccl, the one archive of the CUDA lines that no package registry has."""

from __future__ import annotations

from pathlib import Path

from tests.twin.pack import tar_gz, tree
from tests.twin.standins import SHAPES

VERSION = "1.21.1"


def site_with_release(folder: Path) -> Path:
    """A site file whose folder of archives has the stand-in; the lock of an archive without a checksum stays there."""
    (folder / "archives").mkdir()
    name = f"aws-ofi-nccl-{VERSION}"
    tar_gz(folder / "archives" / f"{name}.tar.gz", name, tree(SHAPES / "ofi-release", {"VERSION": VERSION}))
    (folder / "site.toml").write_text('artifact_mirror = "archives"\nlocks = "locks"\n')
    return folder / "site.toml"
