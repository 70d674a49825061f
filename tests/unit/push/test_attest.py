"""The proof that is attached to an image: what it says, what it leaves out, and which of it counts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.build_records import record_of
from tests.support.tag_race import Repository, image
from trainwright.build.store import BuildRecord
from trainwright.catalog.catalog import load_catalog
from trainwright.core.errors import ProofFailed, RequestError
from trainwright.plan.plan import Plan
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.push.attest import IN_TOTO, PREDICATE, RECORD, TEST_RESULT, Attestation, attested, statements
from trainwright.push.ecr import ImageManifest
from trainwright.push.promote import find_image, find_places
from trainwright.push.published import Published
from trainwright.push.references import PushPlace
from trainwright.user.files import UserFiles

DAY = datetime(2026, 11, 1, tzinfo=UTC)
CONFIG = "sha256:" + "c" * 64
DIGEST = "sha256:" + "d" * 64


@pytest.fixture(scope="module")
def plan() -> Plan:
    return resolve(make_request(framework="pytorch", cuda="cu124", version="2.6.0"), load_catalog())


@pytest.fixture(autouse=True)
def _places(own_places: None) -> None:
    """These tests do not see the rehearsals of this machine."""


def said(record: BuildRecord, digest: str = DIGEST) -> dict[str, Attestation]:
    return {one.name: one for one in statements(record, digest, b"{}", DAY)}


def predicate(one: Attestation) -> dict[str, Any]:
    return dict(json.loads(one.content)["predicate"])


def test_equal_records_give_equal_statements(plan: Plan) -> None:
    record = record_of(plan, CONFIG)
    assert said(record) == said(record)
    assert [*said(record)] == ["sbom", "record", "provenance", "smoke"]
    assert [*said(record.replace(smoke=None))] == ["sbom", "record", "provenance"]


def test_what_is_attached_says_what_it_is_and_of_when(plan: Plan) -> None:
    """annotations.md of opencontainers/image-spec: ``created`` is of RFC 3339."""
    for name, one in said(record_of(plan, CONFIG)).items():
        oci = {key: value for key, value in one.notes.items() if key.startswith("org.opencontainers.image.")}
        assert oci == {
            "org.opencontainers.image.created": "2026-11-01T00:00:00+00:00",
            "org.opencontainers.image.title": f"{name} of pytorch-training 2.6.0",
            "org.opencontainers.image.version": "2.6.0",
        }


def test_a_failed_smoke_run_is_said_to_have_failed(plan: Plan) -> None:
    record = record_of(plan, CONFIG)
    rows = [
        {"component": "metis", "check": "partition", "outcome": "passed"},
        {"component": "efa", "check": "device", "outcome": "skipped"},
        {"component": "rmm", "check": "allocate", "outcome": "failed"},
    ]
    result = predicate(said(record.replace(smoke={"passed": 1, "failed": 1, "rows": rows}))["smoke"])
    assert (result["result"], result["passedTests"]) == ("FAILED", ["metis: partition"])
    assert (result["warnedTests"], result["failedTests"]) == (["efa: device"], ["rmm: allocate"])
    assert predicate(said(record)["smoke"])["result"] == "PASSED"


def test_neither_paths_nor_secrets_leave_this_machine(plan: Plan) -> None:
    index = "https://somebody:hunter2hunter2@index.example/simple"
    user = UserFiles(code=Path("/home/somebody/secret-project"), code_sha256="0" * 64, code_files=3)
    record = record_of(plan.replace(user=user, notices=(index,)), CONFIG)
    text = b"".join(one.content for one in said(record).values()).decode()
    assert "secret-project" not in text
    assert "hunter2" not in text
    assert "0" * 64 in text


# --- which record counts ----------------------------------------------------------------------------------------------


class Attached(Repository):
    """A repository whose documents can be read back."""

    def document(self, digest: str) -> bytes:
        found = self.images.find(self.record, digest)
        return str(json.loads(found.image_manifest)["content"]).encode() if found else b""


def manifest() -> ImageManifest:
    made, _ = image("2.6.0", 1)
    text = json.dumps({"config": {"digest": CONFIG}})
    return ImageManifest(f"sha256:{'e' * 64}", text, made.media_type)


def found(
    plan: Plan, *records: BuildRecord, about: str | None = None, notes: Mapping[str, str] | None = None
) -> BuildRecord:
    """The record that counts of those attached to the image."""
    here, subject = Attached(), manifest()
    for record in records:
        one = said(record, about or subject.digest)["record"]
        here.attach(subject, one.content, IN_TOTO, dict(notes or one.notes))
    labels = Published(built=DAY, plan=plan.id, framework="pytorch", version="2.6.0", unproven=False)
    return attested(cast(Any, here), cast(Any, here), subject, labels)


def test_the_record_of_the_image_counts_and_a_passed_run_first(plan: Plan) -> None:
    tested, untested = record_of(plan, CONFIG), record_of(plan, CONFIG, smoke=False)
    assert found(plan, untested).smoke is None
    assert found(plan, untested, tested).smoke == tested.smoke
    # Built again with the same content: as old as its last build, in whatever order the registry lists them.
    again = tested.replace(built_at="2099-01-01T00:00:00+00:00")
    for records in ((tested, again), (again, tested), (untested.replace(built_at="2099-02-01T00:00:00+00:00"), again)):
        assert found(plan, *records) == again


@pytest.mark.parametrize(
    "wrong",
    [
        {"about": "sha256:" + "f" * 64},
        {"notes": {PREDICATE: TEST_RESULT}},
        {"record": {"image_id": "sha256:" + "0" * 64}},
    ],
)
def test_a_record_of_something_else_does_not_count(plan: Plan, wrong: dict[str, Any]) -> None:
    record = record_of(plan, CONFIG).replace(**wrong.pop("record", {}))
    with pytest.raises(ProofFailed) as refused:
        found(plan, record, **wrong)
    assert "./invoke push" in refused.value.remedy


def test_a_record_of_another_plan_does_not_count(plan: Plan) -> None:
    with pytest.raises(ProofFailed):
        found(plan.replace(id="9" * 64), record_of(plan, CONFIG))


def test_what_is_attached_by_others_is_passed_over(plan: Plan) -> None:
    here, subject = Attached(), manifest()
    for text in (b"", b"{", b"[]", b'{"predicate": {}}', b'{"predicate": 1, "subject": [{"digest": 1}]}'):
        here.attach(subject, text, IN_TOTO, {PREDICATE: RECORD})
    with pytest.raises(ProofFailed):
        attested(cast(Any, here), cast(Any, here), subject, None)


# --- the words of promote ---------------------------------------------------------------------------------------------


def test_an_image_is_named_by_digest() -> None:
    place = PushPlace("123456789012", "us-west-2", "team/x")
    assert find_image(place.digested(DIGEST)) == (place, DIGEST)
    for address in ("", "team/x", place.tagged("v1"), f"{place.host}@{DIGEST}", f"docker.io/team/x@{DIGEST}"):
        with pytest.raises(RequestError) as refused:
            find_image(address)
        assert "./invoke" in refused.value.remedy


def test_where_an_image_goes() -> None:
    place = PushPlace("123456789012", "cn-north-1", "team/x")
    words = ["123456789012/cn-north-1/team/x", f"{place.host}/{place.repository}"]
    assert find_places(words) == [place]
    for word in ("team/x", "123/us-west-2/team/x", "123456789012/us-west-2/Team", "123456789012/westeros/x1"):
        with pytest.raises(RequestError):
            find_places([word])
    with pytest.raises(RequestError):
        find_places([])
