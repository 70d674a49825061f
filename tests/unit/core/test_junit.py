"""JUnit reports: what a build service reads of them."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from trainwright.core.junit import Case, write_junit
from trainwright.rehearse.documents import RehearsalCause, RehearsalCheck, RehearsalDocument
from trainwright.rehearse.report import write_junit_report

texts = st.text(st.characters(codec="utf-8"), max_size=40)
cases = st.builds(Case, texts, texts, st.sampled_from(["passed", "failed", "skipped"]), texts, st.floats(0, 100))


@given(st.lists(cases, max_size=5), texts)
def test_every_report_is_xml_with_counts_that_add_up(tmp_path_factory, rows, suite):
    path = tmp_path_factory.mktemp("junit") / "report.xml"
    write_junit(path, suite, rows)
    element = ET.parse(path).getroot()[0]
    assert int(element.get("tests", "")) == len(element) == len(rows)
    for attribute, tag, outcome in (("failures", "failure", "failed"), ("skipped", "skipped", "skipped")):
        expected = sum(row.outcome == outcome for row in rows)
        assert int(element.get(attribute, "")) == len(element.findall(f"testcase/{tag}")) == expected


def test_the_folder_of_a_report_is_made(tmp_path):
    write_junit(tmp_path / "a" / "b.xml", "suite", [Case("metis", "test_it", "failed", "E  first\nsecond")])
    failure = ET.parse(tmp_path / "a" / "b.xml").find(".//failure")
    assert failure is not None
    assert failure.get("message") == "E  first"
    assert failure.text == "E  first\nsecond"


def rehearsed(check: RehearsalCheck, cause: RehearsalCause | None) -> RehearsalDocument:
    """The document of a rehearsal on one host."""
    return RehearsalDocument(
        schema="trainwright/rehearsal/1",
        outcome="failed" if cause else "passed",
        image="team/image:1",
        image_id="sha256:1",
        entry_point="train.py",
        sdk=2,
        launcher="process",
        hosts_asked=1,
        processes_per_host=1,
        world_size=1,
        instance_type="ml.m5.xlarge",
        instance_groups=(),
        network="bridge",
        gpus=False,
        launch_only=False,
        seconds=1.0,
        checks=(check,),
        hosts=(),
        ranks=(),
        launches=(),
        notes=(),
        artifacts={},
        report="report.json",
        cause=cause,
    )


def test_a_failed_rehearsal_tells_cause_and_remedy(tmp_path):
    check = RehearsalCheck(check="exit codes", outcome="failed", says="1 on algo-1")
    last_lines = ("\x1b[31mOops",)
    cause = RehearsalCause(
        id="script-raised", text="it raised", remedy="fix it", host="algo-1", rank=None, last_lines=last_lines
    )
    write_junit_report(rehearsed(check, cause), tmp_path / "r.xml")
    texts = [failure.text for failure in ET.parse(tmp_path / "r.xml").iter("failure")]
    assert len(texts) == 2
    assert "fix it" in texts[1]
    assert "Oops" in texts[1]


def test_a_passed_rehearsal_has_no_failure(tmp_path):
    check = RehearsalCheck(check="all-reduce", outcome="passed", says="3 on every rank")
    write_junit_report(rehearsed(check, None), tmp_path / "r.xml")
    assert not list(ET.parse(tmp_path / "r.xml").iter("failure"))
