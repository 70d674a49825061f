"""What a scan finds in an image and in an image line, what counts of it, and what the verb shows."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tests.support.documents import validated
from tests.support.in_process import call
from tests.support.osv import database, record
from tests.support.report_records import IMAGE, full_record
from trainwright.build import store
from trainwright.build.store import BuildRecord
from trainwright.core.errors import RequestError
from trainwright.scan.allow import Allowance, read_allowances
from trainwright.scan.documents import ScanDocument, Vulnerability
from trainwright.scan.inventory import Inventory, of_sbom
from trainwright.scan.scan import scan
from trainwright.scan.subject import of_record

pytestmark = pytest.mark.usefixtures("own_places")

TODAY = date(2026, 11, 24)
CRITICAL = [{"type": "CVSS_V3", "score": "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"}]
GLIBC = record(
    "DEBIAN-CVE-2026-1",
    "glibc",
    {"introduced": "0"},
    {"fixed": "2.36-9+deb12u10"},
    upstream=["CVE-2026-1"],
    severity=CRITICAL,
)
OTHER = record("DEBIAN-CVE-2026-2", "glibc", {"introduced": "0"}, upstream=["CVE-2026-2"])


def image(**changes: Any) -> BuildRecord:
    """The record of an image on Debian 12 with an old requests, and two packages made from glibc."""
    record = full_record()
    probe = {
        **record.probe,
        "distributions": {"requests": "2.30.0", "torch": "2.6.0+cu124"},
        "packages": {"libc6": "2.36-9+deb12u9", "libc-bin": "2.36-9+deb12u9", "openssl": "3.0.15-1"},
        "package_sources": {
            "libc6": "glibc@2.36-9+deb12u9",
            "libc-bin": "glibc@2.36-9+deb12u9",
            "openssl": "openssl@3.0.15-1",
        },
        **changes,
    }
    return record.replace(probe=probe)


def inventory(**changes: Any) -> Inventory:
    return of_record(image(**changes), "image")


def looked(root: Path, of: Inventory | None = None, **more: Any) -> ScanDocument:
    return scan(of or inventory(), root, today=TODAY, **more)


def rows(document: ScanDocument) -> dict[str, Vulnerability]:
    return {row.id: row for row in document.vulnerabilities}


def test_what_is_in_an_image_is_found_under_one_name_with_its_fix(tmp_path):
    found = rows(looked(database(tmp_path, GLIBC)))
    assert set(found) == {"CVE-2023-32681", "CVE-2026-1"}
    requests, glibc = found["CVE-2023-32681"], found["CVE-2026-1"]
    # Two records, of PyPA and of GitHub; the level and the summary are GitHub's.
    assert set(requests.aliases) == {"PYSEC-2023-74", "GHSA-j8r2-6x86-q33q"}
    assert (requests.level, requests.fixed, requests.package) == ("medium", "2.31.0", "requests")
    assert requests.summary == "Unintended leak of Proxy-Authorization header in requests"
    # Debian's record names the source package.
    assert (glibc.package, glibc.version, glibc.installed) == ("glibc", "2.36-9+deb12u9", ("libc-bin", "libc6"))
    assert (glibc.level, glibc.fixed, glibc.ecosystem) == ("critical", "2.36-9+deb12u10", "Debian:12")


def test_a_source_package_has_a_version_of_its_own(tmp_path):
    # dpkg's Source field: libgcc-s1 of gcc-12, and a package that was only built again.
    sources = {"libc6": "glibc@2.36-9+deb12u10"}
    packages = {"libc6": "2.36-9+deb12u10+b1"}
    assert "CVE-2026-1" not in rows(
        looked(database(tmp_path, GLIBC), inventory(packages=packages, package_sources=sources))
    )
    sources = {"libc6": "glibc@2.36-9+deb12u9"}
    assert "CVE-2026-1" in rows(looked(tmp_path, inventory(packages=packages, package_sources=sources)))


def test_a_record_of_an_image_that_does_not_know_source_packages_says_so(tmp_path):
    root = database(tmp_path, GLIBC, record("DEBIAN-CVE-2026-3", "openssl", {"introduced": "0"}))
    document = looked(root, inventory(package_sources={}))
    assert set(rows(document)) == {"CVE-2023-32681", "DEBIAN-CVE-2026-3"}  # openssl is called as its source
    assert any("source packages" in note for note in document.notes)
    assert not looked(root).notes


@pytest.mark.parametrize(
    ("upstream", "names"),
    [
        # Of all that an advisory is about, there are records: it says nothing new.
        (["CVE-2026-1", "CVE-2026-2", "DEBIAN-CVE-2026-1", "DEBIAN-CVE-2026-2"], {"CVE-2026-1", "CVE-2026-2"}),
        (["CVE-2026-1", "CVE-2026-9"], {"CVE-2026-1", "CVE-2026-2", "DSA-1-1"}),
        (["CVE-2026-1", "DEBIAN-CVE-2026-1"], {"CVE-2026-1", "CVE-2026-2"}),
        (["CVE-2026-7", "DEBIAN-CVE-2026-7"], {"CVE-2026-1", "CVE-2026-2", "CVE-2026-7"}),
        ([], {"CVE-2026-1", "CVE-2026-2", "DSA-1-1"}),
    ],
)
def test_an_advisory_beside_the_records_of_what_it_is_about(tmp_path, upstream, names):
    advisory = record("DSA-1-1", "glibc", {"introduced": "0"}, {"fixed": "2.36-9+deb12u10"}, upstream=upstream)
    found = rows(looked(database(tmp_path, GLIBC, OTHER, advisory)))
    assert set(found) - {"CVE-2023-32681"} == names


def test_aliases_are_transitive(tmp_path):
    chain = [
        record(f"GHSA-{n}", "requests", {"introduced": "0"}, ecosystem="PyPI", aliases=[f"GHSA-{n + 1}"])
        for n in (3, 1, 2)
    ]
    found = looked(database(tmp_path, GLIBC, *chain)).vulnerabilities
    (row,) = [row for row in found if row.id == "GHSA-1"]
    assert row.aliases == ("GHSA-2", "GHSA-3", "GHSA-4")


def test_a_fix_that_another_record_calls_affected_is_none(tmp_path):
    early = record("GHSA-1", "requests", {"introduced": "0"}, {"fixed": "2.30.1"}, ecosystem="PyPI", aliases=["CVE-1"])
    late = record("GHSA-2", "requests", {"introduced": "0"}, {"fixed": "2.32.0"}, ecosystem="PyPI", aliases=["CVE-1"])
    root = database(tmp_path, GLIBC, early, late)
    assert rows(looked(root))["CVE-1"].fixed == "2.32.0"


def test_without_a_fix_it_is_not_fixable(tmp_path):
    document = looked(database(tmp_path, GLIBC, OTHER))
    assert rows(document)["CVE-2026-2"].fixed is None
    assert (len(document.vulnerabilities), document.fixable) == (3, 2)


@pytest.mark.parametrize(
    ("fail_on", "counting"),
    [
        (None, {"CVE-2026-1", "CVE-2026-2", "CVE-2023-32681"}),
        ("low", {"CVE-2026-1", "CVE-2023-32681"}),  # what has no level is not known to be low
        ("high", {"CVE-2026-1"}),
    ],
)
def test_what_counts(tmp_path, fail_on, counting):
    document = looked(database(tmp_path, GLIBC, OTHER), fail_on=fail_on)
    assert {row.id for row in document.vulnerabilities if row.counts} == counting
    assert document.exit_code == 1
    assert [row.level for row in document.vulnerabilities] == ["critical", "medium", "unknown"]


def allowance(**changes: Any) -> Allowance:
    return Allowance(
        **{"id": "CVE-2026-1", "reason": "no network", "owner": "team-x", "expires": "2026-11-24"} | changes
    )


@pytest.mark.parametrize(
    ("changes", "state", "unused"),
    [
        ({}, "allowed", 0),  # its last day
        ({"id": "DEBIAN-CVE-2026-1"}, "allowed", 0),
        ({"package": "glibc"}, "allowed", 0),
        ({"package": "openssl"}, "counts", 1),
        ({"id": "CVE-2026-11"}, "counts", 1),
        ({"expires": "2026-11-23"}, "expired", 0),
    ],
)
def test_an_allowance(tmp_path, changes, state, unused):
    entry = allowance(**changes)
    document = looked(database(tmp_path, GLIBC), allowances=[entry])
    row = rows(document)["CVE-2026-1"]
    assert (row.state, len(document.unused)) == (state, unused)
    assert (row.accepted is not None) is (state != "counts")


def test_of_two_allowances_the_later_one_holds(tmp_path):
    entries = [allowance(expires="2026-12-31"), allowance(expires="2026-01-01")]
    document = looked(database(tmp_path, GLIBC), allowances=entries)
    assert rows(document)["CVE-2026-1"].state == "allowed"
    assert not document.unused


def test_an_expired_allowance_of_what_is_below_the_gate_does_not_count(tmp_path):
    entry = allowance(id="CVE-2023-32681", expires="2020-01-01")
    assert (
        rows(looked(database(tmp_path, GLIBC), allowances=[entry], fail_on="high"))["CVE-2023-32681"].state == "below"
    )


ENTRY = "- {id: CVE-2026-1, reason: no network, owner: team-x, expires: 2026-12-31}\n"


def test_a_file_of_allowances(tmp_path):
    path = tmp_path / "allow.yaml"
    path.write_text(f"allow:\n{ENTRY}")
    assert read_allowances(path) == (allowance(expires="2026-12-31"),)
    path.write_text("")
    assert read_allowances(path) == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (ENTRY.replace("expires", "expire"), "allow.0.expire.*Did you mean expires"),
        (ENTRY.replace(", owner: team-x", ""), "allow.0.owner.*missing"),
        (ENTRY.replace("2026-12-31", "2026-02-30"), "2026-02-30"),
        (ENTRY.replace("2026-12-31", "soon"), "allow.0.expires"),
        (ENTRY.replace("no network", "''"), "allow.0.reason"),
    ],
)
def test_an_entry_that_is_wrong(tmp_path, text, says):
    path = tmp_path / "allow.yaml"
    path.write_text(f"allow:\n{text}")
    with pytest.raises(RequestError, match=f"(?s){path}.*{says}"):
        read_allowances(path)


# ---- bills of materials ----------------------------------------------------------------------------------------------


def sbom(*purls: str) -> str:
    return json.dumps({"bomFormat": "CycloneDX", "components": [{"name": "x", "purl": purl} for purl in purls]})


def test_a_bill_of_materials_of_another_program():
    # As syft writes them: upstream is there if the source package is called otherwise.
    found = of_sbom(
        sbom(
            "pkg:deb/debian/libc6@2.36-9%2Bdeb12u9?arch=amd64&distro=debian-12&upstream=glibc",
            "pkg:deb/debian/libgcc-s1@12.2.0-14?distro=debian-12&upstream=gcc-12%4012.2.0-15",
            "pkg:pypi/Zope.Interface@5.0",
            "pkg:generic/nccl@2.21.5",
            "not a purl",
        ),
        "image",
    )
    assert [(p.ecosystem, p.name, p.version) for p in found.packages] == [
        ("Debian:12", "gcc-12", "12.2.0-15"),
        ("Debian:12", "glibc", "2.36-9+deb12u9"),
        ("PyPI", "zope-interface", "5.0"),
    ]
    assert found.unscanned == ("nccl 2.21.5",)


def test_packages_of_a_distribution_without_a_database_are_counted():
    found = of_sbom(sbom("pkg:deb/amzn/x@1?distro=amzn-2023", "pkg:deb/amzn/y@1?distro=amzn-2023"), "image")
    assert not found.packages
    assert found.notes == ("2 packages of amzn-2023 are not scanned: no database has them",)


@pytest.mark.parametrize("text", ["[]", "{}", '{"bomFormat": "SPDX"}'])
def test_what_is_not_a_bill_of_materials(text):
    with pytest.raises(RequestError, match="not a bill of materials"):
        of_sbom(text, "x.json")


# ---- the verb --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", [IMAGE[7:19], "", f"trainwright/pytorch:{IMAGE[7:11]}"])
def test_the_verb_with_an_image(tmp_path, word):
    store.save(image())
    root = str(database(tmp_path / "osv", GLIBC, packed=["PyPI"]))
    done = call("scan", *([word] if word else []), "--database", root, "--json", cwd=tmp_path)
    assert done.returncode == 1
    document = validated(done.stdout)
    assert [row["id"] for row in document["vulnerabilities"]] == ["CVE-2026-1", "CVE-2023-32681"]
    assert document["image"] == IMAGE
    # Of the records' own "modified".
    assert {each["ecosystem"]: each["date"][:10] for each in document["databases"]} == {
        "Debian:12": "2026-11-01",
        "PyPI": "2023-11-08",
    }


def test_the_verb_with_a_line_and_its_report(tmp_path):
    root, report = database(tmp_path / "osv"), tmp_path / "scan.xml"
    words = ("scan", "pytorch/1.10.2-cu113", "--database", str(root), "--junit", str(report))
    done = call(*words, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "CVE-2022-45907" in done.stdout  # of torch 1.10.2, a wheel of AWS
    (case,) = ET.parse(report).iter("testcase")
    assert (case.get("classname"), case.get("name")) == ("torch", "CVE-2022-45907")
    assert case.find("failure") is not None
    assert call(*words, "--fail-on", "low", cwd=tmp_path).returncode == 0
    # The report of before is replaced, and what does not count is skipped.
    (case,) = ET.parse(report).iter("testcase")
    assert case.find("skipped") is not None


def test_a_site_names_database_and_allowances(tmp_path):
    store.save(image())
    database(tmp_path / "osv", GLIBC)
    (tmp_path / "allow.yaml").write_text(f"allow:\n{ENTRY}".replace("2026-12-31", "9999-12-31"))
    (tmp_path / "trainwright.toml").write_text('vulnerabilities = "osv"\nallowed_vulnerabilities = "allow.yaml"\n')
    done = call("scan", IMAGE, "--json", "--fail-on", "high", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    states = {row["id"]: row["state"] for row in validated(done.stdout)["vulnerabilities"]}
    assert states == {"CVE-2026-1": "allowed", "CVE-2023-32681": "below"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("scan", "pytorch/cu124"), "no vulnerability database"),
        (("scan", "pytorch/cu124", "--database", "gone"), "gone: no such folder"),
        (("scan", "pytorch/cu124", "--database", "osv", "--fail-on", "hihg"), "Did you mean high"),
        (("scan", "pytorch/cu124", "--database", "osv", "--allow", "gone.yaml"), "gone.yaml: no such file"),
        (("scan", "pytorhc/cu124", "--database", "osv"), "Did you mean pytorch/cu124"),
        (("scan", "pytorch/*", "--database", "osv"), "image lines; name a single one"),
        (("scan", "trainwright/pytorch:gone", "--database", "osv"), "no image that was built here"),
        (("scan", "gone.cdx.json", "--database", "osv"), "no such file"),
        (("scan", "--database", "osv"), "no image is named, and none was built"),
        (("scan", "123456789012.dkr.ecr.us-west-2.amazonaws.com/x:tag", "--database", "osv"), "not named by digest"),
    ],
)
def test_a_mistake_is_named(tmp_path, words, says):
    database(tmp_path / "osv")
    done = call(*words, cwd=tmp_path)
    assert done.returncode == 2, done.stdout
    assert says in done.stderr
