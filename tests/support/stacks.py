"""Stacks of CloudFormation in an AWS on loopback, and what their roles may do."""

from __future__ import annotations

import fnmatch
from pathlib import Path
from typing import Any

import boto3

from devtools.generated import ROOT
from tests.doubles.ministack import ACCOUNT, REGION

TEMPLATE = ROOT / "infra" / "trainwright.yaml"
SOURCE = {"SourceLocation": "https://github.com/team/trainwright.git"}


class Aws:
    """Clients of an endpoint, and a stack in it."""

    def __init__(self, endpoint: str, template: Path = TEMPLATE) -> None:
        self.template = template
        self.needed = SOURCE if template == TEMPLATE else {}
        self.session = boto3.Session("t", "t", region_name=REGION)
        self.endpoint = endpoint

    def client(self, name: str) -> Any:
        return self.session.client(name, endpoint_url=self.endpoint)

    def deploy(self, **parameters: str) -> dict[str, str]:
        """Create the stack; its outputs."""
        formation = self.client("cloudformation")
        formation.create_stack(
            StackName="tw",
            TemplateBody=self.template.read_text(),
            Parameters=[{"ParameterKey": k, "ParameterValue": v} for k, v in {**self.needed, **parameters}.items()],
            Capabilities=["CAPABILITY_IAM"],
        )
        self.wait("stack_create_complete")
        (stack,) = formation.describe_stacks(StackName="tw")["Stacks"]
        assert stack["StackStatus"] == "CREATE_COMPLETE"
        return {row["OutputKey"]: row["OutputValue"] for row in stack["Outputs"]}

    def wait(self, what: str) -> None:
        waiter = self.client("cloudformation").get_waiter(what)
        waiter.wait(StackName="tw", WaiterConfig={"Delay": 1, "MaxAttempts": 20})

    def delete(self) -> None:
        self.client("cloudformation").delete_stack(StackName="tw")
        self.wait("stack_delete_complete")

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
