"""The timeline of a build: what ran side by side, and which moments are labelled."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.build.ledger import TimedStep, Timeline
from trainwright.report.timing import clock, intent, load_of, ticks, timing_of


def step(start: float, seconds: float, stage: str = "os", *, cached: bool = False) -> TimedStep:
    return TimedStep(stage=stage, component=stage, text="RUN", start=start, seconds=seconds, cached=cached)


def test_how_many_run_at_a_time():
    assert load_of([step(0, 10), step(2, 4), step(10, 1)]) == [(0, 1), (2, 2), (6, 1), (10, 1), (11, 0)]


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(1, 300)), min_size=1, max_size=30))
def test_the_load_is_the_work(times):
    steps = [step(start / 10, seconds / 10) for start, seconds in times]
    load = load_of(steps)
    area = sum(count * (after - at) for (at, count), (after, _) in pairwise(load))
    assert area == pytest.approx(sum(each.seconds for each in steps), rel=1e-6)
    assert load[-1][1] == 0
    assert min(count for _, count in load) >= 0


def test_stages_are_lanes_and_the_cache_is_not_drawn():
    timing = timing_of(
        Timeline(built_at="", steps=(step(5, 2, "metis"), step(0, 10), step(11, 1), step(0, 0, "tools", cached=True)))
    )
    assert timing is not None
    assert [(lane.stage, len(lane.steps)) for lane in timing.lanes] == [("os", 2), ("metis", 1)]
    assert (timing.seconds, timing.work, timing.most) == (12, 13, 2)


def test_a_build_from_the_cache_has_no_timeline():
    assert timing_of(Timeline(built_at="", steps=(step(0, 0, cached=True),))) is None


@given(st.floats(0.05, 200_000))
def test_ticks_are_few_and_within_the_time(seconds):
    found = ticks(seconds)
    assert 1 <= len(found) <= 15
    assert found[0] == 0
    assert found[-1] <= seconds + 0.05


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.44, "0.4 s"), (9.96, "10 s"), (59, "59 s"), (60, "1 min"), (718.9, "11 min 59 s"), (59.7, "60 s")],
)
def test_seconds_for_people(seconds, text):
    assert clock(seconds) == text


def test_an_instruction_without_its_mounts():
    mounts = "--mount=type=bind,source=a,target=/mnt,rw --mount=type=secret,id=ca"
    assert intent(f"RUN {mounts} \\\n    /mnt/apt-install gcc # buildkit") == "RUN /mnt/apt-install gcc"
