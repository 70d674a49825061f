"""Scores of CVSS vectors, as FIRST publishes them, and the level that follows from a record."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.osv import published, record
from trainwright.core.errors import RequestError
from trainwright.core.records import read_record
from trainwright.scan.cvss import base_score
from trainwright.scan.osv import OsvRecord
from trainwright.scan.severity import level_of, reaches, read_gate


@pytest.mark.parametrize(
    ("vector", "score"),
    [
        # CVSS v3.1 Examples (FIRST): each is a published CVE.
        ("CVSS:3.1/AV:N/AC:L/PR:N/UI:R/S:C/C:L/I:L/A:N", 6.1),  # CVE-2013-1937
        ("CVSS:3.1/AV:N/AC:L/PR:L/UI:N/S:U/C:L/I:N/A:N", 4.3),
        ("CVSS:3.1/AV:N/AC:L/PR:L/UI:N/S:C/C:L/I:L/A:N", 6.4),  # CVE-2013-0375
        ("CVSS:3.1/AV:N/AC:H/PR:N/UI:R/S:U/C:L/I:N/A:N", 3.1),  # CVE-2014-3566
        ("CVSS:3.1/AV:N/AC:L/PR:L/UI:N/S:C/C:H/I:H/A:H", 9.9),  # CVE-2012-1516
        ("CVSS:3.1/AV:N/AC:L/PR:L/UI:N/S:U/C:H/I:H/A:H", 8.8),  # CVE-2012-0384
        ("CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:N/A:N", 7.5),  # CVE-2014-0160
        ("CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H", 9.8),  # CVE-2014-6271
        ("CVSS:3.0/AV:N/AC:L/PR:N/UI:N/S:C/C:H/I:H/A:H", 10.0),
        ("CVSS:3.0/AV:N/AC:L/PR:N/UI:N/S:U/C:N/I:N/A:N", 0.0),
        # The scores of FIRST's calculator for 4.0.
        ("CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:L/VI:H/VA:L/SC:N/SI:H/SA:L", 9.2),
        ("CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:L/VI:L/VA:L/SC:H/SI:N/SA:L", 7.8),
        ("CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:L/VI:L/VA:N/SC:N/SI:L/SA:N", 6.9),
        ("CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:H/VI:H/VA:H/SC:H/SI:H/SA:H", 10.0),
        ("CVSS:4.0/AV:P/AC:H/AT:P/PR:H/UI:A/VC:N/VI:N/VA:N/SC:N/SI:N/SA:N", 0.0),
    ],
)
def test_a_base_score(vector, score):
    assert base_score(vector) == score


@pytest.mark.parametrize(
    "vector",
    [
        *("", "high", "CVSS:2.0/AV:N", "AV:L/AC:M/Au:N/C:N/I:P/A:C", "CVSS:3.1/AV:N", "CVSS:4.0/AV:N/AC:L"),
        "CVSS:3.1/AV:X/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H",
        "CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:Z/VI:H/VA:H/SC:H/SI:H/SA:H",
    ],
)
def test_what_has_no_score(vector):
    assert base_score(vector) is None


def test_metrics_that_are_not_of_the_base_change_nothing():
    base = "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"
    assert base_score(f"{base}/E:U/RL:O/MAV:P") == base_score(base)


def of(**more: Any) -> str:
    found = read_record(OsvRecord, record("X-1", "thing", {"introduced": "0"}, **more))
    return level_of(found, found.affected)


CRITICAL = {"type": "CVSS_V3", "score": "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"}
LOW = {"type": "CVSS_V4", "score": "CVSS:4.0/AV:P/AC:H/AT:P/PR:H/UI:A/VC:L/VI:N/VA:N/SC:N/SI:N/SA:N"}


@pytest.mark.parametrize(
    ("more", "level"),
    [
        ({}, "unknown"),
        ({"severity": [CRITICAL]}, "critical"),
        ({"severity": [LOW]}, "low"),
        ({"severity": [LOW, CRITICAL]}, "critical"),
        ({"severity": [{"type": "CVSS_V3", "score": "broken"}]}, "unknown"),
        ({"severity": [{"type": "CVSS_V3", "score": "broken"}], "database_specific": {"severity": "HIGH"}}, "high"),
        ({"severity": [{"type": "Ubuntu", "score": "medium"}]}, "medium"),
        ({"database_specific": {"severity": "MODERATE"}}, "medium"),
        ({"database_specific": {"severity": "CRITICAL"}, "severity": [LOW]}, "low"),
        ({"ecosystem_specific": {"urgency": "not yet assigned"}}, "unknown"),
        ({"ecosystem_specific": {"urgency": "not yet assigned"}, "severity": [CRITICAL]}, "critical"),
        # Debian: no security impact in its package, whatever the score elsewhere.
        ({"ecosystem_specific": {"urgency": "unimportant"}, "severity": [CRITICAL]}, "low"),
        ({"database_specific": {"severity": 7}}, "unknown"),
    ],
)
def test_the_level_of_a_record(more, level):
    assert of(**more) == level


def test_the_level_of_a_published_record():
    found = published("PyPI/GHSA-j8r2-6x86-q33q")
    assert level_of(found, found.affected) == "medium"  # what GitHub calls moderate


def test_what_reaches_a_gate():
    assert reaches("high", "high")
    assert reaches("critical", "high")
    assert not reaches("medium", "high")
    assert not reaches("unknown", "low")
    assert reaches("unknown", None)


def test_a_gate_that_is_not_a_level():
    assert read_gate("high", "--fail-on") == "high"
    assert read_gate(None, "--fail-on") is None
    with pytest.raises(RequestError, match="Did you mean high"):
        read_gate("hihg", "--fail-on")
