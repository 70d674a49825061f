"""Packages of the distribution in a folder: a repository that apt reads without a network, and the pins of a lock.

The folder has the layout of Debian's archive with one release per distribution (``dists/debian-12/main``) and all
packages in ``pool/``. It is not signed: a build first checks every package against the lock's checksums.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from trainwright.core.errors import SourceError
from trainwright.core.hashes import KnownHashes
from trainwright.core.owned import write_atomically
from trainwright.plan.plan import PlannedSource
from trainwright.plan.plan_lock import LockedSystemPackage, SystemPackage
from trainwright.site.site import Site
from trainwright.sources.inputs import Input, Place

_FIELD = re.compile(r"^([A-Za-z0-9-]+):[ \t]*(.*)$", re.MULTILINE)


def stanzas(text: str) -> Iterator[str]:
    """The paragraphs of an index of packages, without empty lines."""
    yield from (part.strip("\n") for part in re.split(r"\n[ \t]*\n", text) if part.strip())


def field(stanza: str, name: str) -> str:
    """A field's first line; empty if the paragraph lacks it."""
    return next((value.strip() for key, value in _FIELD.findall(stanza) if key.lower() == name.lower()), "")


def key(stanza: str) -> tuple[str, str, str]:
    """Name, version and architecture of a package."""
    return field(stanza, "Package"), field(stanza, "Version"), field(stanza, "Architecture")


def file_name(name: str, version: str, architecture: str) -> str:
    """The name of a package's file, in the pool and for apt: an epoch's colon is ``%3a``."""
    return f"{name}_{version.replace(':', '%3a')}_{architecture}.deb"


def locked_packages(records: Mapping[str, str]) -> tuple[LockedSystemPackage, ...]:
    """Packages of a lock, sorted by name.

    Args:
        records: by stage, apt's records of the packages that it would install there (``apt-cache show``).
    """
    stages: dict[tuple[str, str, str], list[str]] = {}
    found: dict[tuple[str, str, str], str] = {}
    for stage, text in records.items():
        for stanza in stanzas(text):
            named = stages.setdefault(key(stanza), [])
            # A package in two repositories appears twice.
            if stage not in named:
                named.append(stage)
            found[key(stanza)] = stanza
    return tuple(
        LockedSystemPackage(
            name=name,
            version=version,
            architecture=architecture,
            sha256=field(found[name, version, architecture], "SHA256"),
            size=int(field(found[name, version, architecture], "Size")),
            stages=tuple(sorted(stages[name, version, architecture])),
        )
        for name, version, architecture in sorted(found)
    )


def preferences(packages: Iterable[SystemPackage], *, strict: bool) -> str:
    """apt's pins for these versions; ``strict`` hides all other versions from apt.

    Installed packages must be among them, or apt would not accept them as what was asked for.
    """
    rows = [f"Package: {p.name}\nPin: version {p.version}\nPin-Priority: 995\n" for p in packages]
    if strict:
        # Specific pins take precedence over this one.
        rows.append("Package: *\nPin: release *\nPin-Priority: -1\n")
    return "\n".join(rows)


def index_text(found: Iterable[str]) -> str:
    """An index (``Packages``) of these paragraphs with files in the pool; sorted, each package once."""
    by_key = {key(stanza): stanza for stanza in found}
    rows = []
    for (name, version, architecture), stanza in sorted(by_key.items()):
        path = f"pool/{file_name(name, version, architecture)}"
        rows.append(re.sub(r"(?m)^Filename:.*$", f"Filename: {path}", stanza))
    return "".join(f"{row}\n\n" for row in rows)


def packages_path(os_name: str) -> str:
    """The path of a distribution's index in a repository."""
    return f"dists/{os_name}/main/binary-amd64/Packages"


def release_text(os_name: str, index: str) -> str:
    """The ``Release`` of a distribution's index."""
    data = index.encode()
    row = f" {hashlib.sha256(data).hexdigest()} {len(data)} main/binary-amd64/Packages"
    head = f"Suite: {os_name}\nCodename: {os_name}\nArchitectures: amd64\nComponents: main\n"
    return f"{head}SHA256:\n{row}\n"


def write_index(folder: Path, os_name: str, found: Iterable[str]) -> None:
    """Add paragraphs to the index of a distribution in a repository's folder."""
    path = folder / packages_path(os_name)
    earlier = list(stanzas(path.read_text())) if path.is_file() else []
    text = index_text([*earlier, *found])
    write_atomically(path, text)
    write_atomically(folder / f"dists/{os_name}/Release", release_text(os_name, text))


def gathered(site: Site, os_name: str, packages: Sequence[LockedSystemPackage] | None) -> tuple[Input, ...]:
    """Distribution packages as inputs; if the site has a folder of them, its index comes first.

    Args:
        site: its folder and mirror.
        os_name: the distribution.
        packages: of the lock; ``None`` for all in the folder.
    """
    mirror = [Place("mirror", site.apt_mirror)] if site.apt_mirror else []
    folder = site.apt_folder
    if folder is None:
        return tuple(Input("/".join(p.stages), "package", _as_source(p), tuple(mirror)) for p in packages or ())
    path, known = folder / packages_path(os_name), KnownHashes()
    there = path if path.is_file() else None
    name = PlannedSource(file=path.name, sha256=None)
    index = Input("the distribution's packages", "package index", name, (Place("folder", str(path)),), there)
    offered = {file_name(*key(s)): s for s in stanzas(path.read_text())} if there else {}
    wanted = [("/".join(p.stages), _as_source(p)) for p in packages or ()]
    if packages is None:
        wanted = [("os", PlannedSource(file=f, sha256=field(s, "SHA256") or None)) for f, s in offered.items()]
    found = [index]
    for owner, source in wanted:
        path = folder / "pool" / str(source.file)
        sha256 = known.sha256(path) if path.is_file() else None
        right = source.file in offered and sha256 is not None and sha256 == source.sha256
        wrong = {str(path): sha256} if sha256 is not None and sha256 != source.sha256 else {}
        place = (Place("folder", str(path)),)
        found.append(Input(owner, "package", source, place, path if right else None, wrong))
    return tuple(found)


def _as_source(package: LockedSystemPackage) -> PlannedSource:
    file = file_name(package.name, package.version, package.architecture)
    return PlannedSource(
        package=f"{package.name}={package.version}", file=file, sha256=package.sha256, size=package.size
    )


def context_files(packages: Sequence[Input], os_name: str, prefix: str) -> dict[str, str | Path]:
    """The files of a repository that a build needs; empty if the site has no folder of packages.

    Args:
        packages: as they were gathered.
        os_name: the distribution.
        prefix: of the names of the files in the build context.

    Raises:
        SourceError: the repository lacks a package, or has it with a different checksum.
    """
    if not packages or (index := packages[0]).kind != "package index":
        return {}
    files: dict[str, str | Path] = {}
    for each in packages:
        if each.path is None:
            raise _missing(each)
        files[f"{prefix}/pool/{each.file}"] = each.path
    own = {each.file for each in packages}
    del files[f"{prefix}/pool/{index.file}"]
    assert index.path is not None
    text = index_text(s for s in stanzas(index.path.read_text()) if file_name(*key(s)) in own)
    files[f"{prefix}/{packages_path(os_name)}"] = text
    files[f"{prefix}/dists/{os_name}/Release"] = release_text(os_name, text)
    return files


def _missing(package: Input) -> SourceError:
    what = f" (sha256 {package.sha256})" if package.sha256 else ""
    rows = [f"  {path}: {why}" for path, why in package.absent.items()]
    return SourceError(
        "\n".join([f"{package.owner}: {package.file} not found{what}", *rows]),
        remedy="Fill the folder again on a machine with network access: ./invoke mirror pull --lock FILE --to DIR",
        component=package.owner,
        file=package.file,
        expected=package.sha256,
        found=next(iter(package.wrong.values()), None),
        urls=list(package.absent),
    )
