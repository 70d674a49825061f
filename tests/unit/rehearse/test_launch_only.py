"""Launch lines without the devices: the stand-ins run here as they are, their records are read back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainwright.rehearse import launch_only
from trainwright.rehearse.launch_only import LaunchLine
from trainwright.rehearse.rehearsed_job import RehearsedJob
from trainwright.sagemaker.instances import instance, load_instances

HOSTS = ("algo-1", "algo-2")
P4D = RehearsedJob("image", "train.py", launch_only=True, instance_type="ml.p4d.24xlarge")


@pytest.fixture
def control(tmp_path: Path) -> Path:
    """What is mounted into a host, at a place of this machine; facts and bin are in it."""
    for name in ("facts", "bin", "packages", "image"):
        (tmp_path / name).mkdir()
    return tmp_path


def install(control: Path, name: str, text: str) -> Path:
    path = control / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.replace("/opt/trainwright-rehearsal", str(control)))
    path.chmod(0o755)
    return path


def call(control: Path, *argv: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    path = f"{control}/bin:{control}/image:{os.environ['PATH']}"
    environment = {"PATH": path, **variables}
    return subprocess.run(
        [str(word) for word in argv], cwd=control, env=environment, capture_output=True, text=True, check=False
    )


def read(control: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[LaunchLine, ...]:
    monkeypatch.setattr(launch_only, "_CONTROL", str(control))
    return launch_only.read(control / "facts", "algo-1")


@pytest.mark.parametrize("in_image", [True, False])
def test_a_launcher_writes_down_its_words_and_variables(control, monkeypatch, in_image):
    install(control, "bin/torchrun", launch_only.stand_ins(P4D)["torchrun"])
    if in_image:
        install(control, "image/torchrun", "#!/bin/sh\nexit 1\n")
    words = ("--nnodes", "2", "a b'\"\n$x")
    done = call(control, "torchrun", *words, MASTER_ADDR="algo-1", ODD="line\nbreak=1")
    assert done.returncode == 0
    [launch] = read(control, monkeypatch)
    assert launch.argv == ("torchrun", *words)
    assert launch.environment["MASTER_ADDR"] == "algo-1"
    assert launch.environment["ODD"] == "line\nbreak=1"
    assert launch.cwd == str(control)
    assert launch.in_image == (str(control / "image/torchrun") if in_image else "")


@pytest.mark.parametrize("name", ["train.py", "train.sh"])
def test_the_stand_in_of_the_script_writes_down_its_arguments(control, monkeypatch, name):
    script = install(control, name, launch_only.entry_point(name))
    start = [sys.executable, "--", name] if name.endswith(".py") else ["/bin/sh", "-c", f"./{name} --epochs 3"]
    arguments = ["--epochs", "3"] if name.endswith(".py") else []
    assert call(control, *start, *arguments).returncode == 0
    [launch] = read(control, monkeypatch)
    assert launch.argv[-3:] == (name if name.endswith(".py") else f"./{name}", "--epochs", "3")
    assert launch.in_image.endswith(name)
    assert script.exists()


def test_the_launcher_of_xla_is_a_module_and_asks_for_the_real_one(control, monkeypatch):
    assert launch_only.packages(P4D, "torchrun") == {}
    for name, text in launch_only.packages(P4D, "xla").items():
        install(control, f"packages/{name}", text)
    (control / "image/torch_xla").mkdir()
    words = (sys.executable, "-m", "torch_xla.distributed.xla_spawn", "--num_gpus", "8", "train.py")
    assert call(control, *words, PYTHONPATH=str(control / "packages")).returncode == 0
    [launch] = read(control, monkeypatch)
    assert launch.argv == words
    assert launch.program == "torch_xla.distributed.xla_spawn"
    assert launch.in_image == ""


def test_a_launch_counts_once_all_of_it_is_written(control):
    folders = {host: control / host for host in HOSTS}
    for folder in folders.values():
        folder.mkdir()
    (folders["algo-1"] / "launch.7.cmdline").write_text("x\0")
    assert not launch_only.complete({"algo-1"}, folders)
    assert launch_only.read(folders["algo-1"], "algo-1") == ()
    (folders["algo-1"] / "launch.7.image").write_text("/usr/bin/mpirun\n")
    assert launch_only.complete({"algo-1"}, folders)
    assert not launch_only.complete(HOSTS, folders)


@pytest.mark.parametrize("name", sorted(one.name for one in load_instances().values() if one.accelerator))
def test_devices_are_those_of_the_instance_type(control, name):
    """Asked as sagemaker-training 5.1.4 and SDK 3's drivers do, counted as they count."""
    programs = launch_only.devices(instance(name))
    machine = instance(name)
    if machine.gpus:
        install(control, "bin/nvidia-smi", programs["nvidia-smi"])
        said = call(control, "nvidia-smi", "--list-gpus").stdout
        assert sum(line.startswith("GPU ") for line in said.split("\n")) == machine.gpus
        assert call(control, "nvidia-smi").returncode == 1
    if machine.neuron_devices:
        install(control, "bin/neuron-ls", programs["neuron-ls"])
        listed = json.loads(call(control, "neuron-ls", "-j").stdout)
        assert sum(item["nc_count"] for item in listed) == machine.neuron_cores


def test_nothing_is_in_the_way_of_a_job_that_runs():
    assert launch_only.stand_ins(RehearsedJob("image", "train.py", instance_type="ml.p4d.24xlarge")) == {}


def launch(host: str, *argv: str, in_image: str = "/usr/bin/x") -> LaunchLine:
    return LaunchLine(
        host, argv, "/opt/ml/code", {"NCCL_PROTO": "simple", "HOME": "/root", "FI_PROVIDER": "efa"}, in_image
    )


def test_what_a_line_needs_has_to_be_in_the_image():
    found = launch_only.find_cause("torchrun", (launch("algo-2", "torchrun", in_image=""),), HOSTS)
    assert found is not None
    assert (found.id, found.host) == ("launcher-missing", "algo-2")
    plain = launch_only.find_cause("torchrun", (launch("algo-1", "/usr/bin/python3", "--", "train.py"),), HOSTS)
    assert plain is not None
    assert plain.id == "plain-toolkit"
    bare = launch_only.find_cause("smddp", (launch("algo-1", "mpirun", "python3"),), HOSTS)
    assert bare is not None
    assert bare.id == "smddprun-missing"
    for launcher, words in (
        ("smddp", ("mpirun", "-np", "8", "smddprun", "python3")),
        ("torchrun", ("neuron_parallel_compile", "torchrun", "train.py")),
        ("process", ("/usr/bin/python3", "--", "train.py")),
        ("xla", ("/usr/bin/python3", "-m", "torch_xla.distributed.xla_spawn")),
    ):
        assert launch_only.find_cause(launcher, (launch("algo-1", *words),), HOSTS) is None


def test_variables_that_tell_nothing_are_not_shown():
    one = launch("algo-1", "torchrun", "a b")
    assert one.line == "torchrun 'a b'"
    assert one.shown({"NCCL_PROTO": "simple"}) == {"FI_PROVIDER": "efa"}
    assert one.environment["HOME"] == "/root"
