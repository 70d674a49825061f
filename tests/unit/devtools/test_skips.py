"""What tests may skip for: listed reasons alone, and nothing that the machine of a whole run has."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.support import skips

TESTS = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("reason", "here", "in_ci"),
    [
        ("needs a GPU", True, True),
        ("needs EFA on the host", True, True),
        ("no engine: docker is not installed", True, False),
        ("not enough disk: the twin needs 12 GB, and 2.0 GB are missing", True, False),
        ("I do not like Mondays", False, False),
        ("", False, False),
    ],
)
def test_which_reasons_hold(reason: str, here: bool, in_ci: bool) -> None:
    assert (skips.objection(reason, everything=False) == "") is here
    assert (skips.objection(reason, everything=True) == "") is in_ci
    assert reason in skips.objection(reason, everything=True) or in_ci


@pytest.mark.parametrize(
    ("environment", "expected"),
    [({}, False), ({"CI": ""}, False), ({"CI": "true"}, True), ({"TRAINWRIGHT_REQUIRE_ENGINE": "1"}, True)],
)
def test_where_everything_has_to_run(environment: dict[str, str], expected: bool) -> None:
    assert skips.required(environment) is expected


def test_a_short_disk_says_how_much_is_missing() -> None:
    assert skips.short_of(30, 30e9, "it") == ""
    assert skips.short_of(30, 12.5e9, "it") == "not enough disk: it needs 30 GB, and 17.5 GB are missing"


def test_reasons_are_counted() -> None:
    class Report:
        def __init__(self, reason: str) -> None:
            self.longrepr = ("file", 1, f"Skipped: {reason}")

    assert skips.by_reason([Report("b"), Report("a"), Report("b")]) == ["    1  a", "    2  b"]


def reasons() -> list[str]:
    """The beginnings of all reasons for which a test of the checkout may skip, as far as they are written down."""
    found = []
    for path in TESTS.rglob("*.py"):
        if "example" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func)
            given = node.args[:1] if name == "pytest.skip" else []
            if name == "pytest.mark.skipif":
                given = [each.value for each in node.keywords if each.arg == "reason"]
            for each in given:
                first = each.values[0] if isinstance(each, ast.JoinedStr) else each
                found += [first.value] if isinstance(first, ast.Constant) else []
    return found


def test_every_reason_is_listed_and_every_listed_one_is_used() -> None:
    written = reasons()
    assert len(written) > 10
    assert [each for each in written if skips.objection(each, everything=False)] == []
    # From functions: short_of, and why_not of the emulated AWS.
    computed = {"not enough disk: ", "port 443 and /etc/hosts need root", "/etc/hosts cannot be written"}
    unused = [each for each in skips.LACKING if not any(reason.startswith(each) for reason in written)]
    assert set(unused) == computed
