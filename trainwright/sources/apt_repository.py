"""Packages of the distribution in a folder: a repository that apt reads without a network, and the pins of a lock.

The folder has the layout of Debian's archive with one release per distribution (``dists/debian-12/main``) and all
packages in ``pool/``. It is not signed: a build holds every package to the checksum of the lock before it begins.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from trainwright.core.errors import SourceError
from trainwright.core.hashes import KnownHashes
from trainwright.core.owned import write_atomically
from trainwright.plan.plan_lock import LockedSystemPackage, SystemPackage

_FIELD = re.compile(r"^([A-Za-z0-9-]+):[ \t]*(.*)$", re.MULTILINE)


def stanzas(text: str) -> Iterator[str]:
    """The paragraphs of an index of packages, without empty lines."""
    yield from (part.strip("\n") for part in re.split(r"\n[ \t]*\n", text) if part.strip())


def field(stanza: str, name: str) -> str:
    """A field's first line; empty where the paragraph has none."""
    return next((value.strip() for key, value in _FIELD.findall(stanza) if key.lower() == name.lower()), "")


def key(stanza: str) -> tuple[str, str, str]:
    """Name, version and architecture of a package."""
    return field(stanza, "Package"), field(stanza, "Version"), field(stanza, "Architecture")


def file_name(name: str, version: str, architecture: str) -> str:
    """What a package's file is called in the pool, and by apt: an epoch's colon is ``%3a``."""
    return f"{name}_{version.replace(':', '%3a')}_{architecture}.deb"


def locked_packages(records: Mapping[str, str]) -> tuple[LockedSystemPackage, ...]:
    """Packages of a lock, sorted by name.

    Args:
        records: by stage what apt says of the packages that it would install there (``apt-cache show``).
    """
    stages: dict[tuple[str, str, str], list[str]] = {}
    found: dict[tuple[str, str, str], str] = {}
    for stage, text in records.items():
        for stanza in stanzas(text):
            named = stages.setdefault(key(stanza), [])
            # A package of two repositories is there twice.
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
    """apt's pins for these versions; ``strict``: for apt there are no others.

    What is installed already has to be among them: apt would not know it as what was asked for.
    """
    rows = [f"Package: {p.name}\nPin: version {p.version}\nPin-Priority: 995\n" for p in packages]
    if strict:
        # What a specific pin names is not looked up here.
        rows.append("Package: *\nPin: release *\nPin-Priority: -1\n")
    return "\n".join(rows)


def index_text(found: Iterable[str]) -> str:
    """An index (``Packages``) of these paragraphs, their files in the pool; sorted, each package once."""
    by_key = {key(stanza): stanza for stanza in found}
    rows = []
    for (name, version, architecture), stanza in sorted(by_key.items()):
        path = f"pool/{file_name(name, version, architecture)}"
        rows.append(re.sub(r"(?m)^Filename:.*$", f"Filename: {path}", stanza))
    return "".join(f"{row}\n\n" for row in rows)


def packages_path(os_name: str) -> str:
    """Where the index of a distribution lies in a repository."""
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


def context_files(
    folder: Path, os_name: str, packages: Iterable[LockedSystemPackage] | None, prefix: str
) -> dict[str, str | Path]:
    """The files of a repository that a build needs: all, or those of a lock, each held to its checksum.

    Args:
        folder: the repository.
        os_name: the distribution.
        packages: of the lock; ``None``: all that the folder has.
        prefix: of the names of the files in the build context.

    Raises:
        SourceError: the repository lacks a package, or has it with another checksum.
    """
    index = folder / packages_path(os_name)
    if not index.is_file():
        raise _missing("the distribution's packages", index.name, [f"{index}: there is no such file"], None, None)
    by_key = {key(stanza): stanza for stanza in stanzas(index.read_text())}
    wanted = None if packages is None else {(p.name, p.version, p.architecture): p for p in packages}
    files: dict[str, str | Path] = {}
    known = KnownHashes()
    for each in by_key if wanted is None else wanted:
        path = folder / "pool" / file_name(*each)
        expected = field(by_key.get(each, ""), "SHA256") if wanted is None else wanted[each].sha256
        owner = "os" if wanted is None else "/".join(wanted[each].stages)
        if each not in by_key or not path.is_file():
            raise _missing(owner, path.name, [f"{path}: there is no such file"], expected, None)
        if (found := known.sha256(path)) != expected:
            raise _missing(owner, path.name, [f"{path}: has the sha256 {found}"], expected, found)
        files[f"{prefix}/pool/{path.name}"] = path
    text = index_text(by_key[each] for each in (by_key if wanted is None else wanted))
    files[f"{prefix}/{packages_path(os_name)}"] = text
    files[f"{prefix}/dists/{os_name}/Release"] = release_text(os_name, text)
    return files


def _missing(owner: str, file: str, rows: list[str], expected: str | None, found: str | None) -> SourceError:
    what = f" with the sha256 {expected}" if expected else ""
    return SourceError(
        "\n".join([f"{owner}: no place has {file}{what}", *(f"  {row}" for row in rows)]),
        remedy="Fill the folder again where there is a network: ./invoke mirror pull --lock FILE --to DIR",
        component=owner,
        file=file,
        expected=expected,
        found=found,
        urls=[row.partition(": ")[0] for row in rows],
    )
