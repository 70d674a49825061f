"""The hosts of a rehearsal without an engine: files of the platform, containers, networks, owners, artifacts."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.rehearsal_jobs import GROUPED, JOB, MIXED, job
from trainwright.core.errors import EngineError, RehearsalFailed
from trainwright.core.processes import lives
from trainwright.rehearse import artifacts, leftovers, network, opt_ml, owner
from trainwright.rehearse.hosts import Host, JobImage, command
from trainwright.rehearse.indexes import HostIndexes
from trainwright.rehearse.observed import JobFacts
from trainwright.rehearse.opt_ml import HostFolder
from trainwright.rehearse.rehearsal import launch_of
from trainwright.rehearse.rehearsed_job import RehearsedJob

# --- the files of the platform --------------------------------------------------------------------------------------


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "src"
    (folder / "sub").mkdir(parents=True)
    (folder / "train.py").write_text("print('mine')")
    (folder / "sub" / "helper.py").write_text("")
    return folder


def test_a_host_gets_what_the_platform_writes(source: Path, tmp_path: Path) -> None:
    job = replace(JOB, source_dir=source, hyperparameters={"lr": 0.1, "name": "a b", "deep": {"k": 1}})
    job = replace(job, inputs={"training": tmp_path}, instance_type="ml.p4d.24xlarge")
    control, folder = tmp_path / "control", HostFolder(tmp_path / "algo-2")
    opt_ml.write_control(job, "torchrun", control)
    opt_ml.write_host(job, "algo-2", folder, control, 8)
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
    with tarfile.open(control / opt_ml.ARCHIVE) as archive:
        assert sorted(archive.getnames()) == ["sub", "sub/helper.py", "train.py"]


def test_each_host_of_a_mixed_cluster_is_told_of_its_group(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("")
    mixed = job(entry_point=str(script), instance_groups=MIXED, distribution=GROUPED, launch_only=True)
    assert (mixed.hosts, mixed.rank_hosts) == (3, ("algo-2", "algo-3"))
    launch = launch_of(mixed)
    assert (launch.launcher, launch.processes_per_host) == ("mpi", 4)
    assert JobFacts(mixed, "mpi", 4, ()).world_size == 8
    groups = [
        {"instance_group_name": "data", "instance_type": "ml.c5.xlarge", "hosts": ["algo-1"]},
        {"instance_group_name": "train", "instance_type": "ml.g5.12xlarge", "hosts": ["algo-2", "algo-3"]},
    ]
    for host_name, group, kind, gpus in (
        ("algo-1", "data", "ml.c5.xlarge", False),
        ("algo-3", "train", "ml.g5.12xlarge", True),
    ):
        folder = HostFolder(tmp_path / host_name)
        opt_ml.write_host(mixed, host_name, folder, tmp_path, 4)
        told = json.loads((folder.input / "config/resourceconfig.json").read_text())
        assert (told["current_host"], told["current_group_name"]) == (host_name, group)
        assert told["current_instance_type"] == kind
        assert (told["hosts"], told["instance_groups"]) == (["algo-1", "algo-2", "algo-3"], groups)
        assert (folder.devices / "nvidia-smi").exists() == gpus
        given_ = json.loads((folder.input / "config/hyperparameters.json").read_text())
        assert json.loads(given_["sagemaker_distribution_instance_groups"]) == ["train"]


def test_requirements_take_the_place_of_the_folders_own(source: Path, tmp_path: Path) -> None:
    (source / "requirements.txt").write_text("old")
    (tmp_path / "new.txt").write_text("new")
    job = replace(JOB, source_dir=source, requirements=tmp_path / "new.txt")
    assert opt_ml.code_files(job, tmp_path)["requirements.txt"].read_text() == "new"


def test_a_script_alone_is_all_that_is_uploaded(source: Path, tmp_path: Path) -> None:
    job = replace(JOB, entry_point=str(source / "train.py"))
    assert list(opt_ml.code_files(job, tmp_path)) == ["train.py"]


def test_launch_lines_need_nothing_of_the_user(source: Path, tmp_path: Path) -> None:
    job = replace(JOB, source_dir=source, launch_only=True, instance_type="ml.p4d.24xlarge")
    opt_ml.write_control(job, "torchrun", tmp_path / "control")
    with tarfile.open(tmp_path / "control" / opt_ml.ARCHIVE) as archive:
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
        opt_ml.check_entry_point(replace(JOB, source_dir=source, entry_point=entry_point))
    assert refused.value.details["cause"] == cause
    assert refused.value.remedy


def test_an_entry_point_in_another_folder_is_offered(source: Path) -> None:
    with pytest.raises(RehearsalFailed) as refused:
        opt_ml.check_entry_point(replace(JOB, source_dir=source, entry_point="helper.py"))
    assert refused.value.remedy == "Did you mean sub/helper.py?"


def test_a_link_that_leads_out_of_the_source_folder_is_refused(source: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.py").write_text("")
    (source / "link.py").symlink_to(tmp_path / "elsewhere.py")
    with pytest.raises(RehearsalFailed, match="outside"):
        opt_ml.check_entry_point(replace(JOB, source_dir=source, entry_point="link.py"))


# --- containers, networks, owners, artifacts ------------------------------------------------------------------------


def test_a_containers_own_name_is_never_algo_n() -> None:
    names = network.Names("id", ("algo-1", "algo-2"))
    assert names.own(0) != names.own(1)
    assert not names.own(0).startswith("algo")
    assert names.container(1) == "trainwright-rehearsal-id-algo-2"


IMAGE = JobImage("x", "sha256:0", {}, "/image/bin", {"PATH": "/image/bin"}, (), ("/site",), (), 0)


def words(job: RehearsedJob, tmp_path: Path) -> list[str]:
    host = Host("algo-1", "container", "own", HostFolder(tmp_path / "algo-1"))
    found = command(
        job,
        IMAGE,
        host,
        control=tmp_path / "control",
        network=["--network", "n"],
        identity="id",
        gpus=False,
        packages=HostIndexes(),
    )
    return [f"{option} {value}" for option, value in itertools.pairwise(found)]


def test_a_container_is_as_the_platform_makes_it(tmp_path: Path) -> None:
    job = replace(JOB, inputs={"training": tmp_path}, memory="1g", environment={"MINE": "1"})
    given = words(job, tmp_path)
    assert f"--mount type=bind,src={tmp_path},dst=/opt/ml/input/data/training,readonly" in given
    assert f"--mount type=bind,src={tmp_path}/algo-1/output,dst=/opt/ml/output" in given
    assert f"--mount type=bind,src={tmp_path}/control/{opt_ml.PTH},dst=/site/{opt_ml.PTH},readonly" in given
    assert {"--env MINE=1", "--env AWS_REGION=us-west-2", "--memory 1g", "--memory-swap 1g"} <= set(given)
    # The image's own, unless programs stand in for others.
    assert not any(one.startswith("--env PATH=") for one in given)
    assert f"--env PATH={opt_ml.CONTROL}/bin:{opt_ml.CONTROL}/devices:/image/bin" in words(
        replace(job, launch_only=True), tmp_path
    )
    assert not any("--gpus" in one for one in given)


def test_an_unknown_kind_of_network_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(network.VARIABLE, "tube")
    with pytest.raises(EngineError, match="bridge or veth"):
        network.make(None, network.Names("id", ("algo-1",)), "x")  # type: ignore[arg-type]


def test_this_process_lives_and_a_dead_one_does_not() -> None:
    me = owner.this_process()
    assert lives(me) is True
    ended = subprocess.run([sys.executable, "-c", ""], check=True)
    assert ended.returncode == 0
    boot, namespace, _, start = me.split(":")
    assert lives(f"{boot}:{namespace}:{2**22 + 1}:{start}") is False
    # The same pid, given out anew.
    assert lives(f"{boot}:{namespace}:{os.getpid()}:{int(start) + 1}") is False


@pytest.mark.parametrize("text", ["", "x", "a:b:c:d", "other-boot:1:1:1"])
def test_another_machines_owner_cannot_be_asked(text: str) -> None:
    assert lives(text) is None


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
