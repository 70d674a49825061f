"""Pages and Markdown: names of other people stay where they belong, and nothing is loaded from elsewhere."""

from __future__ import annotations

import json
import os
import re

import pytest

from tests.support.html_pages import Page
from tests.support.report_records import HOSTILE, IMAGE, OTHER, full_record, rehearsal
from trainwright.build import store
from trainwright.catalog.catalog import open_catalog
from trainwright.catalog.listing import by_framework
from trainwright.core.errors import RequestError
from trainwright.core.text import printable
from trainwright.rehearse.leftovers import reports_dir
from trainwright.report.catalog import catalog_report
from trainwright.report.compare import compare
from trainwright.report.contents import of_record
from trainwright.report.image import rehearsals, report_of
from trainwright.report.markdown import catalog_markdown, code, image_markdown, plain
from trainwright.report.page import catalog_page, image_page

pytestmark = pytest.mark.usefixtures("own_places")


def hostile_page() -> str:
    before, after = full_record(OTHER), full_record(changed="nccl", smoke="failed")
    image = {**after.probe["image"], "labels": {**after.probe["image"]["labels"], HOSTILE: HOSTILE}}
    after = after.replace(probe={**after.probe, "image": image})
    return image_page(report_of(after, compare(of_record(before, HOSTILE), of_record(after, "after"))))


def test_a_hostile_name_is_text_and_nothing_else():
    page = Page(hostile_page())
    assert page.names.count("script") == 1
    assert "img" not in page.names
    assert page.handlers == []
    shown = "".join(page.texts)
    assert printable(HOSTILE) in shown
    assert str(1207 * 1009) not in shown
    assert "\u202e" not in hostile_page()


def test_a_page_loads_nothing():
    for text in (hostile_page(), catalog_page(catalog_report(open_catalog()))):
        page = Page(text)
        assert all(load.startswith("#") for load in page.loads), page.loads
        assert "link" not in page.names
        assert {load[1:] for load in page.loads} <= set(page.ids)
        assert len(page.ids) == len(set(page.ids))
        assert "url(" not in text
        assert "default-src 'none'" in text


def test_a_page_shows_what_the_report_has():
    report = report_of(full_record())
    shown = "".join(Page(image_page(report)).texts)
    for each in report.packages:
        assert printable(each.name) in shown
    for fact in report.facts:
        assert printable(fact.found) in shown
    assert report.image_id in shown
    assert "steps side by side" in shown


def test_a_difference_between_plan_and_image_is_on_every_form():
    record = full_record()
    record = record.replace(probe={**record.probe, "facts": {}})
    report = report_of(record)
    assert not any(fact.fits for fact in report.facts)
    assert report.differences
    assert "no such fact" in image_page(report)
    assert "Not as planned" in image_markdown(report)


def test_a_record_of_an_earlier_version_has_a_page():
    record = full_record()
    probe = {key: value for key, value in record.probe.items() if not key.startswith("distribution_")}
    report = report_of(record.replace(layers=(), timeline=None, smoke=None, probe=probe))
    page = image_page(report)
    assert "does not list layers" in page
    assert 'id="build"' not in page
    assert "layers" not in image_markdown(report)


def test_rehearsals_of_this_image_alone_by_framework():
    for name, image, when in (("a", IMAGE, 100), ("b", OTHER, 300), ("c", IMAGE, 200)):
        path = reports_dir() / name / "report.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(rehearsal(image, f"{name}.py")))
        os.utime(path, (when, when))
    (reports_dir() / "broken").mkdir()
    (reports_dir() / "broken" / "report.json").write_text("{")
    assert [each.entry_point for each in rehearsals(IMAGE)] == ["c.py", "a.py"]
    assert "c.py" in image_page(report_of(full_record()))


def test_markdown_of_a_hostile_image_is_text():
    text = image_markdown(report_of(full_record(smoke="failed")))
    outside = re.sub(r"`[^`]*`", "", text)
    assert "<script" not in re.sub(r"\\<", "", outside)
    cells = {line.count("|") - line.count("\\|") for line in text.splitlines() if line.startswith("| contract")}
    assert cells == {4}
    assert "\u202e" not in text
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a|b", r"a\|b"), ("<b>", r"\<b\>"), ("a\nb", r"a\\nb"), ("*x*", r"\*x\*"), ("plain-1.0", "plain-1.0")],
)
def test_markup_in_a_cell_is_escaped(text, shown):
    assert plain(text) == shown


def test_code_in_a_cell_stays_code():
    assert code("a`b|c") == r"`a'b\|c`"


def test_every_line_is_on_the_page_of_the_catalog():
    report = catalog_report(open_catalog())
    page, text = catalog_page(report), catalog_markdown(report)
    assert len(report.lines) == len(open_catalog().lines)
    for line in report.lines:
        assert f"{line.framework}/{line.name}: {line.status}" in page
        assert f"\n| {code(f'{line.framework}/{line.name}')}" in text
    assert "| framework | cu132 | cu130 |" in text
    first = next(iter(by_framework(report.lines).values()))
    assert first[0].status == "supported"
    defaults = [(line.framework, line.cuda) for line in report.lines if line.default]
    assert len(defaults) == len(set(defaults))


def test_what_is_new_since_an_earlier_catalog(tmp_path):
    report = catalog_report(open_catalog())
    first, second, *rest = report.lines
    older = report.replace(
        lines=(first.replace(status="unmaintained", python="2.7"), *rest), made_at="2026-01-01T00:00:00"
    )
    path = tmp_path / "catalog.json"
    path.write_text(json.dumps(older.as_json()))
    found = catalog_report(open_catalog(), path)
    assert {(change.name, change.state) for change in found.news} == {
        (f"{first.framework}/{first.name}", "changed"),
        (f"{second.framework}/{second.name}", "added"),
    }
    assert "What is new since 2026-01-01" in catalog_page(found)
    path.write_text("{}")
    with pytest.raises(RequestError):
        catalog_report(open_catalog(), path)


def test_the_size_of_a_line_is_that_of_its_image():
    record = full_record()
    store.save(record)
    odd = full_record(OTHER)
    store.save(odd.replace(plan=odd.plan.replace(unproven=("pytorch 2.6.0",)), size_bytes=5))
    lines = [
        line for line in catalog_report(open_catalog()).lines if line.name == "cu124" or line.proof.state == "never"
    ]
    sizes = {(line.framework, line.name): line.size_bytes for line in lines}
    assert {key: size for key, size in sizes.items() if size} == {("pytorch", "cu124"): record.size_bytes}
