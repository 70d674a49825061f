"""What stands in for AWS is held to botocore's models: AWS's own examples keep to them, anything else is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import boto3
import botocore
import pytest
from botocore.loaders import JSONFileLoader
from botocore.stub import Stubber

from tests.doubles.api import Api, served
from tests.doubles.faults import Faults
from tests.doubles.images import Images
from tests.doubles.service_models import WrongAnswer, hold, shape_of
from tests.doubles.tokens import Tokens

KEYS = {"region_name": "us-west-2", "aws_access_key_id": "a", "aws_secret_access_key": "b"}
SERVICES = {"ecr": "2015-09-21", "codebuild": "2016-10-06", "sts": "2011-06-15"}
DIGEST = f"sha256:{'a' * 64}"


def test_the_answers_that_aws_shows_keep_to_its_models() -> None:
    """The examples that botocore ships beside each model."""
    seen = set()
    for service, version in SERVICES.items():
        path = Path(botocore.__path__[0], "data", service, version, "examples-1")
        for operation, examples in JSONFileLoader().load_file(str(path))["examples"].items():
            for answer in (example["output"] for example in examples if "output" in example):
                hold(answer, shape_of(service, operation))
                seen.add(operation)
    assert {"BatchDeleteImage", "BatchGetImage", "DescribeRepositories", "ListImages", "BatchGetBuilds"} <= seen


WRONG: list[tuple[str, str, dict[str, Any], str]] = [
    ("ecr", "list_images", {"imageIds": [{"imageDigest": DIGEST, "digest": DIGEST}]}, "digest"),
    ("ecr", "list_images", {"imageIds": {"imageDigest": DIGEST}}, "imageIds"),
    ("ecr", "list_images", {"imageIds": [{"imageTag": ""}]}, r"0 is not in 1\.\.300"),
    ("ecr", "describe_images", {"imageDetails": [{"repositoryName": "Team X"}]}, "does not match"),
    ("ecr", "describe_images", {"imageDetails": [{"imageSizeInBytes": True}]}, "imageSizeInBytes"),
    ("codebuild", "batch_get_builds", {"builds": [{"buildStatus": "FINISHED"}]}, "is not one of SUCCEEDED, FAILED"),
    ("codebuild", "batch_get_builds", {"builds": [{"phases": [{"durationInSeconds": "7"}]}]}, "durationInSeconds"),
    ("sagemaker", "describe_training_job", {"TrainingJobName": "a"}, "TrainingJobArn"),
]


@pytest.mark.parametrize(("service", "method", "answer", "says"), WRONG)
def test_a_stub_is_not_told_what_the_service_does_not_say(
    service: str, method: str, answer: dict[str, Any], says: str
) -> None:
    operation = "".join(map(str.title, method.split("_")))
    with pytest.raises(WrongAnswer, match=says):
        hold(answer, shape_of(service, operation))
    with pytest.raises((WrongAnswer, botocore.exceptions.ParamValidationError)):
        Stubber(boto3.client(service, **KEYS)).add_response(method, answer)


def test_a_client_gets_nothing_from_an_emulated_service_that_the_model_does_not_have() -> None:
    api = Api("123456789012", Images(), Tokens(), Faults())
    asked = {"repositoryName": "team/x", "imageId": {"imageDigest": DIGEST}}
    good = {"region": "eu-west-1", "registryId": "123456789012", "status": "COMPLETE"}
    with served(api) as url:
        client = boto3.client("ecr", endpoint_url=url, **KEYS)
        for wrong, says in (({"uri": "x"}, r"\[0\]\.uri: the model has no such"), ({"status": "DONE"}, "'DONE'")):
            api.copies[:] = [[good | wrong]]
            with pytest.raises(WrongAnswer, match=says):
                client.describe_image_replication_status(**asked)
        api.copies[:] = [[good]]
        assert client.describe_image_replication_status(**asked)["replicationStatuses"] == [good]
