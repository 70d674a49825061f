"""The emulated AWS itself: what ECR refuses it refuses, its two sides agree, its faults happen, nothing is left."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from botocore.exceptions import ClientError
from docker.errors import APIError, NotFound
from hypothesis import given
from hypothesis import strategies as st

from tests.doubles.aws import emulated_aws
from tests.doubles.images import _wildcard
from tests.doubles.machine import CERTIFICATES, HOSTS, MARK
from tests.doubles.tiny import tiny_image

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def images(engine) -> Iterator[tuple[str, str]]:
    """The ids of two images that share a layer; random, as the engine remembers what it has pushed."""
    first, second, shared = (os.urandom(100_000) for _ in range(3))
    with (
        tiny_image(engine, "trainwright-test/doubles:1", shared, first) as one,
        tiny_image(engine, "trainwright-test/doubles:2", shared, second) as two,
    ):
        yield one, two


@pytest.fixture
def push(engine, aws, images):
    """Push one of the two images: the digest, or the text of the error in the stream."""

    def run(repository: str, tag: str, *, image: int = 0, region: str | None = None, login: dict | None = None) -> str:
        name = f"{aws.host(region)}/{repository}"
        engine.images.get(images[image]).tag(name, tag)
        try:
            stream = engine.images.push(
                name, tag=tag, stream=True, decode=True, auth_config=aws.login() if login is None else login
            )
            events = list(stream)
        finally:
            engine.images.remove(f"{name}:{tag}")
        errors = [event["error"] for event in events if "error" in event]
        return errors[0] if errors else next(event["aux"]["Digest"] for event in events if "aux" in event)

    return run


def tags_of(aws, repository: str) -> dict[str, str]:
    """The digest of every tag, as the API has them."""
    found = aws.client("ecr").describe_images(repositoryName=repository)["imageDetails"]
    return {tag: image["imageDigest"] for image in found for tag in image.get("imageTags", [])}


def manifest_of(aws, repository: str, tag: str) -> str:
    asked = [{"imageTag": tag}]
    found = aws.client("ecr").batch_get_image(repositoryName=repository, imageIds=asked)["images"]
    return str(found[0]["imageManifest"])


def test_an_image_comes_back_by_tag_and_by_digest(engine, aws, repository):
    name = f"{aws.host()}/{repository}"
    with tiny_image(engine, f"{name}:v1", os.urandom(50_000)) as image:
        engine.images.push(name, tag="v1", auth_config=aws.login())
    with pytest.raises(NotFound):
        engine.images.get(image)
    digest = tags_of(aws, repository)["v1"]
    for reference in (f"{name}@{digest}", f"{name}:v1"):
        aws.requests.clear()
        assert engine.images.pull(reference, auth_config=aws.login()).id == image
        engine.images.remove(reference)
        assert sum(asked.sent for asked in aws.requests if "/blobs/" in asked.path) > 50_000


def test_layers_that_are_there_are_not_uploaded_again(aws, repository, push):
    push(repository, "v1")
    first = aws.uploaded()
    aws.requests.clear()
    push(repository, "v2", image=1)
    assert 100_000 < aws.uploaded() < first - 90_000
    aws.requests.clear()
    assert push(repository, "v2", image=1) == tags_of(aws, repository)["v2"]
    assert aws.uploaded() == 0


def test_regions_share_nothing(aws, repository, push):
    push(repository, "v1")
    assert "does not exist in the registry" in push(repository, "v1", region="eu-central-1")
    aws.client("ecr", "eu-central-1").create_repository(repositoryName=repository)
    aws.requests.clear()
    push(repository, "v1", region="eu-central-1")
    assert aws.uploaded() > 200_000


@pytest.mark.parametrize(
    ("login", "says"),
    [
        ({}, "no basic auth credentials"),
        ({"username": "AWS", "password": "wrong"}, "denied: Your Authorization Token is invalid."),
        ({"username": "you", "password": "wrong"}, "denied: Your Authorization Token is invalid."),
    ],
)
def test_who_has_no_token_is_refused(aws, repository, push, login, says):
    assert push(repository, "v1", login=login) == says
    assert tags_of(aws, repository) == {}


def test_an_expired_token_is_refused(aws, repository, push):
    expired = "denied: Your authorization token has expired. Reauthenticate and try again."
    assert push(repository, "v1", login=aws.login(expires_in=-1)) == expired

    token = aws.login()
    aws.fail_registry("PUT", "/manifests/v1$", "expire-token")
    assert push(repository, "v1", login=token) == expired
    assert push(repository, "v1", login=token) == expired
    assert tags_of(aws, repository) == {}
    assert push(repository, "v1").startswith("sha256:")


def test_a_token_of_the_api_lasts_as_long_as_it_says(aws):
    def seconds() -> float:
        answer = aws.client("ecr").get_authorization_token()["authorizationData"][0]
        assert answer["proxyEndpoint"] == f"https://{aws.host()}"
        return float(answer["expiresAt"].timestamp() - time.time())

    assert 11.9 * 3600 < seconds() < 12.1 * 3600
    aws.token_seconds = -60
    assert -70 < seconds() < -50


def test_a_repository_has_to_exist(aws, push):
    missing = "The repository with name 'none/such' does not exist in the registry with id"
    assert push("none/such", "v1") == f"name unknown: {missing} '{aws.account}'"


def test_an_immutable_tag_stays(aws, push):
    ecr = aws.client("ecr")
    ecr.create_repository(repositoryName="immutable", imageTagMutability="IMMUTABLE")
    digest = push("immutable", "v1")
    refused = "tag invalid: The image tag 'v1' already exists in the 'immutable' repository and cannot be overwritten"
    # Not even by the same image: so does ECR.
    for image in (0, 1):
        assert push("immutable", "v1", image=image).startswith(refused)
    push("immutable", "v2", image=1)
    with pytest.raises(ClientError) as error:
        ecr.put_image(repositoryName="immutable", imageManifest=manifest_of(aws, "immutable", "v2"), imageTag="v1")
    assert error.value.response["Error"]["Code"] == "ImageTagAlreadyExistsException"
    assert tags_of(aws, "immutable")["v1"] == digest


def test_excluded_tags_move(engine, aws, images, push):
    filters = [{"filterType": "WILDCARD", "filter": "*-latest"}]
    settings = {"imageTagMutability": "IMMUTABLE_WITH_EXCLUSION", "imageTagMutabilityExclusionFilters": filters}
    ecr = aws.client("ecr")
    ecr.create_repository(repositoryName="excluding", **settings)
    first, second = push("excluding", "v1"), push("excluding", "v2", image=1)
    assert push("excluding", "v1", image=1).startswith("tag invalid: ")

    # Moved by the API and nothing uploaded: what is pulled by tag is the other image.
    name = f"{aws.host()}/excluding"
    for tag, digest, image in (("v1", first, images[0]), ("v2", second, images[1])):
        aws.requests.clear()
        manifest = manifest_of(aws, "excluding", tag)
        put = ecr.put_image(repositoryName="excluding", imageManifest=manifest, imageTag="cpu-latest")["image"]
        assert put["imageId"] == {"imageDigest": digest, "imageTag": "cpu-latest"}
        assert tags_of(aws, "excluding") == {"v1": first, "v2": second, "cpu-latest": digest}
        assert not aws.requests
        assert engine.images.pull(name, tag="cpu-latest", auth_config=aws.login()).id == image
        engine.images.remove(f"{name}:cpu-latest")
    with pytest.raises(ClientError) as error:
        ecr.put_image(repositoryName="excluding", imageManifest=manifest, imageTag="cpu-latest")
    assert error.value.response["Error"]["Code"] == "ImageAlreadyExistsException"


@given(st.text("ab*.+-", max_size=6), st.text("ab.+-", max_size=8))
def test_a_filter_is_a_wildcard(text, tag):
    def matches(text: str, tag: str) -> bool:
        if not text:
            return not tag
        if text[0] == "*":
            return matches(text[1:], tag) or (bool(tag) and matches(text, tag[1:]))
        return bool(tag) and tag[0] == text[0] and matches(text[1:], tag[1:])

    assert bool(_wildcard(text).fullmatch(tag)) == matches(text, tag)


def test_the_api_refuses_as_often_as_it_is_told(aws, repository):
    ecr = aws.client("ecr")
    aws.fail_api("DescribeRepositories", "ThrottlingException", times=2)
    for _ in range(2):
        with pytest.raises(ClientError) as error:
            ecr.describe_repositories()
        assert error.value.response["Error"]["Code"] == "ThrottlingException"
    assert repository in [each["repositoryName"] for each in ecr.describe_repositories()["repositories"]]
    aws.fail_api("GetCallerIdentity", "ExpiredTokenException", status=403)
    with pytest.raises(ClientError, match="ExpiredTokenException"):
        aws.client("sts").get_caller_identity()
    assert aws.client("sts").get_caller_identity()["Account"] == aws.account
    assert aws.calls[-5:] == ["DescribeRepositories"] * 3 + ["GetCallerIdentity"] * 2


def test_a_status_on_demand(aws, repository, push):
    aws.fail_registry("PUT", "/manifests/", 500, times=20)
    assert "Internal Server Error" in push(repository, "v1")
    assert tags_of(aws, repository) == {}
    aws.release()
    push(repository, "v1")


def test_a_connection_is_cut_in_the_middle(engine, aws, repository):
    name = f"{aws.host()}/{repository}"
    with tiny_image(engine, f"{name}:v1", os.urandom(300_000)) as image:
        aws.fail_registry("PATCH", "/blobs/uploads/", "reset")
        engine.images.push(name, tag="v1", auth_config=aws.login())  # the engine itself tries once more
    cut = [asked for asked in aws.requests if not asked.status]
    assert [asked.method for asked in cut] == ["PATCH"]
    assert cut[0].received > 0
    assert "v1" in tags_of(aws, repository)

    aws.requests.clear()
    aws.fail_registry("GET", "/manifests/", "reset", times=20)
    with pytest.raises(APIError, match="connection reset by peer"):
        engine.images.pull(name, tag="v1", auth_config=aws.login())
    assert all(asked.sent > 100 for asked in aws.requests if "/manifests/" in asked.path and asked.method == "GET")
    aws.release()
    aws.fail_registry("GET", "/blobs/", "reset")
    assert engine.images.pull(name, tag="v1", auth_config=aws.login()).id == image
    engine.images.remove(f"{name}:v1")


def test_a_request_hangs_until_it_is_released(aws, repository, push):
    aws.fail_registry("PUT", "/manifests/", "hang")
    ended: list[str] = []
    pushing = threading.Thread(target=lambda: ended.append(push(repository, "v1")))
    pushing.start()
    try:
        deadline = time.monotonic() + 60
        while not any(asked.method == "PUT" and "/uploads/" in asked.path for asked in aws.requests):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        pushing.join(1.5)
        assert pushing.is_alive()
        assert not ended
    finally:
        aws.release()
        pushing.join(60)
    assert not pushing.is_alive()


def test_the_client_logs_in(aws, docker, tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    with pytest.raises(AssertionError, match="403 Forbidden"):
        docker("login", "-u", "AWS", "-p", aws.token(expires_in=-1), f"https://{aws.host()}")
    docker("login", "-u", "AWS", "-p", aws.token(), f"https://{aws.host()}")
    assert aws.host() in str(json.loads((tmp_path / "config.json").read_text()))


BEING_KILLED = textwrap.dedent("""
    import signal, os, sys
    from tests.doubles.aws import emulated_aws
    with emulated_aws(sys.argv[1]) as aws:
        print(aws.authority.parent, flush=True)
        signal.pause()
""")


def test_nothing_is_left_not_even_by_a_killed_run(aws):
    def not_ours() -> list[str]:
        return [line for line in HOSTS.read_text().splitlines() if MARK not in line]

    before = not_ours()
    killed, second = (f"{secrets.randbelow(10**12):012}" for _ in range(2))
    host = aws.host(account=killed)
    with subprocess.Popen(
        [sys.executable, "-c", BEING_KILLED, killed], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        folder = Path(child.stdout.readline().strip())
        child.kill()
    assert folder.is_dir()
    assert (CERTIFICATES / host).is_dir()
    assert f"{MARK}, process {child.pid}, {folder}" in HOSTS.read_text()

    # Beside the one of this module, whose names stay what they are.
    with emulated_aws(second) as other:
        text = HOSTS.read_text()
        assert host not in text
        assert not folder.exists()
        assert not (CERTIFICATES / host).exists()
        assert other.host() in text
        assert aws.host() in text
        other.client("ecr").create_repository(repositoryName="own")
        names = [each["repositoryName"] for each in aws.client("ecr").describe_repositories()["repositories"]]
        assert "own" not in names
        assert (CERTIFICATES / other.host()).is_dir()
    assert not_ours() == before
    assert other.host() not in HOSTS.read_text()
    assert not (CERTIFICATES / other.host()).exists()
    assert (CERTIFICATES / aws.host()).is_dir()
    with emulated_aws(second) as again:
        assert again.client("ecr").describe_repositories()["repositories"] == []


def test_one_name_is_held_by_one_run(aws):
    with pytest.raises(TimeoutError, match="emulated by another process"), emulated_aws(aws.account, wait_s=0.5):
        pass
