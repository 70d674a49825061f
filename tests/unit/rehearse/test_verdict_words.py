"""Whole verdicts: every check with its words, where there is little to observe, with parameter servers, at a stop."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.rehearsal_jobs import JOB
from trainwright.rehearse.observed import Cause, HostFacts, JobFacts, Process
from trainwright.rehearse.verdict import judge, last_lines, of_rank, ranks, runs_script, waiting_for

# As faulthandler of CPython 3.11 wrote it for a socket that waits, beside a thread that sleeps.
STACK = """\
Timeout (0:00:00.500000)!
Thread 0x00007f7e3f9fd6c0 (most recent call first):
  File "/opt/ml/code/train.py", line 2 in helper
  File "/usr/lib/python3.11/threading.py", line 982 in run
  File "/usr/lib/python3.11/threading.py", line 1045 in _bootstrap_inner
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Thread 0x00007f7e40a3f740 (most recent call first):
  File "/usr/lib/python3.11/socket.py", line 294 in accept
  File "/opt/ml/code/train.py", line 6 in main
  File "/opt/ml/code/train.py", line 7 in <module>
"""


def script(number: int | None = None, argv: tuple[str, ...] = ("python", "train.py"), **more: Any) -> Process:
    environment = {} if number is None else {"RANK": str(number), "WORLD_SIZE": "2"}
    facts: dict[str, Any] = {"host_name": f"ip-{(number or 0) + 1}", "ended": True, "environment": environment}
    return Process(pid=30 + (number or 0), parent=5, argv=argv, **(facts | more))


def host(number: int, *processes: Process, **more: Any) -> HostFacts:
    facts = {"exit_code": 0, "success": True, "processes": processes, "ended_at": 10.0 + number}
    return HostFacts(name=f"algo-{number}", **(facts | more))


def told(facts: JobFacts) -> list[tuple[str, str, str]]:
    return [(check.name, check.outcome, check.says) for check in judge(facts).checks]


PLAIN = JobFacts(replace(JOB, distribution=None), "process", 1, (host(1, script()), host(2, script())))
TWO = JobFacts(JOB, "torchrun", 1, (host(1, script(0)), host(2, script(1))))
ENDED = [
    ("time", "passed", "every host ended within 300 s"),
    ("exit codes", "passed", "0 on every host"),
    ("reports", "passed", "output/success on every host"),
]
RAN = ("script", "passed", "train.py ran on every host")


def test_without_a_distribution_each_host_is_alone() -> None:
    assert told(PLAIN) == [*ENDED, RAN]
    assert judge(PLAIN).notes == ("no distribution was requested: 2 hosts run the script, each separately",)
    one = replace(PLAIN, job=replace(PLAIN.job, hosts=1), hosts=PLAIN.hosts[:1])
    assert told(one) == [*ENDED, RAN]
    assert judge(one).notes == ()


def test_an_image_without_python_and_a_script_without_it_are_not_observed() -> None:
    none = replace(PLAIN, hosts=(host(1), host(2)))
    assert told(none) == [*ENDED, ("script", "skipped", "not checked: the image has no Python to observe")]
    shell = replace(PLAIN, job=replace(PLAIN.job, entry_point="train.sh"))
    assert told(shell) == [*ENDED, ("script", "skipped", "not checked: train.sh is not a Python program")]


def test_ranks_that_never_meet_prove_nothing() -> None:
    assert told(TWO) == [
        *ENDED,
        RAN,
        ("world size", "passed", "2 = 2 x 1"),
        ("host names", "passed", "ip-1, ip-2"),
        ("all-reduce", "skipped", "the ranks never joined a group, so nothing proves that they communicated"),
    ]
    means = "none joined a group (torch.distributed or mpi4py): each of them trains separately"
    assert judge(TWO).notes == (f"torchrun started 2 ranks, but {means}",)
    mirrored = judge(replace(TWO, launcher="mwms")).notes
    means = means.replace("torch.distributed or mpi4py", "MultiWorkerMirroredStrategy")
    assert mirrored == (f"mwms started 2 ranks, but {means}",)
    assert judge(replace(TWO, launcher="parameter-server")).notes == ()


def test_half_a_group_is_told_by_its_sums() -> None:
    joined = [script(0, world_sizes={"torch": 2}, reduced={"torch": 3.0}), script(1, world_sizes={"torch": 2})]
    last = told(replace(TWO, hosts=(host(1, joined[0]), host(2, joined[1]))))[-1]
    assert last == ("all-reduce", "failed", "torch: 3, none, not 3 on every rank")
    both = [replace(one, reduced={"torch": 3.0, "mpi": 3.0}) for one in joined]
    last = told(replace(TWO, hosts=(host(1, both[0]), host(2, both[1]))))[-1]
    assert last == ("all-reduce", "passed", "3 on every rank (mpi, torch)")


def test_what_no_launcher_numbered_is_no_world() -> None:
    facts = replace(TWO, hosts=(host(1, script()), host(2, script(host_name="ip-2"))))
    assert told(facts)[3:] == [
        RAN,
        ("world size", "failed", "no launcher numbered a rank; torchrun should have started 2"),
        ("host names", "passed", "ip-1, ip-2"),
    ]
    small = replace(TWO, hosts=(host(1, script(0)), host(2, script(0, host_name="ip-2"))))
    assert told(small)[4] == ("world size", "failed", "2 ranks saw a world of 2, not 2 = 2 x 1")


def test_a_name_that_two_hosts_share() -> None:
    facts = replace(TWO, hosts=(host(1, script(0)), host(2, script(1, host_name="ip-1"))))
    assert told(facts)[5] == ("host names", "failed", "ranks on 2 of 2 hosts (algo-1: ip-1; algo-2: ip-1)")


@pytest.mark.parametrize(
    ("reached", "outcome", "says"),
    [
        (("worker:0", "ps:0", "ps:1"), "passed", "1 of 1; parameter servers: 2"),
        (("ps:0",), "failed", "0 of 1; parameter servers: 1"),
        (("worker:0",), "failed", "1 of 1; parameter servers: 0"),
        (("worker:0", "worker:1", "ps:0"), "failed", "2 of 1; parameter servers: 1"),
    ],
)
def test_a_coordinator_reaches_every_worker_and_a_server(reached: tuple[str, ...], outcome: str, says: str) -> None:
    first = script(0, world_sizes={"tensorflow": 2}, reached=reached)
    facts = replace(TWO, launcher="parameter-server", hosts=(host(1, first), host(2, script(1))))
    assert told(facts)[-1] == ("cluster", outcome, f"workers that the coordinator reached: {says}")


def test_a_cluster_that_nobody_made_is_not_checked() -> None:
    said = "no ParameterServerStrategy was created, so nothing proves that the hosts communicated"
    assert told(replace(TWO, launcher="parameter-server"))[-1] == ("cluster", "skipped", said)


def test_hosts_that_end_badly_and_those_taken_down_with_them() -> None:
    facts = replace(TWO, hosts=(host(1, script(0), exit_code=3, success=False), host(2, script(1), end="taken down")))
    assert told(facts)[1:3] == [
        ("exit codes", "failed", "3 on algo-1, algo-2 was then taken down"),
        ("reports", "failed", "no output/success on algo-1"),
    ]
    facts = replace(TWO, hosts=(host(1, script(0)), host(2, script(1), end="taken down")))
    assert told(facts)[1] == ("exit codes", "failed", "algo-2 was then taken down")
    facts = replace(TWO, hosts=(host(1, script(0), failure="why", success=False), host(2, script(1))))
    assert told(facts)[2] == ("reports", "failed", "no output/success on algo-1; output/failure on algo-1")


def test_sdk_3_writes_the_failure_file_alone() -> None:
    job = replace(JOB, sdk=3)
    silent = replace(TWO, job=job, hosts=(host(1, script(0), success=False), host(2, script(1), success=False)))
    assert told(silent)[2] == ("reports", "passed", "output/failure on no host")
    failed = replace(silent, hosts=(silent.hosts[0], replace(silent.hosts[1], failure="why")))
    assert told(failed)[2] == ("reports", "failed", "output/failure on algo-2")


def test_a_job_that_does_not_end_names_where_it_waits() -> None:
    hosts = (host(1, script(0, stack=STACK), end="timeout"), host(2, script(1), end="by itself"))
    verdict = judge(replace(TWO, timed_out=True, hosts=hosts))
    assert verdict.checks[0].says == "no end after 300 s: algo-1"
    assert verdict.checks[0].outcome == "failed"
    assert verdict.cause is not None
    assert (verdict.cause.id, verdict.cause.host, verdict.cause.rank) == ("timeout", "algo-1", 0)
    waiting = "rank 0 (algo-1) in accept (socket.py:294), called at train.py:6"
    assert verdict.cause.text == f"no end after 300 s; waiting: {waiting}"
    assert verdict.cause.last_lines == tuple(STACK.splitlines())


def test_where_no_script_runs_the_launcher_s_wait_is_named() -> None:
    launcher = Process(5, 1, ("/opt/venv/bin/python", "-u", "/opt/venv/bin/torchrun", "train.py"), stack=STACK)
    hosts = (host(1, launcher, end="timeout"), host(2, end="timeout"))
    cause = judge(replace(TWO, timed_out=True, hosts=hosts)).cause
    assert cause is not None
    assert (cause.host, cause.rank) == ("algo-1", None)
    said = "algo-1: torchrun in accept (socket.py:294), called at train.py:6"
    assert cause.text == f"no end after 300 s; waiting: {said}"
    # A program that Python reads from its standard input has no other name.
    hosts = (host(1, replace(launcher, argv=("/opt/venv/bin/python", "-u", "-")), end="timeout"), hosts[1])
    cause = judge(replace(TWO, timed_out=True, hosts=hosts)).cause
    assert cause is not None
    assert cause.text == f"no end after 300 s; waiting: {said.replace('torchrun', 'python')}"


@pytest.mark.parametrize(
    ("stack", "said"),
    [
        (STACK, "accept (socket.py:294), called at train.py:6"),
        (STACK.split("\n\n", maxsplit=1)[0], "helper (train.py:2)"),
        (STACK.replace("\n\nThread ", "\n\nCurrent thread "), "accept (socket.py:294), called at train.py:6"),
        ("", ""),
        ("Timeout (0:00:00.500000)!\n", ""),
    ],
)  # fmt: skip
def test_the_main_thread_s_wait(stack: str, said: str) -> None:
    assert waiting_for(stack) == said


@pytest.mark.parametrize(
    ("argv", "runs"),
    [
        (("python", "train.py"), True),
        (("/opt/venv/bin/python", "-u", "/opt/ml/code/train.py", "--lr", "1"), True),
        (("python", "-m", "train"), True),
        (("python", "-m", "other"), False),
        (("python", "/opt/venv/bin/torchrun", "-m", "train"), False),
        (("python", "other.py"), False),
        (("python", "/opt/venv/bin/torchrun", "train.py"), False),
        (("python", "-m", "torch.distributed.run", "train.py"), False),
        (("mpirun", "-np", "2", "python", "train.py"), False),
        (("/opt/venv/bin/python", "/opt/venv/bin/train", "train.py"), False),
    ],
)
def test_launchers_run_no_script(argv: tuple[str, ...], runs: bool) -> None:
    assert runs_script(script(argv=argv), "train.py") is runs


def test_a_word_like_the_script_s_module_is_no_script() -> None:
    assert runs_script(script(argv=("python", "-m", "fit")), "src/fit.py")
    assert not runs_script(script(argv=("python", "serve.py", "fit")), "src/fit.py")


def test_ranks_come_in_their_order_and_scripts_by_host() -> None:
    facts = replace(TWO, hosts=(host(1, script(1), script(None)), host(2, script(0))))
    assert [(one.host, one.rank) for one in ranks(facts)] == [("algo-2", 0), ("algo-1", 1), ("algo-1", None)]


UNKNOWN = "ended in 7.0 s; whether the script received SIGTERM is unknown: it is not a Python program"
DEAF = "the script did not receive SIGTERM on algo-2: its process was killed"


@pytest.mark.parametrize(
    ("processes", "end", "outcome", "says"),
    [
        ((script(0, signal=5.0), script(1, signal=5.0)), "by itself", "passed", "got SIGTERM and ended in 7.0 s"),
        ((), "by itself", "passed", UNKNOWN),
        ((script(0), script(1)), "by itself", "failed", "no script was running when SIGTERM was sent"),
        ((script(0, signal=5.0), script(1, ended=False)), "by itself", "failed", DEAF),
        ((script(0, signal=5.0), script(1, signal=5.0)), "stopped", "failed", "algo-2 still ran 120 s after SIGTERM"),
    ],
)  # fmt: skip
def test_what_became_of_a_stop(processes: tuple[Process, ...], end: Any, outcome: str, says: str) -> None:
    hosts = (host(1, *processes[:1]), host(2, *processes[1:], end=end))
    job = replace(JOB, stop_after=4.0)
    assert told(replace(TWO, job=job, stopped=5.0, hosts=hosts)) == [("stop", outcome, says)]


def test_the_first_host_that_failed_is_the_cause() -> None:
    failed = {"exit_code": 2, "success": False}
    hosts = (host(1, script(0), **failed), host(2, script(1), **failed | {"ended_at": 4.0, "failure": "a\nb\n\n"}))
    cause = judge(replace(TWO, hosts=hosts)).cause
    assert cause is not None
    assert (cause.id, cause.host, cause.text) == ("host-failed", "algo-2", "algo-2 failed: b")
    hosts = (hosts[0], replace(hosts[1], failure=None))
    cause = judge(replace(TWO, hosts=hosts)).cause
    assert cause is not None
    assert cause.text == "algo-2 failed: exit code 2"
    # One that was taken down with it may seem to have ended first.
    hosts = (hosts[0], replace(hosts[1], end="taken down"))
    cause = judge(replace(TWO, hosts=hosts)).cause
    assert cause is not None
    assert cause.host == "algo-1"


def test_a_host_that_found_no_end_is_the_cause_where_no_stack_says_more() -> None:
    hosts = (host(1, script(0)), host(2, script(1, ended=False), exit_code=None, success=False, end="timeout"))
    cause = judge(replace(TWO, hosts=hosts, timed_out=True)).cause
    assert cause is not None
    assert (cause.id, cause.host, cause.last_lines) == ("timeout", "algo-2", ())


def test_two_names_of_one_host_are_not_two_hosts() -> None:
    checks = told(replace(TWO, hosts=(host(1, script(0), script(1)), host(2))))
    assert ("host names", "failed", "ranks on 1 of 2 hosts (algo-1: ip-1, ip-2)") in checks


def test_lines_that_mpirun_did_not_mark_are_those_of_every_rank() -> None:
    one = host(1, log=("[1,0]<stdout>:a", "[1,1]<stdout>:b"))
    assert of_rank(one, 1) == ["[1,1]<stdout>:b"]
    assert of_rank(one, 2) == list(one.log)
    assert last_lines(TWO, Cause("id", "text", "remedy", "algo-9")) == ()
