"""``sources``: whether every byte of the image lines is available today."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from trainwright.cli.flags import ArtifactsFlag, CatalogFlag, JsonFlag, SiteFlag, emit, verb
from trainwright.cli.output import Ended, say
from trainwright.core.errors import EngineError, RequestError, SourceError
from trainwright.core.layout import table
from trainwright.core.paths import use_catalog
from trainwright.core.records import Field

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainwright.catalog.image_line import Line
    from trainwright.sources.inputs import Input, Inputs
    from trainwright.sources.survey import LineSources, SourcesDocument


class SourcesFlags(CatalogFlag, SiteFlag, ArtifactsFlag, JsonFlag):
    """The flags of ``sources``."""

    bare: ClassVar[str] = "lines"
    heading: ClassVar[str] = "Which lines"
    examples: ClassVar[tuple[str, ...]] = (
        "sources pytorch/cpu pytorch:cu124",
        "sources --check --framework pytorch",
        "sources --framework pytorch --cuda cu124 --site site.toml",
        "sources --json",
    )

    lines: tuple[str, ...] = Field(
        default=(),
        alias="line",
        description="image lines: pytorch/cpu (a folder of images/), pytorch:cu124, pytorch, or a pattern",
    )
    check: bool = Field(default=False, description="accepted for clarity; checking is all that this verb does")
    framework: str | None = Field(default=None, description="only lines of this framework", values="frameworks")
    version: str | None = Field(default=None, description="only lines of this version")
    cuda: str | None = Field(default=None, description="only lines of this CUDA version", values="cudas")


@verb
def sources(flags: SourcesFlags) -> None:
    """Check that every byte of the image lines can be fetched.

    Nothing is built; if something is missing, the exit code is 8.
    """
    from pathlib import Path

    from trainwright.catalog.catalog import open_catalog
    from trainwright.catalog.image_line import cuda_tag
    from trainwright.catalog.listing import named, select
    from trainwright.engine.engine import connect
    from trainwright.plan.request import parse_cuda
    from trainwright.site.site import load_site
    from trainwright.sources.survey import survey

    use_catalog(flags.catalog)
    catalog, site = open_catalog(), load_site(Path(flags.site) if flags.site else None)
    tag = cuda_tag(parse_cuda(flags.cuda)) if flags.cuda else None
    if flags.lines and (flags.framework or flags.version or flags.cuda):
        raise RequestError(
            "sources takes image lines, or the flags that select some, but not both",
            remedy=f"For example: ./invoke sources {' '.join(flags.lines)}",
        )
    entries = named(catalog, flags.lines) if flags.lines else select(catalog, flags.framework, tag, flags.version)
    try:
        engine = connect(setup=False)
    except EngineError as lacking:
        engine = None
        say(f"base images are not asked for: {lacking.message}")
    document = survey(entries, catalog, site, engine, missing_packages, say=say)
    emit(document, sources_text, as_json=flags.json_)
    if any(line.unavailable or line.problem for line in document.lines):
        raise Ended(SourceError.exit_code)


def missing_packages(entry: Line, inputs: Inputs) -> Iterable[Input]:
    """The files of a line's Python packages that no index of the site offers with the locked checksum.

    Raises:
        SourceError: no index answers.
    """
    from trainwright.catalog.tools import COMPONENT as TOOLS
    from trainwright.catalog.tools import PLATFORM
    from trainwright.catalog.wheel_lock import Lock, LockedPackage
    from trainwright.lock.python_files import addresses, tool_addresses

    elsewhere = [file for file in inputs.python if file.path is None]
    locked: dict[str, list[LockedPackage]] = {"": [], TOOLS: []}
    for file in elsewhere:
        name, _, version = (file.source.package or "").partition("==")
        package = LockedPackage(name=name, version=version, file=file.file, sha256=str(file.sha256))
        locked[TOOLS if file.owner == TOOLS else ""].append(package)
    plan = inputs.plan
    platform = Lock.load(entry.lock_path).platform if entry.lock_path.is_file() else PLATFORM
    own = [component.index for component in plan.components if component.index]
    found = addresses(locked[""], plan.python, platform, inputs.site, own)
    found |= tool_addresses(locked[TOOLS], plan.python, inputs.site)
    return [file for file in elsewhere if file.file not in found]


def sources_text(document: SourcesDocument) -> str:
    """A line per image line; under it what is missing."""
    head = ("framework", "version", "cuda", "base", "sources", "here", "missing", "unpinned")
    rows = [head, *(_row(line) for line in document.lines)]
    first, *others = table(rows).splitlines()
    lines = [first]
    for text, line in zip(others, document.lines, strict=True):
        lines.append(text)
        lines += [f"    {line.problem}"] if line.problem else []
        for one in line.unavailable:
            lines.append(f"    {one.kind} {one.name}, needed by {one.needed_by}")
            lines += [f"        {place}: {why}" for place, why in one.places.items()]
    missing = sum(bool(line.unavailable or line.problem) for line in document.lines)
    asked = "" if document.base_images_asked else "; base images were not asked for, as there is no engine"
    whole = len(document.lines) - missing
    lines += ["", f"{whole} of {len(document.lines)} lines can be built from these sources{asked}"]
    return "\n".join(lines)


def _row(line: LineSources) -> tuple[str, ...]:
    name = f"{line.version} {line.variant}".strip()
    counts = (line.asked, line.local, len(line.unavailable), len(line.unpinned))
    return (line.framework, name, line.cuda, line.base, *map(str, counts))
