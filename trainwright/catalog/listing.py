"""The documents of ``list``: the image lines and the components."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, TypeVar

from trainwright.catalog.catalog import Catalog, target_of
from trainwright.catalog.image_line import Line, LineBase, begins, version_key
from trainwright.catalog.standing import NEVER, Standing
from trainwright.core.errors import RequestError, did_you_mean
from trainwright.core.records import Document, Field


class LineRow(Document):
    """An image line of the catalog."""

    framework: str
    name: str = Field(description="of its folder: images/<framework>/<name>")
    version: str
    cuda: str = Field(description="what the framework is compiled for")
    published_cuda: str | None = Field(
        default=None, description="another one in the name of AWS's container, which is that of the base image"
    )
    python: str
    base: str = Field(description="distribution and release of the base")
    kind: Literal["debian", "nvidia", "dlc"] = Field(description="what it is, as --base takes it")
    status: Literal["supported", "unmaintained", "end-of-support", "unreleased"]
    needs: Literal["packages", "network"]
    unpinned: tuple[str, ...] = Field(description="files that nobody publishes a checksum of; a lock records it")
    base_tags: tuple[str, ...] = Field(
        default=(), description="base images without a digest, whose tags may move; a lock records their digests"
    )
    until_locked: tuple[Literal["root file system", "packages"], ...] = Field(
        default=(), description="what comes from the distribution's archive as it is on the day, until a lock pins it"
    )
    components: tuple[str, ...]
    options: tuple[str, ...]
    proof: Standing
    size_bytes: int | None = Field(
        default=None, description="of an image of it that was built here, or whose proof is shipped"
    )
    bare: bool = Field(default=False, description="the line that a request of its framework alone takes")


class ListDocument(Document):
    """``list --json``."""

    schema: Literal["trainwright/list/1"]
    lines: tuple[LineRow, ...]


class ComponentRow(Document):
    """A component of the catalog. ``providers``: the versions that each one has."""

    name: str
    summary: str
    providers: dict[str, tuple[str, ...]]
    requires: tuple[str, ...]


class ComponentsDocument(Document):
    """``list --components --json``."""

    schema: Literal["trainwright/components/1"]
    components: tuple[ComponentRow, ...]


def select(
    catalog: Catalog, framework: str | None = None, tag: str | None = None, version: str | None = None
) -> list[Line]:
    """Some image lines.

    Args:
        catalog: has the lines.
        framework: only lines of this framework.
        tag: only lines that go by this CUDA tag: ``cu124``, ``cpu``.
        version: only lines of this version, or of versions that begin with it.

    Raises:
        RequestError: there is no such line.
    """
    found = [
        entry
        for entry in (catalog.lines if framework is None else catalog.lines_of(framework))
        if (tag is None or entry.line.goes_by_cuda(tag)) and (version is None or begins(entry.line.version, version))
    ]
    if not found:
        asked = " ".join(filter(None, (framework, version, tag)))
        hint = did_you_mean(*_wrong_word(catalog, framework, tag, version))
        raise RequestError(f"no image line for {asked}. {hint}", remedy="./invoke list --all")
    return found


def _wrong_word(catalog: Catalog, framework: str | None, tag: str | None, version: str | None) -> tuple[str, set[str]]:
    """The word that no line has, and those that could stand there beside the words before it."""
    if framework not in (None, *catalog.frameworks()):
        return str(framework), set(catalog.frameworks())
    entries = [entry for entry in catalog.lines if framework in (None, entry.line.framework)]
    with_tag = [entry for entry in entries if tag is None or entry.line.goes_by_cuda(tag)]
    if not with_tag:
        return str(tag), {entry.line.cuda_tag for entry in entries}
    return str(version), {entry.line.version for entry in with_tag}


def named(catalog: Catalog, words: Iterable[str]) -> list[Line]:
    """The image lines that words name, each once, in the order of the catalog.

    Args:
        catalog: has the lines.
        words: ``pytorch`` (all of a framework), ``pytorch:cu124`` (those that go by a CUDA tag), ``pytorch/cpu`` (the
            line in that folder of ``images/``), ``'*/cpu'`` (those that match).

    Raises:
        RequestError: a word names no line; the message has the nearest that do.
    """
    keys = {f"{entry.path.parent.parent.name}/{entry.name}": entry for entry in catalog.lines}
    found = [key for word in words for key in _matching(word, keys)]
    return [entry for key, entry in keys.items() if key in found]


def _matching(word: str, keys: Mapping[str, Line]) -> list[str]:
    plain = word.removeprefix("images/").removesuffix("/")
    framework, _, tag = plain.partition(":")
    found = [
        key
        for key, entry in keys.items()
        if fnmatchcase(key, plain) or (entry.line.framework == framework and (not tag or entry.line.goes_by_cuda(tag)))
    ]
    if not found:
        known = {*keys, *(entry.line.framework for entry in keys.values())}
        raise RequestError(
            f"{word}: no image line matches. {did_you_mean(plain, known)}",
            remedy="For example: pytorch/cpu, pytorch:cu124 or pytorch   (./invoke list shows every line)",
        )
    return found


def lines(
    catalog: Catalog,
    entries: Iterable[Line],
    standings: Mapping[Path, Standing],
    sizes: Mapping[Path, int] | None = None,
    bare: Collection[Path] = (),
    *,
    added: Collection[str] = (),
) -> ListDocument:
    """A row per image line of the catalog.

    Args:
        catalog: has the lines.
        entries: the lines to show.
        standings: of those that have a proof, by their files.
        sizes: bytes of the images of those that were built or proven, by their files.
        bare: the files of those that a request of their framework alone takes.
        added: options that are asked for; their files count.
    """
    known = sizes or {}
    rows = [
        LineRow(
            framework=entry.line.framework,
            name=entry.name,
            version=entry.line.version,
            cuda=entry.line.cuda_tag,
            published_cuda=entry.line.published_cuda,
            python=entry.line.python,
            base=entry.line.base.os,
            kind=entry.line.base.kind,
            status=entry.line.status if entry.line.released else "unreleased",
            needs="packages" if catalog.from_packages(entry) else "network",
            unpinned=_unpinned(catalog, entry, added),
            base_tags=tuple(
                image for image in (entry.line.base.image, entry.line.base.build_image) if image and "@" not in image
            ),
            until_locked=_until_locked(entry.line.base),
            components=tuple(sorted(entry.line.components)),
            options=tuple(sorted(entry.line.options)),
            proof=standings.get(entry.path, NEVER),
            size_bytes=known.get(entry.path),
            bare=entry.path in bare,
        )
        for entry in entries
    ]
    return ListDocument(schema="trainwright/list/1", lines=tuple(rows))


CURRENT = ("supported", "unmaintained")  # the status of lines that still work with what is published today
Row = TypeVar("Row", bound=LineRow)


def by_framework(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Lines by framework, the newest first; frameworks with more supported lines come first."""
    grouped: dict[str, list[Row]] = {}
    for row in rows:
        grouped.setdefault(row.framework, []).append(row)
    for own in grouped.values():
        own.sort(key=lambda row: (version_key(row.version), version_key(row.cuda.removeprefix("cu"))), reverse=True)
    supported = {name: sum(row.status == "supported" for row in own) for name, own in grouped.items()}
    return {name: grouped[name] for name in sorted(grouped, key=lambda name: (-supported[name], name))}


def cuda_tags(rows: Iterable[LineRow]) -> list[str]:
    """The CUDA tags of lines, newest first, and ``cpu``."""
    tags = {row.cuda for row in rows}
    return sorted(tags, key=lambda tag: (tag == "cpu", [-part for part in version_key(tag.removeprefix("cu"))]))


def filtered(document: ListDocument, holds: Mapping[str, str]) -> ListDocument:
    """The lines of which everything holds.

    Args:
        document: of :func:`lines`.
        holds: key to value: ``status``, ``needs``, ``python``, ``base`` as --base takes it; ``with`` is a component
            that is in the line or that ``--with`` adds, ``proof`` the state of its proof.

    Raises:
        RequestError: no line is left; the message has the values that there are.
    """
    rows = document.lines
    for key, value in holds.items():
        known = {each for row in rows for each in _values(row, key)}
        rows = tuple(row for row in rows if value in _values(row, key))
        if not rows:
            flag = "--proven" if key == "proof" else f"--{key} {value}"
            remedy = "./invoke list --components" if key == "with" else "./invoke list"
            raise RequestError(f"{flag}: no image line has it. {did_you_mean(value, known)}", remedy=remedy)
    return document.replace(lines=rows)


def _values(row: LineRow, key: str) -> tuple[str, ...]:
    if key == "with":
        return (*row.components, *row.options)
    return (row.proof.state if key == "proof" else row.kind if key == "base" else str(getattr(row, key)),)


def _unpinned(catalog: Catalog, entry: Line, added: Collection[str]) -> tuple[str, ...]:
    """The archives of a line's components, and of some of its options, that have no checksum."""
    target = target_of(entry.line, entry.line.version)
    held = entry.line.components | {n: s for n, s in entry.line.options.items() if n in added}
    chosen = ((catalog.components[n].component.providers[s.provider], s) for n, s in held.items())
    sources = (source for provider, s in chosen for source in provider.sources_for(s.version, target) or ())
    return tuple(source.file for source in sources if source.sha256 is None)


def _until_locked(base: LineBase) -> tuple[Literal["root file system", "packages"], ...]:
    """What the distribution's archive decides on the day of a build; Amazon Linux's follows from the base image."""
    if base.os.startswith("amazonlinux"):
        return ()
    return ("root file system", "packages") if base.image is None else ("packages",)


def components(catalog: Catalog) -> ComponentsDocument:
    """A row per component, in the order of their layers."""
    rows = [
        ComponentRow(
            name=name,
            summary=folder.component.summary,
            providers={
                provider: tuple(sorted(each.versions, key=version_key))
                for provider, each in folder.component.providers.items()
            },
            requires=tuple(folder.component.requires),
        )
        for name, folder in sorted(catalog.components.items(), key=lambda item: item[1].component.order)
    ]
    return ComponentsDocument(schema="trainwright/components/1", components=tuple(rows))
