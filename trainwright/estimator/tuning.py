"""Hyperparameter tuning jobs: the ``CreateHyperParameterTuningJob`` request, and the tuners of both SDKs.

What the SDKs send was recorded as for training jobs (sagemaker 2.257.7, ``tuner.py``; sagemaker 3.27.0,
``train/tuner.py``). A tuning job passes on a part of a training job; ``rules_tuner`` reports the rest.
"""

from __future__ import annotations

import json
import math
from datetime import datetime
from typing import Any

from trainwright.estimator.python_source import PythonSource, call, literal
from trainwright.sagemaker.job import Job
from trainwright.sagemaker.job_parts import TunedRange, Tuner

LONGEST_NAME = 32
RANGES = "sagemaker.parameter"
RANGES_3 = "sagemaker.core.parameter"
TUNER = "sagemaker.tuner"
TUNER_3 = "sagemaker.train.tuner"
SHAPES_3 = "sagemaker.core.shapes"
WARM_START_3 = "HyperParameterTuningJobWarmStartConfig"
STRATEGY_3 = "HyperParameterTuningJobStrategyConfig"
# SDK 2 adds these to the hyperparameters of its framework classes, so that attach() knows the class.
CLASSES = {"pytorch": "PyTorch", "tensorflow": "TensorFlow"}
# Members of ``HyperParameterTrainingJobDefinition`` that are as in a request for a training job.
_SHARED = (
    "RoleArn",
    "InputDataConfig",
    "OutputDataConfig",
    "StoppingCondition",
    "VpcConfig",
    "EnableNetworkIsolation",
    "EnableInterContainerTrafficEncryption",
    "EnableManagedSpotTraining",
    "CheckpointConfig",
    "RetryStrategy",
    "Environment",
)
_RESOURCES = ("InstanceType", "InstanceCount", "VolumeSizeInGB", "VolumeKmsKeyId")
LISTS = {kind: f"{kind}ParameterRanges" for kind in ("Continuous", "Categorical", "Integer")}


def tuning_name(base: str, now: datetime) -> str:
    """Return the name of a tuning job, with the short timestamp of the SDKs."""
    stamp = now.strftime("%y%m%d-%H%M")
    return f"{base[: LONGEST_NAME - len(stamp) - 1]}-{stamp}"


def jobs_of(tuner: Tuner) -> int:
    """Return how many training jobs a tuner starts: as configured, else all combinations of a grid, else one."""
    if tuner.max_jobs is not None or tuner.strategy != "Grid":
        return tuner.max_jobs or 1
    # A range without values is one that grid search refuses (TW216).
    return math.prod(len(each.values) or 1 for each in tuner.ranges.values())


def combinations(tuner: Tuner) -> int | None:
    """Return how many combinations of values the ranges have; None: no end of them, or a range that is not whole."""
    counts = []
    for each in tuner.ranges.values():
        if each.kind == "Categorical":
            counts.append(len(each.values))
        elif isinstance(each.min, int) and isinstance(each.max, int) and each.min <= each.max:
            counts.append(each.max - each.min + 1)
        else:
            return None
    return math.prod(counts) if counts else None


def tuning_request(job: Job, training: dict[str, Any], name: str, *, sdk: int, framework: str | None) -> dict[str, Any]:
    """Return the request for a tuning job.

    Args:
        job: a job with a tuner.
        training: the request of its training job.
        name: of the tuning job.
        sdk: the SDK whose request it is.
        framework: the framework whose class SDK 2 uses; None: the generic one.
    """
    tuner = job.tuner
    assert tuner is not None
    algorithm = {
        key: value
        for key, value in training["AlgorithmSpecification"].items()
        if key in ("TrainingImage", "TrainingInputMode", "MetricDefinitions")
    }
    static = {name: text for name, text in training.get("HyperParameters", {}).items() if name not in tuner.ranges}
    if sdk == 2 and framework is not None:
        static["sagemaker_estimator_class_name"] = json.dumps(CLASSES[framework])
        static["sagemaker_estimator_module"] = json.dumps(f"sagemaker.{framework}.estimator")
    definition: dict[str, Any] = {"StaticHyperParameters": static, "AlgorithmSpecification": algorithm}
    definition |= {key: training[key] for key in _SHARED if key in training}
    resources = {key: value for key, value in training["ResourceConfig"].items() if key in _RESOURCES}
    definition["ResourceConfig" if sdk == 3 else "HyperParameterTuningResourceConfig"] = resources
    limits = {
        "MaxNumberOfTrainingJobs": jobs_of(tuner),
        "MaxParallelTrainingJobs": tuner.max_parallel_jobs,
    }
    if tuner.max_runtime is not None:
        limits["MaxRuntimeInSeconds"] = tuner.max_runtime
    made: dict[str, Any] = {
        "HyperParameterTuningJobName": name,
        "HyperParameterTuningJobConfig": {
            "Strategy": tuner.strategy,
            "HyperParameterTuningJobObjective": {"Type": tuner.goal, "MetricName": tuner.metric},
            "ResourceLimits": limits,
            "ParameterRanges": _ranges(tuner, as_json=sdk == 2 and framework is not None),
            "TrainingJobEarlyStoppingType": _early(tuner),
        },
        "TrainingJobDefinition": definition,
    }
    if tuner.hyperband is not None:
        resources = {"MinResource": tuner.hyperband.min_resource, "MaxResource": tuner.hyperband.max_resource}
        made["HyperParameterTuningJobConfig"]["StrategyConfig"] = {"HyperbandStrategyConfig": resources}
    if tuner.warm_start is not None:
        parents = [{"HyperParameterTuningJobName": parent} for parent in tuner.warm_start.parents]
        made["WarmStartConfig"] = {
            "WarmStartType": tuner.warm_start.type,
            "ParentHyperParameterTuningJobs": parents,
        }
    return made | ({"Tags": training["Tags"]} if "Tags" in training else {})


def as_sdk3_sends(request: dict[str, Any], job: Job, output: str, base: str, now: datetime) -> dict[str, Any]:
    """Return a tuning request with what SDK 3's tuner does otherwise than its trainer.

    The service does not let a tuning job name a command. So the tuner uploads an archive for the framework's own
    toolkit, which starts the script alone, and of the two channels only that of the drivers, which nothing starts.

    Args:
        request: from :func:`tuning_request`.
        job: a job with a tuner.
        output: S3 address for code.
        base: what the name of the tuning job begins with.
        now: the time in the addresses.
    """
    tuner = job.tuner
    assert tuner is not None
    definition = dict(request["TrainingJobDefinition"])
    uploaded = f"{base}/tuning-{int(now.timestamp())}/input"
    channels = [dict(each) for each in definition.pop("InputDataConfig", ()) if each["ChannelName"] != "code"]
    for each in channels:
        if isinstance(job.inputs.get(each["ChannelName"]), str):
            del each["InputMode"]
        if each["ChannelName"] == "sm_drivers":
            source = {**each["DataSource"]["S3DataSource"], "S3Uri": f"{output}/{uploaded}/sm_drivers"}
            each["DataSource"] = {"S3DataSource": source}
    static = {name: str(value) for name, value in job.hyperparameters.items() if name not in tuner.ranges}
    if job.entry_point is not None:
        bucket = output.removeprefix("s3://").partition("/")[0]
        static["sagemaker_program"] = job.entry_point
        static["sagemaker_submit_directory"] = f"s3://{bucket}/{uploaded}/sourcedir/sourcedir.tar.gz"
    definition |= {"StaticHyperParameters": static} | ({"InputDataConfig": channels} if channels else {})
    config = request["HyperParameterTuningJobConfig"]
    ranges = {kind: rows for kind, rows in config["ParameterRanges"].items() if rows}
    return {
        **request,
        "HyperParameterTuningJobConfig": {**config, "ParameterRanges": ranges},
        "TrainingJobDefinition": definition,
    }


def _ranges(tuner: Tuner, *, as_json: bool) -> dict[str, list[dict[str, Any]]]:
    """The ranges by kind; a framework's class of SDK 2 writes the values of a categorical one as JSON."""
    made: dict[str, list[dict[str, Any]]] = {key: [] for key in LISTS.values()}
    for name, each in tuner.ranges.items():
        if each.kind == "Categorical":
            values = [json.dumps(text) for text in texts(each)] if as_json else texts(each)
            row: dict[str, Any] = {"Name": name, "Values": values}
        else:
            row = {"Name": name, "MinValue": str(each.min), "MaxValue": str(each.max), "ScalingType": each.scaling}
        made[LISTS[each.kind]].append(row)
    return made


def texts(each: TunedRange) -> list[str]:
    """Return the choices of a categorical range as the SDKs' text."""
    return [str(value) for value in each.values]


def _early(tuner: Tuner) -> str:
    return "Auto" if tuner.early_stopping else "Off"


def tuner_source(job: Job, trained: str, base: str, *, sdk: int) -> tuple[PythonSource, dict[str, set[str]]]:
    """Return the call that makes a tuner, and the names in it by the module that they are imported from.

    Args:
        job: a job with a tuner.
        trained: the variable that holds the estimator or trainer.
        base: what the name of the tuning job begins with.
        sdk: 2 or 3.
    """
    tuner = job.tuner
    assert tuner is not None
    kinds, shapes = set(), {"HyperparameterTuner"}
    ranges: dict[str, Any] = {}
    for name, each in tuner.ranges.items():
        kinds.add(f"{each.kind}Parameter")
        if each.kind == "Categorical":
            ranges[name] = call("CategoricalParameter", {}, 8, [texts(each)])
        else:
            scaling = {"scaling_type": each.scaling} if each.scaling != "Auto" else {}
            ranges[name] = call(f"{each.kind}Parameter", scaling, 8, [each.min, each.max])
    arguments = {
        "estimator" if sdk == 2 else "model_trainer": PythonSource(trained),
        "objective_metric_name": tuner.metric,
        "objective_type": tuner.goal,
        "hyperparameter_ranges": PythonSource(literal(ranges, 4)),
        "metric_definitions": [{"Name": key, "Regex": regex} for key, regex in job.metrics.items()],
        "strategy": tuner.strategy,
        # Without a number, SDK 2 sends a null for a grid, which botocore refuses.
        "max_jobs": jobs_of(tuner),
        "max_parallel_jobs": tuner.max_parallel_jobs,
        "early_stopping_type": _early(tuner),
        "base_tuning_job_name": base,
        "max_runtime_in_seconds": tuner.max_runtime,
        "warm_start_config": _warm_start(tuner, sdk),
        "strategy_config": _hyperband(tuner, sdk),
    }
    given: set[str] = set()
    if tuner.warm_start is not None:
        given |= {"WarmStartConfig", "WarmStartTypes"} if sdk == 2 else {WARM_START_3, "ParentHyperParameterTuningJob"}
    if tuner.hyperband is not None:
        given |= {"HyperbandStrategyConfig", "StrategyConfig" if sdk == 2 else STRATEGY_3}
    used = {RANGES: kinds, TUNER: shapes | given}
    if sdk == 3:
        used = {RANGES_3: kinds, TUNER_3: shapes, SHAPES_3: given}
    return call("HyperparameterTuner", arguments), used


def _warm_start(tuner: Tuner, sdk: int) -> PythonSource | None:
    warm = tuner.warm_start
    if warm is None:
        return None
    if sdk == 2:
        kind = PythonSource(f"WarmStartTypes({literal(warm.type)})")
        return call("WarmStartConfig", {"warm_start_type": kind, "parents": list(warm.parents)}, 4)
    named = "hyper_parameter_tuning_job_name"
    parents = [call("ParentHyperParameterTuningJob", {named: parent}, 12) for parent in warm.parents]
    fields = {"parent_hyper_parameter_tuning_jobs": parents, "warm_start_type": warm.type}
    return call(WARM_START_3, fields, 4)


def _hyperband(tuner: Tuner, sdk: int) -> PythonSource | None:
    if tuner.hyperband is None:
        return None
    resources = call("HyperbandStrategyConfig", tuner.hyperband.as_json(), 8)
    return call("StrategyConfig" if sdk == 2 else STRATEGY_3, {"hyperband_strategy_config": resources}, 4)
