"""A rehearsal without an engine: the files of the platform, what the observer writes, the verdict, who owns what."""

from __future__ import annotations

import io
import itertools
import json
import os
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.observing import observed
from trainwright.errors import EngineError, RehearsalFailed, RequestError
from trainwright.rehearsal import artifacts, files, leftovers, network, owner, seen
from trainwright.rehearsal.facts import Facts, HostFacts, Process
from trainwright.rehearsal.files import HostFolder
from trainwright.rehearsal.hosts import Host, Image, command
from trainwright.rehearsal.job import Job
from trainwright.rehearsal.launch_only import Launch, awaited
from trainwright.rehearsal.packages import Packages
from trainwright.rehearsal.request import make_job
from trainwright.rehearsal.run import launch_of, of_image
from trainwright.rehearsal.show import RehearsalView, doing
from trainwright.rehearsal.verdict import at_work, judge, judge_launches, last_lines, waiting_for

JOB = Job(image="x", entry_point="train.py", hosts=2, distribution={"torch_distributed": {"enabled": True}})


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "src"
    (folder / "sub").mkdir(parents=True)
    (folder / "train.py").write_text("print('mine')")
    (folder / "sub" / "helper.py").write_text("")
    return folder


# --- the files of the platform --------------------------------------------------------------------------------------


def test_a_host_gets_what_the_platform_writes(source: Path, tmp_path: Path) -> None:
    job = replace(JOB, source_dir=source, hyperparameters={"lr": 0.1, "name": "a b", "deep": {"k": 1}})
    job = replace(job, inputs={"training": tmp_path}, instance_type="ml.p4d.24xlarge")
    control, folder = tmp_path / "control", HostFolder(tmp_path / "algo-2")
    files.write_control(job, "torchrun", control)
    files.write_host(job, "algo-2", folder, control, 8)
    config = folder.input / "config"
    parameters = json.loads((config / "hyperparameters.json").read_text())
    assert all(isinstance(value, str) for value in parameters.values())
    decoded = {name: json.loads(value) for name, value in parameters.items()}
    assert (decoded["lr"], decoded["name"], decoded["deep"]) == (0.1, "a b", {"k": 1})
    assert decoded["sagemaker_program"] == "train.py"
    assert decoded["sagemaker_torch_distributed_enabled"] is True
    resources = json.loads((config / "resourceconfig.json").read_text())
    assert resources["current_host"] == "algo-2"
    assert resources["hosts"] == ["algo-1", "algo-2"]
    assert resources["instance_groups"][0]["instance_type"] == "ml.p4d.24xlarge"
    assert resources["instance_groups"][0]["instance_group_name"] == resources["current_group_name"]
    assert list(json.loads((config / "inputdataconfig.json").read_text())) == ["training"]
    # Where /opt/ml/output is missing, `train` ends with 0 whatever happens.
    assert (folder.output / "data").is_dir()
    with tarfile.open(control / files.ARCHIVE) as archive:
        assert sorted(archive.getnames()) == ["sub", "sub/helper.py", "train.py"]


def test_requirements_take_the_place_of_the_folders_own(source: Path, tmp_path: Path) -> None:
    (source / "requirements.txt").write_text("old")
    (tmp_path / "new.txt").write_text("new")
    job = replace(JOB, source_dir=source, requirements=tmp_path / "new.txt")
    assert files.code_files(job, tmp_path)["requirements.txt"].read_text() == "new"


def test_a_script_alone_is_all_that_is_uploaded(source: Path, tmp_path: Path) -> None:
    job = replace(JOB, entry_point=str(source / "train.py"))
    assert list(files.code_files(job, tmp_path)) == ["train.py"]


def test_launch_lines_need_nothing_of_the_user(source: Path, tmp_path: Path) -> None:
    job = replace(JOB, source_dir=source, launch_only=True, instance_type="ml.p4d.24xlarge")
    files.write_control(job, "torchrun", tmp_path / "control")
    with tarfile.open(tmp_path / "control" / files.ARCHIVE) as archive:
        assert archive.getnames() == ["train.py"]
        kept = archive.extractfile("train.py")
        assert kept is not None
        assert b"mine" not in kept.read()
    assert os.access(tmp_path / "control/bin/torchrun", os.X_OK)


@pytest.mark.parametrize(
    ("entry_point", "cause"),
    [
        ("missing.py", "entry-point-missing"),
        ("/opt/ml/code/train.py", "entry-point-absolute"),
        ("../train.py", "entry-point-outside"),
        ("sub", "entry-point-missing"),
    ],
)
def test_an_entry_point_that_the_platform_refuses(source: Path, entry_point: str, cause: str) -> None:
    with pytest.raises(RehearsalFailed) as refused:
        files.check_entry_point(replace(JOB, source_dir=source, entry_point=entry_point))
    assert refused.value.details["cause"] == cause
    assert refused.value.remedy


def test_an_entry_point_in_another_folder_is_offered(source: Path) -> None:
    with pytest.raises(RehearsalFailed) as refused:
        files.check_entry_point(replace(JOB, source_dir=source, entry_point="helper.py"))
    assert refused.value.remedy == "Did you mean sub/helper.py?"


def test_a_link_that_leads_out_of_the_source_folder_is_refused(source: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.py").write_text("")
    (source / "link.py").symlink_to(tmp_path / "elsewhere.py")
    with pytest.raises(RehearsalFailed, match="outside"):
        files.check_entry_point(replace(JOB, source_dir=source, entry_point="link.py"))


# --- the observer ---------------------------------------------------------------------------------------------------


def test_the_observer_tells_of_a_rank_and_its_end(tmp_path: Path) -> None:
    (one,) = observed(tmp_path, "print('well')", RANK="3", WORLD_SIZE="4", LOCAL_RANK="1", SECRET="no")
    assert one.argv[1:] == ("train.py", "--word")
    assert (one.rank, one.world_size, one.local_rank) == (3, 4, 1)
    assert one.ended
    assert not one.error
    assert "SECRET" not in one.environment


def test_the_observer_tells_what_ended_a_script(tmp_path: Path) -> None:
    (one,) = observed(tmp_path, "def deep():\n    raise ValueError('enough')\ndeep()\n")
    assert one.error.splitlines()[-1] == "ValueError: enough"
    assert "in deep" in one.error
    assert one.error_at >= one.started


def test_the_observer_tells_of_the_worlds_that_a_script_joins(tmp_path: Path) -> None:
    """Stand-ins with the names of the real modules: the hooks find modules by name alone."""
    for name, text in {
        "torch/__init__.py": "float64 = 0\ndef tensor(values, dtype):\n    return list(values)\n",
        "torch/distributed/__init__.py": "from .distributed_c10d import *\n",
        "torch/distributed/distributed_c10d.py": (
            "def init_process_group(backend):\n    return 'made'\n"
            "def get_rank():\n    return 1\n"
            "def get_world_size():\n    return 2\n"
            "def get_backend():\n    return 'gloo'\n"
            "def all_reduce(value):\n    value[0] = 3.0\n"
        ),
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    script = "import torch.distributed as dist\nassert dist.init_process_group('gloo') == 'made'\n"
    (one,) = observed(tmp_path, script)
    assert not one.error
    assert one.world_sizes == {"torch": 2}
    assert one.reduced == {"torch": 3.0}


def test_the_observer_never_ends_a_script(tmp_path: Path) -> None:
    """A world that cannot be looked at is the observer's trouble alone."""
    (tmp_path / "torch/distributed").mkdir(parents=True)
    (tmp_path / "torch/__init__.py").write_text("")
    (tmp_path / "torch/distributed/__init__.py").write_text("")
    (tmp_path / "torch/distributed/distributed_c10d.py").write_text("def init_process_group():\n    return 1\n")
    script = "import torch.distributed.distributed_c10d as d\nassert d.init_process_group() == 1\nopen('ok', 'w')\n"
    (one,) = observed(tmp_path, script)
    assert (tmp_path / "ok").exists()
    assert one.ended
    assert not one.world_sizes


def test_the_observer_gives_stacks_when_it_is_asked(tmp_path: Path) -> None:
    script = f"""
import os, threading, time
def sleeps():
    time.sleep(60)
threading.Thread(target=sleeps, daemon=True).start()
time.sleep(0.2)
def asks():
    os.kill(os.getpid(), {seen.STACKS})
asks()
"""
    (one,) = observed(tmp_path, script)
    assert "in sleeps" in one.stack
    assert waiting_for(one.stack) == f"asks ({tmp_path}/train.py:8)"


_EVENTS = st.dictionaries(
    st.sampled_from(["e", "t", "parent", "argv", "cwd", "env", "host", "library", "size", "sum", "text"]),
    st.one_of(
        st.sampled_from(["start", "joined", "reduced", "error", "signal", "end"]),
        st.integers(),
        st.sampled_from(["", "x", "1.5", None, 0.5, [], {}, ["a"], {"RANK": "1"}]),
    ),
)


@given(st.lists(_EVENTS))
def test_facts_that_make_no_sense_end_nothing(events: list[dict[str, Any]]) -> None:
    seen.process(1, events)


@given(st.binary(max_size=400))
def test_facts_of_a_killed_process_are_read_as_far_as_they_go(tmp_path_factory: Any, tail: bytes) -> None:
    folder = tmp_path_factory.mktemp("facts")
    good = json.dumps({"e": "start", "t": 1.0, "parent": 1, "argv": ["x"], "env": {"RANK": "0"}})
    (folder / "7.jsonl").write_bytes(good.encode() + b"\n" + tail)
    (one,) = seen.processes(folder)
    assert (one.pid, one.rank) == (7, 0)


# --- the verdict ----------------------------------------------------------------------------------------------------


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


GOOD = Facts(JOB, "torchrun", 2, (host(1, rank(0), rank(1)), host(2, rank(2), rank(3))))


def outcome(facts: Facts) -> dict[str, str]:
    return {check.name: check.outcome for check in judge(facts).checks}


def test_a_job_that_is_well_passes() -> None:
    verdict = judge(GOOD)
    assert verdict.passed
    assert {check.outcome for check in verdict.checks} == {"passed"}
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


# --- the command line -----------------------------------------------------------------------------------------------

WORDS: dict[str, Any] = {
    "image": "x",
    "entry_point": "train.py",
    "source_dir": None,
    "requirements": None,
    "hosts": 2,
    "processes_per_host": 0,
    "distribution": None,
    "instance_type": "ml.m5.xlarge",
    "hyperparameters": None,
    "inputs": [],
    "environment": [],
    "sdk": 2,
    "launch_only": False,
    "timeout": 300.0,
    "stop_after": None,
    "instance_groups": None,
    "memory": None,
}


MIXED = (
    '[{"name": "data", "instance_type": "ml.c5.xlarge", "instance_count": 1},'
    ' {"name": "train", "instance_type": "ml.g5.12xlarge", "instance_count": 2}]'
)
GROUPED = '{"mpi": {"enabled": true}, "instance_groups": ["train"]}'


def job(**more: Any) -> Job:
    own = {"hosts": 1} if "instance_groups" in more else {}
    return make_job(**{**WORDS, **own, **more})


def test_a_word_a_text_and_a_file_give_a_distribution(tmp_path: Path) -> None:
    (tmp_path / "d.json").write_text('{"mpi": {"enabled": true}}')
    for given_ in ("mpi", '{"mpi": {"enabled": true}}', str(tmp_path / "d.json")):
        assert job(distribution=given_).distribution == {"mpi": {"enabled": True}}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"image": ""}, "--image"),
        ({"entry_point": ""}, "--entry-point"),
        ({"sdk": 1}, "--sdk 1"),
        ({"distribution": "torchdistributed"}, "torch_distributed"),
        ({"hyperparameters": "[1]"}, "--hyperparameters"),
        ({"hyperparameters": "{"}, "not JSON"),
        ({"inputs": ["training"]}, "--input training"),
        ({"stop_after": "soon"}, "--stop-after soon"),
        ({"instance_groups": "[]"}, "list of groups"),
        ({"instance_groups": '[{"name": "a", "instance_typ": "ml.m5.xlarge", "instance_count": 1}]'}, "instance_type"),
        (
            {"instance_groups": '[{"name": "a", "instance_type": "ml.m5.xlarge", "instance_count": 0}]'},
            "instance_count",
        ),
        ({"instance_groups": MIXED.replace('"data"', '"train"')}, "twice"),
        ({"instance_groups": MIXED, "hosts": 2}, "--hosts"),
        ({"instance_groups": MIXED, "sdk": 3}, "SDK 3"),
        ({"instance_groups": MIXED, "distribution": "mpi"}, "one of the 2 groups"),
        ({"instance_groups": MIXED, "distribution": GROUPED.replace("train", "trian")}, "train"),
        ({"distribution": GROUPED}, "--instance-groups"),
    ],
)
def test_a_wrong_word_is_named(words: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError) as refused:
        job(**words)
    assert said in refused.value.message + refused.value.remedy


@pytest.mark.parametrize(
    ("words", "launcher", "count"),
    [
        ({}, "process", 1),
        ({"distribution": "torch_distributed"}, "torchrun", 1),
        ({"distribution": "torch_distributed", "instance_type": "ml.p4d.24xlarge"}, "torchrun", 8),
        ({"distribution": "torch_distributed", "processes_per_host": 3}, "torchrun", 3),
        ({"distribution": '{"mpi": {"enabled": true, "processes_per_host": 5}}'}, "mpi", 5),
        ({"distribution": "mpi", "sdk": 3, "processes_per_host": 2}, "mpi", 2),
        ({"distribution": "torch_distributed", "sdk": 3, "instance_type": "ml.g5.12xlarge"}, "torchrun", 4),
    ],
)
def test_the_launcher_and_its_processes(words: dict[str, Any], launcher: str, count: int) -> None:
    launch = launch_of(job(**words))
    assert (launch.launcher, launch.processes_per_host) == (launcher, count)


def test_more_processes_than_gpus_is_a_failure_of_the_job() -> None:
    with pytest.raises(RehearsalFailed) as refused:
        launch_of(job(distribution="mpi", processes_per_host=16, instance_type="ml.p4d.24xlarge"))
    assert refused.value.exit_code == 9
    assert "8 GPU" in refused.value.message


def test_processes_without_a_launcher_are_refused() -> None:
    with pytest.raises(RequestError, match="one process per host"):
        launch_of(job(processes_per_host=2))


# --- networks, owners, artifacts ------------------------------------------------------------------------------------


def test_a_containers_own_name_is_never_algo_n() -> None:
    names = network.Names("id", ("algo-1", "algo-2"))
    assert names.own(0) != names.own(1)
    assert not names.own(0).startswith("algo")
    assert names.container(1) == "trainwright-rehearsal-id-algo-2"


IMAGE = Image("x", "sha256:0", {}, "/image/bin", {"PATH": "/image/bin"}, (), ("/site",), (), 0)


def words(job: Job, tmp_path: Path) -> list[str]:
    host = Host("algo-1", "container", "own", HostFolder(tmp_path / "algo-1"))
    found = command(
        job,
        IMAGE,
        host,
        control=tmp_path / "control",
        network=["--network", "n"],
        identity="id",
        gpus=False,
        packages=Packages(),
    )
    return [f"{option} {value}" for option, value in itertools.pairwise(found)]


def test_a_container_is_as_the_platform_makes_it(tmp_path: Path) -> None:
    job = replace(JOB, inputs={"training": tmp_path}, memory="1g", environment={"MINE": "1"})
    given = words(job, tmp_path)
    assert f"--mount type=bind,src={tmp_path},dst=/opt/ml/input/data/training,readonly" in given
    assert f"--mount type=bind,src={tmp_path}/algo-1/output,dst=/opt/ml/output" in given
    assert f"--mount type=bind,src={tmp_path}/control/{files.PTH},dst=/site/{files.PTH},readonly" in given
    assert {"--env MINE=1", "--env AWS_REGION=us-west-2", "--memory 1g", "--memory-swap 1g"} <= set(given)
    # The image's own, unless programs stand in for others.
    assert not any(one.startswith("--env PATH=") for one in given)
    assert f"--env PATH={files.CONTROL}/bin:{files.CONTROL}/devices:/image/bin" in words(
        replace(job, launch_only=True), tmp_path
    )
    assert not any("--gpus" in one for one in given)


def test_an_unknown_kind_of_network_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(network.VARIABLE, "tube")
    with pytest.raises(EngineError, match="bridge or veth"):
        network.make(None, network.Names("id", ("algo-1",)), "x")  # type: ignore[arg-type]


def test_this_process_lives_and_a_dead_one_does_not() -> None:
    me = owner.this_process()
    assert owner.lives(me) is True
    ended = subprocess.run([sys.executable, "-c", ""], check=True)
    assert ended.returncode == 0
    boot, namespace, _, start = me.split(":")
    assert owner.lives(f"{boot}:{namespace}:{2**22 + 1}:{start}") is False
    # The same pid, given out anew.
    assert owner.lives(f"{boot}:{namespace}:{os.getpid()}:{int(start) + 1}") is False


@pytest.mark.parametrize("text", ["", "x", "a:b:c:d", "other-boot:1:1:1"])
def test_another_machines_owner_cannot_be_asked(text: str) -> None:
    assert owner.lives(text) is None


def test_folders_of_dead_owners_are_left_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path))
    boot, namespace, _, start = owner.this_process().split(":")
    for name, text in (
        ("living", owner.this_process()),
        ("dead", f"{boot}:{namespace}:{2**22 + 1}:{start}"),
        ("foreign", "other:1:1:1"),
    ):
        work = leftovers.reports_dir() / name / leftovers.WORK
        work.mkdir(parents=True)
        (work / leftovers.OWNER_FILE).write_text(text)
    found = [Path(left.name).parent.name for left in leftovers.find(None)]
    assert found == ["dead"]
    os.utime(leftovers.reports_dir() / "foreign" / leftovers.WORK, (0, 0))
    found = [Path(left.name).parent.name for left in leftovers.find(None)]
    assert found == ["dead", "foreign"]


def test_artifacts_of_all_hosts_are_one_archive(tmp_path: Path) -> None:
    hosts = []
    for number in (1, 2):
        folder = HostFolder(tmp_path / f"algo-{number}")
        (folder.model / "deep").mkdir(parents=True)
        (folder.output / "data").mkdir(parents=True)
        (folder.model / "deep" / "same").write_text(str(number))
        (folder.model / f"own-{number}").write_text("")
        hosts.append(Host(f"algo-{number}", "c", "o", folder))
    model, output = artifacts.collect(hosts, tmp_path)
    assert sorted(model.files) == ["deep/same", "own-1", "own-2"]
    assert model.clashes == ("deep/same",)
    assert output.files == ()
    with tarfile.open(model.path) as archive:
        kept = archive.extractfile("deep/same")
        assert kept is not None
        assert kept.read() == b"1"


def test_the_view_prefixes_every_line_and_survives_a_broken_pipe() -> None:
    out = io.StringIO()
    view = RehearsalView(("algo-1", "algo-10"), out)
    view.line("algo-1", "first")
    view.state("algo-10", "started")
    view.close()
    assert out.getvalue() == "algo-1  | first\nalgo-10 | · started\n"

    class Broken(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    RehearsalView(("algo-1",), Broken()).line("algo-1", "lost")


def test_a_terminal_has_a_live_line_and_coloured_prefixes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    out = Terminal()
    view = RehearsalView(("algo-1", "algo-2"), out)
    view.state("algo-1", "started")
    view.line("algo-2", "INFO     Invoking user script")
    view.line("algo-2", "loss 0.1")
    view.close()
    view.close()
    text = out.getvalue()
    assert "\x1b[35malgo-2 | \x1b[0mloss 0.1" in text
    assert "running the script" in text
    assert "\x1b[36m  algo-1 \x1b[0mstarted" in text


def test_what_a_host_does_is_told_from_its_log() -> None:
    assert doing("INFO     Waiting for MPI workers to establish their SSH connections").startswith("waiting")
    assert doing("loss 0.1") == ""


@pytest.mark.parametrize(
    ("labels", "environment", "framework", "smp"),
    [
        ({}, {}, "pytorch", None),
        ({"framework": "tensorflow"}, {}, "tensorflow", None),
        ({"framework": "huggingface-tensorflow"}, {}, "tensorflow", None),
        ({}, {"SAGEMAKER_TRAINING_MODULE": "sagemaker_tensorflow_container.training:main"}, "tensorflow", None),
        ({"framework": "pytorch", "component.smdistributed-modelparallel": "1.7.0 (aws)"}, {}, "pytorch", "1.7.0"),
    ],
)
def test_an_image_says_its_framework_and_what_it_has_of_smp(labels, environment, framework, smp) -> None:
    named = {f"io.trainwright.{name}": value for name, value in labels.items()}
    image = Image("ref", "sha256:1", named, "/bin", environment, (), (), (), 0)
    told = of_image(job(), image)
    assert (told.framework, told.smp_version) == (framework, smp)


def test_parameters_that_the_smp_of_the_image_does_not_know_are_refused() -> None:
    smp = {"enabled": True, "parameters": {"pipeline_parallel_degree": 2}}
    mpi = {"enabled": True, "processes_per_host": 8}
    wanted = replace(job(), distribution={"smdistributed": {"modelparallel": smp}, "mpi": mpi})
    assert "mp_parameters" in files.hyperparameters(replace(wanted, smp_version="1.7.0"), "train.py", 8)
    with pytest.raises(RequestError, match="does not know pipeline_parallel_degree"):
        files.hyperparameters(replace(wanted, smp_version="1.5.0"), "train.py", 8)


def test_a_launcher_of_tensorflow_is_no_mistake_in_an_image_of_tensorflow() -> None:
    wanted = job(distribution="parameter_server", hosts=2)
    image = Image("ref", "sha256:1", {"io.trainwright.framework": "tensorflow"}, "/bin", {}, (), (), (), 0)
    assert launch_of(of_image(wanted, image)).launcher == "parameter-server"


def test_each_host_of_a_mixed_cluster_is_told_of_its_group(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("")
    mixed = job(entry_point=str(script), instance_groups=MIXED, distribution=GROUPED, launch_only=True)
    assert (mixed.hosts, mixed.rank_hosts) == (3, ("algo-2", "algo-3"))
    launch = launch_of(mixed)
    assert (launch.launcher, launch.processes_per_host) == ("mpi", 4)
    assert Facts(mixed, "mpi", 4, ()).world_size == 8
    groups = [
        {"instance_group_name": "data", "instance_type": "ml.c5.xlarge", "hosts": ["algo-1"]},
        {"instance_group_name": "train", "instance_type": "ml.g5.12xlarge", "hosts": ["algo-2", "algo-3"]},
    ]
    for host_name, group, kind, gpus in (
        ("algo-1", "data", "ml.c5.xlarge", False),
        ("algo-3", "train", "ml.g5.12xlarge", True),
    ):
        folder = HostFolder(tmp_path / host_name)
        files.write_host(mixed, host_name, folder, tmp_path, 4)
        told = json.loads((folder.input / "config/resourceconfig.json").read_text())
        assert (told["current_host"], told["current_group_name"]) == (host_name, group)
        assert told["current_instance_type"] == kind
        assert (told["hosts"], told["instance_groups"]) == (["algo-1", "algo-2", "algo-3"], groups)
        assert (folder.devices / "nvidia-smi").exists() == gpus
        given_ = json.loads((folder.input / "config/hyperparameters.json").read_text())
        assert json.loads(given_["sagemaker_distribution_instance_groups"]) == ["train"]


def test_hosts_without_ranks_have_lines_of_their_own() -> None:
    mixed = job(instance_groups=MIXED, distribution=GROUPED, launch_only=True)
    assert awaited("mpi", mixed) == {"algo-1", "algo-2"}
    facts = Facts(mixed, "mpi", 4, tuple(HostFacts(name=name) for name in mixed.host_names))

    def launch(host_name: str, *argv: str) -> Launch:
        return Launch(host_name, argv, "/opt/ml/code", {}, "/usr/bin/x")

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
    judged = judge(Facts(mixed, "mpi", 2, hosts))
    assert judged.passed, judged.checks
    assert next(check.says for check in judged.checks if check.name == "world size") == "4 = 2 x 2"
    assert not judge(Facts(mixed, "mpi", 2, (host(1), *hosts[1:]))).passed
