"""`promote` between registries with ECR's rules: what arrives, what is sent once, and what is refused."""

from __future__ import annotations

import io
import json
import os
import uuid
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from invoke.context import Context
from invoke.exceptions import Exit

from tests.doubles.aws import emulated_aws, why_not
from tests.support.build_records import record_of
from tests.support.registry_images import index_of, push_image, push_proven
from trainwright.catalog.catalog import load_catalog
from trainwright.cli.tasks import VerbTask
from trainwright.core.paths import state_dir
from trainwright.plan.plan import Plan
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.push import patience, push
from trainwright.push.attest import IN_TOTO, PREDICATE, PROVENANCE, RECORD, TEST_RESULT
from trainwright.push.ecr import Ecr
from trainwright.push.moving import decide
from trainwright.push.options import PushOptions
from trainwright.push.references import PushPlace
from trainwright.push.registry import Registry
from trainwright.push.repository import load_policy
from trainwright.push.tag_log import TagLog
from trainwright.push.tags import tags_of
from trainwright.site.site import Site
from trainwright.verbs.promote import promote as verb

DEV, PROD = "730000000001", "730000000002"
WEST, EAST = "us-west-2", "eu-central-1"
DAY = datetime(2026, 11, 1, tzinfo=UTC)
SCHEMA = Path(__file__).resolve().parents[2] / "trainwright" / "schemas" / "promote.schema.json"
LAYERS = (os.urandom(300_000), os.urandom(20_000))


@pytest.fixture(scope="module")
def clouds():
    """Two accounts in two regions."""
    if reason := why_not():
        pytest.skip(reason)
    with emulated_aws(DEV, (WEST, EAST), (PROD,)) as aws:
        yield aws


@pytest.fixture
def aws(clouds, monkeypatch):
    clouds.lend(monkeypatch)
    clouds.requests.clear()
    clouds.calls.clear()
    yield clouds
    clouds.release()


@pytest.fixture(scope="module")
def plan() -> Plan:
    return resolve(make_request(framework="pytorch", cuda="cu124", version="2.6.0"), load_catalog())


@pytest.fixture
def dev(aws) -> PushPlace:
    place = PushPlace(DEV, WEST, f"dev/{uuid.uuid4().hex[:8]}")
    aws.client("ecr").create_repository(repositoryName=place.repository)
    return place


def opened(place: PushPlace) -> tuple[Ecr, Registry]:
    ecr = Ecr(place, Site())
    return ecr, Registry(ecr, Site())


@pytest.fixture
def promote(aws):
    """Run the verb in this process; its document, or that of its failure."""

    def run(image: str, *to: str, tag: tuple[str, ...] = (), create: bool = True, code: int = 0) -> dict[str, Any]:
        out, err, ended = io.StringIO(), io.StringIO(), 0
        with redirect_stdout(out), redirect_stderr(err):
            try:
                VerbTask(verb)(Context(), image=image, to=list(to), tag=list(tag), create=create, json=True)
            except Exit as exits:
                ended = exits.code
        assert ended == code, (out.getvalue()[-2000:], err.getvalue()[-2000:])
        document: dict[str, Any] = json.loads(out.getvalue())
        if not code:
            jsonschema.validate(document, json.loads(SCHEMA.read_text()))
        return document

    return run


def content(place: PushPlace, digest: str) -> set[tuple[str, str]]:
    """What is attached to an image, each by its type and its digest."""
    return {(one.annotations.get(PREDICATE, one.kind), one.digest) for one in opened(place)[0].referrers(digest)}


def test_an_image_arrives_with_its_proof_in_two_accounts_and_two_regions(aws, dev, plan, promote):
    image = push_proven(*opened(dev), plan, *LAYERS, built=DAY)
    places = [PushPlace(PROD, WEST, f"prod/{dev.repository}"), PushPlace(DEV, EAST, dev.repository)]
    aws.requests.clear()
    words = [f"{place.account}/{place.region}/{place.repository}" for place in places]
    document = promote(dev.digested(image.digest), *words, tag=("release-2.6",))
    assert [row["uri"] for row in document["promoted"]] == [place.digested(image.digest) for place in places]
    assert document["plan"] == plan.id
    proof = content(dev, image.digest)
    assert {kind for kind, _ in proof} == {RECORD, PROVENANCE, TEST_RESULT, "application/vnd.cyclonedx+json"}
    for place in places:
        ecr, registry = opened(place)
        assert ecr.manifest(digest=image.digest) == image
        assert set(ecr.tags_of(image.digest)) == {*opened(dev)[0].tags_of(image.digest), "release-2.6"}
        assert content(place, image.digest) == proof
        assert registry.configuration(image)
        # No document is without a tag, or a lifecycle rule for untagged images might take it.
        assert all(ecr.tags_of(digest) for _, digest in proof)
    # What was promoted can be promoted on, by whoever has only that.
    aws.requests.clear()
    again = promote(places[0].digested(image.digest), *words[1:], tag=("release-2.6",))
    (row,) = again["promoted"]
    assert (row["sent_bytes"], row["blobs_sent"]) == (0, 0)
    assert {tag["state"] for tag in row["tags"]} == {"there already"}
    assert not [asked for asked in aws.requests if asked.method in ("POST", "PATCH", "PUT")]


def test_push_attaches_what_promote_asks_for(aws, dev, plan, promote, monkeypatch, tmp_path):
    """The engine's part of a push, which is the upload, is done by hand; tests of push have an engine."""
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path / "state"))
    ecr, registry = opened(dev)
    tags = tags_of(plan, DAY, load_catalog())
    image = push_image(ecr, registry, *LAYERS, tag=tags.immutable, built=DAY, labels=plan.labels)
    record = record_of(plan, json.loads(image.text)["config"]["digest"])
    report = state_dir() / "rehearsals" / "one" / "report.json"
    report.parent.mkdir(parents=True)
    checks = [{"check": "every rank ends", "outcome": "passed", "says": ""}]
    report.write_text(json.dumps({"image_id": record.image_id, "checks": checks, "hosts": [1, 2]}))
    sbom = tmp_path / "sbom.json"
    sbom.write_text("{}")
    said = registry.published(image)
    assert said is not None
    parcel = push.Parcel("here", record, record.image_id, tags, said, sbom, "")
    run = push._Run(Site(), PushOptions(), load_policy(), print, None)
    row = push._move_tags(run, push._ship(run, push._open(run, dev, [parcel]), parcel))
    assert {*row.proof} == {"sbom", "record", "provenance", "smoke", "rehearsal.1"}
    found = {one.digest for one in ecr.referrers(image.digest)}
    assert found == {*row.proof.values()}
    (document,) = promote(dev.digested(image.digest), f"{PROD}/{WEST}/{dev.repository}")["promoted"]
    assert document["proof"] == 5
    # Statements are what their specifications say, and about this image.
    for name, kind in (("provenance", PROVENANCE), ("smoke", TEST_RESULT), ("rehearsal.1", TEST_RESULT)):
        statement = json.loads(registry.document(row.proof[name]))
        assert (statement["_type"], statement["predicateType"]) == ("https://in-toto.io/Statement/v1", kind)
        assert statement["subject"] == [{"digest": {"sha256": image.digest.removeprefix("sha256:")}}]
        if kind == TEST_RESULT:
            assert statement["predicate"]["result"] == "PASSED"
    provenance = json.loads(registry.document(row.proof["provenance"]))["predicate"]
    dependencies = {
        one["name"]: one["digest"]["sha256"] for one in provenance["buildDefinition"]["resolvedDependencies"]
    }
    assert next(name for name in dependencies if name.startswith("torch-2.6.0"))
    aws.requests.clear()
    assert push._ship(run, push._open(run, dev, [parcel]), parcel).attached == row.proof
    assert not [asked for asked in aws.requests if asked.method in ("POST", "PATCH", "PUT")]


@pytest.mark.parametrize("mounting", [True, False])
def test_within_a_registry_layers_are_mounted_where_the_account_says_so(aws, dev, plan, promote, mounting):
    """ECR's user guide, "Blob mounting": with the account setting a layer of another repository is not sent again."""
    image = push_proven(*opened(dev), plan, *LAYERS, built=DAY)
    there = PushPlace(DEV, WEST, f"release/{dev.repository}")
    aws.requests.clear()
    with aws.mounting() if mounting else nullcontext():
        (row,) = promote(dev.digested(image.digest), f"{there.host}/{there.repository}")["promoted"]
    assert opened(there)[0].manifest(digest=image.digest) == image
    assert content(there, image.digest) == content(dev, image.digest)
    if mounting:
        assert row["sent_bytes"] == 0
        assert aws.uploaded() < 100  # empty configurations of documents
    else:
        assert aws.uploaded() > sum(map(len, LAYERS))


def test_what_broke_off_is_gone_on_with(aws, dev, plan, promote, monkeypatch):
    monkeypatch.setattr(patience, "TRIES", 1)
    image = push_proven(*opened(dev), plan, *LAYERS, built=DAY)
    there = PushPlace(PROD, WEST, dev.repository)
    word = f"{there.host}/{there.repository}"
    aws.fail_registry("PUT", "/manifests/pytorch", 500)
    failed = promote(dev.digested(image.digest), word, code=7)
    assert failed["promoted"] == []
    assert opened(there)[0].tags() == {}
    sent = aws.uploaded()
    assert sent > sum(map(len, LAYERS))
    aws.requests.clear()
    (row,) = promote(dev.digested(image.digest), word)["promoted"]
    assert row["blobs_present"] >= 3
    assert aws.uploaded() < 100_000  # the proof


def test_a_connection_that_is_lost_in_the_middle_of_a_layer_costs_that_layer(aws, dev, plan, promote, monkeypatch):
    monkeypatch.setattr(patience, "FIRST_PAUSE", 0.01)
    image = push_proven(*opened(dev), plan, *LAYERS, built=DAY)
    there = PushPlace(PROD, WEST, dev.repository)
    aws.requests.clear()
    aws.fail_registry("PATCH", "/blobs/uploads/", "reset")
    aws.fail_registry("GET", f"{dev.repository}/blobs/", "reset")
    promote(dev.digested(image.digest), f"{there.host}/{there.repository}")
    ecr, registry = opened(there)
    for layer in json.loads(image.text)["layers"]:
        assert registry.has_blob(layer["digest"])
    assert ecr.tags_of(image.digest)


def lose(aws, place: PushPlace, digest: str) -> None:
    """Have a repository lose a layer of which its registry says, once, that it is there."""
    repository = (
        aws.folder / "registry/docker/registry/v2/repositories" / place.account / place.region / place.repository
    )
    (repository / "_layers/sha256" / digest.removeprefix("sha256:") / "link").unlink()
    aws.fail_registry("HEAD", f"/blobs/{digest}", 200)


def test_a_shared_layer_that_the_registry_has_lost_is_sent_again(aws, dev, plan, promote, monkeypatch):
    monkeypatch.setattr(patience, "TRIES", 2)
    monkeypatch.setattr(patience, "FIRST_PAUSE", 0.01)
    shared, first, second = (os.urandom(size) for size in (300_000, 20_000, 20_000))
    there = PushPlace(PROD, WEST, dev.repository)
    word = f"{there.host}/{there.repository}"
    images = [
        push_proven(*opened(dev), plan, shared, own, built=DAY + timedelta(n)) for n, own in enumerate((first, second))
    ]
    promote(dev.digested(images[0].digest), word)
    ecr, registry = opened(there)
    before, layer = ecr.tags(), json.loads(images[0].text)["layers"][0]["digest"]

    # It cannot be sent again: no tag is on an image without it, and the first one's stay.
    lose(aws, there, layer)
    aws.fail_registry("GET", f"/blobs/{layer}", 500, times=99)
    failed = promote(dev.digested(images[1].digest), word, code=7)
    assert failed["promoted"] == []
    assert "Run the same command again" in failed["remedy"]
    assert ecr.tags() == before
    assert not registry.has_blob(layer)
    aws.release()

    aws.requests.clear()
    aws.fail_registry("HEAD", f"/blobs/{layer}", 200)
    promote(dev.digested(images[1].digest), word)
    refused = [asked.status for asked in aws.requests if asked.method == "PUT" and "/manifests/" in asked.path]
    assert 400 in refused, "it was the registry that found out"
    assert registry.has_blob(layer)
    assert ecr.tags_of(images[1].digest)
    assert ecr.tags().items() >= before.items()


def test_an_index_arrives_with_its_image_and_the_proof_of_that(dev, plan, promote):
    ecr, registry = opened(dev)
    image = push_proven(ecr, registry, plan, *LAYERS, built=DAY)
    index = index_of(ecr, image, "soci", alone=True)
    there = PushPlace(PROD, WEST, dev.repository)
    word = f"{there.host}/{there.repository}"
    assert "--tag" in promote(dev.digested(index.digest), word, code=2)["remedy"]
    promote(dev.digested(index.digest), word, tag=("soci",))
    assert opened(there)[0].manifest(tag="soci") == index
    assert content(there, image.digest) == content(dev, image.digest)


def test_what_is_not_proven_stays_where_it_is(aws, dev, plan, promote):
    ecr, registry = opened(dev)
    bare = push_image(ecr, registry, b"layer", tag="bare", built=DAY, labels=plan.labels)
    untested = push_proven(ecr, registry, plan, b"other", built=DAY + timedelta(days=1), smoke=False)
    proven = push_proven(ecr, registry, plan, b"third", built=DAY + timedelta(days=2))
    # A proof of another image proves nothing, even if somebody attaches it.
    (record,) = [one for one in ecr.referrers(proven.digest, IN_TOTO) if one.annotations[PREDICATE] == RECORD]
    registry.attach(bare, registry.document(record.digest), IN_TOTO, {PREDICATE: RECORD})
    to = PushPlace(PROD, WEST, dev.repository)
    for image, near in ((bare, "./invoke push"), (untested, "smoke")):
        refused = promote(dev.digested(image.digest), f"{to.host}/{to.repository}", code=6)
        assert near in refused["message"] + refused["remedy"]
    assert not [asked for asked in aws.requests if asked.host == to.host]


def test_a_tag_of_another_image_and_a_held_one_are_respected(dev, plan, promote):
    first = push_proven(*opened(dev), plan, b"first", built=DAY)
    there = PushPlace(PROD, WEST, dev.repository)
    word = f"{there.host}/{there.repository}"
    promote(dev.digested(first.digest), word, tag=("prod",))
    ecr, registry = opened(there)
    decide(TagLog(ecr, registry, "prod"), "held", first, "frozen")
    second = push_proven(*opened(dev), plan, b"second", built=DAY + timedelta(days=1))
    assert promote(dev.digested(second.digest), word, tag=("prod",), code=7)["cause"] == "held"
    assert ecr.digest("prod") == first.digest
    other = PushPlace(DEV, EAST, dev.repository)
    rival = push_image(*opened_new(other), b"rival", tag=opened(dev)[0].tags_of(second.digest)[0], built=DAY)
    refused = promote(dev.digested(second.digest), f"{other.host}/{other.repository}", word, code=7)
    assert (refused["cause"], refused["uri"]) == ("immutable", other.digested(rival.digest))
    # The other target was served all the same.
    assert [row["uri"] for row in refused["promoted"]] == [there.digested(second.digest)]


def opened_new(place: PushPlace) -> tuple[Ecr, Registry]:
    import boto3

    boto3.client("ecr", place.region).create_repository(repositoryName=place.repository)
    return opened(place)


@pytest.mark.parametrize(
    ("image", "to", "near"),
    [
        ("", "x", "./invoke promote"),
        ("team/x@sha256:0", "x", "./invoke promote"),
        (f"{DEV}.dkr.ecr.{WEST}.amazonaws.com/team/x:v1", "x", "./invoke tags list v1"),
        (f"{DEV}.dkr.ecr.{WEST}.amazonaws.com/team/x@sha256:{'0' * 64}", "", "--to"),
        (f"{DEV}.dkr.ecr.{WEST}.amazonaws.com/team/x@sha256:{'0' * 64}", "prod/x", "--to"),
        (f"{DEV}.dkr.ecr.{WEST}.amazonaws.com/team/x@sha256:{'0' * 64}", f"{PROD}/westeros/x1", "region"),
        (f"{DEV}.dkr.ecr.{WEST}.amazonaws.com/team/x@sha256:{'0' * 64}", f"{PROD}/us-west-2/X", "For example"),
    ],
)
def test_words_that_do_not_fit(promote, image, to, near):
    document = promote(image, *([to] if to else []), code=2)
    assert near in document["message"] + document["remedy"]


def test_an_image_that_is_not_there(dev, promote):
    for place in (dev, PushPlace(DEV, WEST, "none/such")):
        document = promote(place.digested(f"sha256:{'0' * 64}"), f"{PROD}/{WEST}/x1", code=7)
        assert document["cause"] == "missing"


def test_a_repository_that_is_missing_is_made_only_on_request(dev, plan, promote):
    image = push_proven(*opened(dev), plan, b"layer", built=DAY)
    refused = promote(dev.digested(image.digest), f"{PROD}/{WEST}/none/such", create=False, code=7)
    assert (refused["cause"], "--create" in refused["remedy"]) == ("repository", True)
