"""The ``CreateTrainingJob`` request of a job, as SDK 2 or SDK 3 would send it.

What the SDKs send was recorded by running sagemaker 2.257.7 and 3.27.0 against an emulated API; the tests compare both
with this module. Debugger and profiler are off unless the job asks for them: they cost time (AWS guide for the Training
Compiler, best practices).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any

from trainwright.estimator import options, tuning
from trainwright.estimator.image import ECR
from trainwright.estimator.rules_inputs import channel
from trainwright.estimator.rules_sdk3 import driver_of
from trainwright.estimator.subject import Subject, enabled, part
from trainwright.sagemaker import sdk3
from trainwright.sagemaker.distribution import XLA, compile_distribution
from trainwright.sagemaker.job_parts import Channel, FileSystem
from trainwright.sagemaker.smp_parameters import PLACEMENTS

COMPILER = "sagemaker_training_compiler_enabled"
COMPILER_DEBUG = "sagemaker_training_compiler_debug_mode"
MODEL_DIR = "/opt/ml/model"
ARCHIVE = "sourcedir.tar.gz"
UNNAMED = "s3://bucket"  # in the place of the SDK's bucket, while a job that is only checked has no role or region


def region_of(subject: Subject) -> str | None:
    """Return the region of the job: as configured, else the region of its image."""
    found = ECR.fullmatch(subject.job.image or "")
    return subject.job.region or (found["region"] if found else None)


def output_of(subject: Subject) -> str | None:
    """Return the S3 address for models and code: as configured, else the SDK's default bucket of the role's account."""
    job, region = subject.job, region_of(subject)
    if job.output:
        return job.output.rstrip("/")
    words = (job.role or "").split(":")
    account = words[4] if len(words) > 4 else ""
    return f"s3://sagemaker-{region}-{account}" if region and account.isdigit() else None


def base_name(subject: Subject) -> str:
    """Return the prefix of the job's name: as configured, else the last part of the image's repository."""
    if subject.job.name:
        return subject.job.name
    reference = subject.job.image or (subject.image.reference if subject.image else "training")
    last = PurePosixPath(reference.partition("@")[0]).name.partition(":")[0]
    return last.replace("_", "-").replace(".", "-") or "training"


def job_name(subject: Subject, now: datetime) -> str:
    """Return a job name with a timestamp in the format of the SDK."""
    stamp = now.strftime("%Y%m%d%H%M%S" if subject.sdk == 3 else "%Y-%m-%d-%H-%M-%S-") + (
        "" if subject.sdk == 3 else f"{now.microsecond // 1000:03d}"
    )
    return f"{base_name(subject)[: 63 - len(stamp) - 1]}-{stamp}"


def launch_hyperparameters(subject: Subject) -> dict[str, str]:
    """Return the hyperparameters that select the launcher: name to JSON text.

    Raises:
        RequestError: the distribution is invalid.
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
    """Return whether the SDK's estimator cannot express the distribution, so that raw hyperparameters are needed.

    The generic estimator drops ``distribution``; the compiler rejects a custom image; TensorFlow's mirrored strategy
    needs a framework version in addition to the image; ``default_partition`` without ``partitions`` is a KeyError, a
    ``placement_strategy`` of letters a ValueError; and
    for an instance group the SDK does not pass the type to the data parallel library.
    """
    given = subject.job.distribution
    parameters = subject.smp_parameters
    return (
        subject.framework is None
        or subject.job.entry_point is None
        or subject.compiler
        or "multi_worker_mirrored_strategy" in given
        or ("default_partition" in parameters and "partitions" not in parameters)
        or parameters.get("placement_strategy") in PLACEMENTS
        or bool(subject.job.instance_groups and part(given, "smdistributed"))
    )


def hyperparameters(subject: Subject, name: str) -> dict[str, str]:
    """Return all hyperparameters of SDK 2's contract: name to JSON text.

    Args:
        subject: the job.
        name: the name of the training job.
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
    return encoded(subject, values) | launch_hyperparameters(subject)


def encoded(subject: Subject, values: Mapping[str, Any]) -> dict[str, str]:
    """Hyperparameters as texts: the toolkit reads JSON, a built-in algorithm takes a text as it is."""
    plain = subject.algorithm and subject.job.entry_point is None
    return {key: value if plain and isinstance(value, str) else json.dumps(value) for key, value in values.items()}


def program(subject: Subject) -> str:
    """Return the entry point in the container: without ``source_dir`` the file name of the script."""
    entry = str(subject.job.entry_point)
    return entry if subject.job.source_dir else PurePosixPath(entry).name


def code_address(subject: Subject, name: str) -> str:
    """Return the S3 address of the code archive."""
    source = subject.job.source_dir
    if source and source.startswith("s3://"):
        return source
    return f"{output_of(subject) or UNNAMED}/{name}/source/{ARCHIVE}"


def submit_directory(subject: Subject, name: str) -> str:
    """Return where the toolkit finds the code; an isolated container gets it as a channel."""
    if subject.job.network_isolation:
        return f"/opt/ml/input/data/code/{ARCHIVE}"
    return code_address(subject, name)


def make_request(subject: Subject, now: datetime | None = None) -> dict[str, Any]:
    """Return the request: ``CreateTrainingJob``, or ``CreateHyperParameterTuningJob`` for a job with a tuner.

    Missing values are left out; the rules report them.

    Args:
        subject: a job whose distribution and channels are in order.
        now: the time in the job's name.

    Raises:
        RequestError: distribution or channels are not in order.
    """
    now = now or datetime.now(UTC)
    made = _training_request(subject, job_name(subject, now))
    if subject.job.tuner is None:
        return made
    framework = None if raw(subject) else subject.framework
    base = base_name(subject)
    name = tuning.tuning_name(base, now)
    tuned = tuning.tuning_request(subject.job, made, name, sdk=subject.sdk, framework=framework)
    if subject.sdk == 2:
        return tuned
    return tuning.as_sdk3_sends(tuned, subject.job, output_of(subject) or UNNAMED, base, now)


def _training_request(subject: Subject, name: str) -> dict[str, Any]:
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
        request["ProfilerConfig"] = options.profiler(job)
    if job.spot:
        request["EnableManagedSpotTraining"] = True
        request["StoppingCondition"]["MaxWaitTimeInSeconds"] = job.max_wait or job.max_run
    if job.checkpoint:
        request["CheckpointConfig"] = {"S3Uri": job.checkpoint.s3_uri, "LocalPath": job.checkpoint.local_path}
    if job.subnets or job.security_group_ids:
        request["VpcConfig"] = {"Subnets": list(job.subnets), "SecurityGroupIds": list(job.security_group_ids)}
    if job.network_isolation:
        request["EnableNetworkIsolation"] = True
    for member, value in options.members(job).items():
        request[member] = {**request.get(member, {}), **value} if isinstance(value, dict) else value
    if request["OutputDataConfig"].get("S3OutputPath") is None:
        request["OutputDataConfig"].pop("S3OutputPath", None)  # the SDK fills in its bucket
    nothing: tuple[Any, ...] = (None, [], {})
    # SDK 3 sends hyperparameters even if they are empty.
    return {k: v for k, v in request.items() if v not in nothing or (subject.sdk == 3 and k == "HyperParameters")}


def _algorithm(subject: Subject) -> dict[str, Any]:
    made: dict[str, Any] = {"TrainingImage": subject.job.image, "TrainingInputMode": "File"}
    if subject.sdk == 3:
        made |= {"ContainerEntrypoint": [sdk3.ENTRY_POINT], "ContainerArguments": list(sdk3.ARGUMENTS)}
    if subject.job.metrics:
        made["MetricDefinitions"] = [{"Name": name, "Regex": regex} for name, regex in subject.job.metrics.items()]
    if image_config := options.image_config(subject.job):
        made["TrainingImageConfig"] = image_config
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
        root = f"{output_of(subject) or UNNAMED}/{base_name(subject)}/{name}/input"
        return made + [_channel(key, Channel(s3_data=f"{root}/{key}"), 3) for key in sdk3.CHANNELS]
    if subject.job.network_isolation and subject.job.entry_point is not None:
        made.append(_channel("code", Channel(s3_data=code_address(subject, name)), 2))
    return made


def _channel(name: str, given: Any, sdk: int) -> dict[str, Any]:
    # An address of the SDK's own is what `output` makes of it, right or wrong.
    record = given if isinstance(given, Channel) else channel(name, given)
    if isinstance(record, FileSystem):
        where = {
            "FileSystemId": record.file_system_id,
            "FileSystemType": record.file_system_type,
            "DirectoryPath": record.directory_path,
            "FileSystemAccessMode": record.file_system_access_mode,
        }
        made = {"ChannelName": name, "DataSource": {"FileSystemDataSource": where}}
        return made | ({"ContentType": record.content_type} if record.content_type else {})
    source: dict[str, Any] = {
        "S3DataType": record.s3_data_type,
        "S3Uri": record.s3_data,
        "S3DataDistributionType": record.distribution,
    }
    if record.instance_groups:
        source["InstanceGroupNames"] = list(record.instance_groups)
    if record.attribute_names:
        source["AttributeNames"] = list(record.attribute_names)
    fields: Mapping[str, Any] = {
        "ChannelName": name,
        "DataSource": {"S3DataSource": source},
        "ContentType": record.content_type,
        "CompressionType": record.compression,
        "RecordWrapperType": record.record_wrapping,
        "InputMode": record.input_mode or ("File" if sdk == 3 else None),
    }
    return {key: value for key, value in fields.items() if value is not None}
