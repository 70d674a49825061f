"""``uv.lock`` and ``pylock.toml`` as pinned requirements, with the checksums that they have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, product
from typing import TYPE_CHECKING, Any

from trainwright.core.errors import RequestError, did_you_mean
from trainwright.user.requirements import read_line

if TYPE_CHECKING:
    from packaging.pylock import Package

_REGISTRY_ONLY = (
    "Only packages of an index can be taken. Publish a wheel of it (find_links of the site file names a folder)."
)
_MOST_WAYS = 32  # to one package, each with its own markers
Table = Mapping[str, Any]
Ways = set[frozenset[str]]  # each the markers on a way from the project to a package, all of which hold


def read_uv_lock(data: Table, extras: Sequence[str], what: str, *, git: bool) -> tuple[list[str], str]:
    """What a project needs by its ``uv.lock``, without its groups for development, and the Python versions it is for.

    Args:
        data: the file, in version 1 of the format (uv, "Lockfile": of the crate uv-resolver).
        extras: of the project.
        what: how messages name the file.
        git: whether the image has git.

    Raises:
        RequestError: it is another format, has no project or more than one, or a package comes from elsewhere than an
            index.
    """
    rows = data.get("package", [])
    if data.get("version") != 1 or not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise RequestError(f"{what}: not a uv.lock of version 1", remedy="`uv lock` writes one.")
    roots = [row for row in rows if {"virtual", "editable"} & set(_source(row)) and "." in _source(row).values()]
    if len(roots) != 1:
        raise RequestError(
            f"{what}: is not the lock of one project",
            remedy="`uv export --no-emit-workspace --package NAME` writes a requirements file of one member.",
        )
    # By package and extra of it; the package itself is the extra "".
    found: dict[tuple[int, str], Ways] = {}
    pending = [(need, frozenset[str]()) for extra in ("", *extras) for need in _needs(roots[0], extra, what)]
    while pending:
        need, before = pending.pop()
        way = before | ({str(need["marker"])} if "marker" in need else set())
        for row, extra in product(_meant(rows, need, what), ("", *need.get("extra", ()))):
            ways = found.setdefault((id(row), extra), set())
            if any(known <= way for known in ways):
                continue
            if len(ways) >= _MOST_WAYS:
                way = frozenset()
            ways.add(way)
            pending += [(each, way) for each in _needs(row, extra, what)]
    lines: list[str] = []
    for row in (row for row in rows if (id(row), "") in found):
        source, name = _source(row), str(row.get("name"))
        if not str(source.get("registry", "")).startswith(("http://", "https://")):
            named = ", ".join(f"{key} {value}" for key, value in source.items())
            raise RequestError(f"{what}: {name} comes from {named}", remedy=_REGISTRY_ONLY)
        files = [*row.get("wheels", []), *([row["sdist"]] if "sdist" in row else [])]
        hashes = [str(file["hash"]) for file in files if isinstance(file, Mapping) and "hash" in file]
        lines += _pin(name, str(row.get("version", "")), _any(found[id(row), ""]), hashes, what, git=git)
    return lines, str(data.get("requires-python", ""))


def _source(row: Table) -> Table:
    source = row.get("source", {})
    return source if isinstance(source, Mapping) else {}


def _needs(row: Table, extra: str, what: str) -> list[Table]:
    """The dependencies of a package, or of one of its extras."""
    optional = row.get("optional-dependencies", {})
    if extra and extra not in optional and {"virtual", "editable"} & set(_source(row)):
        raise RequestError(f"{what}: has no extra {extra!r}. {did_you_mean(extra, optional)}")
    needs = optional.get(extra, []) if extra else row.get("dependencies", [])
    if not isinstance(needs, list) or not all(isinstance(need, Mapping) and "name" in need for need in needs):
        raise RequestError(f"{what}: the dependencies of {row.get('name')} are not a list of tables")
    return needs


def _meant(rows: Sequence[Table], need: Table, what: str) -> list[Table]:
    """The packages that a dependency means: its version and source are there where there are several of its name."""
    keys = [key for key in ("name", "version", "source") if key in need]
    found = [row for row in rows if all(row.get(key) == need[key] for key in keys)]
    if not found:
        raise RequestError(f"{what}: lacks {need['name']}, which it depends on", remedy="`uv lock` writes it again.")
    return found


def _any(ways: Ways) -> str:
    """One marker for a package: that of any of the ways to it."""
    least = [way for way in ways if not any(other < way for other in ways)]
    if frozenset() in least:
        return ""
    return " or ".join(sorted(" and ".join(f"({each})" for each in sorted(way)) for way in least))


def read_pylock(data: Table, what: str, *, git: bool) -> tuple[list[str], str]:
    """What a ``pylock.toml`` pins (PEP 751), and the versions of Python that it is for.

    Args:
        data: the file.
        what: how messages name it.
        git: whether the image has git.

    Raises:
        RequestError: it is not valid, or a package comes from version control or a folder.
    """
    from packaging.pylock import Pylock, PylockValidationError

    try:
        lock = Pylock.from_dict(data)
    except PylockValidationError as wrong:
        raise RequestError(f"{what}: not a lock as PEP 751 has them: {wrong}", remedy="Make it again.") from None
    lines = list(chain.from_iterable(_of_pylock(package, what, git=git) for package in lock.packages))
    return lines, str(lock.requires_python or "")


def _of_pylock(package: Package, what: str, *, git: bool) -> list[str]:
    name, marker = str(package.name), str(package.marker or "")
    if package.vcs is not None or package.directory is not None:
        where = "version control" if package.vcs is not None else "a folder"
        raise RequestError(f"{what}: {name} comes from {where}", remedy=_REGISTRY_ONLY)
    if "extras" in marker or "dependency_groups" in marker:
        raise RequestError(
            f"{what}: {name} belongs to an extra or a group of its project ({marker})",
            remedy="Write the lock for what the image needs: `uv export --format pylock.toml --no-dev`.",
        )
    if package.archive is not None:
        digest = package.archive.hashes.get("sha256", "")
        text = f"{name} @ {package.archive.url or package.archive.path}" + (f"#sha256={digest}" if digest else "")
        return read_line(f"{text} ; {marker}" if marker else text, f"{what}: {name}", git=git)
    known = [wheel.hashes for wheel in package.wheels or ()] + ([package.sdist.hashes] if package.sdist else [])
    hashes = [f"sha256:{each['sha256']}" for each in known if "sha256" in each]
    return _pin(name, str(package.version or ""), marker, hashes, what, git=git)


def _pin(name: str, version: str, marker: str, hashes: Iterable[str], what: str, *, git: bool) -> list[str]:
    if not version:
        raise RequestError(f"{what}: {name} has no version", remedy=_REGISTRY_ONLY)
    text = f"{name}=={version}" + (f" ; {marker}" if marker else "")
    return read_line(" ".join([text, *(f"--hash={each}" for each in hashes)]), f"{what}: {name}", git=git)
