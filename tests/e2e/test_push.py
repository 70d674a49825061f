"""`push` against a registry with ECR's rules: what it leaves there, and what it leaves when something goes wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import docker as docker_sdk
import jsonschema
import pytest

from tests.doubles.tiny import tiny_image
from tests.publishing import record_of
from trainwright import store
from trainwright.catalog import load_catalog
from trainwright.plan import Plan
from trainwright.request import make_request
from trainwright.resolve import resolve

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = ROOT / "trainwright" / "schemas" / "push.schema.json"
Push = Callable[..., Any]


@pytest.fixture(scope="module")
def engine() -> Iterator[docker_sdk.DockerClient]:
    client = docker_sdk.from_env(timeout=300)
    yield client
    client.close()


@pytest.fixture(scope="module")
def plan() -> Plan:
    return resolve(make_request(framework="pytorch", cuda="cpu"), load_catalog())


@pytest.fixture
def build(engine, plan, state, monkeypatch) -> Iterator[Callable[..., str]]:
    """Make an image of a few random layers with the plan's labels and a record; returns its name."""
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(state))
    with ExitStack() as stack:

        def make(*layers: bytes, smoke: bool = True) -> str:
            name = f"trainwright-test/push:{uuid.uuid4().hex[:8]}"
            content = layers or (os.urandom(200_000), os.urandom(100_000))
            image = stack.enter_context(tiny_image(engine, name, *content, labels=plan.labels))
            store.save(record_of(plan, image, tag=name, smoke=smoke))
            return name

        yield make


@pytest.fixture
def words(aws) -> tuple[str, ...]:
    """The flags of a push to a repository that does not exist yet."""
    return ("--repository", f"team/{uuid.uuid4().hex[:8]}", "--region", "us-west-2", "--progress", "plain", "--json")


@pytest.fixture
def push(program, aws, words, tmp_path) -> Push:
    """Run ``push`` with the words of this test."""

    def run(*images: str, more: tuple[str, ...] = ("--create",), **environment: str) -> Any:
        named = [word for image in images for word in ("--image", image)]
        own = {"DOCKER_CONFIG": str(tmp_path / "docker"), **aws.environment, **environment}
        return program("push", *named, *words, *more, **own)

    return run


def tags_of(aws, words: tuple[str, ...], region: str | None = None) -> dict[str, str]:
    """The digest of every tag, as the API has them."""
    found = aws.client("ecr", region).describe_images(repositoryName=words[1])["imageDetails"]
    return {tag: image["imageDigest"] for image in found for tag in image.get("imageTags", [])}


def moving(tags: dict[str, str], plan: Plan) -> dict[str, str]:
    """Those tags that move."""
    return {tag: digest for tag, digest in tags.items() if plan.id[:12] not in tag}


def one(done: Any) -> dict[str, Any]:
    """The row of a push of one image that went well."""
    assert done.code == 0, done.err[-3000:]
    jsonschema.validate(done.json, json.loads(SCHEMA.read_text()))
    (row,) = done.json["images"]
    return dict(row)


def refused(done: Any, cause: str) -> dict[str, Any]:
    """The document of a refusal."""
    assert done.code == 7, (done.out[-2000:], done.err[-2000:])
    assert done.json["error"] == "registry"
    assert done.json["cause"] == cause, done.json
    assert done.json["remedy"]
    return done.json


def test_an_image_goes_out_and_comes_back(engine, aws, plan, build, push, words, state, tmp_path):
    image = build()
    row = one(push(image, more=("--create", "--tag", "nightly", "--attach-sbom")))
    ecr = aws.client("ecr")

    # The address by digest is the image, for whoever pulls it.
    pulled = engine.images.pull(row["uri"], auth_config=aws.login())
    assert pulled.id == row["image_id"] == engine.images.get(image).id
    engine.images.remove(row["uri"])

    # One immutable tag, the moving ones and the user's, all on that digest.
    immutable, *others = [tag["tag"] for tag in row["tags"]]
    assert immutable.endswith(plan.id[:12])
    assert others == ["nightly", "pytorch-2.13.0-cpu", "pytorch-2.13-cpu"]
    assert tags_of(aws, words) == dict.fromkeys([immutable, *others], row["digest"])
    assert {tag["state"] for tag in row["tags"]} == {"made"}

    # The repository is as the policy has it, and protects the immutable tag.
    described = ecr.describe_repositories(repositoryNames=[words[1]])["repositories"][0]
    assert described["imageTagMutability"] == "IMMUTABLE_WITH_EXCLUSION"
    assert [one["filter"] for one in described["imageTagMutabilityExclusionFilters"]] == ["*-cpu"]
    assert described["imageScanningConfiguration"] == {"scanOnPush": True}
    assert described["encryptionConfiguration"]["encryptionType"] == "AES256"
    policy = json.loads(ecr.get_lifecycle_policy(repositoryName=words[1])["lifecyclePolicyText"])
    assert [rule["selection"]["tagStatus"] for rule in policy["rules"]] == ["untagged", "any"]

    # The bill of materials is there, of type and subject, and beside the record.
    attached = ecr.batch_get_image(repositoryName=words[1], imageIds=[{"imageDigest": row["sbom_digest"]}])
    manifest = json.loads(attached["images"][0]["imageManifest"])
    assert manifest["subject"]["digest"] == row["digest"]
    assert manifest["artifactType"] == "application/vnd.cyclonedx+json"
    sbom = json.loads(Path(row["sbom"]).read_text())
    assert sbom["bomFormat"] == "CycloneDX"
    assert {"torch", "libc6", "metis"} <= {component["name"] for component in sbom["components"]}
    remembered = json.loads(Path(row["record"]).read_text())
    assert [each["uri"] for each in remembered["pushes"]] == [row["uri"]]

    # Nothing is left: no name of ours in the engine, no token on the disk.
    assert not [tag for tag in engine.images.get(image).tags if aws.host() in tag]
    assert not (tmp_path / "docker").exists()
    token = aws.tokens.issue(60)[0][:6]
    assert not [path for path in state.rglob("*") if path.is_file() and token in path.read_text(errors="replace")]


def test_the_same_again_sends_nothing(aws, build, push, words):
    image = build()
    first = one(push(image))
    aws.requests.clear()
    second = one(push(image))
    assert second["uri"] == first["uri"]
    assert {tag["state"] for tag in second["tags"]} == {"there already"}
    assert second["layers_present"] is None
    assert not [asked for asked in aws.requests if asked.method in ("POST", "PATCH", "PUT")]


def test_text_ends_with_what_a_data_scientist_needs(program, aws, build, words):
    done = program("push", "--image", build(), *words[:-1], "--create", **aws.environment)
    assert done.code == 0, done.err
    first, second = done.out.strip().splitlines()[-2:]
    assert first.startswith("from sagemaker")
    assert f'image_uri="{aws.host()}/{words[1]}@sha256:' in second
    compile("\n".join([first, second]), "usage", "exec")


def test_only_what_was_proven_leaves(engine, aws, plan, build, push, words):
    proven = one(push(build()))
    image = build(smoke=False)
    aws.calls.clear()
    done = push(image)
    assert done.code == 6
    assert f"smoke --image {image}" in done.json["remedy"]
    assert not aws.calls  # nobody was even asked

    row = one(push(image, more=("--unproven",)))
    try:
        assert row["proven"] is False
        immutable, *others = row["tags"]
        assert immutable["tag"].endswith("-untested")
        assert {tag["state"] for tag in others} == {"kept"}
        assert set(moving(tags_of(aws, words), plan).values()) == {proven["digest"]}
        pulled = engine.images.pull(row["uri"], auth_config=aws.login())
        assert "no smoke tests" in pulled.labels["io.trainwright.unproven-push"]
        engine.images.remove(row["uri"])
        # The marked image stays the same, and so does its tag.
        assert one(push(image, more=("--unproven",)))["digest"] == row["digest"]
        # The record is still that of the image that was built.
        kept = store.load(str(engine.images.get(image).id))
        assert kept is not None and kept.smoke is None
    finally:
        for tag in engine.images.get(row["image_id"]).tags:
            engine.images.remove(tag)


def test_a_label_that_is_not_true_of_the_image_stays_here(engine, build, push, state):
    image = build()
    record = store.load(str(engine.images.get(image).id))
    assert record is not None
    record.probe["facts"]["pytorch"]["version"] = "2.12.0+cpu"
    store.save(record)
    done = push(image, more=("--create", "--unproven"))
    assert done.code == 6
    assert {"pytorch"} <= {row["component"] for row in done.json["differences"]}


def test_an_image_of_elsewhere_is_refused(engine, push):
    with tiny_image(engine, "trainwright-test/push:foreign", os.urandom(1000)):
        done = push("trainwright-test/push:foreign")
    assert done.code == 2
    assert "./invoke build" in done.json["remedy"]


def test_a_repository_that_is_missing(build, push):
    assert "--create" in refused(push(build(), more=()), "repository")["remedy"]


def test_a_token_that_ends_in_the_middle_is_renewed(aws, build, push):
    aws.fail_registry("PUT", "/manifests/", "expire-token")
    assert one(push(build()))["digest"]
    assert aws.calls.count("GetAuthorizationToken") == 2


def test_tokens_that_never_work_end_it(aws, build, push, words, plan):
    aws.token_seconds = -60
    refused(push(build()), "token")
    assert aws.calls.count("GetAuthorizationToken") == 2
    assert tags_of(aws, words) == {}


@pytest.mark.parametrize(("times", "code"), [(2, 0), (20, 7)])
def test_throttling_is_waited_out_within_bounds(aws, build, push, times, code):
    aws.fail_api("DescribeRepositories", "ThrottlingException", times=times)
    done = push(build())
    assert done.code == code
    if code:
        refused(done, "ThrottlingException")
        assert aws.calls.count("DescribeRepositories") == 5


@pytest.mark.parametrize(
    ("operation", "code", "remedy"),
    [
        ("CreateRepository", "AccessDeniedException", "ecr:CreateRepository"),
        ("PutImage", "AccessDeniedException", "ecr:PutImage"),
        ("GetCallerIdentity", "ExpiredTokenException", "aws sso login"),
        ("GetAuthorizationToken", "UnrecognizedClientException", "aws sso login"),
    ],
)
def test_what_aws_refuses(aws, build, push, words, plan, operation, code, remedy):
    aws.fail_api(operation, code, times=20)
    document = refused(push(build()), code)
    assert remedy in document["remedy"]
    if operation == "PutImage":
        # The image is whole and no tag points anywhere else: the next run only sets tags.
        assert document["uri"].endswith(next(iter(tags_of(aws, words).values())))
        assert moving(tags_of(aws, words), plan) == {}


def test_no_credentials(build, push, tmp_path):
    document = refused(push(build(), AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY=""), "NoCredentialsError")
    assert "doctor" in document["remedy"]


def test_a_connection_that_is_lost_in_the_middle_of_a_layer(aws, build, push):
    aws.fail_registry("PATCH", "/blobs/uploads/", "reset")
    assert one(push(build()))["digest"]
    assert [asked.status for asked in aws.requests if asked.method == "PATCH"].count(0) == 1


@pytest.mark.parametrize("status", [500, 429])
def test_a_registry_that_fails_and_then_works_gets_only_what_is_missing(aws, build, push, words, status):
    aws.fail_registry("PUT", "/manifests/", status, times=20)
    image = build()
    assert refused(push(image), "busy" if status == 429 else "network")["place"].startswith(aws.host())
    assert tags_of(aws, words) == {}
    sent = aws.uploaded()
    assert sent > 300_000
    aws.release()
    aws.requests.clear()
    row = one(push(image))
    assert aws.uploaded() == 0
    assert row["layers_sent"] == 0 and row["layers_present"] == 2


def test_a_registry_that_is_silent(aws, build, push, words):
    aws.fail_registry("PUT", "/manifests/", "hang")
    started = time.monotonic()
    refused(push(build(), more=("--create", "--stall", "3")), "stall")
    assert time.monotonic() - started < 60
    assert tags_of(aws, words) == {}


def test_a_registry_that_nobody_answers_for(build, push):
    # Twelve digits that no name of this machine belongs to.
    done = push(build(), more=("--create", "--account", "999999999999"))
    document = refused(done, "network")
    assert document["place"].startswith("999999999999.dkr.ecr.")


def test_a_full_disk(aws, build, push, tmp_path, engine, plan, monkeypatch):
    if os.geteuid() != 0:
        pytest.skip("a disk of its own needs root")
    folder = tmp_path / "full"
    folder.mkdir()
    image = build()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=True)
    try:
        monkeypatch.setenv("TRAINWRIGHT_STATE", str(folder))
        store.save(record_of(plan, str(engine.images.get(image).id), tag=image))
        (folder / "ballast").write_bytes(b"0" * (os.statvfs(folder).f_bavail * os.statvfs(folder).f_bsize))
        refused(push(image, TRAINWRIGHT_STATE=str(folder)), "disk")
        assert aws.uploaded() == 0
    finally:
        subprocess.run(["umount", folder], check=True)


def test_an_immutable_tag_belongs_to_one_image(aws, build, push, words, plan):
    first = one(push(build()))
    second = build()
    aws.requests.clear()
    document = refused(push(second), "immutable")
    assert document["uri"] == first["uri"]
    assert aws.uploaded() == 0
    assert set(moving(tags_of(aws, words), plan).values()) == {first["digest"]}

    row = one(push(second, more=("--revision", "2")))
    tags = tags_of(aws, words)
    assert tags[first["tags"][0]["tag"]] == first["digest"]
    assert set(moving(tags, plan).values()) == {row["digest"]}


def test_tags_move_forward_only(aws, build, push, words, plan):
    old = build()
    time.sleep(0.1)
    new = one(push(build()))
    row = one(push(old, more=("--revision", "2")))
    assert [tag["state"] for tag in row["tags"]] == ["made", "kept", "kept"]
    assert set(moving(tags_of(aws, words), plan).values()) == {new["digest"]}


def test_a_tag_of_ones_own_is_moved_as_told_or_refused(aws, build, push, words):
    first, second = build(), build()
    one(push(first, more=("--create", "--tag", "production")))
    document = refused(push(second, more=("--revision", "2", "--tag", "production")), "immutable")
    assert document["uri"].endswith(tags_of(aws, words)[document["uri"].partition("@")[2]] if 0 else document["uri"])
    ecr = aws.client("ecr")
    filters = [{"filterType": "WILDCARD", "filter": one} for one in ("*-cpu", "production")]
    ecr.put_image_tag_mutability(
        repositoryName=words[1],
        imageTagMutability="IMMUTABLE_WITH_EXCLUSION",
        imageTagMutabilityExclusionFilters=filters,
    )
    row = one(push(second, more=("--revision", "2", "--tag", "production")))
    assert tags_of(aws, words)["production"] == row["digest"]


@pytest.mark.parametrize("mutability", ["IMMUTABLE", "MUTABLE"])
def test_a_repository_that_others_made(aws, build, push, words, plan, mutability):
    aws.client("ecr").create_repository(repositoryName=words[1], imageTagMutability=mutability)
    done = push(build(), more=())
    row = one(done)
    assert len(done.json["notices"]) == 1
    assert len(row["tags"]) == (1 if mutability == "IMMUTABLE" else 3)
    assert len(tags_of(aws, words)) == len(row["tags"])


def test_images_share_layers_and_regions_get_copies(engine, aws, plan, build, push, words):
    shared = os.urandom(300_000)
    first, second = build(shared, os.urandom(1000)), build(shared, os.urandom(1000))
    # Two images of one plan and day: one call cannot give both a tag.
    done = push(first, second)
    assert done.code == 2
    row = one(push(first))
    aws.requests.clear()
    one(push(second, more=("--revision", "2")))
    assert aws.uploaded() < 100_000

    done = push(first, more=("--create", "--region", "eu-central-1"))
    assert done.code == 0, done.err
    here, there = done.json["images"]
    assert here["uri"] == row["uri"]
    assert there["digest"] == row["digest"]
    assert there["uri"].startswith(aws.host("eu-central-1"))
    assert set(moving(tags_of(aws, words, "eu-central-1"), plan).values()) == {row["digest"]}


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_whoever_ends_it_in_the_middle_leaves_no_tag_on_half_an_image(
    engine, aws, plan, build, push, words, environment, end
):
    before = one(push(build()))
    image = build()
    aws.requests.clear()
    aws.fail_registry("PUT", "/manifests/", "hang")
    argv = [str(Path(sys.executable).with_name("invoke")), "push", "--image", image, *words, "--revision", "2"]
    with subprocess.Popen(
        argv,
        cwd=ROOT,
        env={**environment, **aws.environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as running:
        deadline = time.monotonic() + 60
        while not any(asked.method == "PUT" and "/uploads/" in asked.path for asked in aws.requests):
            assert time.monotonic() < deadline and running.poll() is None, running.communicate()
            time.sleep(0.05)
        time.sleep(0.5)
        assert running.poll() is None
        running.send_signal(end)
        _, said = running.communicate(timeout=60)
    assert running.returncode == (130 if end == signal.SIGINT else -signal.SIGKILL), said
    assert set(tags_of(aws, words).values()) == {before["digest"]}
    if end == signal.SIGINT:
        assert not [tag for tag in engine.images.get(image).tags if aws.host() in tag]

    aws.release()
    aws.requests.clear()
    try:
        row = one(push(image, more=("--revision", "2")))
        assert aws.uploaded() == 0
        assert set(moving(tags_of(aws, words), plan).values()) == {row["digest"]}
    finally:
        for tag in engine.images.get(image).tags:
            if aws.host() in tag:
                engine.images.remove(tag)
