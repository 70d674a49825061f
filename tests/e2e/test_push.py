"""`push` against a registry with ECR's rules: what it leaves there, and what it leaves when something goes wrong."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker as docker_sdk
import jsonschema
import pytest
from invoke.context import Context
from invoke.exceptions import Exit

from tests.doubles.aws import emulated_aws
from tests.doubles.tiny import tiny_image
from tests.publishing import record_of
from trainwright import store
from trainwright.catalog import load_catalog
from trainwright.estimator.registry import ecr_labels
from trainwright.plan import Plan
from trainwright.publish import ecr, upload
from trainwright.publish.references import Place
from trainwright.publish.registry import moment
from trainwright.publish.settings import may_move
from trainwright.publish.tags import tags_of as tags_of_plan
from trainwright.request import make_request
from trainwright.resolve import resolve
from trainwright.ship_verbs import push as push_verb
from trainwright.site import Site

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = ROOT / "trainwright" / "schemas" / "push.schema.json"
Push = Callable[..., "Finished"]
SHARED, OWN = 300_000, 20_000  # bytes that do not compress


@dataclass(frozen=True)
class Finished:
    """A finished run of the verb."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one document on standard output."""
        return dict(json.loads(self.out))


@pytest.fixture(scope="module")
def engine() -> Iterator[docker_sdk.DockerClient]:
    client = docker_sdk.from_env(timeout=300)
    yield client
    client.close()


@pytest.fixture(scope="module")
def plan() -> Plan:
    return resolve(make_request(framework="pytorch", cuda="cpu"), load_catalog())


@pytest.fixture(scope="module")
def make(engine, plan, state) -> Iterator[Callable[..., str]]:
    """Make an image of a few random layers with the plan's labels and a record; returns its name."""
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAINWRIGHT_STATE", str(state))

        def run(*layers: bytes, smoke: bool = True) -> str:
            name = f"trainwright-test/push:{uuid.uuid4().hex[:8]}"
            image = stack.enter_context(tiny_image(engine, name, *layers, labels=plan.labels))
            store.save(record_of(plan, image, tag=name, smoke=smoke))
            return name

        yield run


@pytest.fixture(scope="module")
def images(make) -> tuple[str, str]:
    """Two images of one plan that share a layer, the older one first. Every test has a repository of its own."""
    shared = os.urandom(SHARED)
    first = make(shared, os.urandom(OWN))
    return first, make(shared, os.urandom(OWN))


@pytest.fixture
def image(images) -> str:
    return str(images[0])


@pytest.fixture
def words(aws) -> tuple[str, ...]:
    """The flags of a push to a repository that does not exist yet."""
    return ("--repository", f"team/{uuid.uuid4().hex[:8]}", "--region", "us-west-2", "--progress", "plain", "--json")


@pytest.fixture
def push(aws, words, state, monkeypatch) -> Push:
    """Run the verb with the words of this test; in this process, as it is run often."""

    def run(*images: str, more: tuple[str, ...] = ("--create",), **environment: str) -> Finished:
        flags: dict[str, Any] = {"image": list(images), "region": [], "tag": []}
        given = iter([*words, *more])
        for flag in given:
            name = flag.removeprefix("--").replace("-", "_")
            if name in ("create", "json", "unproven", "attach_sbom"):
                flags[name] = True
            elif isinstance(flags.get(name), list):
                flags[name].append(next(given))
            else:
                flags[name] = {"revision": int, "stall": float}.get(name, str)(next(given))
        out, err, code = io.StringIO(), io.StringIO(), 0
        own = {"TRAINWRIGHT_STATE": str(state), **aws.child_environment(), **environment}
        with monkeypatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            for name in [name for name in os.environ if name.startswith("AWS_")]:
                patch.delenv(name)
            for name, value in own.items():
                patch.setenv(name, value)
            try:
                push_verb(Context(), **flags)
            except Exit as ended:
                code = ended.code
        return Finished(code, out.getvalue(), err.getvalue())

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


def test_an_image_goes_out_and_comes_back(program, engine, aws, plan, image, words, state, tmp_path):
    more = ("--create", "--tag", "nightly", "--attach-sbom")
    row = one(
        program("push", "--image", image, *words, *more, DOCKER_CONFIG=str(tmp_path / "docker"), **aws.environment)
    )
    api = aws.client("ecr")

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
    described = api.describe_repositories(repositoryNames=[words[1]])["repositories"][0]
    assert described["imageTagMutability"] == "MUTABLE_WITH_EXCLUSION"
    assert not may_move(described, immutable)
    assert all(may_move(described, tag) for tag in others)
    assert described["imageScanningConfiguration"] == {"scanOnPush": True}
    assert described["encryptionConfiguration"]["encryptionType"] == "AES256"
    policy = json.loads(api.get_lifecycle_policy(repositoryName=words[1])["lifecyclePolicyText"])
    assert [rule["selection"]["tagStatus"] for rule in policy["rules"]] == ["untagged", "any"]

    # The bill of materials is there, of type and subject, and beside the record.
    attached = api.batch_get_image(repositoryName=words[1], imageIds=[{"imageDigest": row["sbom_digest"]}])
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


def test_the_same_again_sends_nothing_and_says_how_to_use_it(program, aws, image, push, words):
    first = one(push(image, more=("--create", "--attach-sbom")))
    aws.requests.clear()
    second = one(push(image, more=("--attach-sbom",)))
    assert second["sbom_digest"] == first["sbom_digest"]
    assert second["uri"] == first["uri"]
    assert {tag["state"] for tag in second["tags"]} == {"there already"}
    assert second["layers_present"] is None
    assert not [asked for asked in aws.requests if asked.method in ("POST", "PATCH", "PUT")]

    done = program("push", "--image", image, *words[:-1], **aws.environment)
    assert done.code == 0, done.err
    lines = done.out.strip().splitlines()[-2:]
    assert lines[0].startswith("from sagemaker")
    assert f'image_uri="{first["uri"]}"' in lines[1]
    compile("\n".join(lines), "usage", "exec")


def test_labels_are_read_in_the_registry(aws, engine, image, push, words, monkeypatch):
    """As ``estimator`` reads them, without a pull; an index leads to its image for x86-64."""
    row = one(push(image))
    for name, value in aws.environment.items():
        monkeypatch.setenv(name, value)
    place, labels = Place(row["account"], row["region"], row["repository"]), engine.images.get(image).labels
    assert labels["io.trainwright.framework"] == "pytorch"
    assert ecr_labels(place, Site(), digest=row["digest"]) == labels
    arm, amd = ({"architecture": name, "os": "linux"} for name in ("arm64", "amd64"))
    kind, size = "application/vnd.docker.distribution.manifest.v2+json", 1000
    images = [
        {"mediaType": kind, "size": size, "digest": f"sha256:{'0' * 64}", "platform": arm},
        {"mediaType": kind, "size": size, "digest": row["digest"], "platform": amd},
    ]
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": images}
    aws.client("ecr").put_image(
        repositoryName=row["repository"],
        imageManifest=json.dumps(index),
        imageManifestMediaType=index["mediaType"],
        imageTag="several",
    )
    assert ecr_labels(place, Site(), tag="several") == labels
    assert ecr_labels(place, Site(), tag="absent") is None
    aws.fail_registry("GET", "/blobs/", 404)
    assert ecr_labels(place, Site(), digest=row["digest"]) is None


def test_only_what_was_proven_leaves(engine, aws, plan, make, images, push, words):
    proven = one(push(images[0]))
    image = make(os.urandom(OWN), smoke=False)
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


def test_an_image_whose_labels_are_not_true_stays_here(engine, make, push, plan, monkeypatch, state):
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(state))
    image = make(os.urandom(OWN))
    record = record_of(plan, str(engine.images.get(image).id), tag=image)
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


def test_a_repository_that_is_missing(image, push):
    assert "--create" in refused(push(image, more=()), "repository")["remedy"]


def test_a_token_that_ends_in_the_middle_is_renewed(aws, image, push):
    aws.fail_registry("PUT", "/manifests/", "expire-token")
    assert one(push(image))["digest"]
    assert aws.calls.count("GetAuthorizationToken") == 2


def test_tokens_that_never_work_end_it(aws, image, push, words):
    aws.token_seconds = -60
    refused(push(image), "token")
    assert aws.calls.count("GetAuthorizationToken") == 2
    assert tags_of(aws, words) == {}


@pytest.mark.parametrize(("times", "code"), [(2, 0), (20, 7)])
def test_throttling_is_waited_out_within_bounds(aws, image, push, monkeypatch, times, code):
    monkeypatch.setattr(ecr, "TRIES", 3)
    aws.fail_api("DescribeRepositories", "ThrottlingException", times=times)
    done = push(image)
    assert done.code == code
    if code:
        refused(done, "ThrottlingException")
        assert aws.calls.count("DescribeRepositories") == 3


@pytest.mark.parametrize(
    ("operation", "code", "remedy"),
    [
        ("CreateRepository", "AccessDeniedException", "ecr:CreateRepository"),
        ("PutImage", "AccessDeniedException", "ecr:PutImage"),
        ("GetCallerIdentity", "ExpiredTokenException", "aws sso login"),
        ("GetAuthorizationToken", "UnrecognizedClientException", "aws sso login"),
    ],
)
def test_what_aws_refuses(aws, image, push, words, plan, operation, code, remedy):
    aws.fail_api(operation, code, times=20)
    document = refused(push(image), code)
    assert remedy in document["remedy"]
    if operation == "PutImage":
        # The image is whole and no tag points anywhere else: the next run only sets tags.
        assert document["uri"].endswith(next(iter(tags_of(aws, words).values())))
        assert moving(tags_of(aws, words), plan) == {}


def test_no_credentials(image, push):
    document = refused(push(image, AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY=""), "NoCredentialsError")
    assert "doctor" in document["remedy"]


def test_a_connection_that_is_lost_in_the_middle_of_a_layer(aws, image, push):
    aws.fail_registry("PATCH", "/blobs/uploads/", "reset")
    assert one(push(image))["digest"]
    assert [asked.status for asked in aws.requests if asked.method == "PATCH"].count(0) == 1


@pytest.mark.parametrize("status", [500, 429])
def test_a_registry_that_fails_and_then_works_gets_only_what_is_missing(aws, image, push, words, monkeypatch, status):
    monkeypatch.setattr(upload, "FIRST_PAUSE", 0.1)
    aws.fail_registry("PUT", "/manifests/", status, times=20)
    assert refused(push(image), "busy" if status == 429 else "network")["place"].startswith(aws.host())
    assert tags_of(aws, words) == {}
    sent = aws.uploaded()
    assert sent > SHARED
    aws.release()
    aws.requests.clear()
    row = one(push(image))
    assert aws.uploaded() == 0
    assert (row["layers_sent"], row["layers_present"]) == (0, 2)


def test_a_registry_that_is_silent(aws, image, push, words):
    aws.fail_registry("PUT", "/manifests/", "hang")
    started = time.monotonic()
    refused(push(image, more=("--create", "--stall", "2")), "stall")
    assert time.monotonic() - started < 60
    assert tags_of(aws, words) == {}


def test_a_registry_that_nobody_answers_for(image, push, monkeypatch):
    monkeypatch.setattr(upload, "FIRST_PAUSE", 0.1)
    # Twelve digits that no name of this machine belongs to.
    done = push(image, more=("--create", "--account", "999999999999"))
    document = refused(done, "network")
    assert document["place"].startswith("999999999999.dkr.ecr.")


def test_a_full_disk(aws, image, push, tmp_path, engine, plan, monkeypatch):
    if os.geteuid() != 0:
        pytest.skip("a disk of its own needs root")
    folder = tmp_path / "full"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=True)
    try:
        monkeypatch.setenv("TRAINWRIGHT_STATE", str(folder))
        store.save(record_of(plan, str(engine.images.get(image).id), tag=image))
        (folder / "ballast").write_bytes(b"0" * (os.statvfs(folder).f_bavail * os.statvfs(folder).f_bsize))
        refused(push(image, TRAINWRIGHT_STATE=str(folder)), "disk")
        assert aws.uploaded() == 0
    finally:
        subprocess.run(["umount", folder], check=True)


def test_an_immutable_tag_belongs_to_one_image_and_others_move_forward_only(aws, images, push, words, plan):
    first = one(push(images[0]))
    aws.requests.clear()
    document = refused(push(images[1]), "immutable")
    assert document["uri"] == first["uri"]
    assert aws.uploaded() == 0
    assert set(moving(tags_of(aws, words), plan).values()) == {first["digest"]}

    # Shared layers are there; the tags move to the newer image, and not back.
    row = one(push(images[1], more=("--revision", "2")))
    assert 0 < aws.uploaded() < SHARED
    tags = tags_of(aws, words)
    assert tags[first["tags"][0]["tag"]] == first["digest"]
    assert set(moving(tags, plan).values()) == {row["digest"]}
    again = one(push(images[0]))
    assert [tag["state"] for tag in again["tags"]] == ["there already", "kept", "kept"]
    assert set(moving(tags_of(aws, words), plan).values()) == {row["digest"]}


@pytest.mark.parametrize("other", [0, 1])
def test_who_comes_second_finds_the_tag_taken(engine, aws, plan, images, push, words, other):
    """Two pushes at a time: the other one is done while this one waits for its manifest to be taken."""
    name = f"{aws.host()}/{words[1]}"
    created = engine.images.get(images[0]).attrs["Created"]
    tag = tags_of_plan(plan, moment(created)).immutable
    aws.fail_registry("PUT", "/manifests/", "hang")

    def overtake() -> None:
        while not any(asked.method == "PUT" and "/uploads/" in asked.path for asked in aws.requests):
            time.sleep(0.05)
        quicker = engine.images.get(images[other])
        quicker.tag(f"{name}-quicker", tag)
        try:
            push_by_api(aws, engine, quicker, name, tag)
        finally:
            engine.images.remove(f"{name}-quicker:{tag}")
            aws.release()

    thread = threading.Thread(target=overtake)
    thread.start()
    try:
        done = push(images[0])
    finally:
        thread.join()
    if other:
        assert refused(done, "immutable")["uri"].endswith(tags_of(aws, words)[tag])
        assert moving(tags_of(aws, words), plan) == {}
    else:
        assert one(done)["digest"] == tags_of(aws, words)[tag]


def push_by_api(aws, engine, image, name: str, tag: str) -> None:
    """Push an image to another repository, and give it the tag in the first one by PutImage alone."""
    api, repository = aws.client("ecr"), name.partition("/")[2]
    api.create_repository(repositoryName=f"{repository}-quicker")
    for event in engine.images.push(f"{name}-quicker", tag, stream=True, decode=True, auth_config=aws.login()):
        assert "error" not in event, event
    asked = [{"imageTag": tag}]
    found = api.batch_get_image(repositoryName=f"{repository}-quicker", imageIds=asked)["images"][0]
    api.put_image(
        repositoryName=repository,
        imageManifest=found["imageManifest"],
        imageDigest=found["imageId"]["imageDigest"],
        imageManifestMediaType=found["imageManifestMediaType"],
        imageTag=tag,
    )


def test_an_image_without_a_name_is_still_there_afterwards(engine, make, images, push):
    """The engine deletes an image with its last name."""
    name = make(os.urandom(OWN))
    image = engine.images.get(name).id
    repository, _, tag = name.partition(":")
    engine.images.get(images[0]).tag(repository, tag)  # as when an image is built anew: its name moves on
    try:
        assert engine.images.get(image).tags == []
        assert one(push(image))["image_id"] == image
        assert engine.images.get(image).id == image
    finally:
        engine.images.remove(image, force=True)


def test_a_tag_of_ones_own_is_moved_as_told_or_refused(aws, images, push, words):
    first, second = images
    one(push(first, more=("--create", "--tag", "production")))
    row = one(push(second, more=("--revision", "2", "--tag", "production")))
    assert tags_of(aws, words)["production"] == row["digest"]
    may_be_moved(aws, words, "*-cpu")
    document = refused(push(first, more=("--tag", "production")), "immutable")
    assert tags_of(aws, words)["production"] == row["digest"]
    assert row["digest"] not in document["uri"]
    may_be_moved(aws, words, "*-cpu", "production")
    row = one(push(first, more=("--tag", "production")))
    assert tags_of(aws, words)["production"] == row["digest"]


def may_be_moved(aws, words, *wildcards):
    """From now on tags of the repository are immutable, but for these."""
    aws.client("ecr").put_image_tag_mutability(
        repositoryName=words[1],
        imageTagMutability="IMMUTABLE_WITH_EXCLUSION",
        imageTagMutabilityExclusionFilters=[{"filterType": "WILDCARD", "filter": one} for one in wildcards],
    )


@pytest.mark.parametrize("mutability", ["IMMUTABLE", "MUTABLE"])
def test_a_repository_that_others_made(aws, image, push, words, mutability):
    aws.client("ecr").create_repository(repositoryName=words[1], imageTagMutability=mutability)
    done = push(image, more=())
    row = one(done)
    assert len(done.json["notices"]) == 1
    assert len(row["tags"]) == (1 if mutability == "IMMUTABLE" else 3)
    assert len(tags_of(aws, words)) == len(row["tags"])


def test_regions_get_copies(aws, plan, images, push, words):
    # Two images of one plan and day: one call cannot give both a tag.
    assert push(*images).code == 2
    done = push(images[0], more=("--create", "--region", "eu-central-1"))
    assert done.code == 0, done.err
    here, there = done.json["images"]
    assert there["digest"] == here["digest"]
    assert there["uri"].startswith(aws.host("eu-central-1"))
    assert set(moving(tags_of(aws, words, "eu-central-1"), plan).values()) == {there["digest"]}


def test_the_registry_of_another_account_in_china(program, image):
    """A host name of another form, and a registry that is not the caller's."""
    caller, owner = (f"{uuid.uuid4().int % 10**12:012d}" for _ in range(2))
    with emulated_aws(caller, ("cn-north-1",), (owner,)) as china:
        repository = f"{china.host(account=owner)}/team/shared"
        words = ("--image", image, "--repository", repository, "--create", "--progress", "none", "--json")
        row = one(program("push", *words, **china.environment))
        assert row["uri"].startswith(f"{owner}.dkr.ecr.cn-north-1.amazonaws.com.cn/team/shared@sha256:")
        api = china.client("ecr")
        named = {"registryId": owner, "repositoryName": "team/shared"}
        assert api.describe_images(**named)["imageDetails"][0]["imageDigest"] == row["digest"]
        assert api.describe_repositories()["repositories"] == []  # none in the caller's own


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_whoever_ends_it_in_the_middle_leaves_no_tag_on_half_an_image(
    engine, aws, plan, images, push, words, environment, end
):
    before, image = one(push(images[0])), images[1]
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
