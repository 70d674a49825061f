"""Units are built by real processes: side by side, after what they need, and each ends with its state on the disk."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tests.support.fleet_units import When, Yard, fleet, work
from trainwright.core import runner
from trainwright.core.processes import described, lives, pid_of
from trainwright.fleet.fleet import end_left_over, exit_code
from trainwright.fleet.run_folder import UnitError, UnitProgress


def states(units: list[UnitProgress]) -> dict[str, str]:
    return {unit.name: unit.state for unit in units}


def wait_for(yard: Yard, *events: str) -> None:
    limit = time.monotonic() + 20
    while not set(events) <= set(yard.events):
        assert time.monotonic() < limit, yard.events
        time.sleep(0.02)


def test_a_line_is_built_and_all_of_it_is_written_down(yard):
    run, folder = fleet(work("a"))
    run.run()
    (unit,) = run.progress
    assert folder.progress("line", "a") == unit
    assert (unit.state, unit.image, unit.tags, unit.size_bytes) == (
        "built",
        "sha256:a",
        ("trainwright/x:a",),
        1234567,
    )
    assert unit.started_at and unit.ended_at and unit.error is None
    assert Path(unit.log).read_text() == "[step of a] RUN something\n"
    assert lives(unit.process) is not True


def test_no_more_than_that_many_run_at_once_and_lines_wait_for_their_stages(yard):
    for name in "abcd":
        yard.tell(name, "hang")
    lines = [work(name, "shared_1") for name in "abcd"]
    shared = work("shared_1", stages=("os", "tools"), wanted=4)
    view = When(yard, yard.go, "start a", "start b")
    run, _ = fleet(*lines, work("alone"), shared, jobs=2, view=view)
    run.run()
    events = yard.events
    assert all(events.index("end shared_1") < events.index(f"start {name}") for name in "abcd")
    now = most = 0
    for event in events:
        now += 1 if event.startswith("start") else -1
        most = max(most, now)
    assert most == 2
    assert set(states(run.progress).values()) == {"built"}


def test_after_a_failure_running_lines_end_and_no_other_starts(yard):
    yard.tell("a", "fail 8 source")
    yard.tell("b", "hang")
    run, folder = fleet(work("a"), work("b"), work("c"), work("d"), jobs=2)
    thread = threading.Thread(target=run.run)
    thread.start()
    wait_for(yard, "end a", "start b")
    time.sleep(0.3)  # a's place is free
    yard.go()
    thread.join(20)
    assert states(run.progress) == {"a": "failed", "b": "built", "c": "skipped", "d": "skipped"}
    assert {name: folder.progress("line", name).state for name in "cd"} == {"c": "skipped", "d": "skipped"}
    error = run.progress[0].error
    assert error == UnitError(exit_code=8, error="source", message="a is wrong", remedy="fix a")
    assert exit_code(run.progress) == 8


def test_keep_going_builds_the_others(yard):
    yard.tell("a", "fail 8 source")
    run, _ = fleet(work("a"), work("b"), work("c"), jobs=1, keep_going=True)
    run.run()
    assert states(run.progress) == {"a": "failed", "b": "built", "c": "built"}


def test_stages_that_fail_leave_their_work_to_the_lines(yard):
    yard.tell("shared_1", "fail 5 build")
    run, _ = fleet(work("shared_1", stages=("os",), wanted=2), work("a", "shared_1"), work("b", "shared_1"))
    run.run()
    assert states(run.progress) == {"shared_1": "failed", "a": "built", "b": "built"}
    assert exit_code(run.progress) == 0


@pytest.mark.parametrize(
    ("does", "code", "says"),
    [
        ("die", 137, "signal 9 ended it\n[step of a] RUN something\nlast words"),
        ("silent", 70, "no document was written\n[step of a] RUN something"),
    ],
)
def test_a_process_that_says_nothing_of_its_end_has_failed(yard, does, code, says):
    yard.tell("a", does)
    run, _ = fleet(work("a"))
    run.run()
    (unit,) = run.progress
    assert (unit.state, unit.error.exit_code, unit.error.message) == ("failed", code, says)


def failed(name: str, code: int, kind: str = "line") -> UnitProgress:
    error = UnitError(exit_code=code, error="x", message="x")
    return UnitProgress(name=name, kind=kind, plan="", request="", state="failed", error=error)


@pytest.mark.parametrize(
    ("codes", "code"),
    [((), 0), ((6,), 6), ((8, 8), 8), ((8, 6), 5), ((137,), 5), ((70,), 70), ((1,), 5)],
)
def test_the_exit_code_is_that_of_all_failures_or_of_a_failed_build(codes, code):
    units = [failed(str(number), each) for number, each in enumerate(codes)]
    assert exit_code([*units, failed("shared_1", 9, "stages")]) == code


def press() -> None:
    raise KeyboardInterrupt


def test_an_interruption_ends_every_process_and_leaves_its_line_pending(yard):
    yard.tell("a", "hang")
    yard.tell("b", "hang")
    view = When(yard, press, "start a", "start b", "end c")
    run, folder = fleet(work("c"), work("a"), work("b"), work("d"), view=view)
    with pytest.raises(KeyboardInterrupt):
        run.run()
    assert view.closed
    assert states(folder.units()) == {"a": "pending", "b": "pending", "c": "built", "d": "pending"}
    assert {"told a", "told b"} <= set(yard.events)
    for unit in folder.units():
        assert lives(unit.process) is not True


def test_a_process_that_does_not_listen_is_killed(yard, monkeypatch):
    yard.tell("a", "deaf")
    child = runner.spawn(work("a").argv, out=yard.folder / "out", log=yard.folder / "log")
    wait_for(yard, "start a")
    time.sleep(0.1)  # until it has closed its ears
    process = described(child.pid)
    assert lives(process)
    runner.end([process], grace=0.3)
    limit = time.monotonic() + 20
    while (done := child.ended()) is None:
        assert time.monotonic() < limit
        time.sleep(0.02)
    assert done.returncode == 137


def test_what_a_killed_run_has_left_is_ended_and_nothing_else(yard):
    yard.tell("a", "hang")
    yard.tell("b", "hang")
    children = [runner.spawn(work(n).argv, out=yard.folder / f"{n}.out", log=yard.folder / f"{n}.log") for n in "ab"]
    wait_for(yard, "start a", "start b")
    left, other = (described(child.pid) for child in children)
    boot, namespace, pid, start = other.split(":")
    reused = f"{boot}:{namespace}:{pid}:{int(start) + 1}"  # a later process of the same number
    blank = UnitProgress(name="a", kind="line", plan="", request="", state="running")
    end_left_over(
        [blank.replace(process=left), blank.replace(process=reused), blank.replace(process=other, state="built"), blank]
    )
    assert not lives(left)
    assert lives(other)
    assert pid_of(other) == children[1].pid
    yard.go()
    while any(child.ended() is None for child in children):
        time.sleep(0.02)
