"""Moving tags in a registry with ECR's rules: two that push at the same time, an index, and what people decide."""

from __future__ import annotations

import io
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier
from typing import Any

import jsonschema
import pytest
from invoke.context import Context
from invoke.exceptions import Exit

from tests.support.registry_images import index_of, push_image
from trainwright.cli.tasks import VerbTask
from trainwright.push.ecr import Ecr, ImageManifest
from trainwright.push.moving import Move, move
from trainwright.push.references import PushPlace
from trainwright.push.registry import Registry
from trainwright.push.tag_log import Decision, TagLog, standing
from trainwright.site.site import Site
from trainwright.verbs.tags import tags as verb

DAY = datetime(2026, 11, 1, tzinfo=UTC)
ROUNDS = 10
SCHEMA = Path(__file__).resolve().parents[2] / "trainwright" / "schemas" / "tags.schema.json"


@pytest.fixture
def place(aws, repository, monkeypatch) -> PushPlace:
    aws.lend(monkeypatch)
    return PushPlace(aws.account, aws.regions[0], repository)


def open_place(place: PushPlace) -> tuple[Ecr, Registry]:
    ecr = Ecr(place, Site())
    return ecr, Registry(ecr, Site())


def push(place: PushPlace, image: ImageManifest, tag: str, meet: Barrier | None = None) -> Move:
    """Move a tag as ``push`` does, with clients of its own."""
    ecr, registry = open_place(place)
    new = registry.published(image)
    assert new is not None
    if meet is not None:
        meet.wait()
    return move(ecr, registry, image, new, tag)


def test_two_that_push_at_the_same_time_leave_the_newer_image(place):
    ecr, registry = open_place(place)
    older = push_image(ecr, registry, b"a", tag="older", version="2.6.0", built=DAY)
    newer = push_image(ecr, registry, b"b", tag="newer", version="2.6.0", built=DAY + timedelta(days=1))
    with ThreadPoolExecutor(2) as both:
        for number in range(ROUNDS):
            tag, meet = f"pytorch-2.6-cu12{number}", Barrier(2)
            moves = [both.submit(push, place, image, tag, meet) for image in (older, newer)]
            assert moves[1].result().state in {"made", "moved"}
            moves[0].result()
            assert ecr.digest(tag) == newer.digest
            log = TagLog(ecr, registry, tag).read()
            assert standing(log).digest == newer.digest
            assert {one.what for one in log} == {"pushed"}


def test_a_tag_on_an_index_moves_on(place):
    ecr, registry = open_place(place)
    first = push_image(ecr, registry, b"a", tag="first", version="2.6.0", built=DAY)
    second = push_image(ecr, registry, b"b", tag="second", version="2.6.0", built=DAY + timedelta(days=1))
    push(place, first, "moving")
    around = index_of(ecr, first, "moving")
    assert registry.published(around) == registry.published(first)
    assert push(place, first, "moving").state == "moved"
    index_of(ecr, first, "moving")
    assert push(place, second, "moving").state == "moved"
    assert ecr.digest("moving") == second.digest
    index_of(ecr, second, "moving")
    assert push(place, first, "moving") == Move(
        "moving", "kept", "it points to a newer image: 2.6.0, built 2026-11-02 00:00 UTC"
    )


def test_a_log_of_many_decisions_is_read_whole(place):
    ecr, registry = open_place(place)
    image = push_image(ecr, registry, b"a", tag="image", version="2.6.0", built=DAY)
    log = TagLog(ecr, registry, "moving")
    seen: list[Decision] = []
    for number in range(60):  # a page of ECR's list has 50
        seen.append(log.write(seen, "held" if number % 2 else "released", image.digest, None, f"number {number}"))
    assert TagLog(ecr, registry, "moving").read() == seen


# --- the verb ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def tags(place):
    """Run the verb in this process; its document, or that of its failure."""

    def run(*words: str, to: str = "", reason: str = "", code: int = 0) -> dict[str, Any]:
        out, ended = io.StringIO(), 0
        flags = {"words": list(words), "to": to, "reason": reason, "repository": place.repository, "json": True}
        with redirect_stdout(out), redirect_stderr(io.StringIO()):
            try:
                VerbTask(verb)(Context(), **flags, region=[place.region], account=place.account)
            except Exit as exits:
                ended = exits.code
        document: dict[str, Any] = json.loads(out.getvalue())
        assert ended == code, document
        if not code:
            jsonschema.validate(document, json.loads(SCHEMA.read_text()))
        return document

    return run


def test_what_people_decide_is_kept_and_pushes_respect_it(place, tags):
    ecr, registry = open_place(place)
    days = [DAY + timedelta(days=number) for number in range(3)]
    first, second, third = (
        push_image(ecr, registry, b"layer", tag=f"v{number}", version="2.6.0", built=day)
        for number, day in enumerate(days)
    )
    assert tags("list") == {"schema": "trainwright/tags/1", "tags": []}
    for image in (first, second):
        push(place, image, "moving")
        push(place, image, "other")

    (row,) = tags("rollback", "moving", reason="2.6.1 diverges")["tags"]
    assert (row["state"], row["digest"], row["belongs"]) == ("moved", first.digest, first.digest)
    assert row["held"].endswith("2.6.1 diverges")
    assert push(place, third, "moving").state == "kept"
    assert push(place, third, "other").state == "moved"
    assert ecr.digest("moving") == first.digest

    listed = {row["tag"]: row for row in tags("list")["tags"]}
    assert [*listed] == ["moving", "other"]
    assert [one["what"] for one in listed["moving"]["history"]] == ["pushed", "pushed", "held"]
    assert listed["other"]["held"] == ""
    assert listed["other"]["version"] == "2.6.0"

    assert tags("release", "moving")["tags"][0]["held"] == ""
    assert tags("release", "moving")["tags"][0]["state"] == "there already"
    assert push(place, third, "moving").state == "moved"
    (row,) = tags("move", "moving", to="v1")["tags"]
    assert row["digest"] == second.digest
    (row,) = tags("hold", "fresh", to=third.digest)["tags"]
    assert (row["state"], row["digest"]) == ("made", third.digest)
    # A rollback goes back further each time, to what is still there.
    api = aws_of(place)
    api.batch_delete_image(repositoryName=place.repository, imageIds=[{"imageDigest": third.digest}])
    assert tags("rollback", "moving")["tags"][0]["digest"] == first.digest


@pytest.mark.parametrize(
    ("words", "to", "code", "near"),
    [
        (("hodl", "moving"), "", 2, "hold"),
        (("hold",), "", 2, "tags hold"),
        (("move", "moving"), "", 2, "--to"),
        (("release", "moving"), "v1", 2, "tags release"),
        (("hold", "history-moving"), "", 2, "tags hold"),
        (("hold", "nothing"), "", 7, "tags list"),
        (("move", "nothing"), "v9", 7, "tags list"),
        (("rollback", "nothing"), "", 7, "tags move"),
    ],
)
def test_a_decision_that_cannot_be_made(tags, words, to, code, near):
    document = tags(*words, to=to, code=code)
    assert near in document["message"] + document["remedy"]


def aws_of(place: PushPlace) -> Any:
    import boto3

    return boto3.client("ecr", place.region)
