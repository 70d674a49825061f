"""A run over 100 image lines on 1 to 64 builders, simulated: lines per hour, and what the client costs.

The order is that of ``build --images``, by the same module; the stages, and which lines share them, are those of the
catalog. Seconds of stages are measured ones: those in ``docs/tour.md``, in ``devtools/recorded/build.txt`` and in
decision 47, or with ``--records`` those of the build records in a state folder. What the client does is done and timed:
a process that makes a plan and a Dockerfile, and the files of the run's folder.
"""

from __future__ import annotations

import argparse
import heapq
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.measured import keep  # noqa: E402
from trainwright.build.store import BuildRecord  # noqa: E402
from trainwright.catalog.catalog import load_catalog  # noqa: E402
from trainwright.core.data_files import read_state  # noqa: E402
from trainwright.core.records import read_record  # noqa: E402
from trainwright.fleet.fleet import Work  # noqa: E402
from trainwright.fleet.run_folder import RunFolder, UnitState, create  # noqa: E402
from trainwright.fleet.schedule import Schedule, Unit  # noqa: E402
from trainwright.fleet.units import works  # noqa: E402
from trainwright.pipeline.images import choose  # noqa: E402
from trainwright.pipeline.sharing import SharedImage, groups  # noqa: E402
from trainwright.plan.dockerfile import LAYER, OWN_STAGES, Stage, stages  # noqa: E402
from trainwright.plan.rendered import render_dockerfile  # noqa: E402
from trainwright.site.site import Site  # noqa: E402
from trainwright.verbs.build_images import program  # noqa: E402

BUILDERS = (1, 2, 4, 8, 16, 32, 64)
COMPILED = (
    469.0  # Open MPI from source on two cores: 7 minutes 49 seconds (docs/decisions/0047-the-wheel-of-open-mpi.md)
)
_LEDGER = re.compile(r"component +seconds +bytes\n(.*?)\n\n.*? in (\d+) s, probe passed", re.DOTALL)
_STEP = re.compile(r"#(\d+) (?:\[(\S+) \d+/\d+\]|(DONE )?([\d.]+)s? ?)")


@dataclass(frozen=True)
class Simulated:
    """A run: its seconds, those that builders worked, and those that this client took for its own records."""

    seconds: float
    work: float
    records: float


def measured(folder: Path | None) -> tuple[dict[str, float], float]:
    """Seconds of stages by name; and of a build beside its stages (context, probe, tags)."""
    told = _LEDGER.search((ROOT / "docs/tour.md").read_text())
    assert told is not None, "docs/tour.md shows no build"
    rows = [line.split() for line in told[1].splitlines()]
    found = {row[0]: float(row[1]) for row in rows if row[-1] != "cached"}
    rest = float(told[2]) - sum(found.values())
    whole, begun = _recorded(ROOT / "devtools/recorded/build.txt")
    return begun | found | whole | (_of_records(folder) if folder else {}), rest


def _recorded(log: Path) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds of the stages that a recorded log shows to their end; and of those whose end it does not show, so far."""
    stage_of: dict[str, str] = {}
    seconds: dict[str, float] = {}
    ended: set[str] = set()
    for number, stage, done, lasted in _STEP.findall(log.read_text()):
        if stage:
            stage_of[number] = stage.removesuffix(LAYER)
        else:
            seconds[number] = float(lasted)
            ended |= {number} if done else set()
    open_ = {stage_of[number] for number in seconds if number not in ended}
    of_stage: dict[str, float] = {}
    for number, lasted in seconds.items():
        of_stage[stage_of[number]] = of_stage.get(stage_of[number], 0.0) + lasted
    return (
        {stage: lasted for stage, lasted in of_stage.items() if stage not in open_},
        {stage: lasted for stage, lasted in of_stage.items() if stage in open_},
    )


def _of_records(state: Path) -> dict[str, float]:
    """The median of each stage over the build records of a state folder that did not take it from the cache."""
    seen: dict[str, list[float]] = {}
    for path in sorted(state.glob("images/*/record.json")):
        timeline = read_record(BuildRecord, read_state(path)).timeline
        own: dict[str, float] = {}
        for step in timeline.steps if timeline else ():
            if not step.cached:
                stage = step.stage.removesuffix(LAYER)
                own[stage] = own.get(stage, 0.0) + step.seconds
        for stage, seconds in own.items():
            seen.setdefault(stage, []).append(seconds)
    return {stage: statistics.median(each) for stage, each in seen.items()}


def seconds_of(stage: Stage, known: Mapping[str, float], compiled: float) -> float:
    """Seconds of a stage; one that was not measured takes as long as PyTorch's."""
    if any("$(compile-jobs" in each for each in stage.instructions):
        return compiled
    return known.get(stage.name.removesuffix(LAYER), known["pytorch"])


def the_run(count: int, known: Mapping[str, float], compiled: float) -> tuple[list[Work], dict[str, float]]:
    """The units of a run over so many lines of the catalog, and the seconds of each on a builder."""
    catalog = load_catalog()
    # What extends one of AWS's containers waits for gigabytes from a registry, which was not measured.
    chosen = [image for image in choose("*", catalog, Site()) if image.plan.base.kind != "dlc"]
    images = [chosen[number % len(chosen)] for number in range(count)]
    # Lines beyond the catalog's are those of somebody else: the same again, under names of their own.
    named = [
        type(image)(f"{image.name}-{n // len(chosen)}", image.request, image.plan) for n, image in enumerate(images)
    ]
    texts = {image.plan.id: render_dockerfile(image.plan, catalog) for image in chosen}
    shared = groups([SharedImage(image.name, image.plan, texts[image.plan.id]) for image in named])
    found = works(named, shared, [], [], [])
    seconds: dict[str, float] = {}
    parents = {group.name: set(group.stages) for group in shared}
    by_name = {image.name: image for image in named}
    first = {group.name: group.images[0] for group in shared}
    for work in found:
        name = work.progress.name
        taken: set[str] = set().union(*(parents[needed] for needed in work.needs))
        mine = work.progress.stages or None
        text = texts[by_name[first.get(name, name)].plan.id]
        total = 0.0
        for stage in stages(text):
            if stage.name not in taken and (mine is None or stage.name in mine) and stage.name not in OWN_STAGES:
                total += seconds_of(stage, known, compiled)
        seconds[name] = total
    return found, seconds


def simulate(
    found: Sequence[Work],
    seconds: Mapping[str, float],
    *,
    builders: int,
    client: tuple[float, float],
    cores: int,
    folder: RunFolder | None = None,
) -> Simulated:
    """One run, without waiting.

    Args:
        found: what is built.
        seconds: of each unit on its builder.
        builders: how many units run at once.
        client: seconds that the process of a unit takes one core of the client before its builder works; and after it,
            if it is a line, whose image is probed.
        cores: of the client.
        folder: gets a file for each change, as in a real run.
    """
    before, after = client
    schedule = Schedule([Unit(work.progress.name, work.needs, work.wanted) for work in found], builders)
    progress = {work.progress.name: work.progress for work in found}
    free = [0.0] * cores  # when each core of the client is free
    events: list[tuple[float, bool, str]] = []  # when, whether it is the end, of which unit
    now = records = 0.0

    def on_client(lasts: float) -> float:
        ends = max(now, heapq.heappop(free)) + lasts
        heapq.heappush(free, ends)
        return ends

    def note(name: str, state: UnitState) -> None:
        nonlocal records
        began = time.perf_counter()
        if folder is not None:
            folder.keep(progress[name].replace(state=state, log=str(folder.log("line", name))))
        records += time.perf_counter() - began

    while not schedule.done:
        began = time.perf_counter()
        started = schedule.start()
        records += time.perf_counter() - began
        for name in started:
            note(name, "running")
            heapq.heappush(events, (on_client(before) + seconds[name], False, name))
        now, is_end, name = heapq.heappop(events)
        if is_end:
            began = time.perf_counter()
            schedule.end(name)
            records += time.perf_counter() - began
            note(name, "built")
        else:
            heapq.heappush(events, (on_client(after) if progress[name].kind == "line" else now, True, name))
    return Simulated(now, sum(seconds.values()), records)


def client_seconds(rounds: int) -> float:
    """Seconds of a processor that a process takes here for its plan and its Dockerfile, the median of some."""
    taken = []
    for _ in range(rounds):
        before = os.times()
        argv = [*program(), "render", "--framework", "pytorch", "--cuda", "cu124", "--version", "2.6.0"]
        subprocess.run(argv, check=True, capture_output=True)  # noqa: S603
        after = os.times()
        taken.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return statistics.median(taken)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=100, help="image lines of the run")
    parser.add_argument("--cores", type=int, default=2, help="cores of the client")
    parser.add_argument("--compiled", type=float, default=COMPILED, help="seconds of each stage that compiles")
    parser.add_argument("--records", type=Path, help="a state folder (.trainwright) whose build records say more")
    parser.add_argument("--write", action="store_true", help="keep the figures, for docs/benchmarks.md")
    words = parser.parse_args()
    known, rest = measured(words.records)
    found, seconds = the_run(words.lines, known, words.compiled)
    own = client_seconds(5)
    shared = [work for work in found if work.progress.kind == "stages"]
    alone = sum(seconds[work.progress.name] for work in shared for _ in range(work.wanted - 1))
    print(f"{words.lines} lines and {len(shared)} groups of shared stages: {sum(seconds.values()) / 3600:.1f} hours of")
    print(
        f"one builder; without sharing {alone / 3600:.1f} hours more. On the client, a process takes {own:.2f} s of a"
    )
    print(f"core, and a line {rest:.1f} s more (context, probe, tags).")
    rows = []
    print("\n| builders | hours | lines per hour | builders busy | client busy | client delays by | its own records |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["TRAINWRIGHT_STATE"] = scratch
        for builders in BUILDERS:
            kept = create("*", (), {})
            run = simulate(found, seconds, builders=builders, client=(own, rest), cores=words.cores, folder=kept)
            # As many cores as builders: nothing waits for another one.
            ideal = simulate(found, seconds, builders=builders, client=(own, rest), cores=builders)
            busy = run.work / builders / run.seconds
            of_client = (own * len(found) + rest * words.lines + run.records) / words.cores / run.seconds
            row = {"builders": builders, "hours": round(run.seconds / 3600, 2), "busy": round(busy, 2)}
            rows.append(row | {"lines_per_hour": round(words.lines / run.seconds * 3600)})
            print(
                f"| {builders} | {run.seconds / 3600:.2f} | {words.lines / run.seconds * 3600:.0f} | {busy:.0%} "
                f"| {of_client:.0%} | {run.seconds / ideal.seconds - 1:.1%} | {run.records:.2f} s |"
            )
    if words.write:
        print(keep("fleet", {"lines": words.lines, "compiled": words.compiled, "cores": words.cores, "rows": rows}))


if __name__ == "__main__":
    main()
