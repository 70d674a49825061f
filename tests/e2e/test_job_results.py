"""Results of jobs by digest, in a registry with ECR's rules: attached to the image, read before it is used."""

from __future__ import annotations

import json
import re
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.aws import emulated_aws, why_not
from tests.support.documents import validated
from tests.support.in_process import call
from tests.support.job_results import builders_results, found_in, job_result
from tests.support.registry_images import push_image, push_proven
from tests.support.signing_keys import write_pair
from trainwright.build import store
from trainwright.catalog.catalog import load_catalog
from trainwright.core.errors import ProofFailed
from trainwright.engine.engine import Client, Engine
from trainwright.fresh.images import in_registry
from trainwright.pipeline import smoke_by_digest
from trainwright.pipeline.images import choose
from trainwright.plan.plan import Plan
from trainwright.prove import probe as probing
from trainwright.push.attest import PREDICATE, PROVENANCE, RECORD, TEST_RESULT, attested
from trainwright.push.ecr import Ecr, ImageManifest
from trainwright.push.references import PushPlace
from trainwright.push.registry import Registry
from trainwright.push.tags import is_immutable, tags_of
from trainwright.site.site import Site

DEV, PROD, WEST = "730000000001", "730000000002", "us-west-2"
DAY = datetime(2026, 11, 1, tzinfo=UTC)
NAME = "pytorch-2.13.0-cpu-debian"
CATALOG = load_catalog()
SBOM = "application/vnd.cyclonedx+json"


@pytest.fixture(scope="module")
def clouds():
    if reason := why_not():
        pytest.skip(reason)
    with emulated_aws(DEV, (WEST,), (PROD,)) as aws:
        yield aws


@pytest.fixture
def place(clouds, monkeypatch, tmp_path):
    """A repository of a prefix of its own."""
    clouds.lend(monkeypatch)
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    place = PushPlace(DEV, WEST, f"jobs-{uuid.uuid4().hex[:8]}/pytorch")
    clouds.client("ecr").create_repository(repositoryName=place.repository)
    yield place
    clouds.release()


@pytest.fixture(scope="module")
def plan() -> Plan:
    (image,) = choose(NAME, CATALOG, Site())
    return image.plan


def opened(place: PushPlace) -> tuple[Ecr, Registry]:
    ecr = Ecr(place, Site())
    return ecr, Registry(ecr, Site())


def by_digest(place: PushPlace, plan: Plan, layer: bytes) -> ImageManifest:
    """An image as a Job of Kubernetes leaves it: no tag, no document."""
    ecr, registry = opened(place)
    image = push_image(ecr, registry, layer, tag="passing", built=DAY, labels=plan.labels)
    ecr._client.batch_delete_image(repositoryName=place.repository, imageIds=[{"imageTag": "passing"}])
    registry.put_manifest(image, None)
    assert ecr.tags_of(image.digest) == []
    return image


def attached(place: PushPlace, image: ImageManifest) -> list[str]:
    """The kinds of the documents of an image."""
    return sorted(one.annotations.get(PREDICATE, one.kind) for one in opened(place)[0].referrers(image.digest))


def take(place: PushPlace, image: ImageManifest, *paths: str | Path, code: int = 0, site: str = "") -> dict[str, Any]:
    words = [word for path in paths for word in ("--import", str(path))]
    words += ["--site", site] if site else []
    done = call("smoke", "--image", place.digested(image.digest), *words, "--json")
    assert done.returncode == code, done.stderr
    return validated(done.stdout)


def promoted(place: PushPlace, image: ImageManifest, code: int, *words: str) -> dict[str, Any]:
    to = f"{PROD}/{WEST}/{place.repository}"
    done = call("promote", place.digested(image.digest), "--to", to, "--create", *words, "--json")
    assert done.returncode == code, done.stderr
    return validated(done.stdout)


def newest(place: PushPlace) -> Any:
    return in_registry(choose(NAME, CATALOG, Site()), place, CATALOG, Site(), say=print).get(NAME)


def advance(place: PushPlace) -> Any:
    return call("tags", "advance", NAME, "--repository", place.repository, "--region", WEST, "--account", DEV, "--json")


def test_an_image_that_no_engine_has_seen_is_proven_by_its_builder_and_a_job(place, plan, tmp_path, monkeypatch):
    image = by_digest(place, plan, b"layer")
    results = builders_results(tmp_path, plan, monkeypatch)
    result = job_result(tmp_path / "smoke.json", plan, image.digest)
    assert "no build record" in promoted(place, image, 6)["message"]
    assert newest(place) is None and advance(place).returncode == 7
    # A job alone does not say what is in an image.
    refused = take(place, image, result, code=6)
    assert "LINE.proof" in refused["remedy"] and not attached(place, image)
    document = take(place, image, result, results)
    assert document["passed"] == [f"{len(plan.expect)} facts are as planned"] and document["failed"] == []
    assert {*document["attached"]} == {"job", "sbom", "record", "provenance", "smoke"}
    assert attached(place, image) == sorted([RECORD, PROVENANCE, TEST_RESULT, TEST_RESULT, SBOM])
    ecr, registry = opened(place)
    (tag,) = ecr.tags_of(image.digest)
    assert tag == document["tag"] == tags_of(plan, DAY, CATALOG).immutable
    # The record tells what was tested, and what was not.
    record = attested(ecr, registry, image, registry.published(image))
    assert record.smoke is not None
    rows = {row["check"]: row["outcome"] for row in record.smoke["rows"]}
    assert rows["test_has_a_shell"] == "passed" and rows["test_left"] == "skipped"
    assert [outcome for name, outcome in rows.items() if name.startswith("job: ")] == ["passed"]
    assert (record.size_bytes, record.seconds, record.pushed) == (12_345, 61, place.digested(image.digest))
    assert record.image_id == json.loads(image.text)["config"]["digest"]
    # Whoever reads the registry takes it from there.
    assert newest(place).address == place.digested(image.digest) and newest(place).lacking == ""
    assert len(promoted(place, image, 0)["promoted"]) == 1
    there = PushPlace(PROD, WEST, place.repository)
    assert attached(there, image) == attached(place, image)
    assert advance(place).returncode == 0
    assert opened(place)[0].digest("pytorch-2.13.0-cpu") == image.digest


@pytest.fixture
def engine(monkeypatch, plan):
    """An engine that has any image, in which the probe finds this, and tests end like that."""
    told: dict[str, Any] = {"found": found_in(plan), "failed": False}

    def tested(record, address, *_, **__):
        row = {"component": "metis", "check": "test_listens", "reason": "", "seconds": 1.0}
        row["outcome"] = "failed" if told["failed"] else "passed"
        counts = {"passed": int(not told["failed"]), "failed": int(told["failed"]), "skipped": 0, "seconds": 1.0}
        smoke = {"schema": "trainwright/smoke/1", "image": address, "image_id": record.image_id, "plan": record.plan.id}
        record = record.replace(smoke={**smoke, **counts, "rows": [row]})
        store.save(record)
        if told["failed"]:
            raise ProofFailed("a test failed")
        return record, None

    docker = Engine(Client("/bin/false", "buildx", "20.10", "plain"), "20.10")
    monkeypatch.setattr(smoke_by_digest, "connect", lambda **_: docker)
    monkeypatch.setattr(smoke_by_digest, "_pull", lambda *_: f"sha256:{7:064x}")
    monkeypatch.setattr(probing, "probe", lambda *_, **__: {**told["found"], "image": {"labels": plan.labels}})
    monkeypatch.setattr(smoke_by_digest, "smoke_record", tested)
    return told


def test_an_image_that_stayed_where_it_was_built_is_tested_by_its_digest(place, plan, tmp_path, monkeypatch, engine):
    image = by_digest(place, plan, b"stays")
    results = builders_results(tmp_path, plan, monkeypatch)
    words = ("smoke", "--image", place.digested(image.digest), "--attach", "--json")
    alone = call(*words)
    assert alone.returncode == 6 and "no build record" in alone.stdout
    # Another image than the one that its builder has looked into.
    engine["found"] = found_in(plan, packages={"libc6": "0"})
    other = call(*words, "--import", str(results))
    assert other.returncode == 6 and "other packages" in other.stdout, other.stdout
    assert not attached(place, image)
    engine["found"], engine["failed"] = found_in(plan), True
    failed = call(*words, "--import", str(results))
    assert failed.returncode == 6, failed.stderr
    assert "metis: test_listens" in failed.stdout and attached(place, image) == [TEST_RESULT]
    assert opened(place)[0].tags_of(image.digest) == [] and "no build record" in promoted(place, image, 6)["message"]
    engine["failed"] = False
    second = int(time.time())
    while int(time.time()) == second:  # a result is newer by a second at least
        time.sleep(0.05)
    passed = call(*words, "--import", str(results))
    assert passed.returncode == 0, passed.stdout + passed.stderr
    ecr, registry = opened(place)
    assert ecr.tags_of(image.digest) == [tags_of(plan, DAY, CATALOG).immutable]
    record = attested(ecr, registry, image, registry.published(image))
    assert record.smoke is not None
    rows = {row["check"]: row["outcome"] for row in record.smoke["rows"]}
    assert rows["test_has_a_shell"] == "passed" and rows["job: metis: test_listens"] == "passed"
    assert len(promoted(place, image, 0)["promoted"]) == 1


def test_the_same_results_are_attached_once(place, plan, tmp_path, monkeypatch, clouds):
    image = by_digest(place, plan, b"once")
    paths = job_result(tmp_path / "smoke.json", plan, image.digest), builders_results(tmp_path, plan, monkeypatch)
    take(place, image, *paths)
    before = attached(place, image)
    clouds.requests.clear()
    assert take(place, image, *paths)["tag"] == ""
    assert attached(place, image) == before
    assert not [asked for asked in clouds.requests if asked.method in ("POST", "PATCH", "PUT")]


def test_a_second_image_of_the_day_gets_the_next_revision(place, plan, tmp_path, monkeypatch):
    results = builders_results(tmp_path, plan, monkeypatch)
    tags = []
    for layer in (b"one", b"two"):
        image = by_digest(place, plan, layer)
        tags.append(take(place, image, job_result(tmp_path / "r.json", plan, image.digest), results)["tag"])
    assert tags == [tags_of(plan, DAY, CATALOG, revision=number).immutable for number in (1, 2)]


def test_results_of_something_else_are_refused(place, plan, tmp_path, monkeypatch):
    image, other = by_digest(place, plan, b"this"), by_digest(place, plan, b"other")
    results = builders_results(tmp_path, plan, monkeypatch)
    good = job_result(tmp_path / "good.json", plan, image.digest)
    # Of another image of the same plan, and of another plan.
    assert "another image" in take(place, other, good, results, code=6)["message"]
    foreign = job_result(tmp_path / "foreign.json", plan.replace(id="7" * 64), image.digest)
    assert "777777777777" in take(place, image, foreign, results, code=6)["message"]
    # Edited on the way.
    text = Path(good).read_text()
    edited = tmp_path / "edited.json"
    edited.write_text(re.sub(r'"image": "sha256:\w+"', f'"image": "{other.digest}"', text))
    assert "changed after" in take(place, other, edited, results, code=6)["message"]
    # The builder tested something else than it pushed.
    packages = job_result(tmp_path / "p.json", plan, image.digest, found=found_in(plan, packages={"libc6": "2.36-10"}))
    assert "other packages" in take(place, image, packages, results, code=6)["message"]
    # The results of the builder were edited, or are of another plan.
    (results / "probe.json").write_text((results / "probe.json").read_text().replace("2.36-9", "2.36-8"))
    assert "checksums" in take(place, image, good, results, code=6)["message"]
    assert not attached(place, image) and not attached(place, other)


@pytest.mark.parametrize("name", ["", "nowhere.json"])
def test_files_that_are_missing(place, plan, tmp_path, name):
    image = by_digest(place, plan, f"missing {name}".encode())
    refused = take(place, image, tmp_path / name, code=2)
    assert "reports/kubernetes" in refused["remedy"] and "--import" in refused["message"]


def test_a_failure_on_a_gpu_holds_an_image_back_until_a_job_passes(place, plan, tmp_path, monkeypatch):
    image = push_proven(*opened(place), plan, b"gpu", built=DAY)
    plain, gpu = (tmp_path / name for name in ("plain.json", "gpu.json"))
    failed = take(place, image, job_result(gpu, plan, image.digest, gpus=1, wrong=True), code=6)
    assert failed["failed"] == [
        "metis: version should be never, the image has " + found_in(plan)["facts"]["metis"]["version"]
    ]
    for refused in (promoted(place, image, 6)["message"], advance(place).stderr, newest(place).lacking):
        assert "a job with GPUs failed in it" in refused and "metis: version should be never" in refused
    # A job without GPUs says nothing of those.
    take(place, image, job_result(plain, plan, image.digest))
    promoted(place, image, 6)
    later = json.loads(gpu.read_text())["finished"]
    while json.loads(Path(job_result(gpu, plan, image.digest, gpus=1)).read_text())["finished"] == later:
        pass
    assert take(place, image, gpu)["gpus"] == 1
    assert newest(place).lacking == ""
    assert len(promoted(place, image, 0)["promoted"]) == 1
    assert [tag for tag in opened(place)[0].tags_of(image.digest) if is_immutable(tag)] == [
        tags_of(plan, DAY, CATALOG).immutable
    ]


def test_where_images_are_signed_what_is_attached_is_signed_as_well(place, plan, tmp_path, monkeypatch):
    private, public = write_pair(tmp_path)
    site = tmp_path / "site.toml"
    site.write_text(f'[signing]\nkey = "{private}"\ntrusted = ["{public}"]\n')
    image = by_digest(place, plan, b"signed")
    paths = job_result(tmp_path / "r.json", plan, image.digest), builders_results(tmp_path, plan, monkeypatch)
    document = take(place, image, *paths, site=str(site))
    done = call("verify", place.digested(image.digest), "--key", public, "--json")
    found = validated(done.stdout)
    assert found["valid"] and {*found["documents"]} == {*document["attached"].values()} - {
        document["attached"]["signature"]
    }
    assert promoted(place, image, 0, "--site", str(site))["promoted"]
