"""What `push` leaves in a registry with ECR's rules: images, tags, the repository, copies in other regions."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.aws import emulated_aws
from tests.support.documents import validated
from tests.support.push_fixtures import OWN, SHARED, moving, one, refused, tags_of
from trainwright.build import store
from trainwright.estimator.image_labels import ecr_labels
from trainwright.push.references import PushPlace
from trainwright.push.repository import load_policy
from trainwright.push.settings import may_move
from trainwright.site.site import Site

pytest_plugins = ["tests.support.push_fixtures"]


def test_an_image_goes_out_and_comes_back(program, engine, aws, plan, image, words, state, tmp_path):
    more = ("--create", "--tag", "nightly")
    places = {"DOCKER_CONFIG": str(tmp_path / "docker"), **aws.environment}
    with aws.mounting():  # layers that another module's repository has are not compressed again
        row = one(program("push", "--image", image, *words, *more, **places))
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
    # tests/unit/push/test_lifecycle.py says what becomes of an image.
    assert policy == json.loads(load_policy().lifecycle_text())

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


def test_with_a_soci_index_the_engine_pulls_the_same_image(engine, aws, make, push, words):
    image = make(os.urandom(11 << 20), os.urandom(OWN))
    (ahead,) = validated(push(image, more=("--create", "--soci", "--dry-run")).out)["images"]
    row = one(push(image, more=("--create", "--soci")))
    assert [(tag["tag"], tag["state"]) for tag in row["tags"]] == [(tag["tag"], tag["state"]) for tag in ahead["tags"]]
    assert (row["soci"]["made"], row["soci"]["layers"], row["digest"]) == (True, 1, row["soci"]["index"])
    immutable, indexed, *others = [tag["tag"] for tag in row["tags"]]
    assert tags_of(aws, words) == {immutable: row["soci"]["pushed_image"]} | dict.fromkeys(
        [indexed, *others], row["digest"]
    )
    engine.images.get(image).remove(force=True)
    pulled = engine.images.pull(row["uri"], auth_config=aws.login())
    assert pulled.id == row["image_id"]
    engine.images.remove(row["uri"])
    place = PushPlace(aws.account, aws.regions[0], words[1])
    with pytest.MonkeyPatch.context() as patch:
        for name, value in aws.child_environment().items():
            patch.setenv(name, value)
        labels = ecr_labels(place, Site(), tag=others[0])
    assert labels is not None
    assert labels["io.trainwright.plan"] == row["plan"]


def test_a_dry_run_says_what_the_push_then_does(aws, images, push, words):
    def ahead(image: str, *more: str) -> dict[str, Any]:
        aws.requests.clear()
        (row,) = validated(push(image, more=("--dry-run", *more)).out)["images"]
        assert not [asked for asked in aws.requests if asked.method in ("PATCH", "PUT", "DELETE")]
        return row

    def states(row: dict[str, Any]) -> list[tuple[str, str]]:
        return [(tag["tag"], tag["state"]) for tag in row["tags"]]

    older, newer = images
    refused(push(older, more=("--dry-run",)), "repository")
    # A job of a batch: its fixed tag and its own ones alone; the last job moves the others.
    left = ("--create", "--leave-tags", "--tag", "own")
    assert [tag for tag, _ in states(ahead(older, *left))] == [tag for tag, _ in states(one(push(older, more=left)))]
    assert len(tags_of(aws, words)) == 2 and "own" in tags_of(aws, words)
    aws.client("ecr").delete_repository(repositoryName=words[1], force=True)
    first = ahead(older, "--create", "--tag", "nightly")
    assert (first["exists"], first["there"]) == (False, False)
    assert not [
        made for made in aws.client("ecr").describe_repositories()["repositories"] if made["repositoryName"] == words[1]
    ]
    assert states(first) == states(one(push(older, more=("--create", "--tag", "nightly"))))

    again = ahead(older, "--tag", "nightly")
    assert (again["exists"], again["there"], {state for _, state in states(again)}) == (True, True, {"there already"})

    second = ahead(newer, "--revision", "2", "--tag", "nightly")
    assert [state for _, state in states(second)] == ["made", "moved", "moved", "moved"]
    assert states(second) == states(one(push(newer, more=("--revision", "2", "--tag", "nightly"))))
    clash = refused(push(newer, more=("--dry-run",)), "immutable")
    assert clash["place"].startswith(f"{aws.host()}/{words[1]}:")


def test_the_same_again_sends_nothing_and_says_how_to_use_it(program, aws, image, push, words):
    first = one(push(image, more=("--create",)))
    aws.requests.clear()
    second = one(push(image, more=()))
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
    place, labels = PushPlace(row["account"], row["region"], row["repository"]), engine.images.get(image).labels
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
