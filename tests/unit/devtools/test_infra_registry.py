"""What other regions, accounts and registries have to do with the stacks: copies, pulls, and a cache of Docker Hub."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import botocore.session
import pytest

from devtools.generated import ROOT
from devtools.infra import REPLICAS
from tests.doubles.lifecycle import faults
from tests.doubles.ministack import ACCOUNT, REGION
from tests.support.stacks import PULL, allows, arn
from trainwright.catalog.catalog import load_catalog
from trainwright.push.repository import load_policy

REGISTRY, REPLICA = ROOT / "infra" / "registry.yaml", ROOT / "infra" / "replica.yaml"
FRAMEWORKS = sorted({entry.line.framework for entry in load_catalog().lines})
OTHER, HUB, ORGANIZATION = "111122223333", "docker-hub", "o-a1b2c3d4e5"
BUILDER = f"arn:aws:iam::{ACCOUNT}:role/trainwright-BuildRole-1"
SECRET = f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:ecr-pullthroughcache/docker-hub-AbCdEf"
NONE = object()


def decoded(path: Path) -> dict[str, Any]:
    import cfnlint.decode

    template, found = cfnlint.decode.decode(str(path))
    assert not found
    return dict(template)


def valued(template: dict[str, Any], given: dict[str, str]) -> Callable[[Any], Any]:
    """What CloudFormation makes of a part of a template with these parameters (its reference of intrinsic functions).

    The emulator has no rules of a registry."""
    names = {
        "AWS::Partition": "aws",
        "AWS::AccountId": ACCOUNT,
        "AWS::Region": REGION,
        "AWS::URLSuffix": "amazonaws.com",
        "AWS::NoValue": NONE,
    }
    names |= {name: row.get("Default") for name, row in template["Parameters"].items()} | given

    def value(part: Any) -> Any:
        if isinstance(part, list):
            return [found for each in part if (found := value(each)) is not NONE]
        if not isinstance(part, dict):
            return part
        if len(part) != 1 or not next(iter(part)).startswith(("Ref", "Fn::", "Condition")):
            return {key: found for key, each in part.items() if (found := value(each)) is not NONE}
        ((name, words),) = part.items()
        if name == "Ref":
            return names[words]
        if name == "Condition":
            return value(template["Conditions"][words])
        if name == "Fn::If":
            return value(words[1] if value(template["Conditions"][words[0]]) else words[2])
        if name == "Fn::Sub":
            return re.sub(r"\$\{([\w:]+)\}", lambda found: str(names[found[1]]), words)
        words = value(words)
        return {
            "Fn::Equals": lambda: words[0] == words[1],
            "Fn::Not": lambda: not words[0],
            "Fn::Or": lambda: any(words),
            "Fn::And": lambda: all(words),
            "Fn::Select": lambda: words[1][int(words[0])],
            "Fn::Split": lambda: words[1].split(words[0]),
            "Fn::Join": lambda: words[0].join(words[1]),
        }[name]()

    return value


@pytest.mark.parametrize(
    ("replicas", "places"),
    [
        ("eu-west-1", [(ACCOUNT, "eu-west-1")]),
        (f"{OTHER}/eu-west-1", [(OTHER, "eu-west-1")]),
        (
            f"eu-west-1,{OTHER}/us-gov-west-1,us-east-2",
            [(ACCOUNT, "eu-west-1"), (OTHER, "us-gov-west-1"), (ACCOUNT, "us-east-2")],
        ),
        (",".join(f"eu-west-{n}" for n in range(REPLICAS)), [(ACCOUNT, f"eu-west-{n}") for n in range(REPLICAS)]),
    ],
)
def test_images_are_copied_to_each_place_of_the_list(replicas: str, places: list[tuple[str, str]]) -> None:
    template = decoded(REGISTRY)
    assert re.search(template["Parameters"]["Replicas"]["AllowedPattern"], replicas)
    value = valued(template, {"Replicas": replicas})
    assert value({"Condition": "HasReplicas"})
    made = value(template["Resources"]["Replication"]["Properties"]["ReplicationConfiguration"])
    (rule,) = made["Rules"]
    assert [(row["RegistryId"], row["Region"]) for row in rule["Destinations"]] == places
    filters = [row["Filter"] for row in rule["RepositoryFilters"]]
    assert filters == [f"trainwright/{name}" for name in FRAMEWORKS]
    assert not any("trainwright/cache".startswith(name) for name in filters)


@pytest.mark.parametrize(
    "wrong", ["eu-west", f"{OTHER}:eu-west-1", "eu-west-1,", "eu-west-1, us-east-1", ",".join(["eu-west-1"] * 9)]
)
def test_what_is_no_list_of_places_is_refused(wrong: str) -> None:
    template = decoded(REGISTRY)
    assert not re.search(template["Parameters"]["Replicas"]["AllowedPattern"], wrong)
    assert not valued(template, {})({"Condition": "HasReplicas"})


def test_copies_land_in_repositories_as_strict() -> None:
    made = decoded(REPLICA)["Resources"]["CreationTemplate"]["Properties"]
    assert made["AppliedFor"] == ["REPLICATION"]
    assert json.loads(made["LifecyclePolicy"]) == json.loads(load_policy().lifecycle_text())
    assert made["ImageTagMutability"] == load_policy().tag_mutability
    assert [f["ImageTagMutabilityExclusionFilterValue"] for f in made["ImageTagMutabilityExclusionFilters"]] == [
        *load_policy().immutable_tags
    ]


def test_public_images_come_through_the_registry_with_the_users_account() -> None:
    template = decoded(REGISTRY)
    assert re.search(template["Parameters"]["DockerHubSecretArn"]["AllowedPattern"], SECRET)
    assert not re.search(template["Parameters"]["DockerHubSecretArn"]["AllowedPattern"], SECRET.replace("ecr-", ""))
    value = valued(template, {"DockerHubSecretArn": SECRET, "EcrPublicPrefix": "ecr-public"})
    resources = template["Resources"]
    # Names and addresses are those of the operation that makes a rule (ECR's service model).
    model = botocore.session.get_session().get_service_model("ecr")
    rule = model.operation_model("CreatePullThroughCacheRule").input_shape.members
    for name, upstream in (("DockerHub", HUB), ("EcrPublic", "ecr-public")):
        made = value(resources[name]["Properties"])
        assert made["UpstreamRegistry"] == upstream and upstream in rule["upstreamRegistry"].enum
        assert made["UpstreamRegistryUrl"] in rule["upstreamRegistryUrl"].documentation
        assert made.get("CredentialArn", SECRET) == SECRET
        repositories = value(resources[f"{name}Repositories"]["Properties"])
        assert (repositories["Prefix"], repositories["AppliedFor"]) == (
            made["EcrRepositoryPrefix"],
            ["PULL_THROUGH_CACHE"],
        )
        assert faults(repositories["LifecyclePolicy"]) == []
    for name in ("HasDockerHub", "HasEcrPublic"):
        assert not valued(template, {})({"Condition": name})


def policy(**given: str) -> Any:
    """The statements of the registry's policy, by their names; none without a policy."""
    template = decoded(REGISTRY)
    value = valued(template, given)
    if not value({"Condition": "HasPolicy"}):
        return {}
    return {row["Sid"]: row for row in value(template["Resources"]["Policy"]["Properties"]["PolicyText"])["Statement"]}


def test_builds_may_pull_through_the_caches_that_there_are() -> None:
    asked = {"BuildRoleArn": BUILDER, "DockerHubSecretArn": SECRET}
    (row,) = policy(**asked).values()
    assert row.pop("Principal") == {"AWS": [BUILDER]}
    (both,) = policy(**asked | {"BuildRoleArn": f"{BUILDER},{BUILDER}-nightly"}).values()
    assert both["Principal"] == {"AWS": [BUILDER, f"{BUILDER}-nightly"]}
    row.pop("Sid")
    # ECR user guide, "IAM permissions required to sync an upstream registry with an Amazon ECR private registry".
    for action in (*PULL, "BatchImportUpstreamImage", "CreateRepository"):
        assert allows([row], f"ecr:{action}", arn("ecr", f"repository/{HUB}/moby/buildkit"))
        assert not allows([row], f"ecr:{action}", arn("ecr", "repository/trainwright/pytorch"))
    assert not allows([row], "ecr:PutImage", arn("ecr", f"repository/{HUB}/moby/buildkit"))
    assert not allows([row], "ecr:BatchGetImage", arn("ecr", "repository/ecr-public/x"))
    (row,) = policy(**asked, EcrPublicPrefix="ecr-public").values()
    assert allows(
        [{name: row[name] for name in ("Effect", "Action", "Resource")}],
        "ecr:BatchGetImage",
        arn("ecr", "repository/ecr-public/x"),
    )
    assert policy(BuildRoleArn=BUILDER) == policy(DockerHubSecretArn=SECRET) == policy() == {}
    assert set(policy(**asked, PullAccounts=OTHER)) == {"PullImages", "PullThroughCaches"}
    assert set(policy(DockerHubSecretArn=SECRET, PullAccounts=OTHER)) == {"PullImages"}


@pytest.mark.parametrize(
    ("given", "principal", "condition"),
    [
        ({"PullAccounts": f"{OTHER},444455556666"}, {"AWS": [OTHER, "444455556666"]}, None),
        ({"PullOrganization": ORGANIZATION}, "*", {"StringEquals": {"aws:PrincipalOrgID": ORGANIZATION}}),
        (
            {"PullOrganization": ORGANIZATION, "PullAccounts": OTHER},
            {"AWS": [OTHER]},
            {"StringEquals": {"aws:PrincipalOrgID": ORGANIZATION}},
        ),
    ],
)
def test_everybody_is_never_without_the_organization(given: dict[str, str], principal: Any, condition: Any) -> None:
    (row,) = policy(**given).values()
    assert (row["Principal"], row.get("Condition")) == (principal, condition)
    assert sorted(row["Action"]) == [f"ecr:{action}" for action in PULL]
    # The cache of build stages is for builds of this account alone.
    assert row["Resource"] == [arn("ecr", f"repository/trainwright/{name}") for name in FRAMEWORKS]


def test_a_policy_of_the_registry_is_text_that_the_service_takes() -> None:
    """PutRegistryPolicy takes at most 10,240 characters (ECR's service model)."""
    limit = botocore.session.get_session().get_service_model("ecr").shape_for("RegistryPolicyText").metadata["max"]
    rows = policy(BuildRoleArn=BUILDER, DockerHubSecretArn=SECRET, PullAccounts=",".join([OTHER] * 50))
    assert len(json.dumps({"Version": "2012-10-17", "Statement": list(rows.values())})) < limit
