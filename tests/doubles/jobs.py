"""SageMaker's training jobs: ListTrainingJobs and DescribeTrainingJob over records that a test has made.

moto's CreateTrainingJob knows only jobs of now, and its describe has another text for an unknown job than SageMaker's
"Requested resource not found.". Shapes and limits are those of botocore's service model; pages end where it says.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tests.doubles.images import Refused

_PAGE = 100  # MaxResults


@dataclass
class Jobs:
    """The training jobs of an account, by region."""

    records: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def add(self, region: str, name: str, image: str | None, modified: datetime) -> None:
        """Add a job; one without an image has an algorithm of the Marketplace."""
        which = {"AlgorithmName": "arn:aws:sagemaker:us-west-2:123456789012:algorithm/x"} if image is None else {}
        which |= {"TrainingImage": image} if image is not None else {}
        self.records.setdefault(region, []).append(
            {
                "TrainingJobName": name,
                "TrainingJobArn": f"arn:aws:sagemaker:{region}:123456789012:training-job/{name}",
                "TrainingJobStatus": "Completed",
                "SecondaryStatus": "Completed",
                "ModelArtifacts": {"S3ModelArtifacts": f"s3://bucket/{name}/output/model.tar.gz"},
                "StoppingCondition": {"MaxRuntimeInSeconds": 86400},
                "CreationTime": modified.timestamp(),
                "LastModifiedTime": modified.timestamp(),
                "AlgorithmSpecification": which | {"TrainingInputMode": "File"},
            }
        )

    def listed(self, region: str, asked: dict[str, Any]) -> dict[str, Any]:
        """A page of ListTrainingJobs.

        Raises:
            Refused: the page is too large.
        """
        count = asked.get("MaxResults", 10)
        if not 1 <= count <= _PAGE:
            raise Refused("ValidationException", f"Value '{count}' at 'maxResults' failed to satisfy constraint")
        after = asked.get("LastModifiedTimeAfter", 0)
        found = [one for one in self.records.get(region, ()) if one["LastModifiedTime"] > after]
        begin = int(asked.get("NextToken") or 0)
        named = ("TrainingJobName", "TrainingJobArn", "CreationTime", "LastModifiedTime", "TrainingJobStatus")
        page = [{name: one[name] for name in named} for one in found[begin : begin + count]]
        more = {"NextToken": str(begin + count)} if begin + count < len(found) else {}
        return {"TrainingJobSummaries": page, **more}

    def described(self, region: str, asked: dict[str, Any]) -> dict[str, Any]:
        """DescribeTrainingJob.

        Raises:
            Refused: there is no such job.
        """
        for one in self.records.get(region, ()):
            if one["TrainingJobName"] == asked["TrainingJobName"]:
                return one
        raise Refused("ValidationException", "Requested resource not found.")
