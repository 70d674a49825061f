"""What a team may set in the stacks of infra/: a network, proxies, retries, limits, tags, and who hears of failures."""

from __future__ import annotations

import fnmatch
import json
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.exceptions import ClientError

from devtools.generated import ROOT
from tests.doubles.ministack import ACCOUNT, REGION, ministack
from tests.support.stacks import AD_HOC, PULL, TEMPLATE, Aws, allows, arn, as_list, deployed, emulated
from tests.unit.devtools.test_infra_registry import valued

UPLOAD, GPU = ROOT / "infra" / "upload.yaml", ROOT / "infra" / "gpu.yaml"
PROJECT = "trainwright"
NETWORK = {"VpcId": "vpc-0a1", "SubnetIds": "subnet-0a1,subnet-0b2", "SecurityGroupIds": "sg-0a1,sg-0b2"}
PROXIES = {"HttpProxy": "http://10.0.0.5:3128", "HttpsProxy": "http://10.0.0.5:3129"}
TOPIC = f"arn:aws:sns:{REGION}:{ACCOUNT}:ours"
KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/0aee3b32-9c1d"
PROFILE = f"arn:aws:signer:eu-west-1:{ACCOUNT}:/signing-profiles/trainwright"
SIGNING = {"SigningKeyArn": KEY, "SigningProfileArn": PROFILE}
OPTIONS = NETWORK | PROXIES | SIGNING | {"AutoRetryLimit": "2", "ConcurrentBuildLimit": "4", "GpuSmoke": "yes"}
FAILURES = {"Nightly": "yes", "FailureEmail": "team@example.com", "FailureTopicArn": TOPIC}
# CodeBuild user guide, "Allow CodeBuild access to AWS services required to create a VPC network interface".
OF_EVERYTHING = {
    "ec2:CreateNetworkInterface",
    "ec2:DescribeDhcpOptions",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeSubnets",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeVpcs",
}


aws = emulated()
stack = deployed(tags={"team": "ml"}, **OPTIONS, **FAILURES)


def decoded(path: Path) -> dict[str, Any]:
    import cfnlint.decode

    template, faults = cfnlint.decode.decode(str(path))
    assert not faults
    return dict(template)


def test_builds_in_a_vpc_may_make_network_interfaces_in_its_subnets_alone(aws: Aws, stack: dict[str, str]) -> None:
    roles = aws.roles()
    for name in ("BuildRole", "NightlyBuildRole"):
        everything, interfaces = (row for row in roles[name][1] if "ec2:" in str(row["Action"]))
        assert (set(everything["Action"]), everything["Resource"]) == (OF_EVERYTHING, "*")
        assert interfaces["Action"] == "ec2:CreateNetworkInterfacePermission"
        assert interfaces["Resource"] == arn("ec2", "network-interface/*")
        conditions = interfaces["Condition"]
        assert conditions["StringEquals"] == {"ec2:AuthorizedService": "codebuild.amazonaws.com"}
        allowed = conditions["ArnLike"]["ec2:Subnet"]
        assert len(allowed) == 2
        for subnet, expected in (("subnet-0a1", True), ("subnet-0b2", True), ("subnet-0c3", False)):
            assert any(fnmatch.fnmatchcase(arn("ec2", f"subnet/{subnet}"), row) for row in allowed) == expected
    assert not any("ec2:" in str(row) for name in ("BatchRole", "NightlyRole") for row in roles[name][1])


@pytest.mark.parametrize("path", [TEMPLATE, AD_HOC, UPLOAD], ids=lambda path: path.stem)
def test_every_project_is_in_the_network_and_has_the_limits(path: Path) -> None:
    """The emulator keeps none of these of a project; cfn-lint holds their names against AWS's schema."""
    template = decoded(path)
    projects = {
        name: each["Properties"]
        for name, each in template["Resources"].items()
        if each["Type"].endswith("Build::Project")
    }
    assert set(projects) == ({"Project", "NightlyProject"} if path == TEMPLATE else {"Project"})
    for project in projects.values():
        condition, made, otherwise = project["VpcConfig"]["Fn::If"]
        assert (condition, otherwise) == ("HasVpc", {"Ref": "AWS::NoValue"})
        assert made["VpcId"] == {"Ref": "VpcId"}
        assert made["Subnets"] == {"Fn::Split": [",", {"Ref": "SubnetIds"}]}
        assert made["SecurityGroupIds"] == {"Fn::Split": [",", {"Ref": "SecurityGroupIds"}]}
    for name in () if path == UPLOAD else ("AutoRetryLimit", "ConcurrentBuildLimit"):
        condition, made, otherwise = projects["Project"][name]["Fn::If"]
        assert (made, otherwise) == ({"Ref": name}, {"Ref": "AWS::NoValue"})
        # Nothing is said to CodeBuild until somebody sets it.
        assert template["Parameters"][name]["Default"] == 0
        assert template["Conditions"][condition] == {"Fn::Not": [{"Fn::Equals": [{"Ref": name}, "0"]}]}


def test_a_docker_server_is_in_the_network_of_the_builds() -> None:
    """cfn-lint holds the names against AWS's schema; the emulator does not keep it."""
    template = decoded(TEMPLATE)
    environment = template["Resources"]["Project"]["Properties"]["Environment"]
    (told,) = [each["Value"] for each in environment["EnvironmentVariables"] if each.get("Name") == "DOCKER_SERVER"]
    parts = [environment["DockerServer"], told]
    assert valued(template, {})(parts) == [""]
    size = {"ComputeType": "BUILD_GENERAL1_LARGE"}
    for network in ({}, NETWORK):
        groups = {"SecurityGroupIds": network["SecurityGroupIds"].split(",")} if network else {}
        made = valued(template, {"DockerServer": size["ComputeType"], **network})(parts)
        assert made == [size | groups, "yes"]


def test_builds_have_the_proxies(aws: Aws, stack: dict[str, str]) -> None:
    for project in (PROJECT, f"{PROJECT}-nightly"):
        variables = aws.variables(project)
        assert variables["HTTP_PROXY"] == PROXIES["HttpProxy"]
        assert variables["HTTPS_PROXY"] == PROXIES["HttpsProxy"]
        # Where a build gets the credentials of its role (Amazon ECS, "Task IAM role"): never through a proxy.
        assert "169.254.170.2" in variables["NO_PROXY"].split(",")


def test_builds_may_start_smoke_tests_on_a_gpu(aws: Aws, stack: dict[str, str]) -> None:
    project = aws.variables(PROJECT)["GPU_PROJECT"]
    assert project == decoded(GPU)["Parameters"]["ProjectName"]["Default"]
    # Start one and look how it ends, as the commands of buildspec.yml do.
    rows = [row for row in aws.roles()["BuildRole"][1] if "Condition" not in row]
    for action in ("StartBuild", "BatchGetBuilds"):
        assert allows(rows, f"codebuild:{action}", arn("codebuild", f"project/{project}"))
        assert not allows(rows, f"codebuild:{action}", arn("codebuild", f"project/{PROJECT}"))
    assert decoded(TEMPLATE)["Parameters"]["GpuSmoke"]["Default"] == "no"


def test_a_smoke_test_on_a_gpu_may_pull_its_image_and_nothing_else(tmp_path: Path) -> None:
    with ministack(tmp_path) as endpoint:
        aws = Aws(endpoint, GPU)
        project_name = aws.deploy()["ProjectName"]
        (project,) = aws.client("codebuild").batch_get_projects(names=[project_name])["projects"]
        roles = aws.roles()
    environment = project["environment"]
    # CodeBuild user guide, "Build environment compute modes and types": Linux GPU Small.
    assert (environment["type"], environment["computeType"]) == ("LINUX_GPU_CONTAINER", "BUILD_GENERAL1_SMALL")
    assert not environment["privilegedMode"]  # it starts no engine
    assert project["source"]["type"] == "NO_SOURCE"
    ((trust, rows),) = roles.values()
    repository, other = (arn("ecr", f"repository/{name}/pytorch") for name in ("trainwright", "another"))
    for action in PULL:
        assert allows(rows, f"ecr:{action}", repository)
        assert not allows(rows, f"ecr:{action}", other)
    services = {str(action).partition(":")[0] for row in rows for action in as_list(row["Action"])}
    assert services == {"ecr", "logs"}
    actions = {str(action) for row in rows for action in as_list(row["Action"]) if "ecr:" in str(action)}
    assert actions == {"ecr:GetAuthorizationToken", *(f"ecr:{action}" for action in PULL)}
    (who,) = trust["Statement"]
    assert who["Condition"]["ArnEquals"]["aws:SourceArn"] == arn("codebuild", f"project/{project_name}")
    model = botocore.session.get_session().get_service_model("codebuild")
    assert {*decoded(GPU)["Parameters"]["ComputeType"]["AllowedValues"]} < {*model.shape_for("ComputeType").enum}
    assert environment["type"] in model.shape_for("EnvironmentType").enum


def test_builds_may_sign_and_look_for_signatures(aws: Aws, stack: dict[str, str]) -> None:
    """With what trainwright/signing calls; AWS's policy data, which cfn-lint has, says what each action is of."""
    from cfnlint.data import AdditionalSpecs
    from cfnlint.helpers import load_resource

    known = load_resource(AdditionalSpecs, "Policies.json")
    rows = [row for row in aws.roles()["BuildRole"][1] if "Condition" not in row]
    other = arn("kms", "key/another")
    job = "arn:aws:signer:us-east-1:111122223333:/signing-jobs/1"
    for service, action, resources in (
        ("kms", "Sign", {"key": KEY}),
        ("kms", "GetPublicKey", {"key": KEY}),
        ("signer", "SignPayload", {"signing-profile": PROFILE}),
        ("signer", "GetRevocationStatus", {"signing-profile": f"{PROFILE}/abc", "signing-job": job}),
    ):
        assert set(known[service]["Actions"][action.lower()]["Resources"]) == set(resources)
        assert all(allows(rows, f"{service}:{action}", resource) for resource in resources.values())
        assert not allows(rows, f"{service}:{action}", other)
        assert not allows(rows, f"{service}:{action}", f"{PROFILE}-of-others")
    granted = {str(name) for row in rows for name in as_list(row["Action"]) if str(name).startswith(("kms", "signer"))}
    assert len(granted) == 4
    assert aws.variables(PROJECT)["SIGNING"] == "yes"
    # The nightly build reads images, and neither signs nor moves a tag.
    assert not any(word in json.dumps(aws.roles()["NightlyBuildRole"]) for word in ("kms:", "signer:"))


def test_failed_builds_are_repeated_by_their_own_role(aws: Aws, stack: dict[str, str]) -> None:
    _, statements = aws.roles()["BuildRole"]
    rows = [row for row in statements if "Condition" not in row]
    assert allows(rows, "codebuild:RetryBuild", arn("codebuild", f"project/{PROJECT}"))
    assert not allows(rows, "codebuild:RetryBuild", arn("codebuild", "project/another"))
    assert not allows(rows, "codebuild:StartBuild", arn("codebuild", f"project/{PROJECT}"))


def test_somebody_hears_of_a_failed_build(aws: Aws, stack: dict[str, str]) -> None:
    events, sns = aws.client("events"), aws.client("sns")
    (rule,) = events.list_rules()["Rules"]
    pattern = json.loads(rule["EventPattern"])
    # EventBridge reference, "AWS CodeBuild events"; the fields are those of CodeBuild's user guide, "Build
    # notifications input format reference", the values those of a build's status in CodeBuild's service model.
    assert pattern["source"] == ["aws.codebuild"]
    assert pattern["detail-type"] == ["CodeBuild Build State Change"]
    assert sorted(pattern["detail"]["project-name"]) == [PROJECT, f"{PROJECT}-nightly"]
    statuses = set(botocore.session.get_session().get_service_model("codebuild").shape_for("StatusType").enum)
    assert statuses - set(pattern["detail"]["build-status"]) == {"SUCCEEDED", "IN_PROGRESS", "STOPPED"}
    assert set(pattern["detail"]["build-status"]) < statuses
    targets = {row["Id"]: row for row in events.list_targets_by_rule(Rule=rule["Name"])["Targets"]}
    (made,) = sns.list_topics()["Topics"]
    assert {targets["mail"]["Arn"], targets["topic"]["Arn"]} == {made["TopicArn"], TOPIC}
    (subscription,) = sns.list_subscriptions_by_topic(TopicArn=made["TopicArn"])["Subscriptions"]
    assert (subscription["Protocol"], subscription["Endpoint"]) == ("email", "team@example.com")
    policy = json.loads(sns.get_topic_attributes(TopicArn=made["TopicArn"])["Attributes"]["Policy"])
    may = {row["Principal"]["Service"]: row["Condition"] for row in policy["Statement"]}
    assert may["events.amazonaws.com"] == {"ArnEquals": {"aws:SourceArn": rule["Arn"]}}
    assert may["cloudwatch.amazonaws.com"] == {"StringEquals": {"aws:SourceAccount": ACCOUNT}}
    for target in targets.values():
        message = target["InputTransformer"]
        assert all(f"<{name}>" in message["InputTemplate"] for name in message["InputPathsMap"])
        assert isinstance(json.loads(message["InputTemplate"]), str)


def test_somebody_hears_of_a_night_without_a_build(aws: Aws, stack: dict[str, str]) -> None:
    (alarm,) = aws.client("cloudwatch").describe_alarms()["MetricAlarms"]
    queue = aws.queue(stack)
    assert alarm["Dimensions"] == [{"Name": "QueueName", "Value": queue.rpartition(":")[2]}]
    assert (alarm["Namespace"], alarm["MetricName"]) == ("AWS/SQS", "ApproximateNumberOfMessagesVisible")
    assert (alarm["ComparisonOperator"], alarm["Threshold"]) == ("GreaterThanThreshold", 0)
    assert len(alarm["AlarmActions"]) == 2 and TOPIC in alarm["AlarmActions"]


def test_the_tags_of_the_stack_are_those_of_what_it_makes(aws: Aws, stack: dict[str, str]) -> None:
    (project,) = aws.client("codebuild").batch_get_projects(names=[PROJECT])["projects"]
    assert {"key": "team", "value": "ml"} in project["tags"]
    repository = arn("ecr", "repository/trainwright/pytorch")
    assert {"Key": "team", "Value": "ml"} in aws.client("ecr").list_tags_for_resource(resourceArn=repository)["tags"]


def test_a_stack_that_is_told_nothing_has_none_of_it(tmp_path: Path) -> None:
    with ministack(tmp_path) as endpoint:
        aws = Aws(endpoint)
        aws.deploy()
        assert not {"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"} & set(aws.variables(PROJECT))
        words = json.dumps(aws.roles())
        assert "ec2:" not in words
        assert "kms:" not in words and "signer:" not in words
        assert aws.variables(PROJECT)["SIGNING"] == ""
        assert "codebuild:RetryBuild" not in json.dumps(aws.roles()["BuildRole"])
        assert not aws.client("events").list_rules()["Rules"]
        assert not aws.client("sns").list_topics()["Topics"]
        assert not aws.client("sqs").list_queues().get("QueueUrls")
        assert not aws.client("cloudwatch").describe_alarms()["MetricAlarms"]
        for template in (AD_HOC, UPLOAD):
            with pytest.raises(ClientError, match="SubnetIds"):
                Aws(endpoint, template, "half").deploy(VpcId="vpc-0a1")


def test_builds_of_what_was_sent_are_in_the_network_too(tmp_path: Path) -> None:
    with ministack(tmp_path) as endpoint:
        aws = Aws(endpoint, UPLOAD)
        aws.deploy(**NETWORK, **PROXIES)
        assert aws.variables("trainwright-upload")["HTTPS_PROXY"] == PROXIES["HttpsProxy"]
        (everything, _) = (row for row in aws.roles()["BuildRole"][1] if "ec2:" in str(row["Action"]))
        assert set(everything["Action"]) == OF_EVERYTHING


def test_each_template_fits_in_a_request_with_room_to_grow() -> None:
    """51,200 bytes are what CloudFormation takes without a bucket (CloudFormation quotas, "Template body size")."""
    paths = sorted((ROOT / "infra").glob("*.yaml"))
    assert len(paths) >= 4
    assert {path.name: len(path.read_bytes()) for path in paths if len(path.read_bytes()) > 46_000} == {}
