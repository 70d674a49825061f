"""A training job of the account: what SageMaker says of its end, and the log stream of each host."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from trainwright.core.errors import RegistryRefused, RequestError
from trainwright.core.text import fits
from trainwright.push.ecr import aws_client
from trainwright.push.refusals import aws_failure
from trainwright.sagemaker.diagnosis import DiagnosisDocument, diagnose_logs
from trainwright.sagemaker.log_lines import Log, iso
from trainwright.site.site import Site

GROUP = "/aws/sagemaker/TrainingJobs"
# botocore's model of the SageMaker API, TrainingJobName; the job may also be given by its ARN.
_NAME = r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}"
_ARN = re.compile(
    r"arn:aws[a-z-]*:sagemaker:(?P<region>[a-z0-9-]+):[0-9]{12}:training-job/(?P<name>[a-zA-Z0-9-]{1,63})"
)


def diagnose_job(job: str, region: str | None, site: Site) -> DiagnosisDocument:
    """Diagnose a training job of the account.

    Args:
        job: its name or ARN.
        region: of the job; default: that of the ARN, of the site, or AWS's default.
        site: proxies, authorities and region.

    Raises:
        RequestError: the name is invalid, no region is known, or there is no such job.
        RegistryRefused: AWS refuses or does not answer.
    """
    name, region = _where(job, region, site)
    described = _call(aws_client("sagemaker", region, site), "describe_training_job", TrainingJobName=name)
    if described is None:
        raise RequestError(
            f"no training job {name} in {region}",
            remedy=f"aws sagemaker list-training-jobs --status-equals Failed --region {region}",
        )
    logs = [Log("SageMaker", [_ending(described)]), *_streams(aws_client("logs", region, site), name)]
    return diagnose_logs(logs, f"training job {name} in {region}: {described['TrainingJobStatus']}")


def _where(job: str, region: str | None, site: Site) -> tuple[str, str]:
    arn = _ARN.fullmatch(job)
    name = arn["name"] if arn else job
    if not fits(_NAME, name):
        raise RequestError(
            f"--job {job}: not the name of a training job", remedy="./invoke diagnose --job NAME --region REGION"
        )
    found = region or (arn["region"] if arn else site.aws.region)
    if not found:
        raise RequestError("--job: no region is known", remedy=f"./invoke diagnose --job {name} --region REGION")
    return name, found


def _ending(described: dict[str, Any]) -> bytes:
    """What SageMaker says of the job's end, as lines of a log. The last stage of a job is the one that failed."""
    lines = [f"{described.get('FailureReason', '')}"]
    if described["TrainingJobStatus"] != "Completed":
        lines.append(f"SecondaryStatus: {described.get('SecondaryStatus', '')}")
    return "\n".join(lines).encode() + b"\n"


def _streams(client: Any, job: str) -> Iterator[Log]:
    """The log stream of each host. A job that got no instance, or was never started, has none."""
    token: dict[str, str] = {}
    while True:
        page = _call(client, "describe_log_streams", logGroupName=GROUP, logStreamNamePrefix=f"{job}/", **token)
        if page is None:
            return
        for stream in page.get("logStreams", ()):
            full = str(stream["logStreamName"])
            yield Log(full.partition("/")[2], _events(client, full))
        if not page.get("nextToken"):
            return
        token = {"nextToken": page["nextToken"]}


def _events(client: Any, stream: str) -> Iterator[bytes]:
    token: dict[str, str] = {}
    while True:
        page = _call(client, "get_log_events", logGroupName=GROUP, logStreamName=stream, startFromHead=True, **token)
        if page is None:
            return
        lines = (f"{iso(each['timestamp'])} {line}" for each in page["events"] for line in _lines(each["message"]))
        if text := "".join(f"{line}\n" for line in lines):
            yield text.encode("utf-8", "replace")
        following = page.get("nextForwardToken")
        if not following or token.get("nextToken") == following:  # the same token again is the end
            return
        token = {"nextToken": following}


def _lines(message: str) -> list[str]:
    return message.splitlines() or [""]


def _call(client: Any, operation: str, **arguments: Any) -> Any:
    """One call; ``None`` if what it asks for does not exist."""
    from botocore.exceptions import BotoCoreError, ClientError

    service = client.meta.service_model.service_name
    action = f"{service}:" + "".join(word.capitalize() for word in operation.split("_"))
    where = f"AWS in {client.meta.region_name}"
    try:
        return getattr(client, operation)(**arguments)
    except ClientError as error:
        said = error.response.get("Error", {})
        code, text = str(said.get("Code", "")), str(said.get("Message", ""))
        # SageMaker answers so for a job that it does not know: "Requested resource not found."
        if code == "ResourceNotFoundException" or (code == "ValidationException" and "not found" in text):
            return None
        if code.startswith("AccessDenied"):
            raise RegistryRefused(
                f"{where}: {action}: {text}", remedy=f"Allow {action} for this caller.", cause=code, place=where
            ) from None
        raise aws_failure(error, action=action, where=where) from None
    except BotoCoreError as error:
        raise aws_failure(error, action=action, where=where) from None
