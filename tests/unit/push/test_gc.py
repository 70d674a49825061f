"""What holds images in a repository, and how those that nothing holds are deleted, whatever happens meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from datetime import timedelta
from typing import Any

import pytest
from moto.ecr.models import ecr_backends

from tests.doubles.api import Api, served
from tests.doubles.faults import Faults
from tests.doubles.images import Images
from tests.doubles.tokens import Tokens
from tests.support.idle_images import ACCOUNT, REGION, TODAY, Cloud, Papers, manifest
from trainwright.core.errors import RegistryRefused
from trainwright.push import ecr as ecr_module
from trainwright.push import gc, job_images
from trainwright.push.ecr import Ecr, ImageManifest
from trainwright.push.moving import decide
from trainwright.push.references import PushPlace
from trainwright.push.registry import MANIFEST
from trainwright.push.tag_log import TagLog, history_tag
from trainwright.site.site import Site
from trainwright.verbs.gc import gc_text

OTHER = "eu-central-1"


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    """One API and one client of each service for all tests: SageMaker's model takes half a second to load."""
    made = Api(ACCOUNT, Images(), Tokens(), Faults())
    with pytest.MonkeyPatch.context() as patch, served(made) as url:
        patch.delenv("AWS_PROFILE", raising=False)
        for name, value in {"ENDPOINT_URL": url, "ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "x"}.items():
            patch.setenv(f"AWS_{name}", value)
        patch.setattr(ecr_module, "TRIES", 2)
        clients: dict[tuple[str, str], Any] = {}
        make = ecr_module.aws_client

        def client(service: str, region: str, site: Site, tries: int | None = None) -> Any:
            found = clients.get((service, region)) or make(service, region, site, tries)
            return clients.setdefault((service, region), found)

        for module in (ecr_module, job_images):
            patch.setattr(module, "aws_client", client)
        patch.setattr(gc, "Registry", Papers)
        yield made
    ecr_backends.pop(ACCOUNT, None)


@pytest.fixture
def cloud(api: Api) -> Iterator[Cloud]:
    api.jobs.records.clear()
    yield Cloud(api)
    api.faults.disarm()
    api.meanwhile = lambda _: None


# --- what holds an image ----------------------------------------------------------------------------------------------


def test_each_kind_of_hold_is_named(cloud: Cloud) -> None:
    tagged = cloud.image("tagged", "prod")
    old, held = cloud.image("old", proof=True), cloud.image("held")
    log = TagLog(cloud.ecr, cloud.papers, "moving")
    decide(log, "moved", old)
    decide(log, "held", held)
    by_digest, by_tag, by_job = cloud.image("digest"), cloud.image("tag", "latest"), cloud.image("job")
    cloud.job("one", cloud.place.digested(by_digest.digest))
    cloud.job("two", f"{cloud.place.host}/{cloud.place.repository}")
    cloud.job("three", cloud.place.tagged(f"job-py311-debian12-20250101-{'a' * 12}"))
    cloud.job("other", f"{cloud.place.host}/team/other:prod")
    cloud.job("algorithm", None)
    inner, archived, pulled, fresh = (cloud.image(name) for name in ("inner", "archived", "pulled", "fresh"))
    index = cloud.index(inner, tag="soci")
    cloud.age()
    cloud.age(89, fresh.digest)
    cloud.record(archived).status = "ARCHIVED"
    cloud.record(pulled).pulled = (TODAY - timedelta(days=10)).timestamp()
    day = f"{TODAY - timedelta(days=10):%Y-%m-%d}"
    rows = {row.digest: {(hold.by, hold.name) for hold in row.holds} for row in cloud.gc().images}
    assert rows.pop(cloud.ecr.digest(history_tag("moving")) or "") == {("tag", "moving"), ("image", old.digest)}
    assert rows == {
        tagged.digest: {("tag", "prod")},
        old.digest: {("rollback", "moving")},
        held.digest: {("moving", "moving"), ("held", "moving")},
        by_digest.digest: {("job", "one")},
        by_tag.digest: {("tag", "latest"), ("job", "two")},
        by_job.digest: {("job", "three")},
        inner.digest: {("index", index.digest)},
        index.digest: {("tag", "soci")},
        archived.digest: {("archived", "")},
        pulled.digest: {("pulled", day)},
        fresh.digest: {("pushed", f"{TODAY - timedelta(days=89):%Y-%m-%d}")},
    }
    before = cloud.there
    assert "deleted" not in cloud.states(delete=True).values()
    assert cloud.there == before


def test_a_job_holds_as_long_as_it_says(cloud: Cloud) -> None:
    image = cloud.image("a", proof=True)
    cloud.job("old", cloud.place.digested(image.digest), days=91)
    assert cloud.states() == {image.digest: "unused"}
    assert cloud.states(keep_days=92) == {image.digest: "held"}
    # One that still runs may have been modified a month ago.
    cloud.job("runs", cloud.place.digested(image.digest), days=29)
    assert cloud.states(keep_days=1) == {image.digest: "held"}


def test_all_jobs_are_looked_at(cloud: Cloud) -> None:
    images = [cloud.image(f"a{number}") for number in range(3)]
    for number in range(230):
        cloud.job(f"job-{number}", cloud.place.digested(images[number // 100].digest))
    document = cloud.gc()
    assert document.jobs == 230
    assert cloud.calls.count("ListTrainingJobs") == 3
    assert {row.state for row in document.images} == {"held"}


def test_a_job_that_is_deleted_meanwhile_is_passed_over(cloud: Cloud) -> None:
    image = cloud.image("a")
    cloud.job("one", "x")
    cloud.job("two", cloud.place.digested(image.digest))
    cloud.when("DescribeTrainingJob", lambda: cloud.api.jobs.records[REGION].pop(0))
    assert cloud.states() == {image.digest: "held"}


def test_an_index_whose_image_is_pulled_stays_and_one_that_only_we_read_does_not(cloud: Cloud) -> None:
    image = cloud.image("a", proof=True)
    index = cloud.index(image)
    assert cloud.states() == {image.digest: "unused", index.digest: "unused"}
    assert cloud.calls.count("BatchGetImage") == 1
    assert cloud.record(index).pulled  # ECR counts our reading
    assert set(cloud.states().values()) == {"unused"}
    cloud.record(image).pulled = TODAY.timestamp()
    assert set(cloud.states().values()) == {"held"}


def test_an_index_that_nothing_holds_goes_though_its_image_stays(cloud: Cloud) -> None:
    image = cloud.image("a", "prod", proof=True)
    soci = cloud.untagged(manifest({"name": "soci"}))
    index = cloud.index(image, soci)
    assert cloud.states(delete=True) == {image.digest: "held", soci.digest: "deleted", index.digest: "deleted"}


def test_an_image_with_a_proof_is_not_read(cloud: Cloud) -> None:
    """ECR counts reading as a pull, and the next run would keep it for that."""
    cloud.image("a", proof=True)
    cloud.gc()
    assert "BatchGetImage" not in cloud.calls
    assert set(cloud.states(delete=True).values()) == {"deleted"}


# --- what is deleted --------------------------------------------------------------------------------------------------


def test_only_delete_deletes_and_takes_the_documents_along(cloud: Cloud) -> None:
    unused, kept = cloud.image("a", proof=True), cloud.image("b", "prod", proof=True)
    signature = cloud.papers.attach(unused, b"x", "a/signature", {}, tag="sig")
    signed = cloud.papers.attach(ImageManifest(signature, "", MANIFEST), b"y", "a/signature", {}, tag="sig-of-sig")
    cloud.age()
    before = cloud.there
    (row,) = [row for row in cloud.gc().images if row.state == "unused"]
    assert (row.digest, row.documents) == (unused.digest, 4)
    assert cloud.there == before
    assert "BatchDeleteImage" not in cloud.calls
    assert cloud.states(delete=True) == {unused.digest: "deleted", kept.digest: "held"}
    assert before - cloud.there > {unused.digest, signature, signed}
    assert len(cloud.there) == 3
    assert cloud.states(delete=True) == {kept.digest: "held"}


def test_what_others_built_stays(cloud: Cloud) -> None:
    theirs = cloud.image("theirs", ours=False)
    cosign = cloud.untagged(manifest({"name": "cosign"}))
    cloud.ecr.put_tag(cosign, f"sha256-{'9' * 64}.sig")
    inside = cloud.untagged(manifest({"name": "inside"}))
    index = cloud.index(inside)
    states = cloud.states(delete=True)
    assert {states[one.digest] for one in (theirs, inside, index)} == {"foreign"}
    assert states[cosign.digest] == "held"
    assert {theirs.digest, inside.digest, index.digest, cosign.digest} == cloud.there


def test_an_index_goes_before_its_images_and_takes_all_of_them(cloud: Cloud) -> None:
    image = cloud.image("a", proof=True)
    soci = cloud.untagged(manifest({"name": "soci"}))
    index = cloud.index(image, soci)
    outer = cloud.index(index)
    assert cloud.states(delete=True) == dict.fromkeys((one.digest for one in (image, soci, index, outer)), "deleted")
    assert cloud.there == set()


def test_batches_are_not_larger_than_ecr_takes(cloud: Cloud) -> None:
    for number in range(60):
        cloud.image(f"a{number}", f"a{number}-py312-debian12-20250102-{'b' * 12}", proof=number < 51)
    assert set(cloud.states(delete=True).values()) == {"deleted"}
    assert cloud.calls.count("BatchDeleteImage") == 4  # 120 tags, 102 documents
    assert cloud.there == set()


def test_more_images_than_a_page_has(cloud: Cloud) -> None:
    one = cloud.record(cloud.image("a"))
    for number in range(1000):
        cloud.records.append(copy(one))
        cloud.records[-1]._image_digest, cloud.records[-1].image_tags = f"sha256:{number:064}", []
    cloud.age(1)
    assert len(cloud.gc().images) == 1001


def test_documents_whose_image_is_gone_go_unless_they_are_of_others(cloud: Cloud) -> None:
    image = cloud.image("a", proof=True)
    theirs = cloud.papers.attach(image, b"x", "a/signature", {}, tag="signature")
    cloud.ecr.delete([image.digest])
    cloud.age(1)
    assert set(cloud.states(delete=True).values()) == {"held"}
    cloud.age()
    assert sorted(cloud.states(delete=True).values()) == ["deleted", "deleted", "foreign"]
    assert cloud.there == {theirs}


def test_a_log_goes_with_its_tag_and_its_images(cloud: Cloud) -> None:
    image = cloud.image("a", proof=True)
    log = TagLog(cloud.ecr, cloud.papers, "moving")
    decide(log, "moved", image)
    written = log.read()[0].at
    cloud.age()
    assert set(cloud.states(delete=True).values()) == {"held"}
    cloud.ecr.delete(["moving", image.digest])
    for document in [one for one in cloud.records if "decision" in one.image_manifest]:
        document.image_manifest = document.image_manifest.replace(str(written.year), str(written.year - 2))
    assert len(cloud.there) == 4  # the log, its decision, two documents
    assert set(cloud.states(delete=True).values()) == {"deleted"}
    assert cloud.there == set()


# --- what happens meanwhile -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["ListTrainingJobs", "DescribeTrainingJob"])
def test_without_the_permission_to_see_jobs_nothing_is_deleted(cloud: Cloud, operation: str) -> None:
    cloud.image("a")
    cloud.job("one", "x")
    cloud.refuse(operation, "AccessDeniedException", message="User: x is not authorized")
    before = cloud.there
    with pytest.raises(RegistryRefused) as refused:
        cloud.gc(delete=True)
    assert f"sagemaker:{operation}" in refused.value.remedy
    assert (cloud.there, refused.value.exit_code) == (before, 7)


def test_a_region_that_cannot_be_looked_at_keeps_the_others_whole(cloud: Cloud) -> None:
    cloud.image("a")
    Ecr(PushPlace(ACCOUNT, OTHER, cloud.place.repository), Site())._call("create_repository")
    cloud.job("one", "x", region=OTHER)
    cloud.refuse("DescribeTrainingJob", "AccessDeniedException")
    before = cloud.there
    with pytest.raises(RegistryRefused):
        cloud.gc(delete=True, regions=(REGION, OTHER))
    assert cloud.there == before


def test_throttling_is_waited_for_and_then_says_what_was_deleted(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda _: None)
    images = [cloud.image(f"a{number}") for number in range(101)]
    cloud.refuse("ListTrainingJobs", "ThrottlingException")
    cloud.refuse("BatchDeleteImage", "ThrottlingException")
    cloud.when("BatchDeleteImage", lambda: cloud.refuse("BatchDeleteImage", "ThrottlingException", 2), nth=3)
    with pytest.raises(RegistryRefused) as refused:
        cloud.gc(delete=True)
    assert refused.value.details["cause"] == "ThrottlingException"
    gone = {one.digest for one in images} - cloud.there
    assert {*refused.value.details["deleted"]} == gone
    assert len(gone) == 100


def test_an_image_that_gets_a_tag_after_the_look_stays(cloud: Cloud) -> None:
    image, other = cloud.image("a", proof=True), cloud.image("b", proof=True)
    cloud.when("ListImages", lambda: cloud.ecr.put_tag(image, "prod"), nth=2)  # the first is for logs
    assert cloud.states(delete=True) == {image.digest: "held", other.digest: "deleted"}
    assert len(cloud.ecr.tags_of(image.digest)) == 2
    assert len(cloud.there) == 3  # with its proof


def test_an_image_that_gets_a_tag_in_the_very_moment_stays_with_all_its_tags(cloud: Cloud) -> None:
    image, other = cloud.image("a", proof=True), cloud.image("b", proof=True)
    before = {*cloud.ecr.tags_of(image.digest), "prod"}
    cloud.when("BatchDeleteImage", lambda: cloud.ecr.put_tag(image, "prod"))
    assert cloud.states(delete=True) == {image.digest: "held", other.digest: "deleted"}
    assert {*cloud.ecr.tags_of(image.digest)} == before
    assert len(cloud.there) == 3


def test_an_image_whose_job_starts_after_the_look_stays(cloud: Cloud) -> None:
    image = cloud.image("a")
    cloud.when("ListImages", lambda: cloud.job("new", cloud.place.digested(image.digest), days=0), nth=2)
    assert cloud.states(delete=True) == {image.digest: "held"}
    assert cloud.there == {image.digest}


def test_an_index_that_is_used_after_the_look_keeps_its_images(cloud: Cloud) -> None:
    image = cloud.image("a")
    index = cloud.index(image)
    cloud.when("ListImages", lambda: cloud.ecr.put_tag(index, "soci"), nth=2)
    assert set(cloud.states(delete=True).values()) == {"held"}
    assert cloud.there == {image.digest, index.digest}


def test_what_ecr_refuses_to_delete_is_said_and_the_rest_goes(cloud: Cloud) -> None:
    image, other = cloud.image("a", proof=True), cloud.image("b", proof=True)
    cloud.when("BatchDeleteImage", lambda: cloud.index(image, tag="soci"))
    document = cloud.gc(delete=True)
    rows = {row.digest: row for row in document.images}
    assert rows[image.digest].state == "failed"
    assert "ImageReferencedByManifestList" in rows[image.digest].says
    assert rows[other.digest].state == "deleted"
    assert len(cloud.api.images.referrers(cloud.repository, image.digest)) == 2
    assert "1 not deleted" in gc_text(document)


def test_what_somebody_else_deletes_meanwhile_is_gone(cloud: Cloud) -> None:
    image = cloud.image("a")
    cloud.when("BatchDeleteImage", cloud.records.clear)
    assert cloud.states(delete=True) == {image.digest: "deleted"}


def test_documents_that_stay_are_said_and_those_that_went_meanwhile_are_not(cloud: Cloud) -> None:
    image = cloud.image("a", proof=True)
    documents = cloud.there - {image.digest}
    stays, goes = sorted(documents)

    def meanwhile() -> None:
        cloud.index(ImageManifest(stays, "", MANIFEST), tag="strange")
        cloud.ecr.delete([goes])

    cloud.when("BatchDeleteImage", meanwhile, nth=2)
    assert cloud.states(delete=True) == {image.digest: "deleted", stays: "failed"}


# --- words ------------------------------------------------------------------------------------------------------------


def test_a_repository_that_does_not_exist(cloud: Cloud) -> None:
    cloud.place = PushPlace(ACCOUNT, REGION, "none/such")
    with pytest.raises(RegistryRefused) as refused:
        cloud.gc()
    assert refused.value.details["cause"] == "repository"


def test_an_empty_repository_says_so(cloud: Cloud) -> None:
    assert gc_text(cloud.gc()) == "the repository has no images"
