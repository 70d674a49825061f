"""The files that the platform writes before a job starts: a folder per host, like ``/opt/ml``, and the code archive."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwright.core.errors import RehearsalFailed
from trainwright.core.paths import templates_dir
from trainwright.core.say import Say
from trainwright.rehearse import launch_only, starts
from trainwright.rehearse.rehearsed_job import RehearsedJob
from trainwright.sagemaker import sdk3
from trainwright.sagemaker.distribution import Launcher, compile_distribution
from trainwright.sagemaker.instances import instance

CONTROL = "/opt/trainwright-rehearsal"  # where the control folder is mounted, read-only
ARCHIVE = "sourcedir.tar.gz"
JOB_NAME = "rehearsal"
REGION = "us-west-2"
PTH = "trainwright_rehearsal.pth"
# Separate globals: `site` runs the line inside a function, whose names the observer's functions would not see.
_LOADER = f"import sys; exec(compile(open('{CONTROL}/observer.py').read(), '{CONTROL}/observer.py', 'exec'), {{}})\n"


@dataclass(frozen=True)
class HostFolder:
    """The files of one host on this machine, named as below ``/opt/ml``."""

    root: Path

    @property
    def input(self) -> Path:
        return self.root / "input"

    @property
    def model(self) -> Path:
        return self.root / "model"

    @property
    def output(self) -> Path:
        return self.root / "output"

    @property
    def facts(self) -> Path:
        """The reports of the observers in the host's processes."""
        return self.root / "facts"

    @property
    def devices(self) -> Path:
        """With ``--launch-only``: programs that show the devices of the host's instance type."""
        return self.root / "devices"


def check_entry_point(job: RehearsedJob) -> tuple[Path, str]:
    """The code folder, and the path of the entry point in it; of the image's own program, only its name.

    Raises:
        RehearsalFailed: the entry point is absolute, outside the source folder, or missing; SageMaker's SDK or toolkit
            would refuse it (sagemaker-training 5.1.4 accepts only relative names).
    """
    given = Path(job.entry_point)
    if job.baked:
        return given, job.entry_point
    if job.source_dir is None:
        if not given.is_file():
            raise _refused(
                "entry-point-missing",
                f"{job.entry_point}: no such file",
                "Name an existing file with --entry-point, or its folder with --source-dir.",
            )
        return given.absolute().parent, given.name
    if given.is_absolute():
        raise _refused(
            "entry-point-absolute",
            f"the entry point {job.entry_point} is an absolute path, which the training toolkit refuses",
            f"Name it relative to --source-dir: --entry-point {given.name}",
        )
    source = job.source_dir.absolute()
    if not source.is_dir():
        raise _refused(
            "source-dir-missing",
            f"--source-dir {job.source_dir}: no such folder",
            "Name the folder that contains the code.",
        )
    if not (source / given).resolve().is_relative_to(source.resolve()):
        raise _refused(
            "entry-point-outside",
            f"the entry point {job.entry_point} is outside {job.source_dir}, so it is not uploaded with it",
            "Move it into the source folder, or name a folder that contains both.",
        )
    if not (source / given).is_file():
        near = sorted(str(path.relative_to(source)) for path in source.rglob(given.name))[:3]
        raise _refused(
            "entry-point-missing",
            f"no file named {job.entry_point} in {job.source_dir}",
            f"Did you mean {' or '.join(near)}?" if near else "Name a file of that folder with --entry-point.",
        )
    return source, given.as_posix()


def write_control(job: RehearsedJob, launcher: Launcher, folder: Path) -> None:
    """Fill the control folder: the observer, the code archive, the stand-in programs and modules.

    Args:
        job: the job.
        launcher: the launcher of its ranks.
        folder: the control folder, shared by all hosts.

    Raises:
        RehearsalFailed: the entry point is invalid; see :func:`check_entry_point`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "facts").mkdir(exist_ok=True)  # a mount point: each host has its own facts
    (folder / "observer.py").write_text((templates_dir() / "rehearsal" / "observer.py").read_text())
    (folder / PTH).write_text(_LOADER)
    if job.stop_after is not None:
        (folder / "stop").touch()
    (folder / "devices").mkdir(exist_ok=True)  # likewise: each host has the devices of its instance type
    _programs(folder / "bin", launch_only.stand_ins(job))
    for name, text in launch_only.packages(job, launcher).items():
        module = folder / "python" / name
        module.parent.mkdir(parents=True, exist_ok=True)
        module.write_text(text)
    if job.launch_only:
        script = folder / "entry-point"
        script.write_text(launch_only.entry_point(job.entry_point))
        script.chmod(0o755)
    if job.baked:
        return
    if job.start != "sagemaker":
        starts.copy_code(code_files(job, folder), folder)
        return
    with tarfile.open(folder / ARCHIVE, "w:gz", compresslevel=1, dereference=True) as archive:
        for name, path in sorted(code_files(job, folder).items()):
            archive.add(path, arcname=name, recursive=False)


def code_files(job: RehearsedJob, control: Path) -> dict[str, Path]:
    """The files and folders that an estimator uploads: path on this machine by name in the archive."""
    source, entry_point = check_entry_point(job)
    if job.launch_only:
        # None of the user's code runs, so none is uploaded, and no requirements are installed.
        return {entry_point: control / "entry-point"}
    if job.source_dir is None:
        files = {Path(job.entry_point).name: Path(job.entry_point).absolute()}
    else:
        files = {str(path.relative_to(source)): path for path in source.rglob("*")}
    if job.requirements is not None:
        files["requirements.txt"] = job.requirements.absolute()
    return files


def write_host(
    job: RehearsedJob,
    host: str,
    folder: HostFolder,
    control: Path,
    processes_per_host: int | None,
    *,
    say: Say | None = None,
) -> None:
    """Write what the platform writes for one host, for the contract of ``job.sdk``.

    Args:
        job: the job.
        host: name of the host.
        folder: takes its files.
        control: the control folder, already filled.
        processes_per_host: for the launchers of SDK 2; ``None`` leaves it to the toolkit.
        say: progress callback.

    Raises:
        RequestError: the distribution is invalid, or SDK 3 refuses it.
        RehearsalFailed: the entry point is invalid.
        SourceError: SDK 3's drivers cannot be downloaded.
    """
    _, entry_point = check_entry_point(job)
    for made in (folder.input / "config", folder.input / "data", folder.model, folder.output / "data", folder.facts):
        made.mkdir(parents=True, exist_ok=True)
        # The container may run as another user.
        made.chmod(0o777)
    folder.output.chmod(0o777)
    if job.launch_only:
        _programs(folder.devices, launch_only.devices(instance(job.group_of(host).instance_type)))
    for channel in job.inputs:
        (folder.input / "data" / channel).mkdir()  # a mount point
    if job.start != "sagemaker":
        return  # a cluster writes nothing of what the platform does
    channels = list(job.inputs)
    if job.sdk == 2:
        parameters = hyperparameters(job, entry_point, processes_per_host)
    else:
        driver = sdk3.driver_of(job.distribution, job.processes_per_host if job.distribution else None)
        parameters = sdk3.hyperparameters(job.hyperparameters, driver)
        channels += sdk3.write_channels(job, folder.input / "data", entry_point, code_files(job, control), say=say)
    _write(folder.input / "config/hyperparameters.json", parameters)
    _write(folder.input / "config/inputdataconfig.json", {name: _channel() for name in channels})
    _write(folder.input / "config/resourceconfig.json", resource_config(job, host))


def hyperparameters(job: RehearsedJob, entry_point: str, processes_per_host: int | None) -> dict[str, str]:
    """The hyperparameters that SDK 2 sends for a job: JSON values, or for an ``Estimator`` without source code, text.

    Source: SDK 2.257.6, ``estimator.py``: ``Estimator.set_hyperparameters`` and ``_TrainingJob._get_train_args``.
    """
    if job.baked:
        return {name: str(value) for name, value in job.hyperparameters.items()}
    own = {name: json.dumps(value) for name, value in job.hyperparameters.items()}
    if job.framework == "tensorflow":
        own.setdefault("model_dir", json.dumps("/opt/ml/model"))
    fixed = {
        "sagemaker_submit_directory": f"{CONTROL}/{ARCHIVE}",
        "sagemaker_program": entry_point,
        "sagemaker_container_log_level": 20,
        "sagemaker_job_name": JOB_NAME,
        "sagemaker_region": REGION,
    }
    launch = compile_distribution(
        job.distribution,
        framework=job.framework,
        instance_type=job.instance_type,
        processes_per_host=processes_per_host,
        entry_point=entry_point,
        smp_version=job.smp_version,
    )
    return {**own, **{name: json.dumps(value) for name, value in fixed.items()}, **launch}


def resource_config(job: RehearsedJob, host: str) -> dict[str, Any]:
    """``resourceconfig.json`` of one host."""
    own = job.group_of(host)
    return {
        "current_host": host,
        "current_instance_type": own.instance_type,
        "current_group_name": own.name,
        "hosts": list(job.host_names),
        "instance_groups": [
            {"instance_group_name": group.name, "instance_type": group.instance_type, "hosts": list(hosts)}
            for group, hosts in job.cluster
        ],
        "network_interface_name": job.interface,
    }


def _channel() -> dict[str, str]:
    return {"TrainingInputMode": "File", "S3DistributionType": "FullyReplicated", "RecordWrapperType": "None"}


def _programs(folder: Path, texts: Mapping[str, str]) -> None:
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content))
    path.chmod(0o644)


def _refused(cause: str, message: str, remedy: str) -> RehearsalFailed:
    return RehearsalFailed(message, remedy=remedy, cause=cause, host="", rank=None, last_lines=[])
