"""What the platform writes before a job begins: a folder per host, shaped like ``/opt/ml``, and the code archive."""

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
from trainwright.rehearse import launch_only
from trainwright.rehearse.rehearsed_job import RehearsedJob
from trainwright.sagemaker import sdk3
from trainwright.sagemaker.distribution import Launcher, compile_distribution
from trainwright.sagemaker.instances import instance

CONTROL = "/opt/trainwright-rehearsal"  # where the control folder is mounted, read-only
ARCHIVE = "sourcedir.tar.gz"
JOB_NAME = "rehearsal"
REGION = "us-west-2"
PTH = "trainwright_rehearsal.pth"
# Globals of its own: the line is run inside of a function of `site`, where a program's functions see nothing of it.
_LOADER = f"import sys; exec(compile(open('{CONTROL}/observer.py').read(), '{CONTROL}/observer.py', 'exec'), {{}})\n"


@dataclass(frozen=True)
class HostFolder:
    """The files of one host on this machine; the names are those below ``/opt/ml``."""

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
        """What the observer in the host's processes writes."""
        return self.root / "facts"

    @property
    def devices(self) -> Path:
        """Programs that show the devices of the host's instance type, where launch lines alone are wanted."""
        return self.root / "devices"


def check_entry_point(job: RehearsedJob) -> tuple[Path, str]:
    """The folder that holds the code, and the entry point in it as the job names it.

    Raises:
        RehearsalFailed: the entry point is absolute, lies outside of the source folder, or does not exist; SageMaker's
            SDK or its toolkit would refuse it (sagemaker-training 5.1.4 takes relative names alone).
    """
    given = Path(job.entry_point)
    if job.source_dir is None:
        if not given.is_file():
            raise _refused(
                "entry-point-missing",
                f"there is no file {job.entry_point}",
                "Name a file of this machine with --entry-point, or the folder it lies in with --source-dir.",
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
            "Name the folder that holds the code.",
        )
    if not (source / given).resolve().is_relative_to(source.resolve()):
        raise _refused(
            "entry-point-outside",
            f"the entry point {job.entry_point} lies outside of {job.source_dir}, so it is not uploaded with it",
            "Move it into the source folder, or name the folder that holds both.",
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
        job: what is rehearsed.
        launcher: what starts its ranks.
        folder: the control folder, the same for every host.

    Raises:
        RehearsalFailed: the entry point cannot be used; see :func:`check_entry_point`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "facts").mkdir(exist_ok=True)  # a mount point; each host has facts of its own
    (folder / "observer.py").write_text((templates_dir() / "rehearsal" / "observer.py").read_text())
    (folder / PTH).write_text(_LOADER)
    if job.stop_after is not None:
        (folder / "stop").touch()
    (folder / "devices").mkdir(exist_ok=True)  # the same: each host has those of its instance type
    _programs(folder / "bin", launch_only.stand_ins(job))
    for name, text in launch_only.packages(job, launcher).items():
        module = folder / "python" / name
        module.parent.mkdir(parents=True, exist_ok=True)
        module.write_text(text)
    if job.launch_only:
        script = folder / "entry-point"
        script.write_text(launch_only.entry_point(job.entry_point))
        script.chmod(0o755)
    with tarfile.open(folder / ARCHIVE, "w:gz", compresslevel=1, dereference=True) as archive:
        for name, path in sorted(code_files(job, folder).items()):
            archive.add(path, arcname=name, recursive=False)


def code_files(job: RehearsedJob, control: Path) -> dict[str, Path]:
    """What an estimator uploads: name in the archive to file (and folder) on this machine."""
    source, entry_point = check_entry_point(job)
    if job.launch_only:
        # Nothing of the user's is run, so nothing of it is there; neither are requirements installed.
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
        job: what is rehearsed.
        host: its name.
        folder: where its files go.
        control: the control folder, filled.
        processes_per_host: for the launchers of SDK 2; ``None``: left to the toolkit.
        say: told of a download.

    Raises:
        RequestError: the distribution is none, or SDK 3 refuses something.
        RehearsalFailed: the entry point cannot be used.
        SourceError: SDK 3's drivers cannot be had.
    """
    _, entry_point = check_entry_point(job)
    for made in (folder.input / "config", folder.input / "data", folder.model, folder.output / "data", folder.facts):
        made.mkdir(parents=True, exist_ok=True)
        # A container may run as another user than the caller.
        made.chmod(0o777)
    folder.output.chmod(0o777)
    if job.launch_only:
        _programs(folder.devices, launch_only.devices(instance(job.group_of(host).instance_type)))
    for channel in job.inputs:
        (folder.input / "data" / channel).mkdir()  # a mount point
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
    """What SDK 2 sends for a job: every value a JSON text."""
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
