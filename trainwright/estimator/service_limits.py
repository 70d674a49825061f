"""The service's own limits, from botocore's model of its API: lengths, numbers, patterns, choices.

Before sending a request, botocore itself checks only types, required members and minimum values; patterns, maximum
values and choices are left to the service, which rejects the job after it is sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from trainwright.core.errors import RequestError, did_you_mean
from trainwright.core.findings import Finding, Rule
from trainwright.estimator.create_training_job import make_request
from trainwright.estimator.rules_job import missing
from trainwright.estimator.subject import Subject

LIMIT = Rule(
    code="TW290",
    severity="error",
    title="a value outside the service's limits: a length, number, pattern or choice",
    source="botocore's model of the SageMaker API; AWS's developer guide, Define Hyperparameter Ranges: 100 "
    "hyperparameters of a tuning job in all, also the one that it adds for the objective",
    remedy="Keep to the limit in the message.",
)
TOO_MANY_BYTES = Rule(
    code="TW291",
    severity="error",
    title="a hyperparameter that is too long for the service, or contains line breaks",
    source="botocore's model of the SageMaker API: 2500 characters without a line break",
    remedy="Put it in a file in source_dir or in a channel, and pass the file's name.",
)
RULES = (LIMIT, TOO_MANY_BYTES)
MOST_HYPERPARAMETERS = 100
# Member of the request → key of the job file, longest first.
_KEYS = (
    ("HyperParameterTuningJobConfig.ResourceLimits.MaxNumberOfTrainingJobs", "tuner.max_jobs"),
    ("HyperParameterTuningJobConfig.ResourceLimits.MaxParallelTrainingJobs", "tuner.max_parallel_jobs"),
    ("HyperParameterTuningJobConfig.HyperParameterTuningJobObjective.MetricName", "tuner.metric"),
    ("HyperParameterTuningJobConfig.ResourceLimits.MaxRuntimeInSeconds", "tuner.max_runtime"),
    ("HyperParameterTuningJobConfig.ParameterRanges", "tuner.ranges"),
    ("WarmStartConfig.ParentHyperParameterTuningJobs", "tuner.warm_start.parents"),
    ("WarmStartConfig", "tuner.warm_start"),
    ("HyperParameterTuningJobConfig", "tuner"),
    ("HyperParameterTuningJobName", "name"),
    (
        "AlgorithmSpecification.TrainingImageConfig.TrainingRepositoryAuthConfig.TrainingRepositoryCredentialsProviderArn",
        "registry.credentials_provider",
    ),
    ("AlgorithmSpecification.TrainingImageConfig", "registry"),
    ("AlgorithmSpecification.TrainingImage", "image"),
    ("AlgorithmSpecification.MetricDefinitions", "metrics"),
    ("ResourceConfig.InstanceGroups", "instance_groups"),
    ("ResourceConfig.InstanceType", "instance_type"),
    ("ResourceConfig.InstanceCount", "instance_count"),
    ("ResourceConfig.VolumeSizeInGB", "volume_gb"),
    ("ResourceConfig.VolumeKmsKeyId", "volume_kms_key"),
    ("ResourceConfig.KeepAlivePeriodInSeconds", "keep_alive"),
    ("ResourceConfig.TrainingPlanArn", "training_plan"),
    ("ResourceConfig.InstancePlacementConfig", "placement"),
    ("RetryStrategy.MaximumRetryAttempts", "retries"),
    ("TensorBoardOutputConfig", "tensorboard"),
    ("DebugHookConfig", "debugger"),
    ("ProfilerConfig", "profiler"),
    ("OutputDataConfig.KmsKeyId", "output_kms_key"),
    ("StoppingCondition.MaxRuntimeInSeconds", "max_run"),
    ("StoppingCondition.MaxWaitTimeInSeconds", "max_wait"),
    ("OutputDataConfig.S3OutputPath", "output"),
    ("CheckpointConfig.S3Uri", "checkpoint.s3_uri"),
    ("CheckpointConfig.LocalPath", "checkpoint.local_path"),
    ("VpcConfig.SecurityGroupIds", "security_group_ids"),
    ("VpcConfig.Subnets", "subnets"),
    ("HyperParameters", "hyperparameters"),
    ("InputDataConfig", "inputs"),
    ("OutputDataConfig", "output"),
    ("TrainingJobName", "name"),
    ("Environment", "environment"),
    ("RoleArn", "role"),
    ("Tags", "tags"),
)


def check(subject: Subject) -> Iterator[Finding]:
    """Check the rules of this family."""
    try:
        request = make_request(subject)
    except (RequestError, TypeError):
        return  # other families report it; TypeError: a value that is not valid JSON (TW278)
    # What else the request lacks then is not a second mistake: without a role there is no output either.
    complete = subject.generates and not any(missing(subject))
    for where, message in violations(request, complete=complete):
        if where.endswith("InstanceType"):
            continue  # TW262 reports it
        rule = TOO_MANY_BYTES if job_key(where).startswith("hyperparameters.") and "value" in message else LIMIT
        yield rule.finding(message, path=job_key(where))
    if subject.job.tuner:
        fixed = request["TrainingJobDefinition"].get("StaticHyperParameters", {})
        every = len(fixed) + len(subject.job.tuner.ranges) + 1  # _tuning_objective_metric
        if every > MOST_HYPERPARAMETERS >= len(fixed):
            yield LIMIT.finding(
                f"{every} hyperparameters with those of the toolkit and the tuner; at most {MOST_HYPERPARAMETERS}",
                path="hyperparameters",
            )


def violations(request: dict[str, Any], *, complete: bool = True) -> list[tuple[str, str]]:
    """Return where a request violates the service's model, and how.

    Args:
        request: for ``CreateTrainingJob`` or ``CreateHyperParameterTuningJob``.
        complete: whether to report missing members.

    Returns:
        Pairs of a path such as ``ResourceConfig.InstanceType`` and a message.
    """
    from botocore.validate import ParamValidator

    tuned = "HyperParameterTuningJobName" in request
    shape = _shape("CreateHyperParameterTuningJob" if tuned else "CreateTrainingJob")
    found = list(_walk(request, shape, ""))
    report = ParamValidator().validate(request, shape)
    for line in report.generate_report().splitlines() if report.has_errors() else ():
        missing = re.fullmatch(r"Missing required parameter in (\S+): \"(\w+)\"", line)
        if missing is None:
            typed = re.search(r"Invalid type for parameter (\S+?),", line)
            if typed:
                found.append((typed[1], line))
        elif complete:
            prefix = "" if missing[1] == "input" else f"{missing[1]}."
            found.append((prefix + missing[2], f"{prefix}{missing[2]} is missing"))
    return found


def job_key(where: str) -> str:
    """Return the key of the job file that a member of the request comes from."""
    where = where.removeprefix("TrainingJobDefinition.").replace("HyperParameterTuningResource", "Resource")
    where = where.replace("StaticHyperParameters", "HyperParameters")
    for member, key in _KEYS:
        if where == member or where.startswith((f"{member}.", f"{member}[")):
            return key + where[len(member) :]
    return where


@cache
def choices(shape: str) -> tuple[str, ...]:
    """Return the values that a shape of the model allows."""
    import botocore.session

    return tuple(botocore.session.Session().get_service_model("sagemaker").shape_for(shape).enum)


@cache
def _shape(operation: str) -> Any:
    import botocore.session

    model = botocore.session.Session().get_service_model("sagemaker")
    return model.operation_model(operation).input_shape


def _walk(value: Any, shape: Any, path: str) -> Iterator[tuple[str, str]]:
    if shape.type_name == "structure" and isinstance(value, dict):
        for name, inner in value.items():
            if name in shape.members:
                yield from _walk(inner, shape.members[name], f"{path}.{name}".lstrip("."))
    elif shape.type_name == "list" and isinstance(value, list):
        yield from _range(len(value), shape, path, "entries")
        for number, inner in enumerate(value):
            yield from _walk(inner, shape.member, f"{path}[{number}]")
    elif shape.type_name == "map" and isinstance(value, dict):
        yield from _range(len(value), shape, path, "entries")
        for name, inner in value.items():
            for text, kind, what in ((name, shape.key, "its name"), (inner, shape.value, "its value")):
                yield from ((f"{path}.{name}", f"{name}: {what} {message}") for message in _text(text, kind))
    elif shape.type_name == "string" and isinstance(value, str):
        yield from ((path, f"{path.rpartition('.')[2]} {message}") for message in _text(value, shape))
    elif shape.type_name in ("integer", "long") and isinstance(value, int):
        yield from _range(value, shape, path, "")


def _range(number: int, shape: Any, path: str, unit: str) -> Iterator[tuple[str, str]]:
    least, most = shape.metadata.get("min"), shape.metadata.get("max")
    if most is not None and number > most:
        yield path, f"{number} {unit}".rstrip() + f"; the service accepts at most {most}"
    if least is not None and number < least:
        yield path, f"{number} {unit}".rstrip() + f"; the service requires at least {least}"


def _text(value: Any, shape: Any) -> Iterator[str]:
    if not isinstance(value, str):
        return
    rules = shape.metadata
    if len(value) > rules.get("max", len(value)):
        yield f"has {len(value)} characters; the service accepts at most {rules['max']}"
    elif len(value) < rules.get("min", 0):
        yield f"has {len(value)} characters; the service requires at least {rules['min']}"
    elif rules.get("enum") and value not in rules["enum"]:
        yield f"is {value!r}. {did_you_mean(value, rules['enum'])}"
    elif "pattern" in rules and not re.fullmatch(_python(rules["pattern"]), value):
        shown = value if len(value) <= 80 else f"{value[:77]}..."
        yield f"is {shown!r}; it must match {rules['pattern']}"


def _python(pattern: str) -> str:
    """Translate a pattern for Python, which has no Unicode property classes; POSIX's are of ASCII, in Java."""
    for theirs, ours in (("L", "\\w"), ("Z", "\\s"), ("N", "\\d"), ("Alnum", "a-zA-Z0-9")):
        pattern = pattern.replace(f"\\p{{{theirs}}}", ours)
    return pattern
