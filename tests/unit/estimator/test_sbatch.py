"""The script for Slurm: run by bash on this machine, with stand-ins for srun, scontrol and torchrun."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cluster_jobs import FSX, cluster_subject, noted, run_script
from tests.support.estimator_jobs import facts
from trainwright.estimator.sbatch import duration, image_address, script

HOSTS = ("node-7", "node-2")


def directives(text: str) -> dict[str, str]:
    return dict(re.findall(r"^#SBATCH --([a-z-]+)=(.*)$", text, re.MULTILINE))


def test_every_host_starts_torchrun_and_meets_at_the_first(tmp_path):
    values = {"lr": 0.1, "note": 'it\'s $(HOME) "$x" `id`\nnext'}
    subject = cluster_subject(tmp_path, "slurm", hyperparameters=values, environment={"OWN": "a b"})
    done = run_script(script(subject), tmp_path, HOSTS)
    assert done.returncode == 0, done.stderr
    for host in HOSTS:
        got = noted(tmp_path, host)
        # c10d's rendezvous needs the same address, id and number on all hosts.
        meeting = ["--rdzv_backend=c10d", "--rdzv_id=42", "--rdzv_endpoint=node-7:29400"]
        words = ["train.py", "--lr", "0.1", "--note", values["note"]]
        assert got["argv"] == ["--nnodes=2", "--nproc_per_node=8", *meeting, *words]
        assert "train.py" in got["folder"]
        found = got["environment"]
        assert found["SM_CURRENT_HOST"] == host
        assert json.loads(found["SM_HOSTS"]) == ["node-7", "node-2"]
        assert json.loads(found["SM_HPS"]) == values
        assert (found["OWN"], found["FI_PROVIDER"], found["NVIDIA_VISIBLE_DEVICES"]) == ("a b", "efa", "all")
    options = noted(tmp_path, "srun")
    assert options["--container-image"].startswith("123456789012.dkr.ecr.us-west-2.amazonaws.com#team/training@sha256:")
    # Pyxis: what an image sets wins over the host's variables, except for those of this option.
    named = options["--container-env"].split(",")
    assert {"FI_PROVIDER", "SM_HOSTS", "OWN", "SM_HP_LR"} <= set(named)
    assert (tmp_path / "training-42" / "model").is_dir()


def test_what_slurm_is_asked_for(tmp_path):
    asked = directives(script(cluster_subject(tmp_path, "slurm", instance_count=4, max_run=90061)))
    assert asked["nodes"] == "4"
    assert asked["ntasks-per-node"] == "1"
    assert asked["time"] == "1-01:01:01"
    assert asked["job-name"] == "training"


def test_every_directive_stands_before_the_first_command(tmp_path):
    # sbatch stops reading them there.
    lines = script(cluster_subject(tmp_path, "slurm", spot=True)).splitlines()
    last = max(number for number, line in enumerate(lines) if line.startswith("#SBATCH"))
    assert all(line.startswith("#") for line in lines[:last])


def test_folders_of_channels_are_asked_for_and_mounted(tmp_path):
    inputs = {"train": "s3://bucket/it's", "fsx-1": FSX}
    checkpoint = {"s3_uri": "s3://bucket/checkpoints", "local_path": "/opt/ml/saved"}
    text = script(cluster_subject(tmp_path, "slurm", inputs=inputs, checkpoint=checkpoint))
    done = run_script(text, tmp_path, HOSTS)
    assert done.returncode != 0
    assert "CHANNEL_TRAIN must be the folder with a copy of s3://bucket/it's" in done.stderr
    assert not (tmp_path / "record" / "srun.json").exists()
    data = tmp_path / "data"
    data.mkdir()
    done = run_script(text, tmp_path, HOSTS, CHANNEL_TRAIN=str(data), CHANNEL_FSX_1=str(data))
    assert done.returncode == 0, done.stderr
    mounts = noted(tmp_path, "srun")["--container-mounts"].split(",")
    assert f"{data}:/opt/ml/input/data/train:ro" in mounts
    assert f"{data}:/opt/ml/input/data/fsx-1:ro" in mounts
    assert f"{tmp_path}/training-checkpoints:/opt/ml/saved" in mounts


def test_image_code_and_output_can_be_others(tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "train.py").touch()
    text = script(cluster_subject(tmp_path, "slurm"))
    places = {"IMAGE": "/fsx/image.sqsh", "CODE": str(other), "OUTPUT": str(tmp_path / "kept")}
    done = run_script(text, tmp_path, HOSTS, **places)
    assert done.returncode == 0, done.stderr
    assert noted(tmp_path, "srun")["--container-image"] == "/fsx/image.sqsh"
    assert noted(tmp_path, HOSTS[0])["folder"] == ["train.py"]
    assert (tmp_path / "kept" / "data").is_dir()


def test_one_host_runs_the_script_alone(tmp_path):
    changes = {"distribution": {}, "instance_count": 1, "instance_type": "ml.g5.xlarge"}
    done = run_script(script(cluster_subject(tmp_path, "slurm", **changes)), tmp_path, ("one",))
    assert done.returncode == 0, done.stderr
    got = noted(tmp_path, "one")
    assert got["argv"] == ["train.py"]
    assert "FI_PROVIDER" not in got["environment"]


def test_a_host_that_fails_fails_the_job(tmp_path):
    subject = cluster_subject(tmp_path, "slurm")
    text = script(subject)
    assert run_script(text, tmp_path, HOSTS).returncode == 0
    (tmp_path / "record" / "node-2.json").unlink()
    (tmp_path / "record" / "node-2.json").mkdir()  # torchrun's stand-in cannot write there
    assert run_script(text, tmp_path, HOSTS).returncode != 0


def test_a_script_without_a_source_dir_is_mounted_alone(tmp_path):
    text = script(cluster_subject(tmp_path, "slurm", source_dir=None, entry_point="src/train.py"))
    assert f"CODE={tmp_path}/src" in text
    assert "$CODE/train.py:/opt/ml/code/train.py" in text


def test_code_in_the_image_is_left_there(tmp_path):
    image = facts(entry_point="main.py")
    text = script(cluster_subject(tmp_path, "slurm", known=image, source_dir=None, entry_point=None))
    assert ":/opt/ml/code" not in text
    assert text.rstrip().endswith(" main.py")


@given(seconds=st.integers(1, 2**31))
def test_a_time_is_read_back(seconds):
    # sbatch: days-hours:minutes:seconds
    days, hours, minutes, left = map(int, re.fullmatch(r"(\d+)-(\d\d):(\d\d):(\d\d)", duration(seconds)).groups())  # type: ignore[union-attr]
    assert hours < 24
    assert minutes < 60
    assert ((days * 24 + hours) * 60 + minutes) * 60 + left == seconds


@pytest.mark.parametrize(
    ("reference", "address"),
    [
        # NVIDIA/enroot, doc/cmd/import.md: docker://[USER@][REGISTRY#]IMAGE[:TAG]
        ("1.dkr.ecr.us-west-2.amazonaws.com/a/b:1", "1.dkr.ecr.us-west-2.amazonaws.com#a/b:1"),
        ("localhost:5000/a@sha256:0", "localhost:5000#a@sha256:0"),
        ("library/a:1", "library/a:1"),
        ("a:1", "a:1"),
    ],
)
def test_enroot_wants_a_mark_behind_the_registry(reference, address):
    assert image_address(reference) == address
