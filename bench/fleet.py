"""A run over 100 image lines on 1 to 64 builders, simulated: lines per hour, and when the client limits them.

The order is that of ``build --images``, by the same module; the stages, and which lines share them, are those of the
catalog. Seconds of stages are measured ones: those in ``docs/tour.md``, in ``devtools/recorded/build.txt`` and in
decision 47, or with ``--records`` those of the build records in a state folder. What the client does is done and timed:
a process that makes a plan and a Dockerfile, the files of the run's folder, and build contexts, whose bytes count.

Builders are elsewhere. What comes back is simulated in both ways: the results of the builder's proof alone (``build
--stay``, ``pipeline --format kubernetes``, the group ``proved`` of a bake file), or the image as well, which the engine
here pulls (``build --builder``, ``--registry``). Sizes of images and the speed of a pull are those that
``bench/sizes.py`` and ``bench/pull.py`` measured last.
"""

from __future__ import annotations

import argparse
import heapq
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.measured import keep  # noqa: E402
from bench.measured import measured as figures  # noqa: E402
from trainwright.build.store import BuildRecord  # noqa: E402
from trainwright.catalog.catalog import load_catalog  # noqa: E402
from trainwright.core.data_files import read_state  # noqa: E402
from trainwright.core.layout import size  # noqa: E402
from trainwright.core.records import read_record  # noqa: E402
from trainwright.fleet.fleet import Work  # noqa: E402
from trainwright.fleet.run_folder import RunFolder, UnitState, create  # noqa: E402
from trainwright.fleet.schedule import Schedule, Unit  # noqa: E402
from trainwright.fleet.units import works  # noqa: E402
from trainwright.pipeline.images import choose  # noqa: E402
from trainwright.pipeline.sharing import SharedImage, groups  # noqa: E402
from trainwright.plan.dockerfile import LAYER, OWN_STAGES, Stage, stages  # noqa: E402
from trainwright.plan.plan import Plan  # noqa: E402
from trainwright.plan.rendered import render_dockerfile  # noqa: E402
from trainwright.site.site import Site  # noqa: E402
from trainwright.verbs.build_images import program  # noqa: E402

BUILDERS = (1, 2, 4, 8, 16, 32, 64)
COMPILED = (
    469.0  # Open MPI from source on two cores: 7 minutes 49 seconds (docs/decisions/0047-the-wheel-of-open-mpi.md)
)
LINK = 125.0  # MB per second that a client of 1 Gbit/s sends or receives: an assumption
RESULTS = 55_000  # bytes of the results of a proof, of the CPU line (docs/decisions/0190-proof-in-the-build.md)
# A line of each kind of base, whose context is made here.
CONTEXTS = {
    "debian": ("--framework", "pytorch", "--cuda", "cpu"),
    "nvidia": ("--framework", "pytorch", "--cuda", "cu118"),
}
_LEDGER = re.compile(r"component +seconds +bytes\n(.*?)\n\n.*? in (\d+) s, probe passed", re.DOTALL)
_STEP = re.compile(r"#(\d+) (?:\[(\S+) \d+/\d+\]|(DONE )?([\d.]+)s? ?)")


@dataclass(frozen=True)
class Client:
    """What a unit costs the client.

    Attributes:
        before: seconds that its process takes one core before its builder works.
        after: seconds that a line takes one after it: its image is probed.
        sent: by unit, the bytes that the builder gets first.
        received: by unit, seconds in which what comes back takes the client's link.
        link: bytes per second of it.
        cores: that it has.
    """

    before: float
    after: float
    sent: Mapping[str, int]
    received: Mapping[str, float]
    link: float
    cores: int

    def limits(self, found: Sequence[Work]) -> dict[str, float]:
        """The seconds that a run takes at least, by what of the client is busy all the time."""
        lines = sum(work.progress.kind == "line" for work in found)
        names = [work.progress.name for work in found]
        carried = sum(self.sent[name] for name in names) / self.link + sum(self.received[name] for name in names)
        return {"cores": (self.before * len(found) + self.after * lines) / self.cores, "transfers": carried}


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


def the_run(
    count: int, known: Mapping[str, float], compiled: float
) -> tuple[list[Work], dict[str, float], dict[str, Plan]]:
    """The units of a run over so many lines of the catalog; of each the seconds on a builder, and whose context it has.

    Stages have that of the first line which needs them.
    """
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
    plans: dict[str, Plan] = {}
    parents = {group.name: set(group.stages) for group in shared}
    by_name = {image.name: image for image in named}
    first = {group.name: group.images[0] for group in shared}
    for work in found:
        name = work.progress.name
        taken: set[str] = set().union(*(parents[needed] for needed in work.needs))
        mine = work.progress.stages or None
        plans[name] = by_name[first.get(name, name)].plan
        text = texts[plans[name].id]
        total = 0.0
        for stage in stages(text):
            if stage.name not in taken and (mine is None or stage.name in mine) and stage.name not in OWN_STAGES:
                total += seconds_of(stage, known, compiled)
        seconds[name] = total
    return found, seconds, plans


def simulate(
    found: Sequence[Work],
    seconds: Mapping[str, float],
    *,
    builders: int,
    client: Client,
    folder: RunFolder | None = None,
) -> Simulated:
    """One run, without waiting.

    Args:
        found: what is built.
        seconds: of each unit on its builder.
        builders: how many units run at once.
        client: what a unit costs it.
        folder: gets a file for each change, as in a real run.
    """
    schedule = Schedule([Unit(work.progress.name, work.needs, work.wanted) for work in found], builders)
    progress = {work.progress.name: work.progress for work in found}
    free = [0.0] * client.cores  # when each core of the client is free
    carried = 0.0  # when its link is free
    events: list[tuple[float, bool, str]] = []  # when, whether it is the end, of which unit
    now = records = 0.0

    def on_core(ready: float, lasts: float) -> float:
        ends = max(ready, heapq.heappop(free)) + lasts
        heapq.heappush(free, ends)
        return ends

    def on_link(ready: float, lasts: float) -> float:
        nonlocal carried
        carried = max(ready, carried) + lasts
        return carried

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
            sent = on_link(on_core(now, client.before), client.sent[name] / client.link)
            heapq.heappush(events, (sent + seconds[name], False, name))
        now, is_end, name = heapq.heappop(events)
        if is_end:
            began = time.perf_counter()
            schedule.end(name)
            records += time.perf_counter() - began
            note(name, "built")
        else:
            there = on_link(now, client.received[name])
            heapq.heappush(
                events, (on_core(there, client.after) if progress[name].kind == "line" else there, True, name)
            )
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


def context_bytes(kind: str) -> int:
    """The bytes of the build context of a line on this kind of base, without wheels that a site has as files."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "context")
        subprocess.run(  # noqa: S603
            [*program(), "render", *CONTEXTS[kind], "--output", str(folder)], check=True, capture_output=True
        )
        files = [path for path in folder.rglob("*") if path.is_file() and path.relative_to(folder).parts[0] != "wheels"]
        return sum(path.stat().st_size for path in files)


def bottleneck(found: Sequence[Work], seconds: Mapping[str, float], client: Client) -> tuple[int, str]:
    """From how many builders on the client decides how long a run takes, and what of it."""
    what, least = max(client.limits(found).items(), key=lambda each: each[1])
    return math.ceil(sum(seconds.values()) / least), what


def pulled(cuda: bool) -> int:
    """The compressed bytes of an image, as they were measured."""
    sizes = figures("sizes")
    assert sizes is not None, "bench/sizes.py measures them"
    return int(sizes.values["pytorch:cu124" if cuda else "pytorch:cpu"]["compressed"])


def pull_speed() -> float:
    """Bytes per second, compressed, with which an engine pulled and unpacked an image."""
    pull = figures("pull")
    assert pull is not None, "bench/pull.py measures it"
    return pulled(cuda=False) / float(pull.values["seconds"])


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=100, help="image lines of the run")
    parser.add_argument("--cores", type=int, default=2, help="cores of the client")
    parser.add_argument("--link", type=float, default=LINK, help="MB per second that the client sends or receives")
    parser.add_argument("--compiled", type=float, default=COMPILED, help="seconds of each stage that compiles")
    parser.add_argument("--records", type=Path, help="a state folder (.trainwright) whose build records say more")
    parser.add_argument("--write", action="store_true", help="keep the figures, for docs/benchmarks.md")
    words = parser.parse_args()
    known, rest = measured(words.records)
    found, seconds, plans = the_run(words.lines, known, words.compiled)
    own = client_seconds(5)
    contexts = {kind: context_bytes(kind) for kind in CONTEXTS}
    shared = [work for work in found if work.progress.kind == "stages"]
    alone = sum(seconds[work.progress.name] for work in shared for _ in range(work.wanted - 1))
    print(f"{words.lines} lines and {len(shared)} groups of shared stages: {sum(seconds.values()) / 3600:.1f} hours of")
    print(
        f"one builder; without sharing {alone / 3600:.1f} hours more. On the client, a process takes {own:.2f} s of a"
    )
    print(f"core, and a line {rest:.1f} s more (context, probe, tags). A builder gets a context of")
    print(f"{size(contexts['debian'])} on Debian's base, {size(contexts['nvidia'])} on NVIDIA's.")
    link = words.link * 1e6
    sent = {name: contexts[plan.base.kind] for name, plan in plans.items()}
    names = {work.progress.name for work in found if work.progress.kind == "line"}
    pull = min(link, pull_speed())
    ways: dict[str, dict[str, float]] = {
        "results": {name: RESULTS / link if name in names else 0.0 for name in plans},
        "images": {name: pulled(plan.cuda != "cpu") / pull if name in names else 0.0 for name, plan in plans.items()},
    }
    kept_ways = {}
    for way, received in ways.items():
        client = Client(own, rest, sent, received, link, words.cores)
        table = [*rows_of(found, seconds, client, words.lines)]
        builders, what = bottleneck(found, seconds, client)
        carried = client.limits(found)["transfers"]
        print(
            f"\nThe {way} come home: {carried / 3600:.2f} hours of transfers, {size(sum(sent.values()))} of them sent."
        )
        print(f"From {builders} builders on, the client's {what} decide how long a run takes.")
        kept_ways[way] = {"rows": table, "builders": builders, "what": what}
    if words.write:
        said = {"lines": words.lines, "compiled": words.compiled, "cores": words.cores, "link": words.link}
        print(keep("fleet", {**said, "contexts": contexts, "sent": sum(sent.values()), **kept_ways}))


def rows_of(
    found: Sequence[Work], seconds: Mapping[str, float], client: Client, lines: int
) -> Iterator[dict[str, float]]:
    """The figures of a run on each number of builders; prints them as a table."""
    print("\n| builders | hours | lines per hour | builders busy | client busy | client delays by | its own records |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    least = client.limits(found)
    nothing = dict.fromkeys(seconds, 0)
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["TRAINWRIGHT_STATE"] = scratch
        for builders in BUILDERS:
            run = simulate(found, seconds, builders=builders, client=client, folder=create("*", (), {}))
            # As many cores as builders, and a link that carries everything at once: nothing waits for another one.
            free = replace(client, cores=builders, sent=nothing, received=nothing)
            ideal = simulate(found, seconds, builders=builders, client=free)
            busy = run.work / builders / run.seconds
            of_client = (max(least.values()) + run.records / client.cores) / run.seconds
            hourly = round(lines / run.seconds * 3600)
            yield {
                "builders": builders,
                "hours": round(run.seconds / 3600, 2),
                "busy": round(busy, 2),
                "lines_per_hour": hourly,
            }
            print(
                f"| {builders} | {run.seconds / 3600:.2f} | {hourly} | {busy:.0%} "
                f"| {of_client:.0%} | {run.seconds / ideal.seconds - 1:.1%} | {run.records:.2f} s |"
            )


if __name__ == "__main__":
    main()
