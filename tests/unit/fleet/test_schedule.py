"""The schedule under every order of ends that Hypothesis finds: nothing twice, nothing too early, no idle builder."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import some
from trainwright.fleet.schedule import Schedule, Unit


@st.composite
def runs(draw: st.DrawFn) -> list[Unit]:
    """Units that need some of those before them, in an order of their own."""
    count = draw(st.integers(0, 12))
    units = []
    for number in range(count):
        needs = draw(st.sets(st.integers(0, number - 1), max_size=3)) if number else set()
        wanted = draw(st.integers(1, 4))
        units.append(Unit(f"u{number}", tuple(f"u{each}" for each in sorted(needs)), wanted))
    return draw(st.permutations(units))


@settings(max_examples=some(120))
@given(units=runs(), jobs=st.integers(1, 5), data=st.data())
def test_any_run_ends_with_each_unit_built_once_and_in_time(units, jobs, data):
    schedule = Schedule(units, jobs)
    by_name = {unit.name: unit for unit in units}
    place = {unit.name: number for number, unit in enumerate(units)}
    started: list[str] = []
    running: set[str] = set()
    ended: set[str] = set()
    while not schedule.done:
        ready = [u for u in units if u.name not in started and ended.issuperset(u.needs)]
        best_first = sorted(ready, key=lambda unit: (-unit.wanted, place[unit.name]))
        now = schedule.start()
        # As many as there is room for, of those that can start, the most wanted first.
        assert now == [unit.name for unit in best_first[: jobs - len(running)]]
        started += now
        running |= set(now)
        assert schedule.running == running
        assert len(running) <= jobs
        gone = data.draw(st.sampled_from(sorted(running)), label="ends")
        schedule.end(gone)
        running.remove(gone)
        ended.add(gone)
    assert sorted(started) == sorted(by_name)
    assert ended == set(by_name)
    assert schedule.start() == []


@settings(max_examples=some(60))
@given(units=runs(), jobs=st.integers(1, 5), before=st.integers(0, 6))
def test_a_stopped_run_lets_running_units_end_and_starts_none(units, jobs, before):
    schedule = Schedule(units, jobs)
    started: list[str] = []
    for _ in range(before):
        started += schedule.start()
        if schedule.running:
            schedule.end(min(schedule.running))
    started += schedule.start()
    left = schedule.stop()
    assert left == [unit.name for unit in units if unit.name not in started]
    for name in sorted(schedule.running):
        assert not schedule.done
        schedule.end(name)
        assert schedule.start() == []
    assert schedule.done


def test_what_most_lines_need_is_built_first():
    units = [
        Unit("alone"),
        Unit("a", ("inner",)),
        Unit("b", ("inner",)),
        Unit("c", ("outer",)),
        Unit("outer", wanted=3),
        Unit("inner", ("outer",), wanted=2),
    ]
    schedule = Schedule(units, 1)
    order = []
    while not schedule.done:
        (name,) = schedule.start()
        order.append(name)
        schedule.end(name)
    assert order == ["outer", "inner", "alone", "a", "b", "c"]


def test_only_what_runs_can_end():
    schedule = Schedule([Unit("a")], 1)
    with pytest.raises(ValueError, match="a does not run"):
        schedule.end("a")


@pytest.mark.parametrize(
    ("units", "jobs", "says"),
    [
        ([Unit("a")], 0, "jobs: 0"),
        ([Unit("a"), Unit("a")], 1, "one name"),
        ([Unit("a", ("b",))], 1, "a needs b, which is not in the run"),
        ([Unit("a", ("b",)), Unit("b", ("a",)), Unit("c"), Unit("d", ("a",))], 1, "these need each other: a, b, d"),
    ],
)
def test_a_run_that_could_never_end_is_refused(units, jobs, says):
    with pytest.raises(ValueError, match=says):
        Schedule(units, jobs)
