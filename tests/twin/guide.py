"""The twin of the developer guide's recipe, to be proven: the catalog, the mirror and the base images that stay.

    python -m tests.twin.guide FOLDER
    ./invoke prove pytorch/1.10.2-cu113 --twin --catalog FOLDER/catalog --site FOLDER/trainwright.toml

The base images stay in the engine as ``trainwright-twin/guide:runtime`` and ``:devel``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.twin.bases import make_bases
from tests.twin.catalog import Twin, make_twin
from trainwright.engine.engine import connect
from trainwright.site.site import load_site


def make(folder: Path) -> Twin:
    """Make the base images, the catalog with the line, the mirror of archives and the site file.

    Args:
        folder: takes the catalog, the mirror and the site file; it is made.

    Raises:
        EngineError: there is no engine to make the base images with.
    """
    folder.mkdir(parents=True)
    twin = make_twin(folder, make_bases(connect(setup=False), load_site(), "trainwright-twin/guide", folder))
    (folder / "trainwright.toml").write_text(f'artifact_mirror = "{twin.mirror.resolve()}"\nlocks = "locks"\n')
    return twin


if __name__ == "__main__":
    print(make(Path(sys.argv[1])).table())
