"""infra/trainwright.yaml, deployed into an AWS on loopback: what exists afterwards, and what its roles may do."""

from __future__ import annotations

import ast
import fnmatch
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore import xform_name

from devtools.generated import ROOT
from devtools.infra import logical_name
from tests.doubles.lifecycle import faults
from tests.doubles.ministack import ACCOUNT, REGION, ministack
from tests.support.stacks import PULL, PUSH, SOURCE, TEMPLATE, Aws, allows, arn, as_list, deployed, emulated
from trainwright.catalog.catalog import Catalog, load_catalog
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.push.repository import FILTERS, load_policy
from trainwright.push.settings import may_move
from trainwright.push.tags import tags_of
from trainwright.scan.database import EXPORT

PROJECT = "trainwright"
CONNECTION = f"arn:aws:codeconnections:{REGION}:{ACCOUNT}:connection/0aee3b32-9c1d-4f6e-8a57-30a1b6f1d6aa"
GROUP = "arn:aws:scheduler:us-west-2:000000000000:schedule-group/trainwright"
FRAMEWORKS = sorted({entry.line.framework for entry in load_catalog().lines})


aws = emulated()
stack = deployed(Nightly="yes", ConnectionArn=CONNECTION)


@pytest.fixture(scope="module")
def template() -> dict[str, Any]:
    import cfnlint.decode  # takes half a second, which every process that collects tests would wait

    decoded, faults = cfnlint.decode.decode(str(TEMPLATE))
    assert not faults
    return dict(decoded)


def test_a_repository_for_every_framework_and_one_for_the_cache(aws, stack, template):
    found = aws.repositories()
    assert sorted(found) == sorted(["trainwright/cache", *(f"trainwright/{name}" for name in FRAMEWORKS)])
    for name in FRAMEWORKS:
        repository = found[f"trainwright/{name}"]
        assert repository["imageScanningConfiguration"]["scanOnPush"]
        assert repository["encryptionConfiguration"]["encryptionType"] == "AES256"
        assert repository["imageTagMutability"] != "MUTABLE"
    assert found["trainwright/cache"]["imageTagMutability"] == "MUTABLE"
    texts = {
        name: json.loads(aws.client("ecr").get_lifecycle_policy(repositoryName=name)["lifecyclePolicyText"])
        for name in found
    }
    for text in texts.values():
        assert faults(json.dumps(text)) == []
    policy = json.loads(load_policy().lifecycle_text())
    assert all(texts[f"trainwright/{name}"] == policy for name in FRAMEWORKS)
    assert stack["CacheUri"].endswith("/trainwright/cache")


def test_only_the_tags_that_say_everything_are_immutable(template):
    """By the rule of tags that push has, and by its own understanding of what a repository lets it do."""
    catalog = load_catalog()
    for entry in catalog.lines:
        line, made = entry.line, template["Resources"][f"{logical_name(entry.line.framework)}Repository"]["Properties"]
        filters = [f["ImageTagMutabilityExclusionFilterValue"] for f in made["ImageTagMutabilityExclusionFilters"]]
        description = {
            "imageTagMutability": made["ImageTagMutability"],
            "imageTagMutabilityExclusionFilters": [{"filterType": "WILDCARD", "filter": text} for text in filters],
        }
        assert len(filters) <= FILTERS
        assert all(text.count("*") <= 2 for text in filters)
        request = make_request(framework=line.framework, cuda=line.cuda, version=line.version)
        plan = resolve(request, Catalog([entry], catalog.components, catalog.rules))
        tags = tags_of(plan, datetime(2026, 11, 21, tzinfo=UTC), catalog)
        assert not may_move(description, tags.immutable)
        assert tags.moving
        assert all(may_move(description, tag) for tag in tags.moving)


def test_the_project(aws, stack):
    (project,) = aws.client("codebuild").batch_get_projects(names=[PROJECT])["projects"]
    assert project["source"]["type"] == "GITHUB"
    assert project["source"]["location"] == SOURCE["SourceLocation"]
    assert project["source"]["buildspec"] == "buildspec.yml"
    assert project["source"]["auth"] == {"type": "CODECONNECTIONS", "resource": CONNECTION}
    assert project["environment"]["privilegedMode"]
    assert aws.variables(PROJECT)["CACHE"] == stack["CacheUri"]
    assert project["serviceRole"] == stack["BuildRoleArn"]
    logs = aws.client("logs").describe_log_groups(logGroupNamePrefix="/aws/codebuild/trainwright")["logGroups"]
    assert [log["retentionInDays"] for log in logs] == [90, 90]


def test_the_records_of_builds_are_kept_and_expire(aws, stack, template):
    (project,) = aws.client("codebuild").batch_get_projects(names=[PROJECT])["projects"]
    bucket, kept = stack["Bucket"], project["artifacts"]
    assert (kept["type"], kept["location"], kept["path"]) == ("S3", bucket, "builds")
    assert (kept["namespaceType"], kept["packaging"], kept["name"]) == ("BUILD_ID", "ZIP", "record.zip")
    s3 = aws.client("s3")
    # The emulator keeps no lifecycle of a bucket; cfn-lint holds its names against AWS's schema.
    rule, _ = template["Resources"]["Bucket"]["Properties"]["LifecycleConfiguration"]["Rules"]
    assert (rule["Prefix"], rule["Status"]) == (f"{kept['path']}/", "Enabled")
    assert template["Parameters"][rule["ExpirationInDays"]["Ref"]]["Default"] == 365
    assert all(s3.get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"].values())
    (closed,) = json.loads(s3.get_bucket_policy(Bucket=bucket)["Policy"])["Statement"]
    assert (closed["Effect"], closed["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})
    _, statements = aws.roles()["BuildRole"]
    assert allows(statements, "s3:PutObject", f"arn:aws:s3:::{bucket}/builds/1/record.zip")
    for action, key in (
        ("s3:PutObject", "other"),
        ("s3:GetObject", "builds/1/record.zip"),
        ("s3:DeleteObject", "builds/1"),
    ):
        assert not allows(statements, action, f"arn:aws:s3:::{bucket}/{key}")
    # What CodeBuild asks of a role that writes artifacts (CodeBuild user guide, "Create a CodeBuild service role").
    for action in ("s3:GetBucketAcl", "s3:GetBucketLocation"):
        assert allows(statements, action, f"arn:aws:s3:::{bucket}")


def test_a_build_of_the_project_can_be_started(aws, stack):
    build = aws.client("codebuild").start_build(projectName=PROJECT)["build"]
    assert build["projectName"] == PROJECT


def test_a_batch_has_a_role_of_its_own_and_a_limit(template):
    batch = template["Resources"]["Project"]["Properties"]["BuildBatchConfig"]
    assert batch["ServiceRole"] == {"Fn::GetAtt": ["BatchRole", "Arn"]}
    # The emulator keeps neither of a project: nothing of a build stays on a machine, of which not every type could.
    assert template["Resources"]["Project"]["Properties"]["Cache"] == {"Type": "NO_CACHE"}
    machine = template["Parameters"]["ComputeType"]
    assert machine["Default"] in machine["AllowedValues"] == batch["Restrictions"]["ComputeTypesAllowed"]


def test_the_schedule_asks_what_is_stale_and_may_do_nothing_else(aws, stack, template):
    schedule = aws.client("scheduler").get_schedule(Name="trainwright-nightly", GroupName="trainwright")
    service, operation = schedule["Target"]["Arn"].split(":")[-2:]
    model = botocore.session.get_session().get_service_model(service)
    names = {name[0].lower() + name[1:]: name for name in model.operation_names}
    assert names[operation] == "StartBuild"
    asked = json.loads(schedule["Target"]["Input"])
    # The scheduler spells the members of a request with a capital.
    members = model.operation_model("StartBuild").input_shape.members
    assert {field[0].lower() + field[1:] for field in asked} <= set(members)
    assert asked == {"ProjectName": f"{PROJECT}-nightly"}
    _, statements = aws.roles()["NightlyRole"]
    assert allows(statements, "codebuild:StartBuild", arn("codebuild", "project/trainwright-nightly"))
    # And write what it could not start into the queue of the schedule.
    queue = aws.queue(stack)
    assert schedule["Target"]["DeadLetterConfig"] == {"Arn": queue}
    assert allows(statements, "sqs:SendMessage", queue)
    assert [as_list(row["Action"]) for row in statements] == [["codebuild:StartBuild"], ["sqs:SendMessage"]]
    assert all("*" not in row["Resource"] for row in statements)
    project = template["Resources"]["NightlyProject"]["Properties"]
    variables = aws.variables(f"{PROJECT}-nightly")
    assert fnmatch.fnmatchcase(f"{variables['TAG']}-1", load_policy().nightly_tags)
    assert (ROOT / project["Source"]["BuildSpec"]).is_file()


def test_the_nightly_build_reads_images_and_starts_batches(aws, stack):
    _, statements = aws.roles()["NightlyBuildRole"]
    assert allows(statements, "codebuild:StartBuildBatch", arn("codebuild", "project/trainwright"))
    ours = arn("ecr", "repository/trainwright/pytorch")
    # What `fresh` asks: whether the repository exists, its tags, manifests, attached documents.
    for action in ("DescribeRepositories", "ListImages", "BatchGetImage", "GetDownloadUrlForLayer"):
        assert allows(statements, f"ecr:{action}", ours)
    # And of bases that AWS has: whether their tags have moved.
    theirs = arn("ecr", "repository/pytorch-training", "763104351884")
    for action in ("BatchGetImage", "GetDownloadUrlForLayer"):
        assert allows(statements, f"ecr:{action}", theirs)
        assert not allows(statements, f"ecr:{action}", arn("ecr", "repository/pytorch-training", "111122223333"))
    for action in ("PutImage", "UploadLayerPart", "BatchDeleteImage"):
        assert not any(allows(statements, f"ecr:{action}", place) for place in (ours, theirs))
    assert aws.variables(f"{PROJECT}-nightly")["DATABASE"] == EXPORT
    assert not allows(statements, "codebuild:StartBuildBatch", arn("codebuild", "project/trainwright-adhoc"))


def test_roles_have_no_stars(aws, stack):
    roles = aws.roles()
    assert set(roles) == {"BuildRole", "BatchRole", "NightlyRole", "NightlyBuildRole"}
    for trust, statements in roles.values():
        (who,) = trust["Statement"]
        assert who["Principal"]["Service"] in ("codebuild.amazonaws.com", "scheduler.amazonaws.com")
        assert who["Condition"]["StringEquals"] == {"aws:SourceAccount": ACCOUNT}
        # One project, or the group of the schedule: AWS's page on the scheduler's confused deputy takes no schedule.
        source = who["Condition"]["ArnEquals"]["aws:SourceArn"]
        assert source in (
            *(arn("codebuild", f"project/{name}") for name in (PROJECT, f"{PROJECT}-nightly")),
            GROUP,
        )
        assert (source == GROUP) == (who["Principal"]["Service"] == "scheduler.amazonaws.com")
        for statement in statements:
            assert all("*" not in action for action in as_list(statement["Action"]))
            if "*" in as_list(statement["Resource"]):
                assert as_list(statement["Action"]) == ["ecr:GetAuthorizationToken"]


def test_a_build_may_push_and_pull_its_repositories_alone(aws, stack):
    _, statements = aws.roles()["BuildRole"]
    for name in [*FRAMEWORKS, "cache"]:
        repository = arn("ecr", f"repository/trainwright/{name}")
        assert all(allows(statements, f"ecr:{action}", repository) for action in (*PUSH, *PULL))
    assert allows(statements, "ecr:GetAuthorizationToken", "*")
    for account in ("763104351884",):
        container = arn("ecr", "repository/pytorch-training", account)
        assert all(allows(statements, f"ecr:{action}", container) for action in PULL)
        assert not any(allows(statements, f"ecr:{action}", container) for action in ("PutImage", "UploadLayerPart"))
    other = arn("ecr", "repository/another/pytorch")
    assert not any(allows(statements, f"ecr:{action}", other) for action in (*PUSH, *PULL))
    ours = arn("ecr", "repository/trainwright/pytorch")
    for action in ("CreateRepository", "DeleteRepository", "BatchDeleteImage", "PutLifecyclePolicy"):
        assert not allows(statements, f"ecr:{action}", ours)


def test_a_build_may_write_its_log_and_reports(aws, stack, template):
    _, statements = aws.roles()["BuildRole"]
    log = arn("logs", "log-group:/aws/codebuild/trainwright:log-stream:1")
    assert all(allows(statements, f"logs:{action}", log) for action in ("CreateLogStream", "PutLogEvents"))
    report = arn("codebuild", "report-group/trainwright-smoke")
    # What CodeBuild asks of the role of a build with test reports (CodeBuild user guide, "Test report permissions").
    asked = ("CreateReportGroup", "CreateReport", "UpdateReport", "BatchPutTestCases")
    assert all(allows(statements, f"codebuild:{action}", report) for action in asked)
    assert not allows(statements, "codebuild:StartBuild", arn("codebuild", "project/trainwright"))
    # Whatever ConnectionArn accepts: AWS wants the action's prefix to be the ARN's.
    for prefix in ("codeconnections", "codestar-connections"):
        connection = CONNECTION.replace(":codeconnections:", f":{prefix}:")
        assert re.fullmatch(template["Parameters"]["ConnectionArn"]["AllowedPattern"], connection)
        assert allows(statements, f"{prefix}:GetConnectionToken", CONNECTION)


def test_a_batch_may_start_builds_of_its_project_alone(aws, stack):
    _, statements = aws.roles()["BatchRole"]
    for action in ("StartBuild", "StopBuild", "RetryBuild"):
        assert allows(statements, f"codebuild:{action}", arn("codebuild", "project/trainwright"))
        assert not allows(statements, f"codebuild:{action}", arn("codebuild", "project/another"))
    assert len(statements) == 1


def test_every_call_of_the_package_is_allowed_to_a_build(aws, stack):
    """Whatever method of an ECR client the package names is one of the role's, but what makes a repository, which the
    stack has done, and what deletes images: `push --create` and `gc --delete` are for people."""
    for_people = {"CreateRepository", "PutLifecyclePolicy", "PutImageTagMutability", "BatchDeleteImage"}
    operations = botocore.session.get_session().get_service_model("ecr").operation_names
    methods = {xform_name(name): name for name in operations}
    nodes = [node for path in (ROOT / "trainwright").rglob("*.py") for node in ast.walk(ast.parse(path.read_text()))]
    words = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    words |= {str(node.value) for node in nodes if isinstance(node, ast.Constant)}
    called = {methods[word] for word in words & set(methods)}
    assert {"PutImage", "BatchGetImage", "CreateRepository"} <= called
    _, statements = aws.roles()["BuildRole"]
    repository = arn("ecr", "repository/trainwright/pytorch")
    # What AWS asks for, where it is not an action of the same name (ECR's service model, ListImageReferrers).
    asked = {"ListImageReferrers": "BatchGetImage"}
    refused = {name for name in called if not allows(statements, f"ecr:{asked.get(name, name)}", repository)}
    assert refused - for_people <= {"GetAuthorizationToken"}
    assert not any(allows(statements, f"ecr:{name}", repository) for name in for_people)


@pytest.mark.parametrize(
    ("parameter", "good", "bad"),
    [
        ("SourceLocation", "https://github.com/a/b.git", "https://user:secret@github.com/a/b.git"),
        ("ConnectionArn", CONNECTION, "arn:aws:iam::000000000000:role/x"),
        ("ConnectionArn", "", "none"),
        ("RepositoryPrefix", "ml/training", "ML"),
        ("RepositoryPrefix", "trainwright", "trainwright/"),
        ("EncryptionKeyArn", f"arn:aws:kms:{REGION}:{ACCOUNT}:key/0aee3b32-9c1d", "alias/mine"),
        ("NightlyExpression", "cron(0 2 * * ? *)", "0 2 * * *"),
    ],
)
def test_parameters(template, parameter, good, bad):
    pattern = template["Parameters"][parameter]["AllowedPattern"]
    assert re.search(pattern, good)
    assert not re.search(pattern, bad)


def test_images_outlive_the_stack_and_a_second_one_takes_them_over(tmp_path: Path):
    with ministack(tmp_path) as endpoint:
        aws = Aws(endpoint)
        aws.deploy()
        assert "NightlyRole" not in aws.roles()
        assert not aws.client("scheduler").list_schedules()["Schedules"]
        (project,) = aws.client("codebuild").batch_get_projects(names=[PROJECT])["projects"]
        assert "auth" not in project["source"]
        for name in ("trainwright/pytorch", "trainwright/cache"):
            manifest = json.dumps({"schemaVersion": 2, "config": {"digest": name}, "layers": []})
            aws.client("ecr").put_image(repositoryName=name, imageManifest=manifest, imageTag="t")
        aws.delete()
        assert sorted(aws.repositories()) == sorted(f"trainwright/{name}" for name in FRAMEWORKS)
        assert aws.client("ecr").describe_images(repositoryName="trainwright/pytorch")["imageDetails"]
        assert not aws.client("codebuild").batch_get_projects(names=[PROJECT])["projects"]
        assert not aws.roles()
        aws.deploy(Repositories="existing", RepositoryPrefix="trainwright")
        assert "trainwright/cache" in aws.repositories()
