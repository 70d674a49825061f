"""The gate of push and promote, and what is attached to an image that passed it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.in_process import call
from tests.support.osv import database
from tests.support.report_records import full_record
from trainwright.build.store import BuildRecord
from trainwright.core.errors import ProofFailed, RequestError
from trainwright.push.attest import SCAN, statements, subject_of
from trainwright.scan.gate import ScanGate
from trainwright.site.site import Site

pytestmark = pytest.mark.usefixtures("own_places")

DIGEST = "sha256:" + "d" * 64


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return database(tmp_path / "osv")


def image(requests: str = "2.30.0") -> BuildRecord:
    record = full_record()
    return record.replace(probe={**record.probe, "packages": {}, "distributions": {"requests": requests}})


def test_an_image_that_reaches_the_level_does_not_leave(root):
    with pytest.raises(ProofFailed, match="CVE-2023-32681") as refused:  # of level medium
        ScanGate("medium", str(root), None, Site()).of_push(image(), "x")
    assert [row["id"] for row in refused.value.details["vulnerabilities"]] == ["CVE-2023-32681"]


def test_an_image_that_does_not_reach_it_leaves_with_the_result(root):
    said = ScanGate("high", str(root), None, Site()).of_push(image(), "x")
    assert said is not None
    assert [row["state"] for row in said["vulnerabilities"]] == ["below"]
    assert str(root) not in json.dumps(said)  # where it lies on this machine says nothing elsewhere
    (used,) = said["databases"]
    assert used["date"].startswith("2023-11-08")
    assert used["digest"].startswith("sha256:")


def test_a_site_has_a_gate_and_a_flag_overrides_it(root):
    site = Site(vulnerabilities=root, scan_fail_on="medium")
    with pytest.raises(ProofFailed):
        ScanGate(None, None, None, site).of_push(image(), "x")
    assert ScanGate("high", None, None, site).of_push(image(), "x")
    assert ScanGate(None, None, None, site).of_push(image("2.31.0"), "x")


def test_without_a_level_nothing_is_looked_at():
    assert ScanGate(None, None, None, Site()).of_push(image(), "x") is None


def test_a_gate_without_a_database_is_an_error():
    with pytest.raises(RequestError, match="no vulnerability database"):
        ScanGate("high", None, None, Site())


def test_what_is_attached_is_about_the_image(root):
    said = ScanGate("high", str(root), None, Site()).of_push(image(), "x")
    found = {one.name: one for one in statements(image(), DIGEST, b"{}", datetime(2026, 11, 1, tzinfo=UTC), scan=said)}
    body = json.loads(found["scan"].content)
    assert (body["predicateType"], body["predicate"]) == (SCAN, said)
    assert body["subject"] == [{"digest": {"sha256": "d" * 64}}]
    # gc knows its tag as that of a document.
    assert subject_of(f"sha256-{'d' * 64}.scan.{'0' * 8}") == DIGEST
    assert "scan" not in {one.name for one in statements(image(), DIGEST, b"{}", datetime(2026, 11, 1, tzinfo=UTC))}


@pytest.mark.parametrize(
    "words",
    [
        ("push", "--image", "x", "--repository", "team/x", "--region", "us-west-2"),
        ("promote", f"123456789012.dkr.ecr.us-west-2.amazonaws.com/aa@{DIGEST}", "--to", "123456789012/eu-west-1/aa"),
    ],
)
def test_push_and_promote_have_the_gate(tmp_path, root, words):
    """Before an engine or AWS is asked."""
    done = call(*words, "--scan-fail-on", "hihg", "--database", str(root), cwd=tmp_path)
    assert done.returncode == 2
    assert "--scan-fail-on hihg: no such level. Did you mean high" in done.stderr
