"""The twin of lines with Debian's libfabric: real but for the archive of aws-ofi-nccl, which upstream's tag makes.

    python -m tests.twin.plugin FOLDER --clone ~/aws-ofi-nccl pytorch/cu132
    ./invoke prove pytorch/cu132 --twin --catalog FOLDER/catalog --site FOLDER/trainwright.toml

Upstream's release is what ``make dist`` packs: the tag's files, its version and a ``configure`` script. Here the script
is made by this machine's Autoconf, Automake and Libtool, so the archive has the same sources, but other bytes.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.plugin_release import VERSION
from tests.twin.pack import tar_gz, tree
from trainwright.core.paths import images_dir


def make(folder: Path, clone: Path, lines: Sequence[str]) -> Path:
    """Make the catalog, the mirror with the archive, and the site file.

    Args:
        folder: takes them.
        clone: of aws/aws-ofi-nccl, with its tags.
        lines: folders of image lines, such as ``pytorch/cu132``.

    Returns:
        The archive.

    Raises:
        subprocess.CalledProcessError: git has no such tag, or ``autogen.sh`` failed (autoconf, automake, libtool).
    """
    name = f"aws-ofi-nccl-{VERSION}"
    archive = folder / "mirror" / f"{name}.tar.gz"
    archive.parent.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as work:
        packed = Path(work, "tag.tar")
        subprocess.run(["git", "-C", clone, "archive", "-o", packed, f"v{VERSION}"], check=True)
        sources = Path(work, name)
        sources.mkdir()
        shutil.unpack_archive(packed, sources)
        (sources / ".release_version").write_text(f"{VERSION}\n")  # as upstream's dist-hook does
        subprocess.run(["sh", "autogen.sh"], cwd=sources, check=True)
        shutil.rmtree(sources / "autom4te.cache", ignore_errors=True)
        tar_gz(archive, name, tree(sources))
    for line in lines:
        shutil.copytree(images_dir() / line, folder / "catalog/images" / line)
    (folder / "trainwright.toml").write_text('artifact_mirror = "mirror"\nlocks = "locks"\n')
    return archive


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("folder", type=Path)
    words.add_argument("--clone", type=Path, required=True)
    words.add_argument("lines", nargs="+")
    print(make(**vars(words.parse_args())))
