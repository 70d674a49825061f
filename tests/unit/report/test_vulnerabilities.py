"""The last scan of an image, in its report."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest

from tests.support.in_process import call
from tests.support.osv import database
from tests.support.report_records import HOSTILE, IMAGE, full_record
from trainwright.build import store
from trainwright.build.store import BuildRecord
from trainwright.core.text import printable
from trainwright.report.image import report_of
from trainwright.report.markdown import image_markdown
from trainwright.report.page import image_page
from trainwright.scan.allow import Allowance
from trainwright.scan.documents import ScanDocument
from trainwright.scan.kept import keep, kept
from trainwright.scan.scan import scan
from trainwright.scan.subject import of_record

pytestmark = pytest.mark.usefixtures("own_places")
DIGEST = f"sha256:{'d' * 64}"


def image() -> BuildRecord:
    """An image with a version of requests that CVE-2023-32681 is about, as the record of a build."""
    record = full_record()
    record = record.replace(probe={**record.probe, "packages": {}, "distributions": {"requests": "2.30.0"}})
    store.save(record)
    return record


def scanned(record: BuildRecord, root: Path, reason: str = "a test") -> ScanDocument:
    """What a scan finds of it, accepted for a reason."""
    accepted = Allowance(id="CVE-2023-32681", package="requests", reason="-", owner="team-a", expires="2099-01-31")
    found = scan(of_record(record, "x"), root, allowances=[accepted], fail_on="medium", today=date(2026, 11, 26))
    (row,) = found.vulnerabilities
    assert row.accepted is not None
    # A file cannot have any text there, a document that somebody else made can.
    return found.replace(vulnerabilities=(row.replace(accepted=row.accepted.replace(reason=reason)),))


def test_what_scan_found_is_in_the_report_in_each_form(tmp_path):
    record, root = image(), database(tmp_path / "osv")
    assert report_of(record).scan is None
    assert "Vulnerabilities" not in image_page(report_of(record))
    done = call("scan", IMAGE, "--database", str(root), cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    found = report_of(record)
    assert found.scan is not None
    assert str(root) not in json.dumps(found.scan.as_json())
    for text in (image_page(found), image_markdown(found)):
        # 2.31.0 is what https://nvd.nist.gov/vuln/detail/CVE-2023-32681 names.
        for word in (
            "CVE-2023-32681",
            "requests",
            "2.30.0",
            "2.31.0",
            "medium",
            "1 known vulnerability (1 with a fixed version)",
        ):
            assert word in text, word
    shown = json.loads(call("report", "--json", cwd=tmp_path).stdout)["scan"]["vulnerabilities"]
    assert [(row["id"], row["fixed"]) for row in shown] == [("CVE-2023-32681", "2.31.0")]


def test_the_reason_of_an_allowance_is_shown_and_is_text(tmp_path):
    record = image()
    keep(scanned(record, database(tmp_path / "osv"), HOSTILE))
    page, text = (form(report_of(record)) for form in (image_page, image_markdown))
    assert "accepted by team-a until 2099-01-31: " in page
    assert "accepted by team-a until 2099-01-31: " in text.replace("\\", "")
    assert "No known vulnerabilities of level medium or worse, in " in page
    assert HOSTILE not in page
    assert "<script>pwned" not in page
    assert printable(HOSTILE) not in text


def test_a_scan_of_the_image_in_its_registry_is_kept_with_its_record(tmp_path):
    record = image().replace(pushed=f"1.dkr.ecr.us-west-2.amazonaws.com/a/b@{DIGEST}")
    store.save(record)
    document = scanned(record, database(tmp_path / "osv"))
    keep(document.replace(image=DIGEST, subject="first"))
    kept_now = kept(record.image_id)
    assert kept_now is not None
    assert kept_now.subject == "first"
    keep(document.replace(image=f"sha256:{'e' * 64}", subject="another image"))
    keep(document.replace(image="", subject="a line"))
    assert kept(record.image_id) == kept_now
    (record.folder / "scan.json").write_text('{"schema": "trainwright/scan/0"}')
    assert kept(record.image_id) is None
