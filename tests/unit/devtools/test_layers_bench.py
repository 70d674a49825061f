"""The bench of layers: an update of a base changes the context alone."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

from bench.layers import update_base


def test_an_update_of_a_base_leaves_the_file_that_the_context_links_to(tmp_path: Path) -> None:
    kept, context = tmp_path / "kept.tar", tmp_path / "context"
    with tarfile.open(kept, "w"):
        pass
    before = kept.read_bytes()
    (context / "base").mkdir(parents=True)
    os.link(kept, context / "base/rootfs.tar")
    size = update_base(context)
    assert kept.read_bytes() == before
    with tarfile.open(context / "base/rootfs.tar") as updated:
        assert updated.getnames() == ["./usr/share/updated"]
    assert size == (context / "base/rootfs.tar").stat().st_size > 1_000_000
    assert [path.name for path in (context / "base").iterdir()] == ["rootfs.tar"]
