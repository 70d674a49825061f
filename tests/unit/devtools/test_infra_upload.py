"""infra/upload.yaml, deployed into an AWS on loopback: a place for what is sent, and roles with nothing else."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import botocore.session
import pytest
import yaml
from botocore import xform_name

from devtools.generated import ROOT
from tests.doubles.lifecycle import faults
from tests.doubles.ministack import ACCOUNT, REGION
from tests.support.stacks import PULL, PUSH, Aws, allows, arn, as_list, deployed, emulated
from trainwright.core.paths import templates_dir
from trainwright.pipeline.codebuild import CodeBuild
from trainwright.site.site import Site

TEMPLATE = ROOT / "infra" / "upload.yaml"
PROJECT = "trainwright-upload"
LOG = arn("logs", f"log-group:/aws/codebuild/{PROJECT}:log-stream:1")


aws = emulated(TEMPLATE)
stack = deployed()


@pytest.fixture(scope="module")
def resources() -> dict[str, Any]:
    import cfnlint.decode

    decoded, wrong = cfnlint.decode.decode(str(TEMPLATE))
    assert not wrong
    return dict(decoded)["Resources"]


def at(bucket: str, key: str = "") -> str:
    return f"arn:aws:s3:::{bucket}" + (f"/{key}" if key else "")


def test_the_verb_finds_the_project_of_the_stack(aws: Aws, stack: dict[str, str], monkeypatch: Any) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", aws.endpoint)
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.setenv(f"AWS_{name}", "t")
    found = CodeBuild(REGION, Site()).project(None)
    assert (found.name, found.account, found.bucket) == (stack["ProjectName"], ACCOUNT, stack["Bucket"])
    assert found.variables["REPOSITORY"] == "trainwright-upload/images"
    assert found.variables["CACHE"].endswith("/trainwright-upload/cache")


def test_the_project_takes_a_zip_and_gives_one(aws: Aws, stack: dict[str, str], resources: dict[str, Any]) -> None:
    (project,) = aws.client("codebuild").batch_get_projects(names=[PROJECT])["projects"]
    assert project["source"]["type"] == "S3"
    assert project["environment"]["privilegedMode"]
    made = resources["Project"]["Properties"]["Artifacts"]
    # Key of an artifact: path, build, name (CodeBuild API reference, ProjectArtifacts, namespaceType).
    assert (made["Type"], made["Path"], made["NamespaceType"]) == ("S3", "records", "BUILD_ID")
    assert (made["Packaging"], made["Name"]) == ("ZIP", "record.zip")


def test_the_buildspec_reads_what_the_project_gives(aws: Aws, stack: dict[str, str]) -> None:
    given = set(aws.variables(PROJECT))
    text = (templates_dir() / "pipeline" / "upload.yml.j2").read_text()
    declared = set(re.findall(r"^    ([A-Z_]+): ", text, re.MULTILINE))
    assert given - {"UPLOAD_BUCKET"} <= declared
    assert "artifacts:\n  base-directory: record\n" in text


def test_nobody_else_reads_the_bucket(aws: Aws, stack: dict[str, str], resources: dict[str, Any]) -> None:
    s3, bucket = aws.client("s3"), stack["Bucket"]
    blocked = s3.get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"]
    assert blocked == dict.fromkeys(
        ("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets"), True
    )
    (rule,) = s3.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]["Rules"]
    assert rule["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"] == "AES256"
    # A build reads the version that was sent to it.
    assert s3.get_bucket_versioning(Bucket=bucket)["Status"] == "Enabled"
    policy = json.loads(s3.get_bucket_policy(Bucket=bucket)["Policy"])
    (denied,) = policy["Statement"]
    assert (denied["Effect"], denied["Principal"]) == ("Deny", "*")
    assert denied["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert resources["Bucket"]["Properties"]["OwnershipControls"]["Rules"][0]["ObjectOwnership"] == (
        "BucketOwnerEnforced"
    )


def test_what_is_sent_does_not_stay(aws: Aws, stack: dict[str, str], resources: dict[str, Any]) -> None:
    rules = {rule["Id"]: rule for rule in resources["Bucket"]["Properties"]["LifecycleConfiguration"]["Rules"]}
    assert rules["uploads"]["Prefix"] == "uploads/" and rules["uploads"]["ExpirationInDays"] <= 30
    assert rules["records"]["Prefix"] == "records/"
    # Of a versioned bucket, what has expired is still there until this removes it.
    assert "Prefix" not in rules["replaced"] and rules["replaced"]["NoncurrentVersionExpiration"]["NoncurrentDays"]
    for name in ("images", "cache"):
        text = aws.client("ecr").get_lifecycle_policy(repositoryName=f"trainwright-upload/{name}")[
            "lifecyclePolicyText"
        ]
        assert faults(text) == []


def test_a_build_may_do_its_own_work_alone(aws: Aws, stack: dict[str, str]) -> None:
    roles = aws.roles()
    assert set(roles) == {"BuildRole"}
    trust, statements = roles["BuildRole"]
    (who,) = trust["Statement"]
    assert who["Principal"] == {"Service": "codebuild.amazonaws.com"}
    assert who["Condition"]["StringEquals"] == {"aws:SourceAccount": ACCOUNT}
    assert who["Condition"]["ArnEquals"] == {"aws:SourceArn": arn("codebuild", f"project/{PROJECT}")}
    for statement in statements:
        assert all("*" not in action for action in as_list(statement["Action"]))
        if "*" in as_list(statement["Resource"]):
            assert as_list(statement["Action"]) == ["ecr:GetAuthorizationToken"]
    bucket = stack["Bucket"]
    sent, record = at(bucket, "uploads/a.zip"), at(bucket, "records/1/record.zip")
    # What CodeBuild asks of a role with source and artifacts in S3 (user guide, "Create a service role").
    assert all(allows(statements, f"s3:{action}", sent) for action in ("GetObject", "GetObjectVersion"))
    assert all(allows(statements, f"s3:{action}", at(bucket)) for action in ("GetBucketAcl", "GetBucketLocation"))
    assert allows(statements, "s3:PutObject", record)
    assert all(allows(statements, f"logs:{action}", LOG) for action in ("CreateLogStream", "PutLogEvents"))
    for name in ("images", "cache"):
        ours = arn("ecr", f"repository/trainwright-upload/{name}")
        assert all(allows(statements, f"ecr:{action}", ours) for action in (*PUSH, *PULL))
    # Whoever may send something can have it run anything: it reaches nothing of reviewed builds, or of other builds.
    assert not allows(statements, "s3:PutObject", sent)
    assert not allows(statements, "s3:GetObject", record)
    assert not allows(statements, "codebuild:StartBuild", arn("codebuild", f"project/{PROJECT}"))
    for name in ("trainwright/pytorch", "trainwright/cache", "trainwright-adhoc/images", "trainwright-upload/more"):
        other = arn("ecr", f"repository/{name}")
        assert not any(allows(statements, f"ecr:{action}", other) for action in (*PUSH, *PULL))


def test_every_call_of_the_verb_is_allowed_to_senders(aws: Aws, stack: dict[str, str]) -> None:
    """And nothing else: what the verb asks is read from its source."""
    version = aws.client("iam").get_policy(PolicyArn=stack["SendersPolicyArn"])["Policy"]["DefaultVersionId"]
    document = aws.client("iam").get_policy_version(PolicyArn=stack["SendersPolicyArn"], VersionId=version)
    statements = document["PolicyVersion"]["Document"]["Statement"]
    allowed = {action for statement in statements for action in as_list(statement["Action"])}
    source = Path(ROOT / "trainwright" / "pipeline" / "codebuild.py").read_text()
    words = {str(node.value) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)}
    called = set()
    for service in ("codebuild", "logs", "s3"):
        names = botocore.session.get_session().get_service_model(service).operation_names
        methods = {xform_name(name): name for name in names}
        called |= {f"{service}:{methods[word]}" for word in words & set(methods)}
    assert called == allowed
    bucket = stack["Bucket"]
    places = {
        "s3:PutObject": at(bucket, "uploads/a.zip"),
        "s3:GetObject": at(bucket, "records/1/record.zip"),
        "logs:GetLogEvents": LOG,
        "codebuild:ListProjects": "*",
    }
    for action in called:
        assert allows(statements, action, places.get(action, arn("codebuild", f"project/{PROJECT}")))
    assert not allows(statements, "s3:GetObject", at(bucket, "uploads/a.zip"))
    assert not allows(statements, "codebuild:StartBuild", arn("codebuild", "project/trainwright"))


def test_it_is_a_template_that_cloudformation_takes() -> None:
    assert len(TEMPLATE.read_bytes()) <= 51_200  # the limit of a template in a request (CloudFormation quotas)
    assert len((ROOT / "infra" / "trainwright.yaml").read_bytes()) <= 51_200
    assert yaml.compose(TEMPLATE.read_text()) is not None
