"""The report of a run over many image lines: what came of each, where the time went, which layers the images share.

It is made of what the run's folder and the build records say, and can be made while the run goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

from trainwright.build import store
from trainwright.build.ledger import TimedStep, Timeline
from trainwright.build.store import BuildRecord
from trainwright.core.data_files import read_state
from trainwright.core.layout import size
from trainwright.core.records import Document, Field, MisfitError, read_record
from trainwright.fleet.run_folder import RunFolder, UnitError, UnitProgress, UnitState
from trainwright.fleet.summary import JSON, FleetDocument, SetTags
from trainwright.push.proof import smoke_lacks
from trainwright.report.markdown import MARK, code, plain, table
from trainwright.report.page import render
from trainwright.report.timing import Timing, clock, timing_of
from trainwright.report.treemap import Tile, Weight, squarify
from trainwright.report.weights import NARROW, WIDE

ProofState = Literal["proven", "not tested", "failed", ""]
_COLOURS = {"built": 2, "failed": 6, "stages": 1}  # of the page's style: green, red, blue; the others are grey
_MOST = 15  # rows of Markdown's tables


class RunUnit(Document):
    """Shared stages, or an image line, in the report of a run."""

    name: str
    state: UnitState
    started: float | None = Field(description="seconds from the first start, without those in which nothing ran")
    seconds: float
    error: UnitError | None = None


class RunStages(RunUnit):
    """Build stages that several lines share."""

    stages: tuple[str, ...] = ()


class RunLine(RunUnit):
    """An image line, and the image that was built of it. ``cached_steps`` of ``total_steps`` came from the cache."""

    proof: ProofState = Field(default="", description="whether its smoke tests passed; empty without an image")
    build_seconds: float = Field(default=0.0, description="from the first step of the builder in this run to the last")
    cached_steps: int = 0
    total_steps: int = 0
    size_bytes: int = 0
    layers: int = 0
    image: str | None = None
    tag: str = ""
    report: str = Field(default="", description="the page of its image, if it is beside this report; otherwise empty")
    log: str = ""


class Spent(Document):
    """A component, or a shared stage, and the seconds that its steps ran in this run, side by side or not."""

    name: str
    seconds: float
    lines: int


class RunLayer(Document):
    """A layer, and the lines whose images have it. Bytes are unpacked."""

    digest: str
    component: str
    bytes: int
    lines: tuple[str, ...]


class RunReportDocument(Document):
    """``report --run --format json``."""

    schema: Literal["trainwright/run-report/1"]
    run: str
    folder: str
    images: str = Field(description="the words of --images")
    created_at: str
    made_at: str
    outcome: Literal["built", "failed", "unfinished"]
    seconds: float = Field(
        description="in which something was built; those between two commands of the run are left out"
    )
    work_seconds: float = Field(description="of all lines and shared stages together")
    most: int = Field(description="how many were built at the same time")
    lines: tuple[RunLine, ...]
    stages: tuple[RunStages, ...]
    spent: tuple[Spent, ...] = Field(description="the longest first; lines alone, as stages have no record")
    layers: tuple[RunLayer, ...] = Field(description="the heaviest first")
    bytes: int = Field(description="of all images, each for itself")
    distinct_bytes: int = Field(description="of all layers, each once: what a registry or a host keeps of all of them")
    moving: SetTags | None = Field(default=None, description="the moving tags of the set, with --push")

    def count(self, state: str) -> int:
        """How many lines are in a state."""
        return sum(line.state == state for line in self.lines)

    @property
    def proven(self) -> int:
        """How many lines have a proven image."""
        return sum(line.proof == "proven" for line in self.lines)

    @property
    def shared(self) -> list[RunLayer]:
        """The layers that several images have."""
        return [layer for layer in self.layers if len(layer.lines) > 1]


def run_report(folder: RunFolder, beside: Path) -> RunReportDocument:
    """The report of a run.

    Args:
        folder: of the run.
        beside: the folder for the report; pages of images that are there are named (``LINE.html``).
    """
    units: dict[tuple[str, str], UnitProgress] = {(unit.kind, unit.name): unit for unit in folder.units()}
    starts = _starts(list(units.values()))
    records: dict[str, BuildRecord] = {}
    lines = []
    for name in folder.run.lines:
        unit = units.get(("line", name))
        record = store.load(unit.image) if unit is not None and unit.image and unit.state == "built" else None
        if record is not None:
            records[name] = record
        lines.append(_line(name, unit, record, starts.get(("line", name)), beside))
    stages = [
        RunStages(
            name=u.name, state=u.state, started=starts.get(key), seconds=u.seconds, error=u.error, stages=u.stages
        )
        for key, u in units.items()
        if u.kind == "stages"
    ]
    timing = _timing([*stages, *lines])
    layers = _layers(records)
    unfinished = any(line.state in ("pending", "running") for line in lines)
    return RunReportDocument(
        schema="trainwright/run-report/1",
        run=folder.run.id,
        folder=str(folder.path),
        images=folder.run.images,
        created_at=folder.run.created_at,
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        outcome="unfinished" if unfinished else "failed" if any(line.state == "failed" for line in lines) else "built",
        seconds=timing.seconds if timing else 0.0,
        work_seconds=round(timing.work, 1) if timing else 0.0,
        most=timing.most if timing else 0,
        lines=tuple(lines),
        stages=tuple(stages),
        spent=tuple(_spent(records, units)),
        layers=tuple(layers),
        bytes=sum(layer.bytes * len(layer.lines) for layer in layers),
        distinct_bytes=sum(layer.bytes for layer in layers),
        moving=_moving(folder),
    )


def _line(
    name: str, unit: UnitProgress | None, record: BuildRecord | None, started: float | None, beside: Path
) -> RunLine:
    if unit is None:
        return RunLine(name=name, state="pending", started=None, seconds=0.0)
    page = f"{name}.html"
    made = RunLine(
        name=name,
        state=unit.state,
        started=started,
        seconds=unit.seconds,
        error=unit.error,
        size_bytes=unit.size_bytes,
        image=unit.image,
        tag=unit.tags[0] if unit.tags else "",
        report=page if record is not None and (beside / page).is_file() else "",
        log=unit.log,
    )
    if record is None:
        return made
    timing = timing_of(record.timeline) if record.timeline is not None and _in_this_run(record, unit) else None
    return made.replace(
        proof="not tested" if record.smoke is None else "failed" if smoke_lacks(record) else "proven",
        build_seconds=round(timing.seconds, 1) if timing else 0.0,
        cached_steps=record.cached_steps,
        total_steps=record.total_steps,
        layers=len(record.layers),
    )


def _in_this_run(record: BuildRecord, unit: UnitProgress) -> bool:
    """Whether the steps of a record ran for this unit; a build from the cache keeps the times of the one before."""
    return (
        record.timeline is not None
        and unit.started_at is not None
        and datetime.fromisoformat(record.timeline.built_at) >= datetime.fromisoformat(unit.started_at)
    )


class _Ran(NamedTuple):
    key: tuple[str, str]
    start: float
    end: float


def _starts(units: Sequence[UnitProgress]) -> dict[tuple[str, str], float]:
    """When each unit began, in seconds from the first, without the time in which nothing ran."""
    ran = []
    for unit in units:
        if unit.started_at is not None and unit.seconds > 0:
            start = datetime.fromisoformat(unit.started_at).timestamp()
            ran.append(_Ran((unit.kind, unit.name), start, start + unit.seconds))
    found: dict[tuple[str, str], float] = {}
    until = idle = 0.0
    for each in sorted(ran, key=lambda one: one.start):
        idle += max(0.0, each.start - until)
        found[each.key] = round(each.start - idle, 1)
        until = max(until, each.end)
    return found


def _timing(units: Sequence[RunUnit]) -> Timing | None:
    """The units as a timeline: each is a row."""
    steps = [
        TimedStep(
            stage=unit.name,
            component="stages" if isinstance(unit, RunStages) else unit.state,
            text=", ".join(unit.stages) if isinstance(unit, RunStages) else unit.state,
            start=unit.started,
            seconds=unit.seconds,
            cached=False,
        )
        for unit in units
        if unit.started is not None
    ]
    return timing_of(Timeline(built_at="", steps=tuple(steps)))


def _spent(records: Mapping[str, BuildRecord], units: Mapping[tuple[str, str], UnitProgress]) -> Iterator[Spent]:
    """What took how long, by component: the steps that the lines ran."""
    seconds: dict[str, float] = {}
    lines: dict[str, set[str]] = {}
    for name, record in records.items():
        if record.timeline is None or not _in_this_run(record, units["line", name]):
            continue
        for step in record.timeline.steps:
            if step.seconds > 0:
                seconds[step.component] = seconds.get(step.component, 0.0) + step.seconds
                lines.setdefault(step.component, set()).add(name)
    for name in sorted(seconds, key=lambda name: (-seconds[name], name)):
        yield Spent(name=name, seconds=round(seconds[name], 1), lines=len(lines[name]))


def _layers(records: Mapping[str, BuildRecord]) -> list[RunLayer]:
    """Each layer of the images once."""
    found: dict[str, RunLayer] = {}
    for name, record in records.items():
        for layer in record.layers:
            known = found.get(layer.digest)
            if known is None:
                found[layer.digest] = RunLayer(
                    digest=layer.digest, component=layer.component, bytes=layer.bytes, lines=(name,)
                )
            elif name not in known.lines:  # an image may have a layer twice, such as an empty one
                found[layer.digest] = known.replace(lines=(*known.lines, name))
    return sorted(found.values(), key=lambda layer: (-layer.bytes, layer.digest))


def _moving(folder: RunFolder) -> SetTags | None:
    """The moving tags of the set, as the last command of the run left them."""
    try:
        return read_record(FleetDocument, read_state(folder.path / JSON)).moving
    except MisfitError:  # no command has ended yet
        return None


# --- HTML and Markdown ------------------------------------------------------------------------------------------------


def run_page(report: RunReportDocument) -> str:
    """The page of a run. Names of lines and texts of failures are other people's, and are escaped."""
    timing = _timing([*report.stages, *report.lines])
    return render(
        "run.html.j2",
        report=report,
        timing=timing,
        colours=_COLOURS,
        wide=_tiles(report, *WIDE),
        narrow=_tiles(report, *NARROW),
        shares={"every": 2, "several": 1},
        WIDE=WIDE,
        NARROW=NARROW,
    )


def _tiles(report: RunReportDocument, width: float, height: float) -> list[Tile]:
    """The distinct layers as a treemap, each with how many images have it."""
    images = len({name for layer in report.layers for name in layer.lines})
    weights = [
        Weight(
            f"{layer.component}, in {len(layer.lines)} of {images}",
            layer.bytes,
            "own" if len(layer.lines) == 1 else "every" if len(layer.lines) == images else "several",
        )
        for layer in report.layers
    ]
    return squarify(weights, 0.0, 0.0, width, height)


def run_markdown(report: RunReportDocument) -> str:
    """The report of a run as Markdown."""
    parts = [MARK, f"# Run {plain(report.run)}: {code(report.images)}", said(report)]
    rows = [
        (
            plain(line.name),
            line.state,
            line.proof,
            clock(line.seconds) if line.seconds else "",
            size(line.size_bytes) if line.size_bytes else "",
            code(line.tag) if line.tag else plain(first(line)),
        )
        for line in report.lines
    ]
    parts.append(table(("line", "state", "proof", "time", "size", "tag or reason"), rows))
    if report.spent:
        spent = [(plain(each.name), clock(each.seconds), str(each.lines)) for each in report.spent[:_MOST]]
        parts += ["## Where the time went", table(("component", "steps", "lines"), spent)]
    if report.layers:
        parts += ["## Layers", layers_said(report)]
        shared = [
            (plain(each.component), code(each.digest[7:19]), size(each.bytes), str(len(each.lines)))
            for each in report.shared[:_MOST]
        ]
        parts += [table(("component", "layer", "bytes", "images"), shared)] if shared else []
    return "\n\n".join(parts) + "\n"


def said(report: RunReportDocument) -> str:
    """What came of a run, in a line."""
    states = ("built", "failed", "skipped", "running", "pending")
    counts = [f"{number} {state}" for state in states if (number := report.count(state))]
    return (
        f"{', '.join(counts) or 'no lines'}, {report.proven} proven; {clock(report.work_seconds)} of work in "
        f"{clock(report.seconds)}, up to {report.most} at a time."
    )


def layers_said(report: RunReportDocument) -> str:
    """How much of the images is shared, in a line."""
    return (
        f"{size(report.bytes)} in all images, {size(report.distinct_bytes)} with each of the {len(report.layers)} "
        f"different layers once; {len(report.shared)} of them are in several images."
    )


def first(line: RunUnit) -> str:
    """The first line of why something failed; empty if it did not."""
    return next(iter(line.error.message.splitlines()), "") if line.error is not None else ""
