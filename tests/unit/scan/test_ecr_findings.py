"""ECR's own findings. The answers have the shapes of botocore's model, whose Stubber refuses others.

The basic finding is that of the AWS CLI's reference (``ecr describe-image-scan-findings``, its example), the enhanced
one that of Amazon Inspector's user guide ("Creating custom responses to Amazon Inspector findings", event schema).
"""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path

import boto3
import pytest
from botocore.stub import Stubber

from tests.support.in_process import call
from trainwright.core.errors import ProofFailed, RegistryRefused, RequestError
from trainwright.scan import ecr_findings
from trainwright.scan.allow import read_allowances
from trainwright.scan.ecr_findings import scan_by_ecr
from trainwright.site.site import load_site

DIGEST = f"sha256:{'1a' * 32}"
ADDRESS = f"123456789012.dkr.ecr.us-west-2.amazonaws.com/sample-repo@{DIGEST}"
ASKED = {"registryId": "123456789012", "repositoryName": "sample-repo", "imageId": {"imageDigest": DIGEST}}
TODAY = date(2026, 11, 24)
BASIC = {
    "name": "CVE-2019-5188",
    "description": "A code execution vulnerability exists in the directory rehashing functionality of E2fsprogs "
    "e2fsck 1.45.4.",
    "uri": "http://people.ubuntu.com/~ubuntu-security/cve/CVE-2019-5188",
    "severity": "MEDIUM",
    "attributes": [
        {"key": "package_version", "value": "1.44.1-1ubuntu1.1"},
        {"key": "package_name", "value": "e2fsprogs"},
        {"key": "CVSS2_VECTOR", "value": "AV:L/AC:L/Au:N/C:P/I:P/A:P"},
        {"key": "CVSS2_SCORE", "value": "4.6"},
    ],
}
ENHANCED = {
    "awsAccountId": "111122223333",
    "description": "\n It was discovered that the sound subsystem in the Linux kernel contained a\n race condition "
    "in some situations.",
    "packageVulnerabilityDetails": {
        "relatedVulnerabilities": [],
        "source": "UBUNTU_CVE",
        "vendorSeverity": "medium",
        "vulnerabilityId": "CVE-2022-3303",
        "vulnerablePackages": [
            {
                "arch": "X86_64",
                "epoch": 0,
                "fixedInVersion": "0:5.15.0.1027.31~20.04.16",
                "name": "linux-image-aws",
                "packageManager": "OS",
                "version": "5.15.0.1026.30~20.04.16",
            }
        ],
    },
    "severity": "MEDIUM",
    "status": "ACTIVE",
    "title": "CVE-2022-3303 - linux-image-aws",
    "type": "PACKAGE_VULNERABILITY",
}


def page(*, findings=(), enhanced=(), status="COMPLETE", said="", token=None):
    found = {
        "imageScanCompletedAt": datetime(2020, 1, 24, 4, 11, 45, tzinfo=UTC),
        "vulnerabilitySourceUpdatedAt": datetime(2020, 1, 23, 20, 25, 17, tzinfo=UTC),
    }
    found |= {"findings": list(findings)} if findings else {}
    found |= {"enhancedFindings": list(enhanced)} if enhanced else {}
    answer = {"imageScanFindings": found, "imageScanStatus": {"status": status, "description": said}}
    return answer | ({"nextToken": token} if token else {})


@pytest.fixture
def ecr(monkeypatch):
    client = boto3.client("ecr", region_name="us-west-2", aws_access_key_id="a", aws_secret_access_key="b")
    monkeypatch.setattr(
        ecr_findings, "aws_client", lambda service, region, *_: {"ecr us-west-2": client}[f"{service} {region}"]
    )
    with Stubber(client) as stub:
        yield stub
        stub.assert_no_pending_responses()


def give(stub, *pages):
    asked = dict(ASKED)
    for each in pages:
        stub.add_response("describe_image_scan_findings", each, dict(asked))
        asked["nextToken"] = each.get("nextToken")


def look(**more):
    return scan_by_ecr(ADDRESS, load_site(), today=TODAY, **more)


def test_a_basic_scan_does_not_say_what_fixes_it(ecr):
    give(ecr, page(findings=[BASIC]))
    found = look()
    (row,) = found.vulnerabilities
    assert (row.id, row.level, row.package, row.version) == (
        "CVE-2019-5188",
        "medium",
        "e2fsprogs",
        "1.44.1-1ubuntu1.1",
    )
    assert (row.fixed, row.state, found.exit_code, found.fixable, found.packages) == (None, "counts", 1, 0, 1)
    assert row.summary.startswith("A code execution vulnerability exists")
    assert found.image == DIGEST
    # The moment at which ECR's knowledge changed; not that of the scan.
    assert [(each.ecosystem, each.date, each.records) for each in found.databases] == [
        ("Amazon ECR (basic)", "2020-01-23T20:25:17Z", 1)
    ]


def test_an_enhanced_scan_has_packages_and_their_fixes(ecr):
    give(ecr, page(enhanced=[ENHANCED], status="ACTIVE"))
    found = look()
    (row,) = found.vulnerabilities
    assert (row.id, row.package, row.version) == ("CVE-2022-3303", "linux-image-aws", "5.15.0.1026.30~20.04.16")
    assert (row.fixed, row.level, row.ecosystem) == ("0:5.15.0.1027.31~20.04.16", "medium", "OS")
    assert found.fixable == 1
    assert found.databases[0].ecosystem == "Amazon ECR (enhanced)"


def test_what_inspector_suppresses_or_closed_does_not_count(ecr):
    rows = [{**ENHANCED, "status": status} for status in ("SUPPRESSED", "CLOSED")]
    give(ecr, page(enhanced=rows, status="ACTIVE"))
    found = look()
    assert (found.vulnerabilities, found.exit_code) == ((), 0)
    assert "1 findings are suppressed" in found.notes[0]


def test_epoch_release_and_no_fix(ecr):
    package = {
        "name": "openssl-libs",
        "version": "1.1.1k",
        "epoch": 1,
        "release": "9.el8_7",
        "fixedInVersion": "NotAvailable",
    }
    details = {"vulnerabilityId": "CVE-2023-0286", "vulnerablePackages": [package]}
    give(ecr, page(enhanced=[{**ENHANCED, "packageVulnerabilityDetails": details}]))
    (row,) = look().vulnerabilities
    assert (row.version, row.fixed) == ("1:1.1.1k-9.el8_7", None)


def test_all_pages_are_read_and_the_worst_comes_first(ecr):
    worse = {**BASIC, "name": "CVE-2019-5094", "severity": "CRITICAL"}
    give(ecr, page(findings=[BASIC], token="more"), page(findings=[worse]))
    assert [row.id for row in look().vulnerabilities] == ["CVE-2019-5094", "CVE-2019-5188"]


@pytest.mark.parametrize(
    ("severity", "level"), [("INFORMATIONAL", "low"), ("UNDEFINED", "unknown"), ("HIGH", "high"), ("LOW", "low")]
)
def test_levels(ecr, severity, level):
    give(ecr, page(findings=[{**BASIC, "severity": severity}]))
    assert look().vulnerabilities[0].level == level


def test_a_level_and_allowances_decide_what_counts(ecr, tmp_path):
    allow = tmp_path / "allow.yaml"
    allow.write_text("allow:\n- {id: CVE-2019-5188, reason: e2fsck is not run, owner: ml, expires: 2027-01-01}\n")
    give(ecr, page(findings=[BASIC]))
    assert [row.state for row in look(fail_on="high").vulnerabilities] == ["below"]
    give(ecr, page(findings=[BASIC]))
    found = look(allowances=read_allowances(allow))
    assert ([row.state for row in found.vulnerabilities], found.exit_code) == (["allowed"], 0)


@pytest.mark.parametrize("status", ["IN_PROGRESS", "PENDING", "FAILED", "UNSUPPORTED_IMAGE", "FINDINGS_UNAVAILABLE"])
def test_a_scan_that_has_not_ended_well_is_no_answer(ecr, status):
    give(
        ecr, page(findings=[BASIC], status=status, said="UnsupportedImageError: The operating system is not supported.")
    )
    with pytest.raises(ProofFailed, match=status):
        look()


def test_an_image_that_was_not_scanned(ecr):
    ecr.add_client_error("describe_image_scan_findings", "ScanNotFoundException", "Image scan does not exist")
    with pytest.raises(ProofFailed) as raised:
        look()
    assert "start-image-scan" in str(raised.value.remedy)


def test_what_aws_refuses(ecr):
    ecr.add_client_error("describe_image_scan_findings", "AccessDeniedException", "not authorized")
    with pytest.raises(RegistryRefused, match="ecr:DescribeImageScanFindings"):
        look()


@pytest.mark.parametrize("address", ["", "pytorch/cu126", ADDRESS.replace(f"@{DIGEST}", ":latest")])
def test_only_an_address_in_ecr_by_digest(address):
    with pytest.raises(RequestError):
        scan_by_ecr(address, load_site(), today=TODAY)


def test_the_verb(ecr, tmp_path: Path):
    give(ecr, page(findings=[BASIC]))
    done = call("scan", ADDRESS, "--ecr", "--json")
    assert (done.returncode, json.loads(done.stdout)["vulnerabilities"][0]["id"]) == (1, "CVE-2019-5188")
    assert call("scan", ADDRESS, "--ecr", "--database", str(tmp_path)).returncode == 2
