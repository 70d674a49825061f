"""`push` against a registry with ECR's rules: what it refuses, and what it leaves when something goes wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.doubles.tiny import tiny_image
from tests.support.build_records import record_of
from tests.support.push_fixtures import OWN, ROOT, SHARED, moving, one, refused, tags_of
from trainwright.build import store
from trainwright.catalog.catalog import load_catalog
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.push import ecr, patience
from trainwright.push.published import moment
from trainwright.push.tags import tags_of as tags_of_plan

pytest_plugins = ["tests.support.push_fixtures"]


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
    monkeypatch.setattr(patience, "TRIES", 3)
    aws.fail_registry("PUT", "/manifests/", status, times=20)
    assert refused(push(image), "busy" if status == 429 else "network")["place"].startswith(aws.host())
    assert tags_of(aws, words) == {}
    sent = aws.uploaded()
    assert sent > SHARED
    aws.release()
    aws.requests.clear()
    row = one(push(image))
    assert aws.uploaded() < SHARED  # the proof, which follows the image
    assert (row["layers_sent"], row["layers_present"]) == (0, 2)


def test_the_tags_of_a_set_move_once_all_of_it_is_there(aws, plan, make, image, push, words, monkeypatch):
    monkeypatch.setattr(patience, "TRIES", 2)
    other = resolve(make_request(framework="pytorch", cuda="cu124"), load_catalog())
    second = make(os.urandom(OWN), of=other)
    aws.fail_registry("PUT", f"/manifests/.*{other.id[:12]}", 500, times=20)
    failed = refused(push(image, second), "network")
    # The first is there, with its proof, under the tag that is its own; no tag that another image may have had moved.
    ((tag, digest),) = tags_of(aws, words).items()
    assert tag.endswith(plan.id[:12])
    assert failed["pushed"] == []
    assert failed["arrived"] == [f"{aws.host()}/{words[1]}@{digest}"]
    aws.release()
    done = push(image, second)
    assert done.code == 0, done.err
    rows = done.json["images"]
    assert rows[0]["digest"] == digest
    assert tags_of(aws, words) == {tag["tag"]: row["digest"] for row in rows for tag in row["tags"]}
    assert [sum(tag["kind"] == "moving" for tag in row["tags"]) for row in rows] == [2, 2]


def test_a_registry_that_is_silent(aws, image, push, words):
    aws.fail_registry("PUT", "/manifests/", "hang")
    started = time.monotonic()
    refused(push(image, more=("--create", "--stall", "2")), "stall")
    assert time.monotonic() - started < 60
    assert tags_of(aws, words) == {}


def test_a_registry_that_nobody_answers_for(image, push, monkeypatch):
    monkeypatch.setattr(patience, "TRIES", 3)
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


@pytest.mark.parametrize("other", [0, 1])
def test_who_comes_second_finds_the_tag_taken(engine, aws, plan, images, push, words, other):
    """Two pushes at a time: the other one is done while this one waits for its manifest to be taken."""
    name = f"{aws.host()}/{words[1]}"
    created = engine.images.get(images[0]).attrs["Created"]
    tag = tags_of_plan(plan, moment(created), load_catalog()).immutable
    aws.fail_registry("PUT", "/manifests/", "hang")

    def overtake() -> None:
        end = time.monotonic() + 120  # the push may have failed before
        while not any(asked.method == "PUT" and "/uploads/" in asked.path for asked in aws.requests):
            if time.monotonic() > end:
                return
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
        assert (row["layers_sent"], row["layers_present"]) == (0, 2)
        assert set(moving(tags_of(aws, words), plan).values()) == {row["digest"]}
    finally:
        for tag in engine.images.get(image).tags:
            if aws.host() in tag:
                engine.images.remove(tag)
