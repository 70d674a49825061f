"""A stand-in for the archive of aws-ofi-nccl, the one file of CUDA lines on Debian 13 that no package registry has."""

from __future__ import annotations

import shutil
from hashlib import sha256
from pathlib import Path

from tests.twin.pack import tar_gz, tree
from tests.twin.standins import SHAPES
from trainwright.catalog.catalog import load_catalog
from trainwright.core.paths import templates_dir

VERSION = "1.21.1"


def with_standin(folder: Path) -> tuple[str, ...]:
    """The words of a build that takes the stand-in: a site file whose folder of archives has it, and a catalog in which
    the component has its checksum in place of upstream's."""
    archive = folder / "archives" / f"aws-ofi-nccl-{VERSION}.tar.gz"
    archive.parent.mkdir()
    tar_gz(archive, f"aws-ofi-nccl-{VERSION}", tree(SHAPES / "ofi-1.21"))
    (folder / "site.toml").write_text('artifact_mirror = "archives"\n')
    upstream = load_catalog().components["aws-ofi-nccl"].component.providers["debian"].versions[VERSION].sha256
    component = folder / "catalog/templates/components/aws-ofi-nccl"
    shutil.copytree(templates_dir() / "components/aws-ofi-nccl", component)
    data = component / "component.yaml"
    data.write_text(data.read_text().replace(str(upstream), sha256(archive.read_bytes()).hexdigest()))
    return ("--site", str(folder / "site.toml"), "--catalog", str(folder / "catalog"))
