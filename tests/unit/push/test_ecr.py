"""ECR's API through boto3 (against moto), what refusals mean, and the stream of a push."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, NoCredentialsError, ProfileNotFound
from botocore.stub import Stubber
from hypothesis import given
from hypothesis import strategies as st
from moto import mock_aws

from tests.doubles.api import Api, served
from tests.doubles.faults import Faults
from tests.doubles.images import Images
from tests.doubles.lifecycle import Validator
from tests.doubles.tokens import Tokens
from trainwright.core.errors import RegistryRefused, RequestError
from trainwright.push.ecr import Ecr, ImageManifest, Token, caller_account
from trainwright.push.layers import Push
from trainwright.push.references import PushPlace
from trainwright.push.refusals import aws_failure, read_refusal, registry_failure
from trainwright.push.repository import RepositoryPolicy, load_policy
from trainwright.push.settings import filters_lacking, may_move, settle
from trainwright.push.upload_view import make_upload_view
from trainwright.site.site import Site

ACCOUNT, REGION = "123456789012", "us-west-2"
DOCKER_V2 = "application/vnd.docker.distribution.manifest.v2+json"


@pytest.fixture(autouse=True)
def emulated(monkeypatch) -> Iterator[None]:
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    with mock_aws():
        yield


@pytest.fixture
def ecr() -> Ecr:
    return Ecr(PushPlace(ACCOUNT, REGION, "team/x"), Site())


@pytest.fixture
def policy() -> RepositoryPolicy:
    return load_policy()


def manifest(name: str) -> ImageManifest:
    digest = "sha256:" + hashlib.sha256(name.encode()).hexdigest()
    part = {"mediaType": "application/octet-stream", "digest": digest, "size": 1}
    text = json.dumps({"schemaVersion": 2, "mediaType": DOCKER_V2, "config": part, "layers": [part]})
    return ImageManifest("sha256:" + hashlib.sha256(text.encode()).hexdigest(), text, DOCKER_V2)


def describe() -> dict[str, Any]:
    return dict(boto3.client("ecr", REGION).describe_repositories(repositoryNames=["team/x"])["repositories"][0])


def test_the_caller():
    assert caller_account(REGION, Site()) == ACCOUNT


def test_a_repository_is_made_as_the_policy_has_it(ecr, policy):
    assert ecr.repository() is None
    with pytest.raises(RegistryRefused) as refused:
        settle(ecr, policy, ["*-cpu"], create=False, say=print)
    assert "--create" in refused.value.remedy
    said: list[str] = []
    found = settle(ecr, policy, ["*-cpu"], create=True, say=said.append)
    assert found == ecr.repository()
    assert said
    assert describe()["imageTagMutability"] == "MUTABLE_WITH_EXCLUSION"
    assert may_move(found, "pytorch-2.6.0-cu124")
    assert not may_move(found, "pytorch-2.6.0-cu124-py311-debian12-20261121-0123456789ab")
    made = boto3.client("ecr", REGION).get_lifecycle_policy(repositoryName="team/x")["lifecyclePolicyText"]
    assert made == policy.lifecycle_text() != ""
    # Somebody else may have made it meanwhile.
    assert ecr.create(policy, ["*-cpu"]) is False


def test_create_adds_the_filters_that_are_missing_and_no_more_than_there_may_be(ecr, policy):
    policy = policy.replace(tag_mutability="IMMUTABLE_WITH_EXCLUSION", immutable_tags=())
    for number, cuda in enumerate(["cpu", "cu118", "cu121", "cu124", "cu126"], 1):
        settle(ecr, policy, [f"*-{cuda}"], create=True, say=print)
        assert len(describe()["imageTagMutabilityExclusionFilters"]) == number
    settle(ecr, policy, ["*-cpu"], create=True, say=print)
    found = settle(ecr, policy, ["*-cu128"], create=True, say=print)
    assert len(found["imageTagMutabilityExclusionFilters"]) == 5
    assert filters_lacking(found, ["*-cu128", "*-cpu"]) == ["*-cu128"]
    assert may_move(found, "pytorch-2.6.0-cu124")
    assert not may_move(found, "pytorch-2.6.0-cu124-py311-debian12-20261121-0123456789ab")


@pytest.mark.parametrize(
    ("mutability", "filters", "may"),
    [
        ("MUTABLE", [], True),
        ("IMMUTABLE", [], False),
        ("IMMUTABLE_WITH_EXCLUSION", ["*-cpu"], True),
        ("IMMUTABLE_WITH_EXCLUSION", ["*-cu124"], False),
        ("MUTABLE_WITH_EXCLUSION", ["*-cpu"], False),
        ("MUTABLE_WITH_EXCLUSION", ["*-cu124"], True),
        ("SOMETHING_NEW", ["*-cpu"], False),
    ],
)
def test_which_tags_move(mutability, filters, may):
    described = {
        "imageTagMutability": mutability,
        "imageTagMutabilityExclusionFilters": [{"filterType": "WILDCARD", "filter": one} for one in filters],
    }
    assert may_move(described, "pytorch-2.6.0-cpu") is may


def test_tags_of_manifests(monkeypatch, policy):
    """Against the emulated API, as moto has another error for an immutable tag."""
    with served(Api(ACCOUNT, Images(), Tokens(), Faults())) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        ecr = Ecr(PushPlace(ACCOUNT, REGION, "team/tags"), Site())
        settle(ecr, policy.replace(tag_mutability="IMMUTABLE", immutable_tags=()), [], create=True, say=print)
        first, second = manifest("one"), manifest("two")
        assert ecr.manifest(tag="v1") is None
        assert ecr.digest("v1") is None
        assert ecr.put_tag(first, "v1")
        assert ecr.manifest(tag="v1") == ecr.manifest(digest=first.digest) == first
        # The same again is as good; another one is not.
        assert ecr.put_tag(first, "v1")
        assert not ecr.put_tag(second, "v1")
        assert ecr.digest("v1") == first.digest


def test_a_token_that_claims_to_be_over_is_used_and_asked_for_once(ecr, monkeypatch):
    """moto's tokens end in 2015."""
    calls: list[str] = []
    call = ecr._call
    monkeypatch.setattr(ecr, "_call", lambda operation: calls.append(operation) or call(operation))
    token = ecr.token()
    assert token.user == "AWS"
    assert token.expires.year == 2015
    assert calls == ["get_authorization_token"]
    ecr.token(renew=True)
    assert len(calls) == 2


def test_a_good_token_is_kept_until_it_is_refused(ecr):
    data = {"authorizationToken": "QVdTOmE6Yg==", "expiresAt": datetime(2999, 1, 1, tzinfo=UTC)}
    with Stubber(ecr._client) as stub:
        for _ in range(2):
            stub.add_response("get_authorization_token", {"authorizationData": [data]}, {})
        assert (ecr.token().user, ecr.token().password) == ("AWS", "a:b")
        ecr.token(renew=True)
        stub.assert_no_pending_responses()


def test_a_token_does_not_show_its_password():
    assert "secret" not in repr(Token("AWS", "secret", datetime.now(UTC)))


def test_an_answer_without_a_token(ecr):
    with Stubber(ecr._client) as stub, pytest.raises(RegistryRefused, match="no usable token"):
        stub.add_response("get_authorization_token", {"authorizationData": []}, {})
        ecr.token()


@pytest.fixture(autouse=True)
def _policies(monkeypatch):
    """moto's own validator knows neither pulls nor the archive."""
    monkeypatch.setattr("moto.ecr.models.EcrLifecyclePolicyValidator", Validator)


# --- policies ---------------------------------------------------------------------------------------------------------


def test_a_policy_of_ones_own(tmp_path: Path):
    path = tmp_path / "policy.yaml"
    path.write_text(
        "{tag_mutability: MUTABLE, scan_on_push: false, encryption: {type: KMS, key: alias/x}, "
        "archive_unpulled_days: 0, expire_untagged_days: 0}"
    )
    policy = load_policy(path)
    assert policy.lifecycle_text() == ""
    arguments = policy.arguments(["*-cpu"])
    assert arguments["encryptionConfiguration"] == {"encryptionType": "KMS", "kmsKey": "alias/x"}
    assert "imageTagMutabilityExclusionFilters" not in arguments
    path.write_text(path.read_text().replace("archive_unpulled", "archive_unpuled"))
    with pytest.raises(RequestError, match="archive_unpulled_days"):
        load_policy(path)
    with pytest.raises(RequestError):
        load_policy(tmp_path / "none.yaml")


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind", "retried"),
    [
        ("denied: Your authorization token has expired. Reauthenticate and try again.", "token", True),
        ("denied: Your Authorization Token is invalid.", "token", True),
        ("no basic auth credentials", "token", True),
        ("unauthorized: authentication required", "token", True),
        ("name unknown: The repository with name 'x' does not exist in the registry with id '1'", "repository", False),
        ("name unknown: repository name not known to registry: x", "repository", False),
        ("tag invalid: The image tag 'v1' already exists in the 'r' repository and cannot be", "immutable", False),
        ("toomanyrequests: Rate exceeded", "busy", True),
        ("denied: User: x is not authorized to perform: ecr:InitiateLayerUpload on resource: y", "denied", False),
        ('Get "https://h/v2/": dial tcp: lookup h: no such host', "network", True),
        ("received unexpected HTTP status: 500 Internal Server Error", "network", True),
        ("read tcp 1.2.3.4:5->6.7.8.9:443: read: connection reset by peer", "network", True),
        ('Put "https://h/v2/": EOF', "network", True),
        ("write /var/lib/docker/tmp/x: no space left on device", "disk", False),
        # docker/for-linux#736, and ECR's in int128/docker-manifest-create-action#63.
        ("manifest blob unknown: blob unknown to registry", "layer", True),
        (
            "manifest blob unknown: Images with digests '[sha256:88]' required for pushing image into repository with "
            "name 'REPOSITORY' in the registry with id 'ACCOUNT' do not exist",
            "layer",
            True,
        ),
        ("something nobody knows", "other", False),
    ],
)
def test_what_a_registry_says(text, kind, retried):
    refusal = read_refusal(text)
    assert (refusal.kind, refusal.retried) == (kind, retried)
    failure = registry_failure(refusal, place="h/x:y", tries=2, create="--repository x")
    assert failure.exit_code == 7
    assert failure.remedy
    assert failure.details["cause"] == kind


def test_remedies_name_what_is_missing():
    denied = read_refusal("denied: User: x is not authorized to perform: ecr:InitiateLayerUpload on resource: y")
    assert "ecr:InitiateLayerUpload" in registry_failure(denied, place="h/x:y", tries=1, create="").remedy
    certificate = read_refusal('Get "https://h/v2/": x509: certificate signed by unknown authority')
    assert "/etc/docker/certs.d/h/ca.crt" in registry_failure(certificate, place="h/x:y", tries=1, create="").remedy


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        ("AccessDeniedException", "ecr:PutImage"),
        ("ExpiredTokenException", "aws sso login"),
        ("UnrecognizedClientException", "aws sso login"),
        ("RepositoryNotFoundException", "--create"),
        ("ThrottlingException", "later"),
        ("LimitExceededException", "quota"),
        ("ServerException", "again"),
        ("NobodyKnows", "again"),
    ],
)
def test_what_aws_says(code, remedy):
    error = ClientError({"Error": {"Code": code, "Message": "because"}}, "PutImage")
    failure = aws_failure(error, action="ecr:PutImage", where="h/x", create="--repository x")
    assert failure.exit_code == 7
    assert remedy in failure.remedy
    assert failure.details["cause"] == code


@pytest.mark.parametrize("error", [NoCredentialsError(), ProfileNotFound(profile="p")])
def test_what_this_machine_lacks(error):
    assert "aws" in aws_failure(error, action="ecr:PutImage", where="h/x").remedy


def test_a_profile_that_does_not_exist(monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "no-such-profile")
    with pytest.raises(RegistryRefused) as refused:
        caller_account(REGION, Site())
    assert refused.value.details["cause"] == "ProfileNotFound"


# --- the stream -------------------------------------------------------------------------------------------------------

EVENTS: list[dict[str, Any]] = [
    {"status": "The push refers to repository [h/x]"},
    {"status": "Preparing", "progressDetail": {}, "id": "aa"},
    {"status": "Preparing", "progressDetail": {}, "id": "bb"},
    {"status": "Waiting", "progressDetail": {}, "id": "cc"},
    {"status": "Layer already exists", "progressDetail": {}, "id": "aa"},
    {"status": "Pushing", "progressDetail": {"current": 512, "total": 2000}, "progress": "[=>  ]", "id": "bb"},
    {"status": "Retrying in 5 seconds", "progressDetail": {}, "id": "bb"},
    {"status": "Pushing", "progressDetail": {"current": 2048}, "progress": "2.048kB", "id": "bb"},
    {"status": "Pushed", "progressDetail": {}, "id": "bb"},
    {"status": "Mounted from other/repository", "progressDetail": {}, "id": "cc"},
    {"status": "v1: digest: sha256:" + "a" * 64 + " size: 739"},
    {"progressDetail": {}, "aux": {"Tag": "v1", "Digest": "sha256:" + "a" * 64, "Size": 739}},
]


def test_a_stream_is_read():
    push = Push()
    for event in EVENTS:
        push.feed(event)
    assert push.digest == "sha256:" + "a" * 64
    assert (push.count("pushed"), push.count("present")) == (1, 2)
    assert push.sent == push.size == 2048
    assert not push.error


def test_an_error_in_a_stream_is_an_error():
    push = Push()
    push.feed({"errorDetail": {"message": "denied: no"}, "error": "denied: no"})
    assert push.error == "denied: no"
    assert not push.digest


@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "status": st.sampled_from(["Pushing", "Pushed", "Waiting", "Layer already exists", "x", ""]),
                "id": st.sampled_from(["a", "b"]),
                "progressDetail": st.one_of(
                    st.none(), st.fixed_dictionaries({}, optional={"current": st.integers(0, 99), "total": st.none()})
                ),
                "aux": st.one_of(st.none(), st.fixed_dictionaries({"Digest": st.just("sha256:x")})),
            },
        )
    )
)
def test_any_stream_is_read(events):
    push, views = Push(), [make_upload_view(mode, io.StringIO()) for mode in ("plain", "json", "none")]
    for event in events:
        layer = push.feed(event)
        for view in views:
            if layer is not None:
                view.update(push, layer)
    assert push.sent >= 0
    assert all(layer.sent <= layer.size for layer in push.layers.values())


@pytest.mark.parametrize("mode", ["plain", "json", "live"])
def test_layers_are_shown_with_their_bytes(mode):
    out = io.StringIO()
    view, push = make_upload_view(mode, out), Push()
    for event in EVENTS:
        if (layer := push.feed(event)) is not None:
            view.update(push, layer)
    view.close()
    text = out.getvalue()
    if mode == "json":
        last = [json.loads(line) for line in text.splitlines()]
        assert {row["id"]: row["state"] for row in last} == {"aa": "present", "bb": "pushed", "cc": "present"}
        assert last[-1]["sent_bytes"] == 2048
    elif mode == "plain":
        lines = text.splitlines()
        assert [line.split()[:2] for line in lines if "/3" in line] == [
            ["layer", "1/3"],
            ["layer", "2/3"],
            ["layer", "3/3"],
        ]
        assert "2 kB" in text
    else:
        assert "3/3 layers" in text
