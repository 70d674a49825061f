"""Stacks of CloudFormation in an AWS on loopback, and what their roles may do."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import boto3
import pytest

from devtools.generated import ROOT
from tests.doubles.ministack import ACCOUNT, REGION, ministack

TEMPLATE = ROOT / "infra" / "trainwright.yaml"
AD_HOC = ROOT / "infra" / "adhoc.yaml"
SOURCE = {"SourceLocation": "https://github.com/team/trainwright.git"}
# What AWS says a docker client's push and pull ask of ECR (AmazonECR user guide, "Pushing an image" and "Pulling").
PUSH = ("BatchCheckLayerAvailability", "CompleteLayerUpload", "InitiateLayerUpload", "PutImage", "UploadLayerPart")
PULL = ("BatchCheckLayerAvailability", "BatchGetImage", "GetDownloadUrlForLayer")


class Aws:
    """Clients of an endpoint, and a stack in it."""

    def __init__(self, endpoint: str, template: Path = TEMPLATE, name: str = "tw") -> None:
        self.name = name
        self.template = template
        self.needed = SOURCE if template in (TEMPLATE, AD_HOC) else {}
        self.session = boto3.Session("t", "t", region_name=REGION)
        self.endpoint = endpoint

    def client(self, name: str) -> Any:
        return self.session.client(name, endpoint_url=self.endpoint)

    def deploy(self, tags: Mapping[str, str] | None = None, **parameters: str) -> dict[str, str]:
        """Create the stack; its outputs."""
        formation = self.client("cloudformation")
        formation.create_stack(
            StackName=self.name,
            TemplateBody=self.template.read_text(),
            Parameters=[{"ParameterKey": k, "ParameterValue": v} for k, v in {**self.needed, **parameters}.items()],
            Capabilities=["CAPABILITY_IAM"],
            Tags=[{"Key": key, "Value": value} for key, value in (tags or {}).items()],
        )
        self.wait("stack_create_complete")
        (stack,) = formation.describe_stacks(StackName=self.name)["Stacks"]
        assert stack["StackStatus"] == "CREATE_COMPLETE"
        return {row["OutputKey"]: row["OutputValue"] for row in stack["Outputs"]}

    def wait(self, what: str) -> None:
        waiter = self.client("cloudformation").get_waiter(what)
        waiter.wait(StackName=self.name, WaiterConfig={"Delay": 1, "MaxAttempts": 20})

    def delete(self) -> None:
        self.client("cloudformation").delete_stack(StackName=self.name)
        self.wait("stack_delete_complete")

    def variables(self, project: str) -> dict[str, str]:
        """The environment variables of a CodeBuild project."""
        (found,) = self.client("codebuild").batch_get_projects(names=[project])["projects"]
        return {row["name"]: row["value"] for row in found["environment"]["environmentVariables"]}

    def queue(self, outputs: Mapping[str, str]) -> str:
        """The ARN of the queue of the schedule."""
        attributes = self.client("sqs").get_queue_attributes(
            QueueUrl=outputs["NightlyDeadLetters"], AttributeNames=["QueueArn"]
        )
        return str(attributes["Attributes"]["QueueArn"])

    def repositories(self) -> dict[str, dict[str, Any]]:
        return {r["repositoryName"]: r for r in self.client("ecr").describe_repositories()["repositories"]}

    def roles(self) -> dict[str, tuple[dict[str, Any], list[dict[str, Any]]]]:
        """Trust policy and statements of every role, by its name in the template."""
        iam, found = self.client("iam"), {}
        for role in iam.list_roles()["Roles"]:
            name = role["RoleName"]
            policies = [
                iam.get_role_policy(RoleName=name, PolicyName=policy)["PolicyDocument"]
                for policy in iam.list_role_policies(RoleName=name)["PolicyNames"]
            ]
            for attached in iam.list_attached_role_policies(RoleName=name)["AttachedPolicies"]:
                version = iam.get_policy(PolicyArn=attached["PolicyArn"])["Policy"]["DefaultVersionId"]
                made = iam.get_policy_version(PolicyArn=attached["PolicyArn"], VersionId=version)["PolicyVersion"]
                policies.append(made["Document"])
            statements = [statement for policy in policies for statement in policy["Statement"]]
            found[name.split("-")[1]] = (role["AssumeRolePolicyDocument"], statements)
        return found


def as_list(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def allows(statements: list[dict[str, Any]], action: str, resource: str) -> bool:
    """What IAM decides for a role with these statements; no statement of ours denies or has a condition."""
    assert all(set(statement) == {"Effect", "Action", "Resource"} for statement in statements)
    assert all(statement["Effect"] == "Allow" for statement in statements)
    return any(
        any(fnmatch.fnmatchcase(action, pattern) for pattern in as_list(statement["Action"]))
        and any(fnmatch.fnmatchcase(resource, pattern) for pattern in as_list(statement["Resource"]))
        for statement in statements
    )


def arn(service: str, rest: str, account: str = ACCOUNT) -> str:
    return f"arn:aws:{service}:{REGION}:{account}:{rest}"


def emulated(template: Path = TEMPLATE) -> Callable[[pytest.TempPathFactory], Iterator[Aws]]:
    """The fixture ``aws`` of a module: an AWS on loopback, for a stack of this template."""

    @pytest.fixture(scope="module")
    def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aws]:
        with ministack(tmp_path_factory.mktemp("aws")) as endpoint:
            yield Aws(endpoint, template)

    return aws


def deployed(tags: Mapping[str, str] | None = None, **parameters: str) -> Callable[[Aws], Iterator[dict[str, str]]]:
    """The fixture ``stack`` of a module: the outputs of a stack with these parameters."""

    @pytest.fixture(scope="module")
    def stack(aws: Aws) -> Iterator[dict[str, str]]:
        yield aws.deploy(tags, **parameters)
        aws.delete()

    return stack
