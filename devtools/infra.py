"""The files of `infra/` from their templates, the catalog's frameworks and the policy of repositories."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import jinja2

from trainwright.catalog.catalog import load_catalog
from trainwright.push.repository import PATH as POLICY
from trainwright.push.repository import load_policy
from trainwright.sagemaker.dlc import load_dlc
from trainwright.scan.database import EXPORT

ROOT = Path(__file__).resolve().parent.parent
TEMPLATE = Path(__file__).with_name("infra.yaml.j2")
AD_HOC = Path(__file__).with_name("adhoc.yaml.j2")
REPLICA = Path(__file__).with_name("replica.yaml.j2")
UPLOAD = Path(__file__).with_name("upload.yaml.j2")
GPU = Path(__file__).with_name("gpu.yaml.j2")
REGISTRY = Path(__file__).with_name("registry.yaml.j2")
# What builds ask of the repositories of images and cache: whether they exist, layers in both directions, manifests.
# tests/unit/devtools/test_infra.py holds it against the calls of trainwright/publish and of a registry client.
ACTIONS = (
    "BatchCheckLayerAvailability",
    "BatchGetImage",
    "CompleteLayerUpload",
    "DescribeImageReplicationStatus",
    "DescribeImageScanFindings",
    "DescribeImages",
    "DescribeRepositories",
    "GetDownloadUrlForLayer",
    "InitiateLayerUpload",
    "ListImages",
    "PutImage",
    "UploadLayerPart",
)
# What a pull asks of a repository (SageMaker's guide, "CreateTrainingJob API: Execution Role Permissions").
PULL_ACTIONS = ("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer")
# Whoever may start a build can have it run anything, as StartBuild takes another source version and buildspec. So what
# has not been reviewed is built by a project whose role reaches nothing that the reviewed one reads.
PROJECTS: Mapping[str, Mapping[str, str]] = {
    "reviewed": {
        "project": "${ProjectName}",
        "prefix": "${RepositoryPrefix}",
        "images": "",
        "branch": "The reviewed branch, which the project and the nightly batch build",
        "description": "Builds, proves and publishes training images, one or a batch of them",
        "pushes": "the repositories of images and their cache",
    },
    "adhoc": {
        "project": "${ProjectName}-adhoc",
        "prefix": "${RepositoryPrefix}-adhoc",
        "images": "${RepositoryPrefix}-adhoc/images",
        "branch": "What is built where a build names nothing else",
        "description": "Builds and proves training images of any source version; they are removed after a month",
        "pushes": "repositories of its own: what it builds, and its cache, may come from a source that nobody reviewed",
    },
}
# What CodeBuild asks of the role of builds in a VPC, of everything (CodeBuild user guide, "Allow CodeBuild access to
# AWS services required to create a VPC network interface").
NETWORK_ACTIONS = (
    "CreateNetworkInterface",
    "DeleteNetworkInterface",
    "DescribeDhcpOptions",
    "DescribeNetworkInterfaces",
    "DescribeSecurityGroups",
    "DescribeSubnets",
    "DescribeVpcs",
)


def _expiring(*rules: tuple[str, int, Literal["any", "untagged"]]) -> Mapping[str, Any]:
    """A lifecycle policy of ECR.

    Args:
        rules: what images are, the days after which they expire, and which tags they have; first come first served.
    """
    return {
        "rules": [
            {
                "rulePriority": number,
                "description": what,
                "selection": {
                    "tagStatus": tags,
                    "countType": "sinceImagePushed",
                    "countUnit": "days",
                    "countNumber": days,
                },
                "action": {"type": "expire"},
            }
            for number, (what, days, tags) in enumerate(rules, start=1)
        ]
    }


# A cache export leaves the manifest of the one before without a tag.
CACHE_LIFECYCLE = _expiring(("replaced caches", 1, "untagged"), ("caches that no build renewed", 30, "any"))
AD_HOC_LIFECYCLE = _expiring(("images of ad-hoc builds after 30 days", 30, "any"))
# Of repositories that a pull through cache has made.
CACHED_LIFECYCLE = _expiring(("copies of public images after 90 days", 90, "any"))
# Of the 25 that a rule may have in a template (CloudFormation's page of ReplicationRule; ECR's own API has 100 since).
REPLICAS = 8


def infra_template(template: Path = TEMPLATE) -> str:
    """A CloudFormation template, as text.

    Args:
        template: that of reviewed builds, or :data:`AD_HOC`: builds of all other source, or :data:`REPLICA`: what a
            registry needs that images are copied to, or :data:`UPLOAD`: what builds for machines without an engine, or
            :data:`GPU`: what tests images on a GPU, or :data:`REGISTRY`: the rules of a registry.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(template.parent),  # for the parts that two templates have, devtools/infra_*.j2
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # noqa: S701 - YAML, not HTML
        keep_trailing_newline=True,
    )
    environment.filters["logical"] = logical_name
    environment.filters["rules"] = _lifecycle_text
    return environment.from_string(template.read_text()).render(
        frameworks=sorted({entry.line.framework for entry in load_catalog().lines}),
        policy=load_policy(),
        source=POLICY.relative_to(ROOT),
        actions=ACTIONS,
        pull_actions=PULL_ACTIONS,
        compute_types=[f"BUILD_GENERAL1_{size}" for size in ("MEDIUM", "LARGE", "XLARGE", "2XLARGE")],
        projects=PROJECTS,
        network_actions=NETWORK_ACTIONS,
        nightly=load_policy().nightly_tags.removesuffix("-*"),
        ad_hoc_lifecycle=json.dumps(AD_HOC_LIFECYCLE),
        cache_lifecycle=json.dumps(CACHE_LIFECYCLE),
        cached_lifecycle=json.dumps(CACHED_LIFECYCLE),
        replicas=REPLICAS,
        dlc_accounts=load_dlc().accounts["dlc"],
        osv=EXPORT,
    )


def _lifecycle_text(policy: str) -> str:
    """The JSON of a lifecycle policy, a line for every rule."""
    rules = ",\n".join(f"  {json.dumps(rule)}" for rule in json.loads(policy)["rules"])
    return f'{{"rules": [\n{rules}\n]}}'


def logical_name(framework: str) -> str:
    """The name of a resource: CloudFormation allows letters and digits alone."""
    return "".join(word.capitalize() for word in framework.split("-"))
