"""The Python program that starts a job with SageMaker SDK 3."""

from __future__ import annotations

from typing import Any

from trainwright.estimator import options, tuning
from trainwright.estimator.create_training_job import base_name, output_of, region_of
from trainwright.estimator.python_source import PythonSource, call, folder_of, head, literal
from trainwright.estimator.rules_inputs import channel
from trainwright.estimator.rules_sdk3 import driver_of
from trainwright.estimator.subject import Subject
from trainwright.sagemaker.job_parts import FileSystem

CONFIGS = "sagemaker.train.configs"
SHAPES = "sagemaker.core.shapes"


def program(subject: Subject) -> str:
    """Return the source of the program."""
    job = subject.job
    output = output_of(subject) or ""
    bucket, _, prefix = output.removeprefix("s3://").partition("/")
    used: dict[str, set[str]] = {
        "sagemaker.core.helper.session_helper": {"Session"},
        "sagemaker.train.model_trainer": {"ModelTrainer"},
        CONFIGS: set(),
        SHAPES: set(),
        "sagemaker.train.distributed": set(),
    }

    def config(name: str, arguments: dict[str, Any], indent: int = 4, module: str = CONFIGS) -> PythonSource | None:
        if all(value in (None, [], {}) for value in arguments.values()):
            return None
        used[module].add(name)
        return call(name, arguments, indent)

    region = region_of(subject)
    session = {
        "boto_session": call("boto3.Session", {"region_name": region}) if region else None,
        "default_bucket": bucket or None,
        "default_bucket_prefix": prefix or None,
    }
    trainer = {
        "training_image": job.image,
        "training_image_config": options.sdk3_image_config(job, config),
        "role": job.role,
        "source_code": config("SourceCode", {"source_dir": folder_of(subject), "entry_script": job.entry_point}),
        "compute": config("Compute", _compute(subject, config)),
        "distributed": _distributed(subject, config),
        "hyperparameters": dict(job.hyperparameters),
        "environment": dict(job.environment),
        "base_job_name": base_name(subject),
        "output_data_config": config(
            "OutputDataConfig",
            {
                "s3_output_path": output or None,
                "kms_key_id": job.output_kms_key,
                "compression_type": "NONE" if job.disable_output_compression else None,
            },
        ),
        "stopping_condition": config(
            "StoppingCondition",
            {
                "max_runtime_in_seconds": job.max_run,
                "max_wait_time_in_seconds": (job.max_wait or job.max_run) if job.spot else None,
            },
        ),
        "checkpoint_config": config("CheckpointConfig", job.checkpoint.as_json() if job.checkpoint else {}),
        "networking": config(
            "Networking",
            {
                "subnets": list(job.subnets),
                "security_group_ids": list(job.security_group_ids),
                "enable_network_isolation": True if job.network_isolation else None,
                "enable_inter_container_traffic_encryption": True if job.encrypt_traffic else None,
            },
        ),
        "tags": [config("Tag", {"key": key, "value": value}, 8) for key, value in job.tags.items()],
        "sagemaker_session": PythonSource("session"),
    }
    inputs = [_input(key, given, config) for key, given in job.inputs.items()]
    lines = [f"session = {call('Session', session)}", f"trainer = {call('ModelTrainer', trainer)}"]
    if job.metrics and not job.tuner:
        metrics = [config("MetricDefinition", {"name": name, "regex": regex}) for name, regex in job.metrics.items()]
        lines += [f"trainer = trainer.with_metric_definitions({literal(metrics)})"]
    lines += options.sdk3_methods(job, config)
    if job.tuner:
        tuner, names_of = tuning.tuner_source(job, "trainer", base_name(subject), sdk=3)
        for module, names in names_of.items():
            used.setdefault(module, set()).update(names)
        lines += [f"tuner = {tuner}"]
        lines += [f"tuner.tune({'inputs=' + literal(inputs) + ', ' if inputs else ''}wait=False)"]
        lines += ["print(tuner.latest_tuning_job.hyper_parameter_tuning_job_name)"]
    else:
        lines += [f"trainer.train({'input_data_config=' + literal(inputs) + ', ' if inputs else ''}wait=False)"]
        lines += ["print(trainer._latest_training_job.training_job_name)"]
    imports = ["import boto3"] if region else []
    imports += [f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(used.items()) if names]
    title = head("Starts a training job with SageMaker SDK 3: pip install 'sagemaker>=3'")
    return "\n".join([title, *imports, "", *lines]) + "\n"


def _compute(subject: Subject, config: Any) -> dict[str, Any]:
    job = subject.job
    made: dict[str, Any] = {"instance_type": job.instance_type, "instance_count": job.instance_count}
    if job.instance_groups:
        made = {
            "instance_groups": [
                config(
                    "InstanceGroup",
                    {
                        "instance_group_name": group.name,
                        "instance_type": group.instance_type,
                        "instance_count": group.instance_count,
                    },
                    8,
                )
                for group in job.instance_groups
            ]
        }
    return {
        **made,
        "volume_size_in_gb": job.volume_gb,
        "enable_managed_spot_training": True if job.spot else None,
        **options.sdk3_compute(job, config),
    }


def _distributed(subject: Subject, config: Any) -> PythonSource | None:
    driver = driver_of(subject)
    if driver.kind is None:
        return None
    fields = dict(driver.fields or {})
    module = "sagemaker.train.distributed"
    if fields.get("smp"):
        given = {name: value for name, value in fields["smp"].items() if value is not None}
        fields["smp"] = config("SMP", given, 8, module)
    if all(value is None for value in fields.values()):
        fields["process_count_per_node"] = PythonSource("None")  # the driver counts the GPUs
    made: PythonSource | None = config(driver.kind, fields, 4, module)
    return made


def _input(name: str, given: Any, config: Any) -> PythonSource:
    if isinstance(given, str):
        made: PythonSource = config("InputData", {"channel_name": name, "data_source": given}, 4)
        return made
    record = channel(name, given)
    if isinstance(record, FileSystem):
        named = {key: value for key, value in record.as_json().items() if key != "content_type"}
        where = config("FileSystemDataSource", named, 12, SHAPES)
        fields = {
            "channel_name": name,
            "data_source": config("DataSource", {"file_system_data_source": where}, 8, SHAPES),
            "content_type": record.content_type,
        }
        of_files: PythonSource = config("Channel", fields, 4, SHAPES)
        return of_files
    source = config(
        "S3DataSource",
        {
            "s3_data_type": record.s3_data_type,
            "s3_uri": record.s3_data,
            "s3_data_distribution_type": record.distribution,
            "instance_group_names": list(record.instance_groups),
            "attribute_names": list(record.attribute_names),
        },
        12,
        SHAPES,
    )
    channel_: PythonSource = config(
        "Channel",
        {
            "channel_name": name,
            "data_source": config("DataSource", {"s3_data_source": source}, 8, SHAPES),
            "content_type": record.content_type,
            "compression_type": record.compression,
            "record_wrapper_type": record.record_wrapping,
            "input_mode": record.input_mode or "File",
        },
        4,
        SHAPES,
    )
    return channel_
