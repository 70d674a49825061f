"""The report of a run: what came of its lines, where the time went, which layers are shared; and its page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.documents import validated
from tests.support.fleet_runs import BROKEN, FIRST, GB, IMAGES, LATE, SECOND, made_run, recorded, unit
from tests.support.html_pages import Page
from tests.support.in_process import call
from tests.support.report_records import HOSTILE
from trainwright.build import store
from trainwright.core.text import printable
from trainwright.fleet.report import RunReportDocument, run_markdown, run_page, run_report
from trainwright.fleet.run_folder import create
from trainwright.fleet.summary import SetTags, summary, write_summary

pytestmark = pytest.mark.usefixtures("own_places")


@pytest.fixture
def report(tmp_path: Path) -> RunReportDocument:
    return run_report(made_run(), tmp_path)


def test_what_came_of_each_line(report: RunReportDocument) -> None:
    assert [(line.name, line.state, line.proof) for line in report.lines] == [
        (FIRST, "built", "proven"),
        (SECOND, "built", "not tested"),
        (BROKEN, "failed", ""),
        (LATE, "pending", ""),
    ]
    assert (report.count("built"), report.proven, report.outcome) == (2, 1, "unfinished")
    first = report.lines[0]
    assert (first.size_bytes, first.seconds, first.tag) == (5 * GB, 200, "trainwright/pytorch:first")
    assert (first.cached_steps, first.total_steps, first.layers) == (2, 9, 3)
    assert report.lines[2].error is not None and report.lines[2].error.exit_code == 8


def test_time_in_which_nothing_ran_is_left_out(report: RunReportDocument) -> None:
    """Stages for 60 s, then 200 s with 100 s beside them from the tenth second on, and an hour later 40 s."""
    assert [line.started for line in report.lines] == [60, 70, 260, None]
    assert (report.seconds, report.work_seconds, report.most) == (300, 400, 2)


def test_steps_that_ran_before_the_run_are_not_its_time(report: RunReportDocument) -> None:
    """Each component of the record has one step of three seconds, which begin a second after each other."""
    assert {each.seconds for each in report.spent} == {3.0} and {each.lines for each in report.spent} == {1}
    assert report.lines[0].build_seconds == len(report.spent) - 1 + 3
    assert report.lines[1].build_seconds == 0, "it came from the cache"


def test_layers_are_counted_once_and_with_whom_they_are_shared(report: RunReportDocument) -> None:
    assert report.bytes == 2 * (GB + 1000) + 9 * GB
    assert report.distinct_bytes == GB + 1000 + 9 * GB
    assert [(layer.component, layer.bytes, layer.lines) for layer in report.shared] == [
        ("python", GB, (FIRST, SECOND)),
        ("ssh", 1000, (FIRST, SECOND)),
    ]


def test_a_page_of_an_image_beside_the_report_is_linked(tmp_path: Path) -> None:
    folder = made_run()
    (tmp_path / f"{FIRST}.html").touch()
    (tmp_path / f"{BROKEN}.html").touch()
    report = run_report(folder, tmp_path)
    assert [line.report for line in report.lines] == [f"{FIRST}.html", "", "", ""], "no image, no page"
    loads = Page(run_page(report)).loads
    assert [load for load in loads if not load.startswith("#")] == [f"{FIRST}.html"]


def test_a_page_shows_what_the_report_has(report: RunReportDocument) -> None:
    shown = re.sub(r"\s+", " ", " ".join(Page(run_page(report)).texts))
    for text in (FIRST, SECOND, BROKEN, LATE, "✓ proven", "not tested", "no such file", "/logs/broken.log", "python"):
        assert text in shown, text
    assert "2 of 4 lines built" in shown and "up to 2 at a time" in shown
    assert "./invoke build --resume" in shown
    text = run_markdown(report)
    assert "2 built, 1 failed, 1 pending, 1 proven; 6 min 40 s of work in 5 min" in text
    assert f"| {FIRST} | built | proven | 3 min 20 s | 5.00 GB | `trainwright/pytorch:first` |" in text
    assert "| broken | failed |  | 40 s |  | no such file |" in text


def test_names_of_others_are_text_and_nothing_else(tmp_path: Path) -> None:
    report = run_report(made_run(hostile=True), tmp_path)
    text = run_page(report)
    page = Page(text)
    assert page.names.count("script") == 1 and "img" not in page.names and page.handlers == []
    assert printable(HOSTILE) in "".join(page.texts)
    assert str(1207 * 1009) not in text and "\u202e" not in text
    assert "url(" not in text and "default-src 'none'" in text
    assert {load[1:] for load in page.loads} <= set(page.ids) and len(page.ids) == len(set(page.ids))
    lines = run_markdown(report).splitlines()
    assert not [line for line in lines if "<img" in line and "`" not in line]


def test_a_run_of_which_nothing_was_built_has_a_page(tmp_path: Path) -> None:
    folder = create("x", ("a",), {})
    report = run_report(folder, tmp_path)
    assert (report.seconds, report.most, report.layers, report.lines[0].state) == (0, 0, (), "pending")
    assert 'id="time"' not in run_page(report) and "| a | pending |" in run_markdown(report)


def test_where_moving_tags_are_waiting_the_command_is_shown(tmp_path: Path) -> None:
    folder = made_run()
    lines = [line for line in folder.units() if line.kind == "line"]
    moving = SetTags(state="left", command="./invoke tags advance a b")
    write_summary(folder, summary(folder, lines, [], seconds=1, moving=moving))
    report = run_report(folder, tmp_path)
    assert report.moving == moving and "./invoke tags advance a b" in run_page(report)


# --- the command line -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["html", "markdown", "json"])
def test_each_form_is_written_and_replaces_what_it_wrote(tmp_path: Path, form: str) -> None:
    run = made_run().run.id
    for _ in range(2):
        done = call("report", "--run", run, "--format", form, "--output", "out", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    text = (tmp_path / "out").read_text()
    assert FIRST in text
    if form == "json":
        assert validated(text)["run"] == run


def test_a_run_is_named_by_its_folder_too(tmp_path: Path) -> None:
    folder = made_run()
    done = call("report", "--run", str(folder.path), "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["run"] == folder.run.id


def test_a_run_that_there_is_not(tmp_path: Path) -> None:
    done = call("report", "--run", "x", cwd=tmp_path)
    assert done.returncode == 2 and "./invoke build --images" in done.stderr
    older, newer = made_run().run.id, made_run().run.id
    done = call("report", "--run", f"{older}x", cwd=tmp_path)
    assert f"--run {older}x: no such run" in done.stderr and newer in done.stderr
    assert re.search(rf"\./invoke report --run {re.escape(older)}$", done.stderr, re.MULTILINE)
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("words", [("x",), ("--lines",), ("--against", "x"), ("--files",)])
def test_a_run_goes_with_nothing_else(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = call("report", "--run", made_run().run.id, *words, cwd=tmp_path)
    assert done.returncode == 2 and "--run" in done.stderr


def test_units_at_the_same_time_are_side_by_side(tmp_path: Path) -> None:
    folder = create("x", ("a", "b", "c"), {})
    for name, start, seconds in (("a", 0, 10), ("b", 0, 4), ("c", 4, 3)):
        folder.keep(unit(name, "built", start, seconds))
    report = run_report(folder, tmp_path)
    assert ([line.started for line in report.lines], report.seconds, report.most) == ([0, 0, 4], 10, 2)


def test_a_layer_that_an_image_has_twice_is_not_shared(tmp_path: Path) -> None:
    folder = create("x", (FIRST,), {})
    recorded(FIRST, ("a", "os", 10), ("a", "os", 10), built=5)
    folder.keep(unit(FIRST, "built", 0, 5, image=IMAGES[FIRST]))
    report = run_report(folder, tmp_path)
    assert (report.shared, report.bytes, report.distinct_bytes) == ([], 10, 10)


def test_an_image_whose_tests_failed_is_not_proven(tmp_path: Path) -> None:
    folder = create("x", (FIRST,), {})
    record = recorded(FIRST, built=5)
    assert record.smoke is not None
    store.save(record.replace(smoke={**record.smoke, "failed": 1}))
    folder.keep(unit(FIRST, "built", 0, 5, image=IMAGES[FIRST]))
    report = run_report(folder, tmp_path)
    assert (report.lines[0].proof, report.proven) == ("failed", 0)
    assert "tests failed" in run_page(report)
