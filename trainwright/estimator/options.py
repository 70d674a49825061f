"""What a job may have beside its script and instances: registries, warm pools, keys, retries, logs, debugging, plans.

Each option stands here once: its member of ``CreateTrainingJob``, its name in SDK 2 (sagemaker 2.257.7,
``estimator.py``) and in SDK 3 (sagemaker 3.27.0, ``model_trainer.py`` and ``training/configs.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainwright.estimator.python_source import PythonSource, call
from trainwright.sagemaker.job import Job
from trainwright.sagemaker.job_parts import Kept

Config = Callable[..., PythonSource | None]
SHAPES = "sagemaker.core.shapes"


def members(job: Job) -> dict[str, dict[str, Any] | bool]:
    """Members of the request, those of ``ResourceConfig`` and ``OutputDataConfig`` among them; empty ones left out."""
    made: dict[str, Any] = {
        "ResourceConfig": {
            "VolumeKmsKeyId": job.volume_kms_key,
            "KeepAlivePeriodInSeconds": job.keep_alive,
            "TrainingPlanArn": job.training_plan,
            "InstancePlacementConfig": _placement(job),
        },
        "OutputDataConfig": {
            "KmsKeyId": job.output_kms_key,
            "CompressionType": "NONE" if job.disable_output_compression else None,
        },
        "EnableInterContainerTrafficEncryption": job.encrypt_traffic or None,
        "RetryStrategy": {"MaximumRetryAttempts": job.retries},
        "TensorBoardOutputConfig": _kept(job.tensorboard),
        "DebugHookConfig": {**(_kept(job.debugger) or {}), "CollectionConfigurations": []} if job.debugger else None,
        "RemoteDebugConfig": {"EnableRemoteDebug": job.remote_debug or None},
        "SessionChainingConfig": {"EnableSessionTagChaining": job.session_tags or None},
    }
    made = {key: _given(value) if isinstance(value, dict) else value for key, value in made.items()}
    return {key: value for key, value in made.items() if value not in (None, {})}


def image_config(job: Job) -> dict[str, Any]:
    """``TrainingImageConfig``, a member of ``AlgorithmSpecification``; empty without a registry of one's own."""
    if job.registry is None:
        return {}
    provider = job.registry.credentials_provider
    made: dict[str, Any] = {"TrainingRepositoryAccessMode": job.registry.access_mode}
    return made | (
        {"TrainingRepositoryAuthConfig": {"TrainingRepositoryCredentialsProviderArn": provider}} if provider else {}
    )


def profiler(job: Job) -> dict[str, Any]:
    """SDK 2's ``ProfilerConfig``: off, as it costs time, unless the job asks for it."""
    if job.profiler is None:
        return {"DisableProfiler": True}
    return {
        "S3OutputPath": job.profiler.s3_uri,
        "ProfilingIntervalInMilliseconds": job.profiler.interval_ms,
        "DisableProfiler": False,
    }


def sdk2(job: Job) -> tuple[dict[str, Any], list[str]]:
    """Arguments of SDK 2's estimators, and the imports that they need."""
    made: dict[str, Any] = {
        "training_repository_access_mode": job.registry.access_mode if job.registry else None,
        "training_repository_credentials_provider_arn": job.registry.credentials_provider if job.registry else None,
        "volume_kms_key": job.volume_kms_key,
        "output_kms_key": job.output_kms_key,
        "disable_output_compression": True if job.disable_output_compression else None,
        "keep_alive_period_in_seconds": job.keep_alive,
        "encrypt_inter_container_traffic": True if job.encrypt_traffic else None,
        "max_retry_attempts": job.retries,
        "training_plan": job.training_plan,
        "instance_placement_config": _placement(job),
        "enable_remote_debug": True if job.remote_debug else None,
        "enable_session_tag_chaining": True if job.session_tags else None,
    }
    imports = []
    if job.tensorboard:
        made["tensorboard_output_config"] = _hook("TensorBoardOutputConfig", job.tensorboard)
        imports.append("from sagemaker.debugger import TensorBoardOutputConfig")
    made["debugger_hook_config"] = _hook("DebuggerHookConfig", job.debugger) if job.debugger else False
    if job.debugger:
        imports.append("from sagemaker.debugger import DebuggerHookConfig")
    if job.profiler:
        given = {"s3_output_path": job.profiler.s3_uri, "system_monitor_interval_millis": job.profiler.interval_ms}
        made["profiler_config"] = call("ProfilerConfig", given, 4)
        imports.append("from sagemaker.debugger import ProfilerConfig")
    made["disable_profiler"] = job.profiler is None
    return made, imports


def sdk3_image_config(job: Job, config: Config) -> PythonSource | None:
    """SDK 3's ``TrainingImageConfig``; None without a registry of one's own."""
    if job.registry is None:
        return None
    provider = {"training_repository_credentials_provider_arn": job.registry.credentials_provider}
    fields = {
        "training_repository_access_mode": job.registry.access_mode,
        "training_repository_auth_config": config("TrainingRepositoryAuthConfig", provider, 8, SHAPES),
    }
    return config("TrainingImageConfig", fields, 4, SHAPES)


def sdk3_compute(job: Job, config: Config) -> dict[str, Any]:
    """Fields of SDK 3's ``Compute``."""
    placement = None
    if job.placement:
        servers = [
            config("PlacementSpecification", {"ultra_server_id": name, "instance_count": count}, 12, SHAPES)
            for name, count in job.placement.ultra_servers.items()
        ]
        fields = {"enable_multiple_jobs": job.placement.multiple_jobs, "placement_specifications": servers or None}
        placement = config("InstancePlacementConfig", fields, 8, SHAPES)
    return {
        "volume_kms_key_id": job.volume_kms_key,
        "keep_alive_period_in_seconds": job.keep_alive,
        "training_plan_arn": job.training_plan,
        "instance_placement_config": placement,
    }


def sdk3_methods(job: Job, config: Config) -> list[PythonSource]:
    """Calls of SDK 3's ``ModelTrainer`` for what its constructor does not take."""
    made = [
        ("with_retry_strategy", "RetryStrategy", {"maximum_retry_attempts": job.retries}),
        (
            "with_tensorboard_output_config",
            "TensorBoardOutputConfig",
            {
                "s3_output_path": job.tensorboard.s3_uri if job.tensorboard else None,
                "local_path": job.tensorboard.local_path if job.tensorboard else None,
            },
        ),
        ("with_remote_debug_config", "RemoteDebugConfig", {"enable_remote_debug": job.remote_debug or None}),
        (
            "with_session_chaining_config",
            "SessionChainingConfig",
            {"enable_session_tag_chaining": job.session_tags or None},
        ),
    ]
    found = [(method, config(kind, fields, 0)) for method, kind, fields in made]
    return [PythonSource(f"trainer = trainer.{method}({value})") for method, value in found if value is not None]


def _placement(job: Job) -> dict[str, Any] | None:
    if job.placement is None:
        return None
    servers = [{"UltraServerId": name, "InstanceCount": count} for name, count in job.placement.ultra_servers.items()]
    return {"EnableMultipleJobs": job.placement.multiple_jobs} | (
        {"PlacementSpecifications": servers} if servers else {}
    )


def _kept(kept: Kept | None) -> dict[str, Any] | None:
    return None if kept is None else _given({"S3OutputPath": kept.s3_uri, "LocalPath": kept.local_path})


def _hook(name: str, kept: Kept) -> PythonSource:
    return call(name, {"s3_output_path": kept.s3_uri, "container_local_output_path": kept.local_path}, 4)


def _given(table: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if value is not None}
