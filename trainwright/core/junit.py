"""JUnit reports of what was proven, for the report pages of build services."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trainwright.core.owned import check_replaceable, write_atomically

MARK = "<!-- Made by Trainwright -->"

# What XML 1.0 cannot hold at all (w3.org/TR/xml, section 2.2); colours in a log are enough to break a report.
_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


Outcome = Literal["passed", "failed", "skipped"]


@dataclass(frozen=True)
class Case:
    """One check. ``group`` is what it belongs to (a component), ``text`` why it failed or was left out."""

    group: str
    name: str
    outcome: Outcome
    text: str = ""
    seconds: float = 0.0


def check_junit(path: Path) -> None:
    """Refuse a place for a report where another file lies; asked before the work that is reported of.

    Raises:
        RequestError: the file exists and is no report of ours.
    """
    check_replaceable(path.absolute(), f"--junit {path}", mark=MARK)


def write_junit(path: Path, suite: str, cases: Iterable[Case]) -> None:
    """Write a report with one test suite; the folder is made when it is missing.

    Args:
        path: the file.
        suite: name of the test suite.
        cases: the checks, in the order of the report.
    """
    rows = list(cases)
    root = ET.Element("testsuites")
    total = sum(case.seconds for case in rows)
    element = ET.SubElement(root, "testsuite", name=_clean(suite), tests=str(len(rows)), errors="0")
    element.set("failures", str(sum(case.outcome == "failed" for case in rows)))
    element.set("skipped", str(sum(case.outcome == "skipped" for case in rows)))
    element.set("time", f"{total:.3f}")
    for case in rows:
        row = ET.SubElement(
            element, "testcase", classname=_clean(case.group), name=_clean(case.name), time=f"{case.seconds:.3f}"
        )
        text = _clean(case.text)
        head = next(iter(text.strip().splitlines()), "")
        if case.outcome == "failed":
            ET.SubElement(row, "failure", message=head).text = text
        elif case.outcome == "skipped":
            ET.SubElement(row, "skipped", message=head)
    ET.indent(root)
    check_junit(path)
    text = ET.tostring(root, encoding="unicode")
    write_atomically(path.absolute(), f"<?xml version='1.0' encoding='utf-8'?>\n{MARK}\n{text}\n")


def _clean(text: str) -> str:
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", text)
