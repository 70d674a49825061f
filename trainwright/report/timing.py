"""The build as a timeline: which steps ran side by side, and how many at a time."""

from __future__ import annotations

import re
from typing import NamedTuple

from trainwright.build.ledger import TimedStep, Timeline


class Lane(NamedTuple):
    """The steps of a stage, which run one after the other."""

    stage: str
    steps: tuple[TimedStep, ...]


class Timing(NamedTuple):
    """A timeline to draw. ``load``: from each second on, how many steps run; ``ticks``: seconds to label."""

    seconds: float
    work: float
    most: int
    lanes: tuple[Lane, ...]
    load: tuple[tuple[float, int], ...]
    ticks: tuple[float, ...]


def timing_of(timeline: Timeline) -> Timing | None:
    """What there is to draw of a timeline; nothing where every step came from the cache."""
    ran = [step for step in timeline.steps if step.seconds > 0]  # none of the cache takes time
    if not ran:
        return None
    seconds = max(step.start + step.seconds for step in ran)
    stages: dict[str, list[TimedStep]] = {}
    for step in sorted(ran, key=lambda step: step.start):
        stages.setdefault(step.stage, []).append(step)
    load = load_of(ran)
    return Timing(
        seconds=seconds,
        work=sum(step.seconds for step in ran),
        most=max(count for _, count in load),
        lanes=tuple(Lane(stage, tuple(steps)) for stage, steps in stages.items()),
        load=tuple(load),
        ticks=tuple(ticks(seconds)),
    )


def load_of(steps: list[TimedStep]) -> list[tuple[float, int]]:
    """How many steps run from each moment on at which one begins or ends. The last entry is 0."""
    moves: dict[float, int] = {}
    for step in steps:
        # Two decimals, as recorded: the end of a step and the start of the next are the same moment.
        for moment, change in ((step.start, 1), (step.start + step.seconds, -1)):
            moves[round(moment, 2)] = moves.get(round(moment, 2), 0) + change
    load, count = [], 0
    for moment, change in sorted(moves.items()):
        count += change
        load.append((moment, count))
    return load


def ticks(seconds: float) -> list[float]:
    """Four to eight round moments of a time."""
    steps = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200)
    step = next((each for each in steps if seconds / each <= 7), 14400)
    return [round(number * step, 1) for number in range(int(seconds / step) + 1)]


def clock(seconds: float) -> str:
    """Seconds for people: ``0.4 s``, ``48 s``, ``11 min 58 s``."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"


def intent(text: str) -> str:
    """An instruction without its mounts, which come before what it does."""
    return re.sub(r"\s+", " ", re.sub(r"--mount=\S+|\\\n", " ", text)).replace("# buildkit", "").strip()
