"""The service's own limits, from botocore's model of ``CreateTrainingJob``: lengths, numbers, patterns, choices.

botocore itself checks types, required members and least values before it sends a request; patterns, greatest values
and choices it leaves to the service, so that a job is refused only once it is sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from trainwright.core.errors import RequestError, did_you_mean
from trainwright.core.findings import Finding, Rule
from trainwright.estimator.create_training_job import make_request
from trainwright.estimator.subject import Subject

LIMIT = Rule(
    code="TW290",
    severity="error",
    title="a limit of the service: a length, a number, a pattern or a choice of CreateTrainingJob",
    source="botocore's model of the SageMaker API",
    remedy="Keep within the limit that the message names.",
)
TOO_MANY_BYTES = Rule(
    code="TW291",
    severity="error",
    title="a hyperparameter that is longer than the service takes, or goes over lines",
    source="botocore's model of the SageMaker API: 2500 characters without a line break",
    remedy="Put it into a file of source_dir or into a channel, and pass its name.",
)
RULES = (LIMIT, TOO_MANY_BYTES)
# Member of the request → key of the job file, the longest first.
_KEYS = (
    ("AlgorithmSpecification.TrainingImage", "image"),
    ("AlgorithmSpecification.MetricDefinitions", "metrics"),
    ("ResourceConfig.InstanceGroups", "instance_groups"),
    ("ResourceConfig.InstanceType", "instance_type"),
    ("ResourceConfig.InstanceCount", "instance_count"),
    ("ResourceConfig.VolumeSizeInGB", "volume_gb"),
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
    """The rules of this family."""
    try:
        request = make_request(subject)
    except (RequestError, TypeError):
        return  # other families say why: TypeError is a value that JSON does not have (TW278)
    for where, message in violations(request, complete=subject.generates):
        rule = TOO_MANY_BYTES if where.startswith("HyperParameters.") and "value" in message else LIMIT
        yield rule.finding(message, path=job_key(where))


def violations(request: dict[str, Any], *, complete: bool = True) -> list[tuple[str, str]]:
    """Where a request goes beyond the service's model, and how.

    Args:
        request: of ``CreateTrainingJob``.
        complete: whether a missing member is a fault.

    Returns:
        Pairs of a path such as ``ResourceConfig.InstanceType`` and a message.
    """
    from botocore.validate import ParamValidator

    shape = _shape()
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
    """The key of the job file that a member of the request comes from."""
    for member, key in _KEYS:
        if where == member or where.startswith((f"{member}.", f"{member}[")):
            return key + where[len(member) :]
    return where


@cache
def _shape() -> Any:
    import botocore.session

    model = botocore.session.Session().get_service_model("sagemaker")
    return model.operation_model("CreateTrainingJob").input_shape


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
        yield path, f"{number} {unit}".rstrip() + f"; the service takes {most} at most"
    if least is not None and number < least:
        yield path, f"{number} {unit}".rstrip() + f"; the service wants {least} at least"


def _text(value: Any, shape: Any) -> Iterator[str]:
    if not isinstance(value, str):
        return
    rules = shape.metadata
    if len(value) > rules.get("max", len(value)):
        yield f"has {len(value)} characters; the service takes {rules['max']} at most"
    elif len(value) < rules.get("min", 0):
        yield f"has {len(value)} characters; the service wants {rules['min']} at least"
    elif rules.get("enum") and value not in rules["enum"]:
        yield f"is {value!r}. {did_you_mean(value, rules['enum'])}"
    elif "pattern" in rules and not re.fullmatch(_python(rules["pattern"]), value):
        shown = value if len(value) <= 80 else f"{value[:77]}..."
        yield f"is {shown!r}; the service wants {rules['pattern']}"


def _python(pattern: str) -> str:
    """A pattern in Python's dialect, which has no classes of Unicode properties."""
    for theirs, ours in (("\\p{L}", "\\w"), ("\\p{Z}", "\\s"), ("\\p{N}", "\\d")):
        pattern = pattern.replace(theirs, ours)
    return pattern
