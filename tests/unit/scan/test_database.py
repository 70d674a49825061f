"""Databases as zips and folders, and what is wrong with broken ones."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

from tests.support.osv import FOLDER, database, record
from trainwright.core.errors import RequestError
from trainwright.scan.database import Database
from trainwright.scan.ecosystems import order_of

PYTHON = order_of("PyPI")
NAMES = {"requests", "torch", "gone"}


def ids(root: Path) -> dict[str, list[str]]:
    records, _ = Database(root, PYTHON).about(NAMES)
    return {name: sorted(each.id for each in found) for name, found in records.items()}


@pytest.fixture
def zipped(tmp_path: Path) -> Path:
    return database(tmp_path / "zipped", packed=["PyPI"])


def test_a_zip_and_a_folder_hold_the_same(tmp_path, zipped):
    expected = {"requests": ["GHSA-j8r2-6x86-q33q", "PYSEC-2023-74"], "torch": ["PYSEC-2022-43015"], "gone": []}
    assert ids(zipped) == ids(database(tmp_path / "folder")) == expected
    (zipped / "PyPI" / "all.zip").rename(zipped / "PyPI.zip")
    shutil.rmtree(zipped / "PyPI")
    assert ids(zipped) == expected


def test_what_was_used_is_told(tmp_path):
    root = database(tmp_path)
    _, used = Database(root, PYTHON).about(NAMES)
    assert (used.records, used.date) == (len([*(FOLDER / "PyPI").glob("*")]), "2023-11-08T04:12:35Z")
    path = root / "PyPI" / "PYSEC-2022-43015.json"
    path.write_text(path.read_text().replace("1.13.1", "1.13.2"))
    _, other = Database(root, PYTHON).about(NAMES)
    assert other.digest != used.digest


def test_a_release_is_found_in_the_records_of_its_distribution(tmp_path):
    root = database(tmp_path, record("X-1", "glibc", {"introduced": "0"}))
    (root / "Debian:12").rename(root / "Debian")
    records, used = Database(root, order_of("Debian:12")).about({"glibc"})
    assert [each.id for each in records["glibc"]] == ["X-1"]
    assert used.path.endswith("/Debian")


def test_an_ecosystem_that_is_missing_is_an_error_with_the_way_to_get_it(tmp_path):
    root = database(tmp_path, record("X-1", "glibc", {"introduced": "0"}))
    with pytest.raises(RequestError, match="nothing about Debian:13") as found:
        Database(root, order_of("Debian:13"))
    assert "Did you mean Debian:12" in found.value.message
    assert "Debian:13/all.zip" in found.value.remedy


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b'{"id": "X", "affected": [{"package": {"name": "requests"', "not readable as JSON"),
        (b'{"id": "X", "affected": [{"package": {"ecosystem": "PyPI", "name": "requests"}}]}', "'modified' is missing"),
        (b'{"id": "\xff", "affected": [{"package": {"ecosystem": "PyPI", "name": "requests"}}]}', "not UTF-8"),
        (b'["requests", {"name": "requests"}]', "must be a mapping"),
    ],
)
def test_a_broken_record_is_named(zipped, text, says):
    with zipfile.ZipFile(zipped / "PyPI" / "all.zip", "a") as archive:
        archive.writestr("X.json", text)
    with pytest.raises(RequestError, match=says) as found:
        ids(zipped)
    assert "X.json" in found.value.message


def test_a_broken_record_of_another_package_is_not_looked_at(zipped):
    with zipfile.ZipFile(zipped / "PyPI" / "all.zip", "a") as archive:
        archive.writestr("X.json", '{"name": "other", ')
    assert ids(zipped)["torch"] == ["PYSEC-2022-43015"]


def test_half_a_zip(zipped):
    path = zipped / "PyPI" / "all.zip"
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(RequestError, match="cannot be read"):
        ids(zipped)
