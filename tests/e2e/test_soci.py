"""`push --soci` into a registry with ECR's rules: what is there then, what tags point to, and what follows them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from moto.ecr.models import ecr_backends

from tests.doubles.aws import emulated_aws, why_not
from tests.support import registry_images
from tests.support.build_records import record_of
from tests.support.registry_images import push_image
from trainwright.catalog.catalog import Catalog, load_catalog
from trainwright.core.errors import Failure, RegistryRefused, RequestError
from trainwright.estimator.image_labels import ecr_labels
from trainwright.fresh.images import in_registry
from trainwright.pipeline.images import ChosenImage
from trainwright.plan.plan import Plan
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.push import patience, push
from trainwright.push import soci as soci_of_push
from trainwright.push.attest import attested
from trainwright.push.documents import PushedImage
from trainwright.push.ecr import Ecr, ImageManifest
from trainwright.push.gc import collect
from trainwright.push.moving import decide
from trainwright.push.options import PromoteOptions, PushOptions
from trainwright.push.promote import promote_image
from trainwright.push.references import PushPlace, PushTarget
from trainwright.push.registry import Registry
from trainwright.push.repository import load_policy
from trainwright.push.tag_log import TagLog
from trainwright.push.tags import Tags, tags_of
from trainwright.site.site import Site

ACCOUNT, OTHER, WEST = "740000000001", "740000000002", "us-west-2"
DAY = datetime(2026, 11, 1, tzinfo=UTC)
REQUEST = make_request(framework="pytorch", cuda="cu124", version="2.6.0")
# Names of soci/soci_index.go in awslabs/soci-snapshotter (Apache-2.0) at commit 77fb426.
SOCI = "application/vnd.amazon.soci.index.v2+json"
OCI_MANIFEST, OCI_CONFIG = "application/vnd.oci.image.manifest.v1+json", "application/vnd.oci.image.config.v1+json"
Ship = Callable[..., PushedImage]


def layer_of(size: int) -> bytes:
    """A layer with one file that does not compress."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        entry = tarfile.TarInfo("opt/weights")
        entry.size = size
        archive.addfile(entry, io.BytesIO(os.urandom(size)))
    return gzip.compress(out.getvalue(), 1)


LARGE, SMALL = layer_of(300_000), layer_of(20_000)


@pytest.fixture(scope="module")
def clouds():
    if reason := why_not():
        pytest.skip(reason)
    with emulated_aws(ACCOUNT, (WEST,), (OTHER,)) as aws:
        yield aws


@pytest.fixture
def aws(clouds, monkeypatch, tmp_path):
    clouds.lend(monkeypatch)
    own = {"TRAINWRIGHT_STATE": str(tmp_path / "state"), "TRAINWRIGHT_CACHE": str(tmp_path / "cache")}
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(patience, "TRIES", 1)
    monkeypatch.setattr(soci_of_push, "SMALLEST", 100_000)  # so that the tests need less of their two processors
    clouds.requests.clear()
    yield clouds
    clouds.release()


@pytest.fixture(scope="module")
def plan() -> Plan:
    return resolve(REQUEST, catalog())


@pytest.fixture
def place(aws) -> PushPlace:
    place = PushPlace(ACCOUNT, WEST, f"dev/{uuid.uuid4().hex[:8]}")
    aws.client("ecr").create_repository(repositoryName=place.repository)
    return place


@pytest.fixture
def ship(aws, place, plan, tmp_path) -> Ship:
    """Push what an engine would have sent: the layers are put there by hand, all else is `push`."""

    def run(
        *layers: bytes, soci: bool = True, sign: Any = None, notes: list[str] | None = None, of: str = ""
    ) -> PushedImage:
        ecr, registry = opened(place)
        tags = wanted(plan)
        image = ecr.manifest(tag=tags.immutable)
        if image is None:
            image = push_image(ecr, registry, *layers, tag=tags.immutable, built=DAY, labels=plan.labels)
        record = record_of(plan, of.format(manifest=image.digest) or json.loads(image.text)["config"]["digest"])
        record = record.replace(built_at=DAY.isoformat())
        sbom = tmp_path / "sbom.json"
        sbom.write_text("{}")
        said = registry.published(image)
        assert said is not None
        parcel = push.Parcel("here", record, record.image_id, tags, said, sbom, "")
        client: Any = None
        given = PushOptions(soci=soci, tag=("mine",))
        run = push._Run(Site(), given, load_policy(), print, client, sign, notices=[] if notes is None else notes)
        return push._move_tags(run, push._ship(run, push._open(run, place, [parcel]), parcel))

    return run


@cache
def catalog() -> Catalog:
    return load_catalog()


def wanted(plan: Plan) -> Tags:
    return tags_of(plan, DAY, catalog())


def opened(place: PushPlace) -> tuple[Ecr, Registry]:
    ecr = Ecr(place, Site())
    return ecr, Registry(ecr, Site())


def there(ecr: Ecr, digest: str) -> tuple[ImageManifest, dict[str, Any]]:
    found = ecr.manifest(digest=digest)
    assert found is not None
    assert found.digest == f"sha256:{hashlib.sha256(found.text.encode()).hexdigest()}"
    return found, json.loads(found.text)


def test_the_index_is_what_upstream_describes_and_tags_point_to_it(aws, place, plan, ship, monkeypatch):
    monkeypatch.setattr(soci_of_push, "SMALLEST", 10 << 20)
    row = ship(layer_of(10 << 20), SMALL, layer_of((10 << 20) - 20_000))
    ecr, registry = opened(place)
    assert row.soci is not None
    immutable = wanted(plan).immutable
    tags = {tag: digest for tag, digest in ecr.tags().items() if not tag.startswith(("sha256-", "history-"))}
    assert tags == {immutable: row.soci.pushed_image} | dict.fromkeys(
        [f"{immutable}-soci", "mine", "pytorch-2.6.0-cu124", "pytorch-2.6-cu124"], row.soci.index
    )
    assert {one.tag: one.kind for one in row.tags if one.kind == "immutable"} == dict.fromkeys(
        [immutable, f"{immutable}-soci"], "immutable"
    )
    assert (row.digest, row.uri) == (row.soci.index, place.digested(row.soci.index))

    kind, index = there(ecr, row.soci.index)
    assert kind.media_type == index["mediaType"] == "application/vnd.oci.image.index.v1+json"
    image_entry, soci_entry = index["manifests"]
    (_, original), (_, image), (_, soci) = (
        there(ecr, digest) for digest in (row.soci.pushed_image, image_entry["digest"], soci_entry["digest"])
    )
    for entry in (image_entry, soci_entry):
        assert entry["mediaType"] == OCI_MANIFEST
        assert entry["size"] == len(there(ecr, entry["digest"])[0].text)
        assert entry["platform"] == {"architecture": "amd64", "os": "linux"}
    # The image is the one that was pushed, with a note of its SOCI index.
    assert image["layers"] == original["layers"]
    assert image["config"] == {**original["config"], "mediaType": OCI_CONFIG}
    assert image["annotations"]["com.amazon.soci.index-digest"] == soci_entry["digest"]
    assert image_entry["annotations"] == image["annotations"]
    assert soci_entry["artifactType"] == SOCI
    assert soci_entry["annotations"] == {"com.amazon.soci.image-manifest-digest": image_entry["digest"]}
    # The SOCI index has a ztoc of the large layer alone.
    assert soci["config"]["mediaType"] == SOCI
    assert registry.blob(soci["config"]["digest"]) == b"{}"
    (ztoc,) = soci["layers"]
    large = original["layers"][0]
    assert ztoc["mediaType"] == "application/octet-stream"
    assert ztoc["annotations"] == {
        "com.amazon.soci.image-layer-digest": large["digest"],
        "com.amazon.soci.image-layer-mediaType": large["mediaType"],
        "com.amazon.soci.span-size": "4194304",
    }
    content = registry.blob(ztoc["digest"])
    assert (len(content), row.soci.ztoc_bytes, row.soci.layers) == (ztoc["size"], ztoc["size"], 1)
    # The layer's file is listed in it, and each of its spans by checksum.
    spans = range(0, 10 << 20, 4 << 20)
    assert b"opt/weights" in content
    assert content.count(b"sha256:") == len(spans)


def test_what_reads_a_tag_follows_it_to_the_image(aws, place, plan, ship):
    signed: list[tuple[str, list[str]]] = []

    def sign(_: Ecr, __: Registry, image: ImageManifest, documents: Any) -> str:
        signed.append((image.digest, [name for name, _ in documents]))
        return image.digest

    row = ship(LARGE, sign=sign)
    ecr, registry = opened(place)
    index = ecr.manifest(tag="pytorch-2.6-cu124")
    assert index is not None and row.soci is not None
    assert index.digest == row.soci.index
    labels = ecr_labels(place, Site(), tag="pytorch-2.6-cu124")
    assert labels is not None
    assert labels["io.trainwright.plan"] == plan.id
    single = registry.single(index)
    assert single.digest == row.soci.image
    assert attested(ecr, registry, single, registry.published(single)).plan == plan
    # The newest image of its line is named with its index.
    newest = in_registry([ChosenImage("line", REQUEST, plan)], place, catalog(), Site(), say=print)
    assert newest["line"].address == row.uri
    # Whatever the order: who converts an image again appends its SOCI index elsewhere.
    said = json.loads(index.text)
    turned = json.dumps({**said, "manifests": said["manifests"][::-1]})
    other = ImageManifest(f"sha256:{hashlib.sha256(turned.encode()).hexdigest()}", turned, index.media_type)
    assert ecr.put_tag(other, "turned")
    assert registry.single(other).digest == row.soci.image
    # What jobs name is signed, with the proof of the image in it; and the image alone, for whoever names that.
    assert [digest for digest, _ in signed] == [row.soci.pushed_image, row.soci.index]
    assert {"record", "sbom"} <= {*signed[1][1]}


def test_the_record_of_an_engine_whose_ids_are_of_manifests_is_found(place, ship):
    row = ship(LARGE, of="{manifest}")
    ecr, registry = opened(place)
    assert row.soci is not None
    image, _ = there(ecr, row.soci.image)
    assert attested(ecr, registry, image, registry.published(image)).image_id == row.soci.pushed_image


def test_the_same_again_sends_nothing_with_or_without_the_flag(aws, place, ship):
    first = ship(LARGE, SMALL)
    for soci in (True, False):
        aws.requests.clear()
        row = ship(soci=soci)
        assert row.digest == first.digest
        assert row.soci is not None and first.soci is not None
        assert (row.soci.made, row.soci.index, row.soci.layers) == (False, first.soci.index, 1)
        assert row.soci.ztoc_bytes == first.soci.ztoc_bytes
        assert {one.state for one in row.tags} == {"there already"}
        assert not [asked for asked in aws.requests if asked.method in ("POST", "PATCH", "PUT")]


def test_a_ztoc_is_made_once_on_a_machine(aws, place, plan, ship):
    first = ship(LARGE)
    (kept,) = Path(os.environ["TRAINWRIGHT_CACHE"], "ztocs").iterdir()
    assert first.soci is not None
    assert kept.stat().st_size == first.soci.ztoc_bytes
    # The index is made anew, and the layer is not read again.
    opened(place)[0].delete([f"{wanted(plan).immutable}-soci", "mine", "pytorch-2.6.0-cu124", "pytorch-2.6-cu124"])
    aws.requests.clear()
    again = ship()
    assert (again.digest, again.soci and again.soci.made) == (first.digest, True)
    layer = json.loads(there(opened(place)[0], first.soci.pushed_image)[0].text)["layers"][0]["digest"]
    assert not [asked for asked in aws.requests if layer in asked.path]


@pytest.mark.parametrize(
    ("method", "path"),
    [("PUT", "/blobs/uploads/"), ("PUT", "/manifests/sha256:"), ("PUT", "-soci$")],
)
def test_wherever_it_breaks_off_no_moving_tag_has_moved(aws, place, plan, ship, method, path):
    immutable = wanted(plan).immutable
    before = ship(LARGE, SMALL, soci=False)
    ecr, _ = opened(place)
    tags = ecr.tags()
    aws.fail_registry(method, path, 500, 10)
    with pytest.raises(RegistryRefused):
        ship()
    assert ecr.tags() == tags
    assert ecr.digest("pytorch-2.6-cu124") == before.digest
    aws.release()
    row = ship()
    assert row.soci is not None
    assert ecr.digest("pytorch-2.6-cu124") == row.soci.index == ecr.digest(f"{immutable}-soci")


def test_layers_of_zstd_are_refused_and_no_tag_moves(aws, place, ship, monkeypatch):
    zstd = "application/vnd.oci.image.layer.v1.tar+zstd"
    monkeypatch.setattr(registry_images, "LAYER", zstd)
    with pytest.raises(RequestError, match="zstd") as refused:
        ship(LARGE)
    assert refused.value.details["uri"]
    assert [tag for tag in opened(place)[0].tags() if tag.startswith("pytorch-2.6-")] == []


def test_small_layers_need_no_index(place, ship):
    notes: list[str] = []
    row = ship(SMALL, notes=notes)
    assert row.soci is None
    assert opened(place)[0].digest("pytorch-2.6-cu124") == row.digest
    assert any("10" in note and "SOCI" in note for note in notes)


def test_a_broken_layer_is_not_indexed(place, ship):
    cut = LARGE[:200_000]
    with pytest.raises(Failure):
        ship(cut)
    assert [tag for tag in opened(place)[0].tags() if tag.endswith("-soci")] == []


def test_a_foreign_image_under_the_tag_of_the_index_is_left_alone(place, plan, ship):
    immutable = wanted(plan).immutable
    rival = push_image(*opened(place), SMALL, tag=f"{immutable}-soci", built=DAY)
    with pytest.raises(RegistryRefused) as refused:
        ship(LARGE)
    assert refused.value.details["cause"] == "immutable"
    assert opened(place)[0].digest(f"{immutable}-soci") == rival.digest


@pytest.mark.parametrize("named", ["index", "pushed_image"])
def test_it_is_promoted_with_its_index(aws, place, plan, ship, named):
    row = ship(LARGE, SMALL)
    assert row.soci is not None
    to = PushPlace(OTHER, WEST, f"prod/{uuid.uuid4().hex[:8]}")
    digest = getattr(row.soci, named)
    options = PromoteOptions(create=True, tag=("release-1",))
    (promoted,) = promote_image(place.digested(digest), [to], Site(), options, say=print).promoted
    ecr, registry = opened(to)
    assert ecr.digest("release-1") == digest
    index, said = there(ecr, row.soci.index)
    immutable = wanted(plan).immutable
    assert ecr.digest(f"{immutable}-soci") == index.digest
    assert ecr.digest(immutable) == (row.soci.pushed_image if named == "pushed_image" else None)
    assert f"{immutable}-soci" in {one.tag for one in promoted.tags}
    # All of it: the image, the ztocs, the proof of the image in the index.
    image, soci = (there(ecr, each["digest"])[1] for each in said["manifests"])
    assert all(registry.has_blob(layer["digest"]) for layer in (*image["layers"], *soci["layers"]))
    single = registry.single(index)
    assert attested(ecr, registry, single, registry.published(single)).plan == plan


def test_cleaning_up_keeps_what_a_tag_leads_to_and_takes_the_rest(aws, place, plan, ship):
    row = ship(LARGE)
    assert row.soci is not None
    ecr, registry = opened(place)
    entries = json.loads(there(ecr, row.soci.index)[0].text)["manifests"]
    inside = {entry["digest"] for entry in entries}
    assert len(inside) == 2

    def states() -> dict[str, str]:
        records: list[Any] = ecr_backends[ACCOUNT][WEST].repositories[place.repository].images
        for image in records:
            image.image_pushed_at, image.pulled = DAY.timestamp() - 1e7, None
        target = PushTarget(place.repository, (WEST,), ACCOUNT)
        found = collect(target, Site(), account=ACCOUNT, keep_days=90, delete=True, say=print)
        return {one.digest: one.state for one in found.images if one.kind in ("image", "index")}

    # The moving tags hold the index, and that what is in it; the image as it was pushed has only its own tag.
    assert states() == {row.soci.pushed_image: "deleted"} | dict.fromkeys([row.soci.index, *inside], "held")
    single = registry.single(there(ecr, row.soci.index)[0])
    assert attested(ecr, registry, single, registry.published(single)).plan == plan
    # A newer image takes the tags; the own tag of the index holds nothing.
    newer = [push_image(ecr, registry, name, tag=f"release-{name[0]}", built=DAY) for name in (b"a", b"b")]
    for tag, image in product(("mine", "pytorch-2.6.0-cu124", "pytorch-2.6-cu124"), newer):
        decide(TagLog(ecr, registry, tag), "moved", image)
    assert states() == {image.digest: "held" for image in newer} | dict.fromkeys([row.soci.index, *inside], "deleted")
    assert not {row.soci.index, *inside} & {one.digest for one in ecr.images()}
