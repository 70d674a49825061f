"""Where to look for an archive: a folder and a mirror of the site, this user's store, upstream.

A mirror holds an archive as ``<base>/<sha256[:2]>/<sha256>/<file>`` or simply as ``<base>/<file>``; the download in a
build step (``templates/tools/build/fetch``) looks there first, in this order.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainwright.core.paths import cache_dir
from trainwright.plan.plan import PlannedSource
from trainwright.site.site import Site
from trainwright.sources.inputs import Place


@dataclass(frozen=True)
class Store:
    """Where fetched files go: by checksum, as ``<sha256[:2]>/<sha256>/<file>``, or ``flat``, by name."""

    folder: Path
    flat: bool = False

    def path(self, file: str, sha256: str) -> Path:
        """Where the file is kept."""
        return self.folder / file if self.flat else self.folder / sha256[:2] / sha256 / file

    @property
    def parts(self) -> Path:
        """The folder of incomplete files."""
        return self.folder / ".parts"


def store() -> Store:
    """This user's store of files by checksum."""
    return Store(cache_dir() / "archives")


def on_mirror(file: str, sha256: str | None) -> tuple[str, ...]:
    """The possible paths of an archive below the base of a mirror, in order; the last is its name."""
    return (f"{sha256[:2]}/{sha256}/{file}", file) if sha256 else (file,)


def places(archive: PlannedSource, site: Site, *, kept: bool = False) -> list[Place]:
    """Every place to look for an archive, in order; credentials included.

    Args:
        archive: with a URL; one that apt fetches is looked for only in the folder.
        site: its folder and its mirror.
        kept: whether to include the store.
    """
    file, sha256 = archive.file or "", archive.sha256
    paths = on_mirror(file, sha256)
    found = [Place("folder", str(site.artifact_folder / path)) for path in paths] if site.artifact_folder else []
    found += [Place("store", str(store().path(file, sha256)))] if kept and sha256 else []
    if archive.package is None:
        base = site.artifact_mirror.rstrip("/") if site.artifact_mirror else None
        found += [Place("mirror", f"{base}/{path}") for path in paths] if base else []
        found += [Place("upstream", url) for url in (archive.url, *archive.mirrors) if url]
    return list({place.address: place for place in found}.values())


def remedy(*archives: tuple[str, str | None]) -> str:
    """How to tell Trainwright where archives are, each a file and its sha256."""
    paths = [" or ".join(on_mirror(file, sha256)) for file, sha256 in archives]
    what = "the files" if len(paths) > 1 else "the file"
    where = "\n    ".join(["Their paths there are", *paths]) if len(paths) > 1 else f"Its path there is {paths[0]}."
    return (
        f"Put {what} on a server or into a folder, and name that with --artifacts or in a site file (docs/site.md):\n"
        '    artifact_mirror = "https://mirror.example/archives"   # or a folder\n'
        f"{where}"
    )
