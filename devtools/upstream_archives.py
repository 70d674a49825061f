"""The archives that GitHub makes of a tag, made from git repositories on this machine, and held against the catalog.

GitHub answers ``https://github.com/OWNER/NAME/archive/REF.tar.gz`` with what ``git archive`` and ``gzip -cn`` write.
The folder in it is ``NAME-REF``, without the ``v`` before a number. So a clone is enough to say whether a checksum of
the catalog is that of the tag, to find one that nobody publishes, and to have the archive where GitHub is not reached.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from devtools.checks import ChecksFailed
from trainwright.catalog.catalog import Catalog
from trainwright.catalog.component import BuildTarget, Provider, SourceFile
from trainwright.core.errors import RequestError
from trainwright.core.layout import table
from trainwright.core.say import Say

_ARCHIVE = re.compile(r"https://github\.com/([\w.-]+/([\w.-]+))/archive/(?:refs/tags/)?([^/]+)\.tar\.gz")
_ANY = BuildTarget("", "", "", "")  # archives of a tag are the same for every image


@dataclass(frozen=True)
class TagArchive:
    """An archive that GitHub makes of a tag or commit, as the catalog names it.

    Attributes:
        component: whose source it is.
        version: of the component.
        repository: ``OWNER/NAME``.
        ref: the tag or commit.
        source: the file as the catalog has it.
    """

    component: str
    version: str
    repository: str
    ref: str
    source: SourceFile

    @property
    def folder(self) -> str:
        """The folder in the archive."""
        return f"{self.repository.partition('/')[2]}-{re.sub('^v(?=[0-9])', '', self.ref)}/"


def tag_archives(catalog: Catalog) -> Iterator[TagArchive]:
    """The archives of tags and commits in a catalog, by component and version."""
    for name, folder in sorted(catalog.components.items()):
        for provider in folder.component.providers.values():
            for version in provider.versions:
                for source in _sources(provider, version):
                    if source.url and (match := _ARCHIVE.fullmatch(source.url)):
                        yield TagArchive(name, version, match[1], match[3], source)


def _sources(provider: Provider, version: str) -> Iterable[SourceFile]:
    return provider.sources_for(version, _ANY) or ()


def make_archive(repository: Path, archive: TagArchive) -> bytes | None:
    """The archive of a tag, as GitHub makes it; ``None`` if the clone has no such tag.

    Args:
        repository: a clone, or its git directory.
        archive: which tag.

    Raises:
        RequestError: it is not a clone.
    """
    git = ["git", "-C", str(repository), "-c", "tar.tar.gz.command=gzip -cn"]
    argv = [*git, "archive", "--format=tar.gz", f"--prefix={archive.folder}", archive.ref]
    done = subprocess.run(argv, capture_output=True, check=False)  # noqa: S603 - argv is ours
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()
        if "not a valid object name" in said:
            return None
        raise RequestError(f"{repository}: git archive {archive.ref}: {said}", remedy="Name a clone of the repository.")
    return done.stdout


def compare(catalog: Catalog, clones: Sequence[str], write: Path | None, *, say: Say) -> str:
    """Hold the checksums of the catalog against archives made from clones; the table of what was found.

    Args:
        catalog: its components have the checksums.
        clones: ``OWNER/NAME=PATH`` each; archives of other repositories are left out.
        write: a folder for the archives, such as ``--artifacts`` takes one.
        say: progress callback.

    Raises:
        ChecksFailed: a checksum differs.
        RequestError: a clone is named wrongly, or lacks a tag.
    """
    paths = _paths(clones)
    rows: list[tuple[str, ...]] = []
    for archive in tag_archives(catalog):
        if archive.repository not in paths:
            continue
        made = make_archive(paths[archive.repository], archive)
        digest = sha256(made).hexdigest() if made else "-"
        has = archive.source.sha256
        rows.append((archive.component, archive.version, archive.ref, digest, _state(has, digest)))
        if write is not None and made and has in (None, digest):
            write.mkdir(parents=True, exist_ok=True)
            (write / archive.source.file).write_bytes(made)
    if not rows:
        raise RequestError(f"no component has an archive of {', '.join(paths)}", remedy="OWNER/NAME as in its address")
    shown = table(rows)
    if wrong := [row for row in rows if row[-1].startswith("differs")]:
        say(shown)
        raise ChecksFailed(
            f"{len(wrong)} of {len(rows)} checksums are not those of the tags",
            remedy="A tag was moved, or the checksum is of another file. Look at both before changing one.",
        )
    return shown


def _state(recorded: str | None, made: str) -> str:
    if made == "-":
        return "no such tag in the clone"
    if recorded is None:
        return "not recorded"
    return "equal" if recorded == made else f"differs: {recorded}"


def _paths(clones: Sequence[str]) -> Mapping[str, Path]:
    found = {}
    for word in clones:
        name, equals, path = word.partition("=")
        if not equals or not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
            raise RequestError(f"--clone {word}: not OWNER/NAME=PATH", remedy="--clone NVIDIA/nccl=../nccl")
        if not Path(path).is_dir():
            raise RequestError(f"--clone {word}: no folder {path}", remedy=f"git clone --bare …/{name} {path}")
        found[name] = Path(path)
    if not found:
        raise RequestError("archives of which repositories?", remedy="--clone OWNER/NAME=PATH, once for each")
    return found
