"""Whether a version is affected: what the published records list themselves, and each rule of the specification."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.osv import FOLDER, published
from trainwright.core.records import read_record
from trainwright.scan.ecosystems import Order, of_distribution, order_of
from trainwright.scan.osv import OsvRecord, about, affects, fixes

RECORDS = sorted(f"{path.parent.name}/{path.stem}" for path in FOLDER.glob("*/*.json"))
LISTING = [name for name in RECORDS if any(each.versions for each in published(name).affected)]
PYTHON, DEBIAN = order_of("PyPI"), order_of("Debian:12")


def order_for(record: OsvRecord) -> Order:
    package = record.affected[0].package
    assert package is not None
    return order_of(package.ecosystem)


def affected(
    order: Order, version: str, *ranges: list[dict[str, str]], versions: tuple[str, ...] = (), **more: Any
) -> bool:
    said = {
        "id": "X-1",
        "modified": "2026-01-01T00:00:00Z",
        "affected": [
            {
                "package": {"ecosystem": order.ecosystem, "name": "thing"},
                "ranges": [{"type": "ECOSYSTEM", "events": events} for events in ranges],
                "versions": versions,
            }
        ],
        **more,
    }
    return affects(about(read_record(OsvRecord, said), order, "thing"), order, version)


def test_the_corpus_has_what_the_tests_are_about():
    assert len(LISTING) >= 6
    assert len(RECORDS) <= 10


@pytest.mark.parametrize("name", LISTING)
def test_the_ranges_of_a_published_record_contain_every_version_that_it_lists(name):
    record = published(name)
    order = order_for(record)
    (entry,) = record.affected
    for listed in entry.versions:
        assert affects([entry.replace(versions=())], order, listed), listed
        assert affects([entry.replace(ranges=())], order, listed), listed
    for fixed in fixes([entry], order):
        assert not affects([entry], order, fixed), fixed


@pytest.mark.parametrize(
    ("name", "version", "is_affected"),
    [
        ("PyPI/PYSEC-2023-74", "2.2.1", False),  # leaked "since Requests 2.3.0"
        ("PyPI/PYSEC-2023-74", "2.31.0", False),
        ("PyPI/GHSA-j8r2-6x86-q33q", "2.30.0", True),  # a record without a list
        ("PyPI/GHSA-j8r2-6x86-q33q", "2.2.1", False),
        ("PyPI/PYSEC-2022-43015", "1.13.0+cu117", True),  # a build of 1.13.0
        ("PyPI/PYSEC-2022-43015", "1.13.1+cu117", False),
        ("PyPI/PYSEC-2022-43015", "2.6.0", False),
        ("PyPI/PYSEC-2022-42969", "1.11.0", True),  # the last one that is affected
        ("PyPI/PYSEC-2022-42969", "1.11.0+cu124", True),  # a build of it is not newer than it
        ("PyPI/PYSEC-2022-42969", "1.11.1", False),
        ("PyPI/PYSEC-2023-192", "1.26.17", False),  # fixed in both series; the record's events are not in order
        ("PyPI/PYSEC-2023-192", "1.26.16", True),
        ("PyPI/PYSEC-2023-192", "2.0.5", True),
        ("PyPI/PYSEC-2023-192", "2.0.6", False),
        ("PyPI/PYSEC-2021-59", "1.25.11", False),
        ("PyPI/PYSEC-2022-15", "0.5.3", False),  # withdrawn
        ("Debian/DLA-3051-1", "2021a-0+deb9u4", False),
        ("Debian/DLA-3051-1", "2024a-0+deb9u1", False),
        ("Debian/DSA-1819-1", "0.8.6-svn20061012.debian-5.1+etch3", False),
    ],
)
def test_a_version_of_a_published_record(name, version, is_affected):
    record = published(name)
    order = order_for(record)
    package = record.affected[0].package
    assert package is not None
    assert affects(about(record, order, package.name), order, version) is is_affected


@pytest.mark.parametrize(
    ("version", "is_affected"),
    [
        ("0.9", False),
        ("1.0.0", True),
        ("1.0.1", True),
        ("1.0.2", False),
        ("2.9", False),
        ("3.0.0", True),
        ("3.2.5", False),
    ],
)
def test_the_multiple_range_example_of_the_specification(version, is_affected):
    events = [{"introduced": "1.0.0"}, {"fixed": "1.0.2"}, {"introduced": "3.0.0"}, {"fixed": "3.2.5"}]
    assert affected(PYTHON, version, events) is is_affected
    assert affected(PYTHON, version, events[::-1]) is is_affected


@pytest.mark.parametrize(("version", "is_affected"), [("2.1.213", True), ("2.1.214", True), ("2.1.215", False)])
def test_the_last_affected_example_of_the_specification(version, is_affected):
    assert affected(PYTHON, version, [{"introduced": "0"}, {"last_affected": "2.1.214"}]) is is_affected


@pytest.mark.parametrize(
    ("limits", "is_affected"),
    [([], True), (["*"], True), (["2.0"], True), (["1.0"], False), (["1.0", "2.0"], True), (["1.5"], False)],
)
def test_a_limit(limits, is_affected):
    events = [{"introduced": "0"}, *({"limit": limit} for limit in limits)]
    assert affected(PYTHON, "1.5", events) is is_affected


def test_a_record_that_was_withdrawn_is_about_nothing():
    events = [{"introduced": "0"}]
    assert affected(PYTHON, "1.0", events)
    assert not affected(PYTHON, "1.0", events, withdrawn="2022-02-22T16:15:07Z")


def test_zero_sorts_before_every_version():
    assert affected(DEBIAN, "0~~", [{"introduced": "0"}])
    assert affected(PYTHON, "0.dev0", [{"introduced": "0"}])


def test_what_cannot_be_ordered_is_found_in_the_list_alone():
    assert affected(PYTHON, "2004d-x!", versions=("2004d-x!",))
    assert not affected(PYTHON, "2004d-x!", [{"introduced": "0"}])
    # An event that is not a version says nothing about where its range ends.
    assert not affected(PYTHON, "1.0", [{"introduced": "0"}, {"fixed": "not-a-version"}])
    assert affected(PYTHON, "1.0", [{"introduced": "0"}, {"fixed": "not-a-version"}], versions=("1.0",))


def test_ranges_of_commits_say_nothing_of_versions():
    record = published("PyPI/PYSEC-2022-43015")
    (entry,) = record.affected
    commits = tuple(each for each in entry.ranges if each.type == "GIT")
    assert commits
    assert not affects([entry.replace(versions=(), ranges=commits)], PYTHON, "1.0.0")


@pytest.mark.parametrize(
    ("ecosystem", "name", "found"),
    [
        ("PyPI", "Zope_Interface", True),
        ("PyPI", "zope.interface", True),
        ("npm", "zope-interface", False),
        ("Debian:12", "zope-interface", False),
    ],
)
def test_a_package_is_one_of_an_ecosystem_by_its_name_there(ecosystem, name, found):
    said = {"id": "X", "modified": "", "affected": [{"package": {"ecosystem": ecosystem, "name": name}}]}
    assert bool(about(read_record(OsvRecord, said), PYTHON, "zope-interface")) is found


@pytest.mark.parametrize(
    ("ecosystem", "found"), [("Debian:12", True), ("Debian", True), ("Debian:13", False), ("Ubuntu:22.04:LTS", False)]
)
def test_a_release_of_a_distribution(ecosystem, found):
    said = {"id": "X", "modified": "", "affected": [{"package": {"ecosystem": ecosystem, "name": "glibc"}}]}
    assert bool(about(read_record(OsvRecord, said), DEBIAN, "glibc")) is found


def test_the_ecosystems_of_distributions():
    assert of_distribution("debian", "13") == "Debian:13"
    assert of_distribution("ubuntu", "22.04") == "Ubuntu:22.04:LTS"
    assert of_distribution("amzn", "2023") == of_distribution("debian", "") == ""


NUMBERS = st.integers(0, 6)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=4), NUMBERS, st.sampled_from([PYTHON, DEBIAN]))
def test_ranges_are_intervals(spans, version, order):
    """A range from ``introduced`` to ``fixed`` is the half-open interval between them."""
    ranges = [[{"introduced": f"{low}.0"}, {"fixed": f"{high}.0"}] for low, high in spans if low < high]
    inside = any(low <= version < high for low, high in spans if low < high)
    assert affected(order, f"{version}.0", *ranges) is inside
