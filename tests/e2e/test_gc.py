"""`gc` in a registry with ECR's rules: what it reads there, what it leaves, and what the verb prints."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from invoke.context import Context
from invoke.exceptions import Exit
from moto.ecr.models import ecr_backends

from tests.support.registry_images import index_of, push_image, push_proven
from trainwright.catalog.catalog import load_catalog
from trainwright.cli.tasks import VerbTask
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.push.ecr import Ecr
from trainwright.push.references import PushPlace, PushTarget
from trainwright.push.registry import Registry
from trainwright.push.tagging import manage_tags
from trainwright.site.site import Site
from trainwright.verbs.gc import gc as verb

DAY = datetime(2025, 1, 1, tzinfo=UTC)
SCHEMA = Path(__file__).resolve().parents[2] / "trainwright" / "schemas" / "gc.schema.json"


@pytest.fixture
def place(aws, repository, monkeypatch) -> PushPlace:
    aws.lend(monkeypatch)
    return PushPlace(aws.account, aws.regions[0], repository)


@pytest.fixture
def gc(place):
    """Run the verb in this process; its document, or that of its failure."""

    def run(*, delete: bool = False, json_: bool = True, code: int = 0) -> Any:
        out, err, ended = io.StringIO(), io.StringIO(), 0
        with redirect_stdout(out), redirect_stderr(err):
            try:
                VerbTask(verb)(Context(), repository=place.repository, delete=delete, json=json_)
            except Exit as exits:
                ended = exits.code
        assert ended == code, (out.getvalue()[-2000:], err.getvalue()[-2000:])
        if not json_:
            return out.getvalue()
        document = json.loads(out.getvalue())
        if not code:
            jsonschema.validate(document, json.loads(SCHEMA.read_text()))
        return document

    return run


def test_what_jobs_tags_and_indexes_do_not_hold_goes_with_its_proof(aws, place, gc):
    plan = resolve(make_request(framework="pytorch", cuda="cu124", version="2.6.0"), load_catalog())
    ecr = Ecr(place, Site())
    registry = Registry(ecr, Site())
    proven = [
        push_proven(ecr, registry, plan, f"layer {number}".encode(), built=DAY + timedelta(days=number))
        for number in range(4)
    ]
    unused, trained, moving, wrapped = proven
    earlier = push_image(
        ecr, registry, b"old", tag="x-py311-debian12-20250101-" + "a" * 12, built=DAY, labels=plan.labels
    )
    theirs = push_image(ecr, registry, b"x", tag="y-py311-debian12-20250101-" + "b" * 12, built=DAY, labels={})
    index = index_of(ecr, wrapped, "soci", alone=True)
    target = PushTarget(place.repository, (place.region,), place.account)
    manage_tags("hold", ("pytorch-2.6",), target, Site(), account=place.account, to=moving.digest)
    aws.jobs.add(place.region, "yesterday", place.digested(trained.digest), datetime.now(UTC) - timedelta(days=1))
    records: list[Any] = ecr_backends[place.account][place.region].repositories[place.repository].images
    for image in records:
        image.image_pushed_at = DAY.timestamp()
        image.pulled = None
    before = {one.digest for one in ecr.images()}
    states = {row["digest"]: row["state"] for row in gc()["images"]}
    assert {digest for digest, state in states.items() if state == "unused"} == {unused.digest, earlier.digest}
    assert states[theirs.digest] == "foreign"
    assert {one.digest for one in ecr.images()} == before
    # The first look read the image without a proof, which ECR counts as a pull; the one with a proof was not read.
    proof = {one.digest for one in ecr.referrers(unused.digest)}
    states = {row["digest"]: row["state"] for row in gc(delete=True)["images"]}
    assert {digest for digest, state in states.items() if state == "deleted"} == {unused.digest}
    left = {one.digest for one in ecr.images()}
    assert before - left == {unused.digest, *proof}
    assert len(proof) == 4
    assert {trained.digest, moving.digest, wrapped.digest, index.digest, earlier.digest, theirs.digest} < left
    text = gc(json_=False)
    assert "training job yesterday" in text
    assert "tag pytorch-2.6, held" in text


def test_who_may_not_see_jobs_learns_which_permission_is_missing(aws, place, gc):
    text = "User: arn:aws:iam::1:user/x is not authorized to perform: sagemaker:ListTrainingJobs"
    aws.fail_api("ListTrainingJobs", "AccessDeniedException", message=text)
    failed = gc(delete=True, code=7)
    assert (failed["cause"], failed["exit_code"]) == ("AccessDeniedException", 7)
    assert "sagemaker:ListTrainingJobs" in failed["remedy"]
    assert "BatchDeleteImage" not in aws.calls
