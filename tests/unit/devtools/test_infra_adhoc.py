"""infra/adhoc.yaml, deployed into an AWS on loopback: builds of what nobody reviewed reach nothing of the others."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from devtools.generated import ROOT
from tests.doubles.lifecycle import faults
from tests.doubles.ministack import ACCOUNT, ministack
from tests.support.stacks import AD_HOC, PULL, PUSH, SOURCE, Aws, allows, arn, as_list, deployed, emulated
from trainwright.catalog.catalog import load_catalog

PROJECT = "trainwright-adhoc"
REPOSITORIES = ["trainwright-adhoc/cache", "trainwright-adhoc/images"]


aws = emulated(AD_HOC)
stack = deployed()


def test_a_project_with_repositories_of_its_own(aws: Aws, stack: dict[str, str]) -> None:
    assert stack["ProjectName"] == PROJECT
    assert stack["Repository"] == "trainwright-adhoc/images"
    assert sorted(aws.repositories()) == REPOSITORIES
    (project,) = aws.client("codebuild").batch_get_projects(names=[PROJECT])["projects"]
    assert project["source"]["location"] == SOURCE["SourceLocation"]
    assert project["environment"]["privilegedMode"]
    variables = aws.variables(PROJECT)
    images, cache = (aws.repositories()[f"trainwright-adhoc/{name}"] for name in ("images", "cache"))
    assert variables["REPOSITORY_PREFIX"] == "trainwright-adhoc"
    assert variables["REPOSITORY"] == images["repositoryName"]
    # The emulator answers under an address of its own; the path is what names a repository.
    registry, _, name = variables["CACHE"].partition("/")
    assert name == cache["repositoryName"]
    assert registry.startswith(f"{ACCOUNT}.dkr.ecr.us-west-2.amazonaws.com")
    for name in REPOSITORIES:
        text = aws.client("ecr").get_lifecycle_policy(repositoryName=name)["lifecyclePolicyText"]
        assert faults(text) == []
    (rule,) = json.loads(
        aws.client("ecr").get_lifecycle_policy(repositoryName="trainwright-adhoc/images")["lifecyclePolicyText"]
    )["rules"]
    assert (rule["selection"]["countNumber"], rule["action"]) == (30, {"type": "expire"})
    (log,) = aws.client("logs").describe_log_groups(logGroupNamePrefix=f"/aws/codebuild/{PROJECT}")["logGroups"]
    assert log["retentionInDays"] == 90


def test_whoever_may_start_a_build_reaches_nothing_of_reviewed_ones(aws: Aws, stack: dict[str, str]) -> None:
    """Whoever may start a build chooses its source version and its buildspec, so a role is as trusted as they are."""
    roles = aws.roles()
    assert set(roles) == {"BuildRole", "BatchRole"}
    for trust, statements in roles.values():
        (who,) = trust["Statement"]
        assert who["Principal"] == {"Service": "codebuild.amazonaws.com"}
        assert who["Condition"]["StringEquals"] == {"aws:SourceAccount": ACCOUNT}
        assert who["Condition"]["ArnEquals"] == {"aws:SourceArn": arn("codebuild", f"project/{PROJECT}")}
        for statement in statements:
            assert all("*" not in action for action in as_list(statement["Action"]))
            if "*" in as_list(statement["Resource"]):
                assert as_list(statement["Action"]) == ["ecr:GetAuthorizationToken"]
    _, statements = roles["BuildRole"]
    for name in REPOSITORIES:
        assert all(allows(statements, f"ecr:{action}", arn("ecr", f"repository/{name}")) for action in (*PUSH, *PULL))
    # Not a layer of what the reviewed builds read, nor a tag of what people train with.
    for name in ["cache", *{entry.line.framework for entry in load_catalog().lines}]:
        theirs = arn("ecr", f"repository/trainwright/{name}")
        assert not any(allows(statements, f"ecr:{action}", theirs) for action in (*PUSH, *PULL))
    log = arn("logs", f"log-group:/aws/codebuild/{PROJECT}:log-stream:1")
    assert all(allows(statements, f"logs:{action}", log) for action in ("CreateLogStream", "PutLogEvents"))
    _, batch = roles["BatchRole"]
    assert allows(batch, "codebuild:StartBuild", arn("codebuild", f"project/{PROJECT}"))
    assert not allows(batch, "codebuild:StartBuild", arn("codebuild", "project/trainwright"))


# The first stack, when it had the ad-hoc builds as well; what is of interest of it.
BEFORE = """\
Resources:
  AdHocRepository:
    Type: AWS::ECR::Repository
    DeletionPolicy: Delete
    UpdateReplacePolicy: Delete
    Properties:
      RepositoryName: trainwright-adhoc/images
      EmptyOnDelete: true

  AdHocCacheRepository:
    Type: AWS::ECR::Repository
    DeletionPolicy: Delete
    UpdateReplacePolicy: Delete
    Properties:
      RepositoryName: trainwright-adhoc/cache
      EmptyOnDelete: true

  CacheRepository:
    Type: AWS::ECR::Repository
    DeletionPolicy: Delete
    UpdateReplacePolicy: Delete
    Properties:
      RepositoryName: trainwright/cache
      EmptyOnDelete: true
"""


@pytest.mark.parametrize("keep", [True, False], ids=["as the page says", "at once"])
def test_the_page_says_how_images_stay_when_the_first_stack_loses_them(tmp_path: Path, keep: bool) -> None:
    page = (ROOT / "docs" / "setup-aws.md").read_text()
    (program,) = re.findall(r"^    sed -i '([^']+)' before\.yaml$", page, re.MULTILINE)
    edited = subprocess.run(["sed", program], input=BEFORE, capture_output=True, text=True, check=True).stdout
    own = BEFORE.index("  CacheRepository:")
    assert edited[edited.index("  CacheRepository:") :] == BEFORE[own:]
    with ministack(tmp_path) as endpoint:
        aws = Aws(endpoint)
        formation = aws.client("cloudformation")
        formation.create_stack(StackName="tw", TemplateBody=BEFORE)
        aws.wait("stack_create_complete")
        manifest = json.dumps({"schemaVersion": 2, "config": {"digest": "sha256:1"}, "layers": []})
        put = {"repositoryName": "trainwright-adhoc/images", "imageManifest": manifest, "imageTag": "kept"}
        aws.client("ecr").put_image(**put)
        for text in (edited, "Resources:\n" + BEFORE[own:]) if keep else ("Resources:\n" + BEFORE[own:],):
            formation.update_stack(StackName="tw", TemplateBody=text)
            aws.wait("stack_update_complete")
        assert sorted(aws.repositories()) == [*(REPOSITORIES if keep else []), "trainwright/cache"]
        if keep:
            images = aws.client("ecr").describe_images(repositoryName="trainwright-adhoc/images")["imageDetails"]
            assert [image["imageTags"] for image in images] == [["kept"]]


def test_it_stands_beside_the_other_stack_and_takes_over_what_an_earlier_one_left(tmp_path: Path) -> None:
    """In one account, with the names that builds of both had when one template made them."""
    with ministack(tmp_path) as endpoint:
        reviewed, ad_hoc = Aws(endpoint), Aws(endpoint, AD_HOC, "tw-adhoc")
        reviewed.deploy()
        for name in REPOSITORIES:
            ad_hoc.client("ecr").create_repository(repositoryName=name)
        manifest = json.dumps({"schemaVersion": 2, "config": {"digest": "sha256:1"}, "layers": []})
        put = {"repositoryName": "trainwright-adhoc/images", "imageManifest": manifest, "imageTag": "kept"}
        ad_hoc.client("ecr").put_image(**put)
        ad_hoc.deploy(Repositories="existing")
        names = ["trainwright", PROJECT]
        one, other = reviewed.client("codebuild").batch_get_projects(names=names)["projects"]
        assert one["serviceRole"] != other["serviceRole"]
        ad_hoc.delete()
        assert set(REPOSITORIES) <= set(ad_hoc.repositories())
        images = ad_hoc.client("ecr").describe_images(repositoryName="trainwright-adhoc/images")["imageDetails"]
        assert [image["imageTags"] for image in images] == [["kept"]]
        assert reviewed.client("codebuild").batch_get_projects(names=names)["projectsNotFound"] == [PROJECT]
