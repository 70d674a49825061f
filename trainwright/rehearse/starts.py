"""How a cluster of one's own starts a job on its hosts, without SageMaker's toolkit: what `--start` rehearses.

The manifests of ``estimator --format pytorchjob`` and ``slurm`` have the same command and variables. What the operator
of PyTorchJob adds is from kubeflow/training-operator v1.9.0, ``pkg/controller.v1/pytorch/elastic.go`` and
``envvar.go``.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from trainwright.core.errors import RequestError
from trainwright.estimator.cluster_job import CODE, arguments, interpreter, toolkit_variables
from trainwright.estimator.sbatch import PORT
from trainwright.rehearse.rehearsed_job import RehearsedJob
from trainwright.sagemaker.distribution import launcher_of
from trainwright.sagemaker.instances import instance

OPERATORS_PORT = 23456  # PyTorchJobDefaultPort
FOLDER = "code"  # of the control folder


def check_start(job: RehearsedJob) -> None:
    """Check that a cluster could start a job.

    Raises:
        RequestError: it needs SageMaker's toolkit or SDK.
    """
    if job.start == "sagemaker":
        return
    flag = f"--start {job.start}"
    for given, what in (
        (job.sdk == 3, "--sdk 3"),
        (job.launch_only, "--launch-only"),
        (bool(job.groups), "--instance-groups"),
        (job.requirements is not None, "--requirements"),
    ):
        if given:
            raise RequestError(f"{flag}: {what} is about SageMaker's jobs", remedy=f"Leave out {what}.")
    launcher = launcher_of(job.distribution, job.framework, job.hosts)
    if launcher != "torchrun" and (launcher != "process" or job.hosts > 1):
        raise RequestError(
            f"{flag}: {launcher} on {job.hosts} hosts is started by SageMaker's toolkit only",
            remedy="--distribution torch_distributed",
        )


def program(job: RehearsedJob, entry_point: str, processes: int | None) -> list[str]:
    """Return the command of every host.

    Args:
        job: the job.
        entry_point: the script, relative to the folder of the code.
        processes: how many torchrun starts on a host; None: the script runs alone.
    """
    script = [entry_point, *arguments(job.hyperparameters)]
    if processes is None:
        return [*interpreter(entry_point), *script]
    if job.start == "pytorchjob":
        return ["torchrun", *script]
    meeting = ["--rdzv_backend=c10d", "--rdzv_id=1", f"--rdzv_endpoint={job.host_names[0]}:{PORT}"]
    return ["torchrun", f"--nnodes={job.hosts}", f"--nproc_per_node={processes}", *meeting, *script]


def environment(job: RehearsedJob, host: str, entry_point: str, processes: int | None) -> dict[str, str]:
    """Return the variables that the manifest, or the operator, gives a host; arguments as of :func:`program`."""
    made = toolkit_variables(entry_point, job.hyperparameters, list(job.inputs), instance(job.instance_type))
    made |= {"SM_HOSTS": json.dumps(list(job.host_names)), "SM_CURRENT_HOST": host}
    if job.start == "pytorchjob" and processes is not None:
        made |= {
            "PYTHONUNBUFFERED": "1",
            "PET_NPROC_PER_NODE": str(processes),
            "PET_NNODES": f"{job.hosts}:{job.hosts}",
            "PET_RDZV_BACKEND": "c10d",
            "PET_RDZV_ENDPOINT": f"{job.host_names[0]}:{OPERATORS_PORT}",
        }
    return made


def copy_code(files: Mapping[str, Path], control: Path) -> None:
    """Copy the job's files into the control folder, whence every host has them as the folder of the code.

    Args:
        files: path on this machine, by name in the folder.
        control: the control folder.
    """
    for name, path in files.items():
        if path.is_file():
            target = control / FOLDER / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)


def mount(job: RehearsedJob, control: Path) -> tuple[Path, str, bool]:
    """Return the mount of the code, which Slurm's hosts share and may write to, unlike the files of a ConfigMap."""
    return control / FOLDER, CODE, job.start == "pytorchjob"
