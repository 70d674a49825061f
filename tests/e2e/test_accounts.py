"""Three accounts in two regions: each takes what the one before has signed and proven, and keeps what is used."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.aws import EmulatedAws, emulated_aws, why_not
from tests.doubles.images import Images
from tests.doubles.lifecycle import DAY, age
from tests.support.documents import validated
from tests.support.in_process import call
from tests.support.registry_images import push_image, push_proven
from tests.support.signing_keys import write_pair
from trainwright.catalog.catalog import load_catalog
from trainwright.core.errors import RegistryRefused
from trainwright.plan.plan import Plan
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.push.documents import Replica
from trainwright.push.ecr import Ecr, ImageManifest
from trainwright.push.references import PushPlace
from trainwright.push.registry import Registry
from trainwright.push.replicas import await_replicas
from trainwright.push.repository import load_policy
from trainwright.push.tag_log import own_tag
from trainwright.signing import bundle
from trainwright.site.site import Site

DEV, STAGE, PROD = "730000000011", "730000000012", "730000000013"
WEST, EAST = "us-west-2", "eu-central-1"
BUILT = datetime(2026, 11, 1, tzinfo=UTC)
LAYERS = (os.urandom(300_000), os.urandom(20_000))
TAG = "pytorch-2.6-cu124"


@pytest.fixture(scope="module")
def clouds() -> Iterator[EmulatedAws]:
    if reason := why_not():
        pytest.skip(reason)
    with emulated_aws(DEV, (WEST, EAST), (STAGE, PROD)) as aws:
        yield aws


@pytest.fixture
def aws(clouds: EmulatedAws, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[EmulatedAws]:
    clouds.lend(monkeypatch)
    monkeypatch.chdir(tmp_path)
    clouds.requests.clear()
    yield clouds
    clouds.release()


@pytest.fixture
def name() -> str:
    """Of the repository, in all accounts."""
    return f"fleet/{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def plan() -> Plan:
    return resolve(make_request(framework="pytorch", cuda="cu124", version="2.6.0"), load_catalog())


@cache
def opened(place: PushPlace) -> tuple[Ecr, Registry]:
    """Clients of a repository; each takes a while to make."""
    ecr = Ecr(place, Site())
    return ecr, Registry(ecr, Site())


def everywhere(account: str, name: str) -> list[PushPlace]:
    return [PushPlace(account, region, name) for region in (WEST, EAST)]


def attached(place: PushPlace, digest: str) -> set[str]:
    return {one.digest for one in opened(place)[0].referrers(digest)}


def run(*words: str, code: int = 0) -> Any:
    done = call(*words, "--json")
    assert done.returncode == code, (done.stdout[-2000:], done.stderr[-2000:])
    return validated(done.stdout)


def promote(here: PushPlace, digest: str, there: list[PushPlace], *more: str, code: int = 0) -> Any:
    to = [word for place in there for word in ("--to", f"{place.account}/{place.region}/{place.repository}")]
    return run("promote", here.digested(digest), *to, "--create", *more, code=code)


@pytest.fixture
def dev(aws: EmulatedAws, name: str) -> PushPlace:
    aws.client("ecr").create_repository(repositoryName=name)
    return PushPlace(DEV, WEST, name)


@pytest.fixture
def signed(dev: PushPlace, plan: Plan, tmp_path: Path) -> ImageManifest:
    """A proven image with a signature, which this site demands."""
    private, public = write_pair(tmp_path)
    image = push_proven(*opened(dev), plan, *LAYERS, built=BUILT)
    (tmp_path / "trainwright.toml").write_text(f'[signing]\ntrusted = ["{public}"]\n')
    refused = promote(dev, image.digest, everywhere(STAGE, dev.repository), code=6)
    assert "no valid signature" in refused["message"]
    run("sign", dev.digested(image.digest), "--key", private)
    return image


def test_a_signed_image_goes_from_account_to_account(aws: EmulatedAws, dev: PushPlace, signed: ImageManifest) -> None:
    stage, prod = everywhere(STAGE, dev.repository), everywhere(PROD, dev.repository)
    promote(dev, signed.digest, stage)
    promote(stage[1], signed.digest, prod, "--tag", "release-2.6")
    for place in (*stage, *prod):
        assert opened(place)[0].manifest(digest=signed.digest) == signed
        # Five documents: bill of materials, record, provenance, smoke run, and the signature of them all.
        assert attached(place, signed.digest) == attached(dev, signed.digest)
        assert len(attached(place, signed.digest)) == 5
        said = run("verify", place.digested(signed.digest))
        assert said["valid"]
        assert len(said["documents"]) == 4
    assert all("release-2.6" in opened(place)[0].tags_of(signed.digest) for place in prod)
    # Each of the four repositories got every byte once.
    sent = [
        sum(asked.received for asked in aws.requests if asked.host == place.host and "/uploads/" in asked.path)
        for place in (*stage, *prod)
    ]
    assert len({*sent}) == 1
    assert sum(map(len, LAYERS)) < sent[0] < sum(map(len, LAYERS)) + 100_000


def test_what_somebody_changed_is_refused_and_nothing_of_it_arrives(
    aws: EmulatedAws, dev: PushPlace, signed: ImageManifest, plan: Plan
) -> None:
    stage, prod = PushPlace(STAGE, WEST, dev.repository), PushPlace(PROD, EAST, dev.repository)
    promote(dev, signed.digest, [stage])
    ecr, registry = opened(stage)
    (signature,) = ecr.referrers(signed.digest, bundle.MEDIA_TYPE)
    content = registry.document(signature.digest)

    # Another image, proven by whoever made it, with the signature of the first one.
    other = push_proven(ecr, registry, plan, b"malware", built=BUILT + timedelta(days=1))
    registry.attach(other, content, bundle.MEDIA_TYPE, bundle.NOTES)
    assert "no valid signature" in promote(stage, other.digest, [prod], code=6)["message"]
    # The same with the image's digest put into the signature.
    said = json.loads(content)
    payload = said["dsseEnvelope"]["payload"]
    said["dsseEnvelope"]["payload"] = f"{payload[:-8]}AAAA{payload[-4:]}"
    registry.attach(other, json.dumps(said).encode(), bundle.MEDIA_TYPE, bundle.NOTES)
    told = run("verify", stage.digested(other.digest), code=1)
    says = {row["says"] for row in told["signatures"]}
    assert says == {"changed after it was signed", "it is about another image"}
    assert "no valid signature" in promote(stage, other.digest, [prod], code=6)["message"]
    assert not [asked for asked in aws.requests if asked.host == prod.host]

    # A layer whose bytes changed where the registry keeps them: the signature is good, and the copy is not taken.
    layer = json.loads(signed.text)["layers"][0]["digest"]
    path = aws.stored(layer)
    whole = path.read_bytes()
    try:
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        assert promote(stage, signed.digest, [prod], code=7)["promoted"] == []
        assert opened(prod)[0].tags() == {}
    finally:
        path.write_bytes(whole)
    promote(stage, signed.digest, [prod])
    assert run("verify", prod.digested(signed.digest))["valid"]


def test_production_goes_back_in_both_regions(dev: PushPlace, plan: Plan) -> None:
    prod = everywhere(PROD, dev.repository)
    images = [push_proven(*opened(dev), plan, b"layer", built=BUILT + timedelta(days=day)) for day in range(3)]
    words = ("--repository", dev.repository, "--account", PROD, "--region", WEST, "--region", EAST)
    for image in images[:2]:
        promote(dev, image.digest, prod)
        run("tags", "move", TAG, "--to", image.digest, *words)
    rows = run("tags", "rollback", TAG, "--reason", "the loss diverges", *words)["tags"]
    assert [(row["region"], row["digest"]) for row in rows] == [(place.region, images[0].digest) for place in prod]
    # Nothing moves it before it is released, and the image that was taken back is still there for whoever names it.
    held = promote(dev, images[2].digest, prod, "--tag", TAG, code=7)
    assert held["cause"] == "held"
    for place in prod:
        ecr, _ = opened(place)
        assert ecr.digest(TAG) == images[0].digest
        assert ecr.manifest(digest=images[1].digest) == images[1]
    run("tags", "release", TAG, *words)
    promote(dev, images[2].digest, prod, "--tag", TAG)
    assert {opened(place)[0].digest(TAG) for place in prod} == {images[2].digest}


def rules(aws: EmulatedAws, name: str, *to: PushPlace) -> None:
    """What infra/trainwright.yaml deploys: the rule of the registry that images are pushed to."""
    destinations = [{"region": place.region, "registryId": place.account} for place in to]
    rule = {"destinations": destinations, "repositoryFilters": [{"filter": name, "filterType": "PREFIX_MATCH"}]}
    rules = [rule] if destinations else []
    aws.client("ecr").put_replication_configuration(replicationConfiguration={"rules": rules})


def may_copy(account: str, region: str) -> None:
    """What infra/replica.yaml deploys in the other account: its policy lets copies come."""
    from moto.ecr.models import ecr_backends

    statement = {
        "Sid": "TrainwrightCopies",
        "Effect": "Allow",
        "Principal": {"AWS": f"arn:aws:iam::{DEV}:root"},
        "Action": ["ecr:CreateRepository", "ecr:ReplicateImage"],
        "Resource": f"arn:aws:ecr:{region}:{account}:repository/*",
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    ecr_backends[account][region].put_registry_policy(policy)  # an API of the other account's


def replicas_of(place: PushPlace, digest: str) -> tuple[Replica, ...]:
    minutes = count(step=600)
    return await_replicas(
        opened(place)[0], digest, say=lambda _: None, sleep=lambda _: None, clock=lambda: float(next(minutes))
    )


def test_one_upload_is_copied_with_its_proof(aws: EmulatedAws, dev: PushPlace, plan: Plan) -> None:
    copies = [PushPlace(DEV, EAST, dev.repository), PushPlace(PROD, EAST, dev.repository)]
    rules(aws, dev.repository, *copies)
    try:
        first = push_proven(*opened(dev), plan, *LAYERS, built=BUILT)
        with pytest.raises(RegistryRefused, match=f"to {PROD}/{EAST}: AccessDenied"):
            replicas_of(dev, first.digest)
        may_copy(PROD, EAST)
        aws.requests.clear()
        image = push_proven(*opened(dev), plan, *LAYERS, b"more", built=BUILT + timedelta(days=1))
        # What the client sent is the image's own layer and its documents: to one registry, and once.
        assert {asked.host for asked in aws.requests} == {dev.host}
        assert aws.uploaded() < 100_000
        assert [one.uri for one in replicas_of(dev, image.digest)] == [place.digested(image.digest) for place in copies]
        for place in copies:
            ecr, registry = opened(place)
            assert ecr.manifest(digest=image.digest) == image
            assert ecr.tags_of(image.digest) == opened(dev)[0].tags_of(image.digest)
            assert all(registry.has_blob(layer["digest"]) for layer in json.loads(image.text)["layers"])
            assert attached(place, image.digest) == attached(dev, image.digest)
        # A copy is as good as the image: it can be promoted.
        (row,) = promote(copies[1], image.digest, [PushPlace(STAGE, WEST, dev.repository)])["promoted"]
        assert row["proof"] == 4
    finally:
        rules(aws, dev.repository)


def test_what_nobody_uses_expires_and_no_release_does(aws: EmulatedAws, dev: PushPlace, plan: Plan) -> None:
    prod = PushPlace(PROD, WEST, dev.repository)
    release = push_proven(*opened(dev), plan, b"release", built=BUILT)
    promote(dev, release.digest, [prod], "--tag", "release-2.6")
    ecr, registry = opened(prod)
    images = {"release-2.6": release}
    for number, tag in enumerate(("nightly-1", "nightly-2", "own"), 1):
        images[tag] = push_proven(ecr, registry, plan, tag.encode(), built=BUILT + timedelta(days=number))
        ecr.put_tag(images[tag], tag)
    run("tags", "move", TAG, "--to", images["own"].digest, "--repository", f"{prod.host}/{prod.repository}")
    proofs = {tag: attached(prod, image.digest) for tag, image in images.items()}
    bare = push_image(ecr, registry, b"bare", tag="bare", built=BUILT)
    other = push_image(ecr, registry, b"other", tag="bare", built=BUILT)  # it takes the tag away
    records: Any = Images()
    repository = records.repository(PROD, WEST, dev.repository)
    assert repository.lifecycle_policy == load_policy().lifecycle_text()  # promote --create has set it

    start = time.time()
    for image in images.values():
        records.find(repository, image.digest).pulled = start
    names = {image.digest: tag for tag, image in images.items()}
    became: dict[str, list[tuple[int, str]]] = {}
    for day in range(1, 200):
        if day % 20 == 0:  # a training job takes the second one now and then
            records.find(repository, images["nightly-2"].digest).pulled = start + day * DAY
        for digest, what in age(records, repository, start + (day - 0.5) * DAY).items():
            became.setdefault(names.get(digest, digest), []).append((day, what))
    assert became.pop(bare.digest) == [(15, "expire")]
    assert became.pop("nightly-1") == [(31, "transition"), (122, "expire")]
    assert became.pop("own") == [(181, "transition")]  # and from there it can be restored
    assert became == {other.digest: [(181, "transition")]}
    assert ecr.manifest(digest=images["nightly-1"].digest) is None
    # What stays has its whole proof, and nothing of the one that went is left.
    for tag in ("nightly-2", "release-2.6", "own"):
        assert attached(prod, images[tag].digest) == proofs[tag]
    assert not {one.digest for one in ecr.images()} & proofs["nightly-1"]
    promote(prod, images["release-2.6"].digest, [PushPlace(STAGE, EAST, dev.repository)])
    assert [tag for tag in ecr.tags() if own_tag(tag)]  # the log of the moving tag, and proofs
