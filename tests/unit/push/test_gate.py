"""Who may leave, what labels may say, which tags move, and the bill of materials."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from hypothesis import given
from hypothesis import strategies as st

from tests.support.build_records import record_of
from trainwright.build.store import BuildRecord
from trainwright.catalog.catalog import Catalog, load_catalog
from trainwright.core.errors import ProofFailed
from trainwright.plan.plan import Plan
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.push.history import pushes, remember
from trainwright.push.moving import hindrance
from trainwright.push.proof import gate, smoke_lacks
from trainwright.push.published import Published, moment
from trainwright.push.sbom import make_sbom

IMAGE = "sha256:" + "ab" * 32
DAY = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return resolve(make_request(framework="pytorch", cuda="cu124", version="2.6.0"), load_catalog())


@pytest.fixture
def record(plan) -> BuildRecord:
    return record_of(plan, IMAGE)


def with_smoke(record: BuildRecord, **fields: Any) -> BuildRecord:
    assert record.smoke is not None
    return record.replace(smoke={**record.smoke, **fields})


def test_a_proven_image_passes(record):
    assert gate(record, "x", unproven=False).proven


@pytest.mark.parametrize(
    "fields",
    [{"failed": 1}, {"passed": 0}, {"plan": "0" * 64}, {"image_id": "sha256:" + "0" * 64}, {"failed": None}],
)
def test_a_smoke_run_that_proves_nothing(record, fields):
    lacking = with_smoke(record, **fields)
    with pytest.raises(ProofFailed, match="smoke"):
        gate(lacking, "x", unproven=False)
    proof = gate(lacking, "x", unproven=True)
    assert not proof.proven
    assert proof.lacking == smoke_lacks(lacking)


def test_no_smoke_run(plan):
    with pytest.raises(ProofFailed, match="no smoke tests"):
        gate(record_of(plan, IMAGE, smoke=False), "x", unproven=False)


def changed(record: BuildRecord, *path: str, value: Any) -> BuildRecord:
    """The record with another value somewhere in its probe."""
    probe = json.loads(json.dumps(record.probe))
    inner = probe
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return record.replace(probe=probe)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("facts", "pytorch", "version"), "2.6.1"),
        (("facts", "pytorch", "version"), "2.6.01"),
        (("facts", "pytorch", "cuda"), "12.1"),
        (("facts", "cuda", "version"), "12.1"),
        (("image", "labels", "io.trainwright.cuda"), "12.6"),
        (("facts", "nccl", "version"), "2.20.5"),
        (("interpreter", "version"), "3.12.1"),
        (("os", "VERSION_ID"), "13"),
        (("image", "labels", "io.trainwright.component.nccl"), "2.99.0 (wheel)"),
        (("image", "labels", "io.trainwright.plan"), "0" * 64),
        (("image", "labels"), {}),
        (("image", "id"), "sha256:" + "0" * 64),
        (("distributions", "torch"), "2.5.1"),
    ],
)
def test_what_labels_and_tags_would_say_has_to_be_true(record, path, value):
    """Not even --unproven lets it pass: that is about tests, not about lies."""
    for unproven in (True, False):
        with pytest.raises(ProofFailed) as refused:
            gate(changed(record, *path, value=value), "x", unproven=unproven)
        assert refused.value.details["differences"]


def test_every_line_of_the_catalog_passes_where_its_probe_finds_what_is_expected():
    catalog = load_catalog()
    for entry in catalog.lines:
        line = entry.line
        request = make_request(framework=line.framework, cuda=line.cuda, version=line.version)
        plan = resolve(request, Catalog([entry], catalog.components, catalog.rules))
        assert gate(record_of(plan, IMAGE), "x", unproven=False).proven, entry.path


# --- moving tags ------------------------------------------------------------------------------------------------------


def published(**fields: Any) -> Published:
    given = {"built": DAY, "plan": "p", "framework": "pytorch", "version": "2.6.0", "unproven": False, **fields}
    return Published(**given)


images = st.builds(
    published,
    built=st.sampled_from([DAY + timedelta(hours=n) for n in range(4)]),
    version=st.sampled_from(["2.6.0", "2.6.1", "2.10.0"]),
    unproven=st.booleans(),
)


@given(images, images)
def test_a_tag_never_goes_back(current, new):
    if not hindrance(current, new):
        assert not (new.unproven and not current.unproven)
        if current.unproven == new.unproven:
            assert (len(new.version), new.version, new.built) >= (len(current.version), current.version, current.built)


@given(st.lists(images, min_size=1, max_size=8), st.randoms())
def test_a_tag_ends_at_the_same_image_in_whatever_order_they_come(several, random):
    def last(order: list[Published]) -> tuple[Any, ...]:
        at = order[0]
        for new in order[1:]:
            at = at if hindrance(at, new) else new
        return at.unproven, at.version, at.built

    shuffled = list(several)
    random.shuffle(shuffled)
    assert last(several) == last(shuffled)


@given(images)
def test_a_tag_may_be_set_anew_where_it_is(image):
    assert not hindrance(image, image)


def test_a_tag_of_something_else_is_left_alone():
    assert hindrance(None, published())
    assert hindrance(published(plan=""), published())
    assert hindrance(published(framework="tensorflow"), published())


def test_moments():
    assert moment("2026-11-21T13:18:12.867076913Z") == datetime(2026, 11, 21, 13, 18, 12, 867076, tzinfo=UTC)
    assert moment("2026-11-21T15:18:12+02:00") == datetime(2026, 11, 21, 13, 18, 12, tzinfo=UTC)
    with pytest.raises(ValueError, match="yesterday"):
        moment("yesterday")


# --- the bill of materials and the memory -----------------------------------------------------------------------------


def test_a_bill_of_materials_is_cyclonedx_and_has_what_no_package_database_knows(record):
    text = make_sbom(record.plan, record.probe, IMAGE, DAY)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    document = json.loads(text)
    purls = {component.get("purl") for component in document["components"]}
    assert {"pkg:pypi/torch@2.6.0", "pkg:deb/debian/libc6@2.36-9?distro=debian-12"} <= purls
    metis = next(c for c in document["components"] if c["name"] == "metis")
    assert any("sha256:" in each["value"] for each in metis["properties"])
    assert document["metadata"]["component"]["hashes"] == [{"alg": "SHA-256", "content": "ab" * 32}]
    assert text == make_sbom(record.plan, record.probe, IMAGE, DAY)


def test_licences_that_the_probe_found_are_in_the_bill_of_materials(record):
    licences = {"torch": "BSD-3-Clause", "numpy": "BSD-3-Clause AND MIT", "sympy": "as is </script>"}
    text = make_sbom(record.plan, {**record.probe, "distribution_licences": licences}, IMAGE, DAY)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    found = {c["name"]: c["licenses"] for c in json.loads(text)["components"] if "licenses" in c}
    assert found == {
        "torch": [{"license": {"id": "BSD-3-Clause"}}],
        "numpy": [{"expression": "BSD-3-Clause AND MIT"}],
        "sympy": [{"license": {"name": "as is </script>"}}],
    }


def test_archives_of_a_bill_of_materials_have_their_checksums():
    plan = resolve(make_request(framework="pytorch", cuda="cu113", version="1.10.2"), load_catalog())
    text = make_sbom(plan, {"os": {}, "packages": {}, "distributions": {}}, IMAGE, DAY)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    found = {c["name"]: c for c in json.loads(text)["components"]}
    boost = plan.component("boost")
    assert boost is not None
    reference = found["boost"]["externalReferences"][0]
    assert reference["url"] == boost.archives[0].url
    assert reference["hashes"][0]["content"] == boost.archives[0].sha256


@pytest.mark.usefixtures("own_places")
def test_pushes_are_remembered_once_each(record):
    remember(record, {"uri": "a@1", "seconds": 1})
    remember(record, {"uri": "b@1", "seconds": 2})
    path = remember(record, {"uri": "a@1", "seconds": 3})
    assert [(row["uri"], row["seconds"]) for row in pushes(record)] == [("b@1", 2), ("a@1", 3)]
    path.write_text("{")
    assert pushes(record) == []
    remember(record, {"uri": "c@1"})
    assert [row["uri"] for row in pushes(record)] == ["c@1"]
