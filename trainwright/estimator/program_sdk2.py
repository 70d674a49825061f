"""The Python program that starts a job with SageMaker SDK 2."""

from __future__ import annotations

import json
from typing import Any

from trainwright.estimator import options, tuning
from trainwright.estimator.create_training_job import (
    MODEL_DIR,
    base_name,
    encoded,
    launch_hyperparameters,
    output_of,
    raw,
    region_of,
)
from trainwright.estimator.python_source import PythonSource, call, entry_of, folder_of, head, literal
from trainwright.estimator.rules_inputs import channel
from trainwright.estimator.subject import Subject
from trainwright.sagemaker.job_parts import FileSystem

CLASSES = {"pytorch": ("sagemaker.pytorch", "PyTorch"), "tensorflow": ("sagemaker.tensorflow", "TensorFlow")}
GENERIC = ("sagemaker.estimator", "Estimator")


def program(subject: Subject) -> str:
    """Return the source of the program.

    It uses the framework's class if that can express the distribution, else the generic one with raw hyperparameters.
    """
    job = subject.job
    plain = raw(subject)
    module, name = GENERIC if plain else CLASSES[str(subject.framework)]
    values, more = _hyperparameters(subject, plain)
    groups = {group.name: f"groups[{literal(group.name)}]" for group in job.instance_groups}
    distribution: dict[str, Any] = {} if plain else dict(job.distribution)
    if "instance_groups" in distribution:
        distribution["instance_groups"] = [PythonSource(groups[each]) for each in subject.listed_groups]
    region = region_of(subject)
    session = call("boto3.Session", {"region_name": region}) if region else PythonSource("boto3.Session()")
    more_options, more_imports = options.sdk2(job)
    metrics = [{"Name": key, "Regex": regex} for key, regex in job.metrics.items()]
    estimator = {
        "image_uri": job.image,
        "role": job.role,
        "entry_point": entry_of(subject) if job.entry_point else None,
        "source_dir": _source(subject),
        **_where(subject),
        "distribution": distribution,
        "hyperparameters": values,
        **more,
        "environment": dict(job.environment),
        "metric_definitions": [] if job.tuner else metrics,
        "base_job_name": base_name(subject),
        "output_path": output_of(subject),
        "code_location": output_of(subject),
        "volume_size": job.volume_gb,
        "max_run": job.max_run,
        **_spot(subject),
        "subnets": list(job.subnets),
        "security_group_ids": list(job.security_group_ids),
        "enable_network_isolation": True if job.network_isolation else None,
        "tags": [{"Key": key, "Value": value} for key, value in job.tags.items()],
        **more_options,
        "sagemaker_session": PythonSource("session"),
    }
    inputs = {key: _input(key, given) for key, given in job.inputs.items()}
    records = [type(channel(key, given)).__name__ for key, given in job.inputs.items() if not isinstance(given, str)]
    imports = ["import boto3", "import sagemaker", f"from {module} import {name}"]
    imports += ["from sagemaker.inputs import TrainingInput"] if "Channel" in records else []
    imports += ["from sagemaker.inputs import FileSystemInput"] if "FileSystem" in records else []
    imports += more_imports
    imports += ["from sagemaker.instance_group import InstanceGroup"] if groups else []
    started = "estimator"
    if job.tuner:
        tuner, used = tuning.tuner_source(job, "estimator", base_name(subject), sdk=2)
        started = "tuner"
        imports += [f"from {module} import {', '.join(sorted(names))}" for module, names in used.items()]
    lines = [head("Starts a training job with SageMaker SDK 2: pip install 'sagemaker<3'"), *_sorted(imports), ""]
    lines += [f"session = {call('sagemaker.Session', {'boto_session': session})}"]
    if groups:
        made = {
            group.name: call("InstanceGroup", {}, 4, [group.name, group.instance_type, group.instance_count])
            for group in job.instance_groups
        }
        lines += [f"groups = {literal(made)}"]
    if plain and (job.distribution or subject.compiler):
        lines += ["# No estimator class can express this job, so its hyperparameters are given in full."]
    lines += [f"estimator = {call(name, estimator)}"]
    lines += [f"tuner = {tuner}"] if job.tuner else []
    lines += [
        f"{started}.fit({literal(inputs) + ', ' if inputs else ''}wait=False)",
        f"print({started}.latest_{'tuning' if job.tuner else 'training'}_job.name)",
    ]
    return "\n".join(lines) + "\n"


def _sorted(imports: list[str]) -> list[str]:
    """Sort ``import`` before ``from``, as import sorters do."""
    return sorted(imports, key=lambda line: (line.startswith("from"), line))


def _hyperparameters(subject: Subject, plain: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the hyperparameters, and further arguments of the framework's class."""
    job = subject.job
    values: dict[str, Any] = dict(job.hyperparameters)
    more: dict[str, Any] = {}
    if subject.framework == "tensorflow" and job.entry_point:
        model_dir = values.pop("model_dir", MODEL_DIR)
        (values if plain else more)["model_dir"] = model_dir
    if not plain:
        return values, more
    launch = launch_hyperparameters(subject)
    if job.entry_point is None:
        # Without an entry point, the estimator sends strings unchanged.
        return encoded(subject, values) | launch, more
    return values | {key: json.loads(text) for key, text in launch.items()}, more


def _source(subject: Subject) -> str | None:
    source = subject.job.source_dir
    if source is None or subject.job.entry_point is None:
        return None
    return source if source.startswith("s3://") else folder_of(subject)


def _where(subject: Subject) -> dict[str, Any]:
    job = subject.job
    if job.instance_groups:
        return {"instance_groups": PythonSource("list(groups.values())")}
    return {"instance_type": job.instance_type, "instance_count": job.instance_count}


def _spot(subject: Subject) -> dict[str, Any]:
    job = subject.job
    made: dict[str, Any] = {}
    if job.spot:
        made = {"use_spot_instances": True, "max_wait": job.max_wait or job.max_run}
    if job.checkpoint:
        made |= {"checkpoint_s3_uri": job.checkpoint.s3_uri, "checkpoint_local_path": job.checkpoint.local_path}
    return made


def _input(name: str, given: Any) -> Any:
    if isinstance(given, str):
        return given
    record = channel(name, given)
    if isinstance(record, FileSystem):
        return call("FileSystemInput", {k: v for k, v in record.as_json().items() if v is not None}, 4)
    return call("TrainingInput", record.unusual(), 4)
