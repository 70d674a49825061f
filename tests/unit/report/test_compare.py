"""What differs between images, plans, lines and locks, and what a pull costs."""

from __future__ import annotations

import pytest

from tests.support.report_records import IMAGE, OTHER, full_record
from trainwright.build import store
from trainwright.build.ledger import BuiltLayer
from trainwright.catalog.catalog import load_catalog
from trainwright.core.errors import RequestError
from trainwright.core.paths import images_dir
from trainwright.report.compare import compare, pull
from trainwright.report.contents import Contents, of_record, read
from trainwright.report.image import report_of
from trainwright.report.markdown import comparison_markdown
from trainwright.report.page import image_page
from trainwright.verbs.diff import diff_text

pytestmark = pytest.mark.usefixtures("own_places")


def layers(text: str) -> list[BuiltLayer]:
    """A layer of ten bytes per letter."""
    return [BuiltLayer(digest=letter, component=letter, bytes=10, step="") for letter in text]


@pytest.mark.parametrize(
    ("here", "wanted", "new", "above"),
    [
        ("abcd", "abcd", 0, 0),
        ("abcd", "abxd", 1, 2),
        ("abcd", "xbcd", 1, 4),
        ("ab", "abcd", 2, 2),
        ("abcd", "ab", 0, 0),
        ("abc", "cab", 0, 3),
        ("ab", "xyz", 3, 3),
    ],
)
def test_what_a_pull_costs(here, wanted, new, above):
    found = pull(layers(here), layers(wanted))
    assert found is not None
    assert (found.layers, found.bytes) == (len(wanted), 10 * len(wanted))
    assert (found.new_layers, found.new_bytes) == (new, 10 * new)
    assert (found.above_layers, found.above_bytes) == (above, 10 * above)


def test_nothing_is_claimed_of_layers_that_no_record_lists():
    assert pull([], layers("a")) is None
    assert pull(layers("a"), []) is None


def test_bytes_by_component_of_two_images_the_largest_change_first():
    before, after = (
        Contents(name="x", parts={}, weights=each) for each in ({"a": 10, "b": 5, "c": 7}, {"a": 4, "c": 7, "d": 9})
    )
    found = compare(before, after).weights
    assert [(row.name, row.before, row.after) for row in found] == [("d", 0, 9), ("a", 10, 4), ("b", 5, 0)]
    assert compare(Contents(name="a plan", parts={}), after).weights == ()


def test_bytes_are_shown_in_each_form():
    other = full_record(OTHER)
    ledger = tuple(row.replace(bytes=row.bytes + 2_000_000) if row.name == "nccl" else row for row in other.ledger)
    found = compare(of_record(other.replace(ledger=ledger), "before"), of_record(full_record(), "after"))
    lines = [line.split() for line in diff_text(found).splitlines()]
    assert ["bytes,", "unpacked:", "-2.0", "MB", "in", "all"] in lines
    assert any(line[:1] == ["nccl"] and line[-2:] == ["-2.0", "MB"] for line in lines)
    assert "| -2.0 MB |" in comparison_markdown(found)
    assert ">-2.0 MB<" in image_page(report_of(full_record(), found))


def test_long_values_are_short_in_a_terminal():
    sides = ("/opt/venv/bin:/usr/bin", "a" * 64), ("/opt/venv/bin:/opt/mpi/bin", "b" * 64)
    before, after = (
        Contents(name="x", parts={"environment": {"PATH": path, "HOME": "/root"}, "labels": {"plan": plan}})
        for path, plan in sides
    )
    text = diff_text(compare(before, after))
    assert "~  PATH  -/usr/bin +/opt/mpi/bin\n" in text
    assert f"~  plan  {'a' * 12} → {'b' * 12}" in text
    moved = Contents(name="x", parts={"environment": {"PATH": "/usr/bin:/opt/venv/bin", "HOME": "/root"}})
    assert "/opt/venv/bin:/usr/bin → /usr/bin:/opt/venv/bin" in diff_text(compare(before, moved))


def test_two_images():
    before, after = full_record(OTHER), full_record(changed="nccl")
    probe = dict(after.probe)
    probe["distributions"] = {**probe["distributions"], "torch": "9.9.9", "brand-new": "1.0"}
    del probe["distributions"]["sympy"]
    probe["image"] = {**probe["image"], "environment": {**probe["image"]["environment"], "GREETING": "hi"}}
    found = compare(of_record(before, "before"), of_record(after.replace(probe=probe), "after"))
    told = {(change.part, change.name): (change.state, change.after) for change in found.changes}
    assert told == {
        ("Python packages", "torch"): ("changed", "9.9.9"),
        ("Python packages", "brand-new"): ("added", "1.0"),
        ("Python packages", "sympy"): ("removed", ""),
        ("environment", "GREETING"): ("changed", "hi"),
    }
    assert found.pull is not None
    assert found.pull.new_layers == 1
    assert found.skipped == ()


def test_a_plan_and_its_image_are_compared_in_what_both_have():
    store.save(full_record())
    catalog = load_catalog()
    found = compare(read("pytorch:2.6.0-cu124", catalog), read(IMAGE[7:19], catalog))
    assert {change.part for change in found.changes} == {"Python packages", "environment", "labels"}
    assert "system packages" in found.skipped
    assert found.pull is None


def test_two_lines_and_their_locks_tell_the_same_of_packages():
    catalog = load_catalog()
    locks = [str(images_dir() / "pytorch" / name / "lock.json") for name in ("cu124", "cu126")]
    of_locks = compare(*(read(lock, catalog) for lock in locks))
    of_lines = compare(read("pytorch/cu124", catalog), read("pytorch/cu126", catalog))
    packages = [change for change in of_locks.changes if change.part == "Python packages"]
    assert packages
    assert {"torch", "nvidia-nccl-cu12"} <= {change.name for change in packages}
    # A line's plan has the packages of its own components alone, its lock those of every option.
    assert {change.name for change in of_lines.changes if change.part == "Python packages"} <= {
        c.name for c in packages
    }


def test_another_file_of_the_same_name_is_told_and_a_new_version_is_not_told_twice():
    before = Contents("a", {"sources": {"x-1.whl": "aa", "y-1.whl": "cc"}})
    after = Contents("b", {"sources": {"x-1.whl": "bb", "y-2.whl": "dd"}})
    assert [(change.name, change.after) for change in compare(before, after).changes] == [("x-1.whl", "bb")]


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("pytorhc:cu124", "Did you mean pytorch"),
        ("trainwright/pytorch:gone", "no image that was built here"),
        ("gone.json", "no such file"),
        ("pytorch/*", "image lines; name a single one"),
        ("pytorch/cu999", "no image line matches"),
    ],
)
def test_a_word_that_means_nothing(word, says):
    with pytest.raises(RequestError, match=says):
        read(word, load_catalog())


def test_a_file_that_is_something_else(tmp_path):
    path = tmp_path / "other.json"
    path.write_text('{"schema": "trainwright/list/1", "lines": []}')
    with pytest.raises(RequestError, match="neither a lock nor a plan"):
        read(str(path), load_catalog())
    path.write_text("[1]")
    with pytest.raises(RequestError, match="neither a lock nor a plan"):
        read(str(path), load_catalog())


def test_an_image_by_tag_or_id_the_newest_first():
    older, newer = full_record(OTHER), full_record()
    tag = newer.tags[0]
    store.save(older.replace(tags=(tag,), built_at="2026-01-01T00:00:00+00:00"))
    store.save(newer)
    assert store.find_record(tag).image_id == IMAGE
    assert store.find_record(OTHER).image_id == OTHER
    assert store.find_record(OTHER[7:13]).image_id == OTHER
    for word in ("", "c", "cdcd", "zz" * 6):
        with pytest.raises(RequestError):
            store.find_record(word)
