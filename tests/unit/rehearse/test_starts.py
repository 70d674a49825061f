"""Jobs as a cluster of one's own starts them: the command and variables of its hosts."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tests.support.cluster_jobs import cluster_subject, noted, pod_of, run_script, variables
from tests.support.rehearsal_jobs import JOB, job
from trainwright.core.errors import RequestError
from trainwright.estimator.manifest import manifest
from trainwright.estimator.sbatch import script
from trainwright.rehearse import opt_ml, starts
from trainwright.rehearse.hosts import Host, JobImage, command
from trainwright.rehearse.indexes import HostIndexes
from trainwright.rehearse.observed import HostFacts, JobFacts
from trainwright.rehearse.opt_ml import HostFolder
from trainwright.rehearse.rehearsed_job import RehearsedJob
from trainwright.rehearse.verdict import judge

VALUES = {"lr": 0.1, "table": {"b": 2, "a": 1}, "flag": True}
SAME = {"distribution": {"torch_distributed": {"enabled": True}}, "hyperparameters": VALUES}
IMAGE = JobImage("x", "sha256:0", {}, "/image/bin", {"PATH": "/image/bin"}, (), ("/site",), (), 0)


def rehearsed(tmp_path: Path, start: str, **more: object) -> RehearsedJob:
    source = tmp_path / "src"
    (source / "lib").mkdir(parents=True, exist_ok=True)
    (source / "train.py").write_text("")
    (source / "lib" / "a.py").write_text("")
    given = {"source_dir": source, "start": start, "instance_type": "ml.p5.48xlarge", **SAME, **more}
    return replace(JOB, **given)  # type: ignore[arg-type]


def test_a_rehearsal_is_started_as_the_manifest_says(tmp_path):
    subject = cluster_subject(tmp_path, "pytorchjob", inputs={"train": "s3://b/k"}, **SAME)
    documents = list(yaml.safe_load_all(manifest(subject, "pytorchjob")))
    known = rehearsed(tmp_path, "pytorchjob", inputs={"train": tmp_path})
    assert starts.program(known, "train.py", 8) == pod_of(documents)["containers"][0]["command"]
    own = starts.environment(known, "algo-2", "train.py", 8)
    # The names of the hosts are the rehearsal's; everything else of the toolkit's is the manifest's.
    of_manifest = {name: value for name, value in variables(pod_of(documents)).items() if name.startswith("SM_")}
    assert {**of_manifest, "SM_HOSTS": own["SM_HOSTS"], "SM_CURRENT_HOST": "algo-2"} == {
        name: value for name, value in own.items() if name.startswith("SM_")
    }
    # kubeflow/training-operator v1.9.0: what its operator makes of nprocPerNode and elasticPolicy.
    assert {name: value for name, value in own.items() if name.startswith("PET_")} == {
        "PET_NPROC_PER_NODE": "8",
        "PET_NNODES": "2:2",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": "algo-1:23456",
    }


def test_a_rehearsal_is_started_as_the_script_for_slurm_does(tmp_path):
    done = run_script(script(cluster_subject(tmp_path, "slurm", **SAME)), tmp_path, ("algo-1", "algo-2"))
    assert done.returncode == 0, done.stderr
    known = rehearsed(tmp_path, "slurm")
    (program, *words) = starts.program(known, "train.py", 8)
    assert program == "torchrun"
    assert [word.replace("--rdzv_id=1", "--rdzv_id=42") for word in words] == noted(tmp_path, "algo-2")["argv"]
    assert not [name for name in starts.environment(known, "algo-1", "train.py", 8) if name.startswith("PET_")]


def test_one_host_runs_the_script_alone(tmp_path):
    known = rehearsed(tmp_path, "pytorchjob", hosts=1, distribution=None, hyperparameters={"lr": 0.1})
    assert starts.program(known, "train.py", None) == ["python", "train.py", "--lr", "0.1"]
    assert not [name for name in starts.environment(known, "algo-1", "train.py", None) if name.startswith("PET_")]


def test_a_host_has_the_code_and_nothing_of_the_platform(tmp_path):
    known, control = rehearsed(tmp_path, "pytorchjob"), tmp_path / "control"
    folder = HostFolder(tmp_path / "algo-1")
    opt_ml.write_control(known, "torchrun", control)
    opt_ml.write_host(known, "algo-1", folder, control, 8)
    code = control / "code"
    assert sorted(str(path.relative_to(code)) for path in code.rglob("*") if path.is_file()) == ["lib/a.py", "train.py"]
    assert not (control / opt_ml.ARCHIVE).exists()
    assert list((folder.input / "config").iterdir()) == []
    found = command(
        known,
        IMAGE,
        Host("algo-1", "container", "own", folder),
        control=control,
        network=[],
        identity="id",
        gpus=False,
        packages=HostIndexes(),
        own=starts.environment(known, "algo-1", "train.py", 8),
    )
    pairs = [f"{option} {value}" for option, value in itertools.pairwise(found)]
    assert "--workdir /opt/ml/code" in pairs
    assert f"--mount type=bind,src={code},dst=/opt/ml/code,readonly" in pairs
    assert "--env PET_NNODES=2:2" in pairs


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ({"sdk": 3}, "--sdk 3"),
        ({"launch_only": True}, "--launch-only"),
        ({"distribution": "mpi"}, "mpi"),
        ({"hosts": 2, "distribution": None}, "process"),
        ({"requirements": __file__}, "--requirements"),
        ({"start": "slurn"}, "slurm"),
    ],
)
def test_what_a_cluster_cannot_start_is_refused(words, named):
    with pytest.raises(RequestError, match=named):
        job(**{"start": "slurm", "distribution": "torch_distributed", **words})


def test_a_good_job_is_accepted():
    assert job(start="slurm", distribution="torch_distributed").start == "slurm"
    assert job(start="pytorchjob", hosts=1, distribution=None).start == "pytorchjob"
    assert job().start == "sagemaker"


@pytest.mark.parametrize(("start", "passed"), [("pytorchjob", True), ("sagemaker", False)])
def test_only_the_toolkit_must_report_success(tmp_path, start, passed):
    known = rehearsed(tmp_path, start, hosts=1, distribution=None, entry_point="train.sh")
    hosts = (HostFacts("algo-1", exit_code=0, end="by itself", ended_at=1.0, log=(), processes=()),)
    assert judge(JobFacts(known, "process", 1, hosts)).passed is passed
