"""The verdict on a rehearsed job: what proves it, what its cause is, and who has to hear of a stop."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.rehearsal_jobs import GROUPED, JOB, MIXED, job
from trainwright.rehearse.launch_only import LaunchLine, awaited
from trainwright.rehearse.observed import HostFacts, JobFacts, Process
from trainwright.rehearse.verdict import at_work, judge, judge_launches, last_lines, waiting_for


def rank(number: int, **more: Any) -> Process:
    environment = {"RANK": str(number), "WORLD_SIZE": "4", "LOCAL_RANK": str(number % 2)}
    facts: dict[str, Any] = {
        "world_sizes": {"torch": 4},
        "reduced": {"torch": 10.0},
        "host_name": f"ip-{number // 2 + 1}",
        "ended": True,
    }
    return Process(pid=20 + number, parent=5, argv=("python", "train.py"), environment=environment, **(facts | more))


AGENT = Process(pid=5, parent=1, argv=("/opt/venv/bin/python", "/opt/venv/bin/torchrun", "--nnodes", "2", "train.py"))


def host(number: int, *processes: Process, **more: Any) -> HostFacts:
    facts = {"exit_code": 0, "success": True, "processes": (AGENT, *processes), "ended_at": 10.0}
    return HostFacts(name=f"algo-{number}", **(facts | more))


GOOD = JobFacts(JOB, "torchrun", 2, (host(1, rank(0), rank(1)), host(2, rank(2), rank(3))))


def outcome(facts: JobFacts) -> dict[str, str]:
    return {check.name: check.outcome for check in judge(facts).checks}


def test_a_job_that_is_well_passes() -> None:
    verdict = judge(GOOD)
    assert verdict.passed
    # The names that README's sample shows: none may vanish.
    names = ["time", "exit codes", "reports", "script", "world size", "host names", "all-reduce"]
    assert [(check.name, check.outcome) for check in verdict.checks] == [(name, "passed") for name in names]
    assert [(one.host, one.rank) for one in verdict.ranks] == [
        ("algo-1", 0),
        ("algo-1", 1),
        ("algo-2", 2),
        ("algo-2", 3),
    ]


@pytest.mark.parametrize(
    ("hosts", "check", "cause"),
    [
        # Half of the ranks, and the job calls itself a success.
        ((host(1, rank(0), rank(1)), host(2)), "script", "script"),
        ((host(1, rank(0), rank(1)), host(2, rank(2))), "world size", "world-size"),
        ((host(1, rank(0), rank(1)), host(2, rank(2), rank(2))), "world size", "world-size"),
        # A world of another size by the library's own word.
        (
            (host(1, rank(0), rank(1)), host(2, rank(2), rank(3, world_sizes={"torch": 2}))),
            "world size",
            "world-size",
        ),
        ((host(1, rank(0), rank(1)), host(2, rank(2), rank(3, reduced={"torch": 3.0}))), "all-reduce", "all-reduce"),
        ((host(1, rank(0), rank(1)), host(2, rank(2), rank(3, reduced={}))), "all-reduce", "all-reduce"),
        # The shim of the toolkit gone wrong: both hosts say the same.
        (
            (host(1, rank(0), rank(1)), host(2, rank(2, host_name="ip-1"), rank(3, host_name="ip-1"))),
            "host names",
            "host-names",
        ),
        ((host(1, rank(0), rank(1)), host(2, rank(2), rank(3), success=False)), "reports", "train-silent"),
        ((host(1, rank(0), rank(1)), host(2, rank(2), rank(3), failure="no")), "reports", None),
        ((host(1, rank(0), rank(1), exit_code=3), host(2, rank(2), rank(3))), "exit codes", None),
    ],
)
def test_each_lie_is_seen(hosts: tuple[HostFacts, ...], check: str, cause: str | None) -> None:
    facts = replace(GOOD, hosts=hosts)
    verdict = judge(facts)
    assert not verdict.passed
    assert outcome(facts)[check] == "failed"
    assert verdict.cause is not None
    assert verdict.cause.text
    if cause:
        assert verdict.cause.id == cause


def test_what_ranks_start_themselves_is_no_rank() -> None:
    loader = replace(rank(0), pid=90, parent=20, world_sizes={}, reduced={})
    assert judge(replace(GOOD, hosts=(host(1, rank(0), rank(1), loader), GOOD.hosts[1]))).passed


def test_ranks_that_never_meet_are_a_note() -> None:
    alone = [rank(number, world_sizes={}, reduced={}) for number in range(4)]
    verdict = judge(replace(GOOD, hosts=(host(1, *alone[:2]), host(2, *alone[2:]))))
    assert verdict.passed
    assert "none joined a group" in verdict.notes[0]


def test_the_first_error_is_the_cause_and_its_rank_is_named() -> None:
    late = rank(0, error="Traceback\nRuntimeError: Connection reset", error_at=12.0)
    first = rank(3, error="Traceback\nValueError: bad batch", error_at=11.0)
    hosts = (host(1, late, rank(1), exit_code=1), host(2, rank(2), first, exit_code=1, success=False))
    facts = replace(GOOD, hosts=hosts)
    cause = judge(facts).cause
    assert cause is not None
    assert (cause.host, cause.rank) == ("algo-2", 3)
    assert "ValueError: bad batch" in cause.text
    assert last_lines(facts, cause)[-1] == "ValueError: bad batch"


def test_the_last_lines_are_those_of_the_rank_where_mpirun_marks_them() -> None:
    log = ("[1,0]<stdout>:mine", "[1,1]<stderr>:other", "[1,mpirank:0,algo-1]<stdout>:mine, too", "[1,10]<stdout>:ten")
    hosts = (host(1, rank(0), rank(1), log=log), GOOD.hosts[1])
    cause = judge(replace(GOOD, hosts=(host(1, exit_code=1), GOOD.hosts[1]))).cause
    assert cause is not None
    lines = last_lines(replace(GOOD, hosts=hosts), replace(cause, host="algo-1", rank=0, last_lines=()))
    assert lines == ("[1,0]<stdout>:mine", "[1,mpirank:0,algo-1]<stdout>:mine, too")


@given(st.text())
def test_any_text_can_be_a_stack(text: str) -> None:
    waiting_for(text)


def test_a_stop_that_nobody_heard_is_no_success() -> None:
    stopped = replace(GOOD, stopped=5.0)
    killed = [rank(number, ended=False) for number in range(4)]
    assert outcome(replace(stopped, hosts=(host(1, *killed[:2]), host(2, *killed[2:])))) == {"stop": "failed"}
    heard = [rank(number, ended=True, signal=5.1) for number in range(4)]
    assert outcome(replace(stopped, hosts=(host(1, *heard[:2]), host(2, *heard[2:])))) == {"stop": "passed"}
    late = (host(1, *heard[:2], end="stopped"), host(2, *heard[2:]))
    assert outcome(replace(stopped, hosts=late)) == {"stop": "failed"}


@pytest.mark.parametrize(("handles", "cause"), [(True, "stop-not-heard"), (False, "stop-no-handler")])
def test_one_rank_that_did_not_hear_is_enough(handles: bool, cause: str) -> None:
    heard = [rank(number, ended=True, handles=True, signal=5.1) for number in range(3)]
    deaf = rank(3, ended=False, handles=handles)
    told = judge(replace(GOOD, stopped=5.0, hosts=(host(1, *heard[:2]), host(2, heard[2], deaf)))).cause
    assert told is not None
    assert (told.id, told.host, told.rank) == (cause, "algo-2", 3)
    assert told.text.startswith("rank 3 has ")


def test_a_stop_that_found_no_script_is_no_success() -> None:
    done = [rank(number, ended=True) for number in range(4)]
    hosts = (host(1, *done[:2]), host(2, *done[2:]))
    told = judge(replace(GOOD, stopped=5.0, hosts=hosts, job=replace(GOOD.job, stop_after=4.0)))
    assert told.cause is not None
    assert told.cause.id == "stop-not-sent"
    never = judge(replace(GOOD, job=replace(GOOD.job, stop_after=4.0)))
    assert never.cause is not None
    assert never.cause.id == "stop-not-sent"
    assert {check.name: check.outcome for check in never.checks}["stop"] == "failed"


def test_a_stop_waits_for_every_rank(tmp_path: Path) -> None:
    job = replace(GOOD.job, entry_point="src/train.py")
    folders = {name: tmp_path / name for name in ("algo-1", "algo-2")}

    def begins(folder: Path, pid: int, *argv: str, parent: int = 1) -> None:
        folder.mkdir(exist_ok=True)
        event = {"e": "start", "t": 1.0, "parent": parent, "argv": argv}
        (folder / f"{pid}.jsonl").write_text(json.dumps(event) + "\n")

    for folder in folders.values():
        begins(folder, 5, "python", "/opt/venv/bin/torchrun", "train.py")
        begins(folder, 6, "python", "-u", "train.py")
        begins(folder, 7, "python", "-u", "train.py", parent=6)
    assert not at_work(job, 2, folders)
    begins(folders["algo-1"], 8, "python", "-u", "train.py")
    assert not at_work(job, 2, folders)
    begins(folders["algo-2"], 8, "python", "-u", "train.py")
    assert at_work(job, 2, folders)
    assert at_work(replace(job, entry_point="train.sh"), 2, {"algo-1": tmp_path / "nothing"})


def test_hosts_without_ranks_have_lines_of_their_own() -> None:
    mixed = job(instance_groups=MIXED, distribution=GROUPED, launch_only=True)
    assert awaited("mpi", mixed) == {"algo-1", "algo-2"}
    facts = JobFacts(mixed, "mpi", 4, tuple(HostFacts(name=name) for name in mixed.host_names))

    def launch(host_name: str, *argv: str) -> LaunchLine:
        return LaunchLine(host_name, argv, "/opt/ml/code", {}, "/usr/bin/x")

    alone, ranks = launch("algo-1", "python", "--", "train.py"), launch("algo-2", "mpirun", "-np", "8")
    assert judge_launches(facts, [alone, ranks]).passed
    assert not judge_launches(facts, [ranks]).passed
    wrong = judge_launches(facts, [alone, launch("algo-2", "python", "--", "train.py")]).cause
    assert wrong is not None
    assert (wrong.id, wrong.host) == ("plain-toolkit", "algo-2")


def test_ranks_of_one_group_are_the_whole_world() -> None:
    mixed = job(instance_groups=MIXED, distribution=GROUPED)
    mixed = replace(mixed, entry_point="train.py")
    ranked = [rank(number, world_sizes={"mpi": 4}, reduced={"mpi": 10.0}) for number in range(4)]
    single = Process(pid=9, parent=5, argv=("python", "--", "train.py"), host_name="ip-9", ended=True)
    hosts = (host(1, single), host(2, *ranked[:2]), host(3, *ranked[2:]))
    judged = judge(JobFacts(mixed, "mpi", 2, hosts))
    assert judged.passed, judged.checks
    assert next(check.says for check in judged.checks if check.name == "world size") == "4 = 2 x 2"
    assert not judge(JobFacts(mixed, "mpi", 2, (host(1), *hosts[1:]))).passed
