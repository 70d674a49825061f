"""The ``CreateTrainingJob`` request of a job, as SDK 2 or SDK 3 would send it.

What the SDKs send was seen by running them (sagemaker 2.257.7 and 3.27.0) against an emulated API; the tests hold both
against what is written here. Debugger and profiler are always off: they cost time, and in an own image nobody reads
what they write (AWS guide for the Training Compiler, best practices).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any

from trainwright.estimator.image import ECR
from trainwright.estimator.rules_job import channel
from trainwright.estimator.rules_sdk3 import driver_of
from trainwright.estimator.subject import Subject, enabled, part
from trainwright.sagemaker import sdk3
from trainwright.sagemaker.distribution import XLA, compile_distribution

COMPILER = "sagemaker_training_compiler_enabled"
COMPILER_DEBUG = "sagemaker_training_compiler_debug_mode"
MODEL_DIR = "/opt/ml/model"
ARCHIVE = "sourcedir.tar.gz"


def region_of(subject: Subject) -> str | None:
    """Where the job runs: as the job says, else where its image lies."""
    found = ECR.fullmatch(subject.job.image or "")
    return subject.job.region or (found["region"] if found else None)


def output_of(subject: Subject) -> str | None:
    """Where models and code go: as the job says, else the SDK's own bucket in the role's account."""
    job, region = subject.job, region_of(subject)
    if job.output:
        return job.output.rstrip("/")
    words = (job.role or "").split(":")
    account = words[4] if len(words) > 4 else ""
    return f"s3://sagemaker-{region}-{account}" if region and account.isdigit() else None


def base_name(subject: Subject) -> str:
    """What the job's name begins with: as the job says, else the last part of the image's repository."""
    if subject.job.name:
        return subject.job.name
    reference = subject.job.image or (subject.image.reference if subject.image else "training")
    last = PurePosixPath(reference.partition("@")[0]).name.partition(":")[0]
    return last.replace("_", "-").replace(".", "-") or "training"


def job_name(subject: Subject, now: datetime) -> str:
    """A job's name with the time in it, as the SDK writes it."""
    stamp = now.strftime("%Y%m%d%H%M%S" if subject.sdk == 3 else "%Y-%m-%d-%H-%M-%S-") + (
        "" if subject.sdk == 3 else f"{now.microsecond // 1000:03d}"
    )
    return f"{base_name(subject)[: 63 - len(stamp) - 1]}-{stamp}"


def launch_hyperparameters(subject: Subject) -> dict[str, str]:
    """What of the hyperparameters decides on the launch: name to JSON text.

    Raises:
        RequestError: the distribution does not hold together.
    """
    job = subject.job
    listed = subject.listed_groups
    groups = [g.instance_type for g in job.instance_groups if not listed or g.name in listed]
    values = compile_distribution(
        job.distribution,
        framework=subject.framework or "pytorch",
        instance_type=job.instance_type or (groups[0] if groups else ""),
        smp_version=subject.smp_version,
    )
    if subject.compiler:
        values[COMPILER] = "true"
        values[COMPILER_DEBUG] = json.dumps(bool(job.compiler and job.compiler.debug))
        if enabled(job.distribution, "pytorchxla"):
            values[XLA] = "true"
    return values


def raw(subject: Subject) -> bool:
    """Whether the SDK's estimator cannot say the distribution, so that its hyperparameters are given in full.

    The generic estimator drops ``distribution``; the compiler refuses an own image; TensorFlow's mirrored strategy asks
    for a framework version beside the image; ``default_partition`` without ``partitions`` is a KeyError; and of an
    instance group the SDK does not say the type to the data parallel library.
    """
    given = subject.job.distribution
    parameters = subject.smp_parameters
    return (
        subject.framework is None
        or subject.job.entry_point is None
        or subject.compiler
        or "multi_worker_mirrored_strategy" in given
        or ("default_partition" in parameters and "partitions" not in parameters)
        or bool(subject.job.instance_groups and part(given, "smdistributed"))
    )


def hyperparameters(subject: Subject, name: str) -> dict[str, str]:
    """All hyperparameters of SDK 2's contract: name to JSON text.

    Args:
        subject: the job.
        name: of the training job.
    """
    job = subject.job
    values: dict[str, Any] = dict(job.hyperparameters)
    if subject.framework == "tensorflow" and job.entry_point is not None:
        values.setdefault("model_dir", MODEL_DIR)
    if job.entry_point is not None:
        values |= {
            "sagemaker_submit_directory": submit_directory(subject, name),
            "sagemaker_program": program(subject),
            "sagemaker_container_log_level": 20,
            "sagemaker_job_name": name,
            "sagemaker_region": region_of(subject),
        }
    return {key: json.dumps(value) for key, value in values.items()} | launch_hyperparameters(subject)


def program(subject: Subject) -> str:
    """The entry point as the container gets it: a script without ``source_dir`` is uploaded under its last name."""
    entry = str(subject.job.entry_point)
    return entry if subject.job.source_dir else PurePosixPath(entry).name


def code_address(subject: Subject, name: str) -> str:
    """Where the archive of the code lies in S3."""
    source = subject.job.source_dir
    if source and source.startswith("s3://"):
        return source
    return f"{output_of(subject)}/{name}/source/{ARCHIVE}"


def submit_directory(subject: Subject, name: str) -> str:
    """Where the toolkit finds the code; an isolated container cannot fetch it, so it gets it as a channel."""
    if subject.job.network_isolation:
        return f"/opt/ml/input/data/code/{ARCHIVE}"
    return code_address(subject, name)


def make_request(subject: Subject, now: datetime | None = None) -> dict[str, Any]:
    """The request. What the job lacks is left out; the rules say what that is.

    Args:
        subject: a job whose distribution and channels are in order.
        now: the time in the job's name.

    Raises:
        RequestError: distribution or channels are not in order.
    """
    name = job_name(subject, now or datetime.now(UTC))
    job = subject.job
    request: dict[str, Any] = {
        "TrainingJobName": name,
        "AlgorithmSpecification": _algorithm(subject),
        "RoleArn": job.role,
        "InputDataConfig": _channels(subject, name),
        "OutputDataConfig": {"S3OutputPath": output_of(subject)},
        "ResourceConfig": _resources(subject),
        "StoppingCondition": {"MaxRuntimeInSeconds": job.max_run},
        "HyperParameters": hyperparameters(subject, name),
        "Environment": dict(job.environment),
        "Tags": [{"Key": key, "Value": value} for key, value in job.tags.items()],
    }
    if subject.sdk == 3:
        request["HyperParameters"] = sdk3.hyperparameters(job.hyperparameters, driver_of(subject))
        request["OutputDataConfig"]["CompressionType"] = "GZIP"
    else:
        request["ProfilerConfig"] = {"DisableProfiler": True}
    if job.spot:
        request["EnableManagedSpotTraining"] = True
        request["StoppingCondition"]["MaxWaitTimeInSeconds"] = job.max_wait or job.max_run
    if job.checkpoint:
        request["CheckpointConfig"] = {"S3Uri": job.checkpoint.s3_uri, "LocalPath": job.checkpoint.local_path}
    if job.subnets or job.security_group_ids:
        request["VpcConfig"] = {"Subnets": list(job.subnets), "SecurityGroupIds": list(job.security_group_ids)}
    if job.network_isolation:
        request["EnableNetworkIsolation"] = True
    nothing: tuple[Any, ...] = (None, [], {}, {"S3OutputPath": None})
    # SDK 3 sends hyperparameters even where there are none.
    return {k: v for k, v in request.items() if v not in nothing or (subject.sdk == 3 and k == "HyperParameters")}


def _algorithm(subject: Subject) -> dict[str, Any]:
    made: dict[str, Any] = {"TrainingImage": subject.job.image, "TrainingInputMode": "File"}
    if subject.sdk == 3:
        made |= {"ContainerEntrypoint": [sdk3.ENTRY_POINT], "ContainerArguments": list(sdk3.ARGUMENTS)}
    if subject.job.metrics:
        made["MetricDefinitions"] = [{"Name": name, "Regex": regex} for name, regex in subject.job.metrics.items()]
    return {key: value for key, value in made.items() if value is not None}


def _resources(subject: Subject) -> dict[str, Any]:
    job = subject.job
    made: dict[str, Any] = {"VolumeSizeInGB": job.volume_gb}
    if job.instance_groups:
        made["InstanceGroups"] = [
            {"InstanceGroupName": g.name, "InstanceType": g.instance_type, "InstanceCount": g.instance_count}
            for g in job.instance_groups
        ]
    elif job.instance_type:
        made |= {"InstanceType": job.instance_type, "InstanceCount": job.instance_count}
    return made


def _channels(subject: Subject, name: str) -> list[dict[str, Any]]:
    made = [_channel(key, given, subject.sdk) for key, given in subject.job.inputs.items()]
    if subject.sdk == 3:
        root = f"{output_of(subject)}/{base_name(subject)}/{name}/input"
        return made + [_channel(key, f"{root}/{key}", 3) for key in sdk3.CHANNELS]
    if subject.job.network_isolation and subject.job.entry_point is not None:
        made.append(_channel("code", code_address(subject, name), 2))
    return made


def _channel(name: str, given: Any, sdk: int) -> dict[str, Any]:
    record = channel(name, given)
    source: dict[str, Any] = {
        "S3DataType": record.s3_data_type,
        "S3Uri": record.s3_data,
        "S3DataDistributionType": record.distribution,
    }
    if record.instance_groups:
        source["InstanceGroupNames"] = list(record.instance_groups)
    made: Mapping[str, Any] = {
        "ChannelName": name,
        "DataSource": {"S3DataSource": source},
        "ContentType": record.content_type,
        "CompressionType": record.compression,
        "InputMode": record.input_mode or ("File" if sdk == 3 else None),
    }
    return {key: value for key, value in made.items() if value is not None}
