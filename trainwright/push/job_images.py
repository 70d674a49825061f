"""The images that SageMaker's training jobs name."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

from trainwright.push.ecr import aws_client
from trainwright.push.refusals import aws_failure
from trainwright.site.site import Site

_PAGE = 100  # jobs: SageMaker's service model, MaxResults
_AT_ONCE = 4
# A job is modified at the latest when it ends: after 30 days at most, says the service model (StoppingCondition).
LONGEST = timedelta(days=31)


class TrainingJobs:
    """The training jobs of the caller's account in one region."""

    def __init__(self, region: str, site: Site) -> None:
        self._client = aws_client("sagemaker", region, site)

    def images(self, since: datetime) -> dict[str, str]:
        """The address of the image that each job names, by the name of the job.

        Args:
            since: jobs that were not modified after this time are left out.

        Raises:
            RegistryRefused: AWS refuses, or does not answer.
        """
        names: list[str] = []
        more: dict[str, Any] = {}
        while True:
            page = self._call("list_training_jobs", LastModifiedTimeAfter=since, MaxResults=_PAGE, **more)
            names += [str(one["TrainingJobName"]) for one in page["TrainingJobSummaries"]]
            if not page.get("NextToken"):
                break
            more = {"NextToken": page["NextToken"]}
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            images = [*pool.map(self._image, names)]
        return {name: image for name, image in zip(names, images, strict=True) if image}

    def _image(self, name: str) -> str:
        """The image of a job; empty if it names none, or the job was deleted meanwhile."""
        job = self._call("describe_training_job", TrainingJobName=name)
        return str((job.get("AlgorithmSpecification") or {}).get("TrainingImage") or "")

    def _call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        from botocore.exceptions import BotoCoreError, ClientError

        action = "sagemaker:" + "".join(word.capitalize() for word in operation.split("_"))
        where = f"AWS in {self._client.meta.region_name}"
        try:
            return dict(getattr(self._client, operation)(**arguments))
        except ClientError as error:
            said = error.response.get("Error", {})
            # SageMaker answers so for a job that it does not know: "Requested resource not found."
            unknown = said.get("Code") == "ValidationException" and "not found" in str(said.get("Message", ""))
            if "TrainingJobName" in arguments and (unknown or said.get("Code") == "ResourceNotFound"):
                return {}
            raise aws_failure(error, action=action, where=where) from None
        except BotoCoreError as error:
            raise aws_failure(error, action=action, where=where) from None
