"""Archives as inputs of build stages: where they lie, on a mirror, in a folder of this machine, upstream.

A mirror holds an archive as ``<base>/<sha256[:2]>/<sha256>/<file>`` or simply as ``<base>/<file>``; the download in a
build step (``templates/tools/build/fetch``) looks there first, in this order.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from trainwright.core.hashes import KnownHashes
from trainwright.plan.plan import PlannedSource
from trainwright.site.site import Site


def on_mirror(file: str, sha256: str | None) -> tuple[str, ...]:
    """The paths below the base of a mirror at which an archive is looked for, in order; the last is its name."""
    return (f"{sha256[:2]}/{sha256}/{file}", file) if sha256 else (file,)


def places(archive: PlannedSource, site: Site) -> list[str]:
    """Every URL at which an archive is looked for, in the order of the build step; credentials included."""
    urls = [archive.url] if archive.url else []
    if site.artifact_mirror and archive.file:
        base = site.artifact_mirror.rstrip("/")
        urls = [f"{base}/{path}" for path in on_mirror(archive.file, archive.sha256)] + urls
    return list(dict.fromkeys([*urls, *archive.mirrors]))


def in_folder(archives: Iterable[PlannedSource], site: Site) -> tuple[dict[str, Path], list[str]]:
    """Those of the archives that lie in the site's artifact folder.

    Args:
        archives: what is needed.
        site: where the folder is named, if there is one.

    Returns:
        The right files by their names, and a sentence for each that has the right name and other content: it is
        passed over, as a mirror's would be.
    """
    found: dict[str, Path] = {}
    notes: list[str] = []
    if site.artifact_folder is None:
        return found, notes
    known = KnownHashes()
    for archive in archives:
        for path in on_mirror(archive.file or "", archive.sha256):
            candidate = site.artifact_folder / path
            if not candidate.is_file():
                continue
            digest = known.sha256(candidate)
            if archive.sha256 in (None, digest):
                found[archive.file or ""] = candidate
                break
            notes.append(f"{candidate} is passed over: its sha256 is {digest}, expected {archive.sha256}")
    return found, notes


def remedy(archive_file: str, sha256: str | None) -> str:
    """How to name a place that holds an archive."""
    paths = " and as ".join(on_mirror(archive_file, sha256))
    return (
        "Put the file on a server or into a folder of yours and name it in trainwright.toml (docs/site.md):\n"
        '    artifact_mirror = "https://mirror.example/archives"   # or a folder\n'
        f"It is looked for there as {paths}."
    )
