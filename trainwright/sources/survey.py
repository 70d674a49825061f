"""Whether every byte of some image lines is available today: base images, archives, packages. Nothing is built."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Literal

from trainwright.catalog.catalog import Catalog
from trainwright.catalog.image_line import Line
from trainwright.catalog.nvidia_images import other_places
from trainwright.core.errors import Failure, SourceError
from trainwright.core.masking import mask
from trainwright.core.records import Document, Field
from trainwright.core.say import Say
from trainwright.engine.engine import Engine
from trainwright.plan.of_line import plan_of
from trainwright.site.site import Site
from trainwright.sources.base_image import fetch_command
from trainwright.sources.gather import gather
from trainwright.sources.inputs import Input, Inputs
from trainwright.sources.reachability import Source, archive_sources, ask, image_source, image_sources

AT_A_TIME = 40  # sources that are asked at the same time
SECONDS = 30.0  # for as many
LINES_AT_A_TIME = 4  # whose Python packages are asked for: uv waits for indexes most of its time


class Unavailable(Document):
    """A source that no place has: what it is, which component needs it, and the reason by place."""

    kind: Literal["archive", "base image", "python package"]
    name: str
    needed_by: str
    places: dict[str, str]


class LineSources(Document):
    """The sources of an image line."""

    framework: str
    version: str
    variant: str
    cuda: str
    python: str
    base: str
    asked: int = Field(description="sources: base images, archives, files of Python packages")
    local: int = Field(description="sources that are on this machine")
    unavailable: tuple[Unavailable, ...]
    unpinned: tuple[str, ...] = Field(description="archives whose checksum nobody publishes, and tags of base images")
    problem: str = Field(default="", description="why the line could not be asked about")


class SourcesDocument(Document):
    """``sources --json``."""

    schema: Literal["trainwright/sources/1"]
    base_images_asked: bool = Field(description="false: there is no engine to ask with")
    lines: tuple[LineSources, ...]


# The files of a line's Python packages that no index of the site offers with the locked checksum.
MissingPackages = Callable[[Line, Inputs], Iterable[Input]]


@dataclass(frozen=True)
class _Gathered:
    entry: Line
    inputs: Inputs | None
    problem: str
    sources: tuple[Source, ...]


def survey(
    entries: Iterable[Line],
    catalog: Catalog,
    site: Site,
    engine: Engine | None,
    missing_packages: MissingPackages,
    *,
    say: Say,
) -> SourcesDocument:
    """Ask for every source of some lines, each source once.

    Args:
        entries: the lines.
        catalog: has their components.
        site: its mirrors, folders, proxies and credentials.
        engine: asks registries for base images; without one they are not asked for.
        missing_packages: of the files of Python packages, those that no index has.
        say: progress callback.
    """
    gathered = [_gather(entry, catalog, site, engine) for entry in entries]
    distinct = list({_key(source): source for each in gathered for source in each.sources}.values())
    silent: dict[tuple[str, str], dict[str, str]] = {}
    for begin in range(0, len(distinct), AT_A_TIME):
        some = distinct[begin : begin + AT_A_TIME]
        say(f"asking for archives and base images, {begin + len(some)} of {len(distinct)}")
        silent |= {_key(source): places for source, places in ask(some, SECONDS)}
    if engine is not None:
        silent |= {key: places | _elsewhere(key[1], engine) for key, places in silent.items() if key[0] == "base image"}
    rows = []
    for each, row in zip(gathered, _rows(gathered, silent, missing_packages), strict=True):
        rows.append(row)
        say(f"{row.framework}/{each.entry.name}: {_verdict(row)} ({len(rows)} of {len(gathered)} lines)")
    return SourcesDocument(schema="trainwright/sources/1", base_images_asked=engine is not None, lines=tuple(rows))


def _rows(
    gathered: Sequence[_Gathered], silent: Mapping[tuple[str, str], dict[str, str]], missing: MissingPackages
) -> Iterator[LineSources]:
    """The lines in their order, some at a time, each as soon as it is known."""
    pool = ThreadPoolExecutor(LINES_AT_A_TIME)
    try:
        yield from pool.map(partial(_row, silent=silent, missing=missing), gathered)
    finally:
        pool.shutdown(cancel_futures=True)


def _verdict(row: LineSources) -> str:
    if row.problem or row.unavailable:
        return row.problem or f"missing: {', '.join(each.name for each in row.unavailable)}"
    return f"all {row.asked} sources answer"


def _elsewhere(image: str, engine: Engine) -> dict[str, str]:
    """What the other registries that publish an image answer, if there are any."""
    name = image.partition("@")[0]
    others = other_places(name)
    refused = {
        other.name: places[other.name] for other, places in ask([image_source(o, engine) for o in others], SECONDS)
    }
    return {other: refused.get(other) or f"has it: {fetch_command(other, name)}" for other in others}


def _gather(entry: Line, catalog: Catalog, site: Site, engine: Engine | None) -> _Gathered:
    """What a build of the line needs."""
    try:
        inputs = gather(plan_of(entry, catalog, site.base_image, site.aws.region), catalog, site)
    except Failure as failed:
        return _Gathered(entry, None, failed.message, ())
    sources = archive_sources(inputs, SECONDS) + (image_sources(inputs, engine) if engine is not None else [])
    return _Gathered(entry, inputs, "", tuple(sources))


def _row(each: _Gathered, *, silent: Mapping[tuple[str, str], dict[str, str]], missing: MissingPackages) -> LineSources:
    line, inputs, problem = each.entry.line, each.inputs, each.problem
    unavailable = [
        Unavailable(kind=source.kind, name=source.name, needed_by=source.needed_by, places=silent[_key(source)])
        for source in each.sources
        if source.kind != "index" and _key(source) in silent
    ]
    try:
        unavailable += [
            Unavailable(kind="python package", name=file.file, needed_by=file.owner, places=_at_indexes(file))
            for file in (missing(each.entry, inputs) if inputs is not None else ())
        ]
    except SourceError as failed:
        problem = failed.message
    files = (*inputs.archives, *inputs.python) if inputs is not None else ()
    images = inputs.images if inputs is not None else ()
    return LineSources(
        framework=line.framework,
        version=line.version,
        variant=line.variant,
        cuda=line.cuda_tag,
        python=line.python,
        base=line.base.os,
        asked=len(files) + len(images),
        local=sum(file.path is not None for file in files),
        unavailable=tuple(unavailable),
        unpinned=(
            *(archive.file for archive in (inputs.archives if inputs is not None else ()) if archive.sha256 is None),
            *(image.name for image in images if image.digest is None),
        ),
        problem=problem,
    )


def _at_indexes(file: Input) -> dict[str, str]:
    places = [mask(url) for url in file.indexes] or ["the package index"]
    return dict.fromkeys(places, "does not have this file with this checksum")


def _key(source: Source) -> tuple[str, str]:
    return source.kind, source.name
